"""The networks measured: random weights, and statistics as if trained. Needs torch and torchvision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

SHAPE = (1, 3, 224, 224)
# Precisions by network: int8 of an encoder quantizes activations as they come, int4 is of weights, by groups of 32.
NAMES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("mobilenet_v2", "mobilenet_v3_small", "resnet18", "resnet50", "vit_b_16"), ("fp32", "int8")),
    "bert_base_128": ("fp32", "int8"),
    "decoder": ("fp32", "int4"),
    "linear4": ("int4",),
    "lstm": ("fp32",),
}
GROUP = 32
SEQUENCES = {"bert_base_128": "Encoder", "decoder": "Decoder", "linear4": "Wide", "lstm": "Voice"}


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


def examples(name: str, count: int = 1) -> list[tuple[Any, ...]]:
    """So many inputs of a network."""
    import torch

    generator = torch.Generator().manual_seed(7)
    if name == "bert_base_128":
        return [(torch.randn(1, 128, 768, generator=generator),) for _ in range(count)]
    if name == "linear4":
        return [(torch.randn(1, 4096, generator=generator),) for _ in range(count)]
    if name == "decoder":
        return [(torch.tensor([[17 + i]]), torch.tensor([100 + i])) for i in range(count)]
    if name == "lstm":
        shapes = ((1, 512), (1, 1, 128), (1, 1, 128))
        return [tuple(torch.randn(shape, generator=generator) for shape in shapes) for _ in range(count)]
    return [(image,) for image in images(count).split(1)]


def _model(name: str) -> Any:
    if name in SEQUENCES:
        import sequences

        return getattr(sequences, SEQUENCES[name])()
    model = getattr(_builders(), name)(weights=None)
    if name == "vit_b_16":
        model.heads.head.reset_parameters()  # all 0 else, as are the logits
    return model


def make(name: str, weights: Path) -> Any:
    """The network in eval mode. Weights are made once and kept in a file, so that every interpreter has the same."""
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = _model(name)
    if weights.exists():
        model.load_state_dict(torch.load(weights, weights_only=True))
        return model.eval()
    norms = [m for m in model.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = None  # a plain average
    if norms:
        with torch.no_grad():
            model.train()(images(8))
    torch.save(model.state_dict(), weights)
    return model.eval()
