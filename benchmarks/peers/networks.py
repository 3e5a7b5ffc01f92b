"""The networks measured: random weights, and statistics as if trained. Needs torch and torchvision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

NAMES = ("mobilenet_v2", "mobilenet_v3_small", "resnet18", "resnet50")
SHAPE = (1, 3, 224, 224)


def _builders() -> Any:
    import torch

    try:
        import torchvision.models as models
    except RuntimeError:  # torchvision without its own operators, which these networks do not use
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", "(Tensor a, Tensor b, float c) -> Tensor")
        import torchvision.models as models
    return models


def images(count: int) -> Any:
    """Smooth noise: ranges as in photographs, not the flat spectrum of white noise."""
    import torch

    generator = torch.Generator().manual_seed(7)
    small = torch.randn(count, 3, 28, 28, generator=generator)
    return torch.nn.functional.interpolate(small, size=SHAPE[2:], mode="bilinear")


def make(name: str, weights: Path) -> Any:
    """The network in eval mode. Weights are made once and kept in a file, so that every interpreter has the same."""
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = getattr(_builders(), name)(weights=None)
    if weights.exists():
        model.load_state_dict(torch.load(weights, weights_only=True))
        return model.eval()
    norms = [m for m in model.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = None  # a plain average
    with torch.no_grad():
        model.train()(images(8))
    torch.save(model.state_dict(), weights)
    return model.eval()
