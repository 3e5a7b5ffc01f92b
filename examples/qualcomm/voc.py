"""Images of PASCAL VOC 2009, where torchvision and a network can get them."""

from __future__ import annotations

from pathlib import Path

import torch


def download(folder: Path, count: int, size: int) -> list[tuple[torch.Tensor, ...]]:
    """Images as DeepLabV3 takes them; none, and the reason, if they cannot be had."""
    try:
        from torchvision import transforms
        from torchvision.datasets import VOCSegmentation

        data = VOCSegmentation(str(folder / "voc_image"), "2009", "val", download=True)
    except (ImportError, RuntimeError, OSError) as error:
        print(f"PASCAL VOC 2009 cannot be had ({type(error).__name__}: {str(error)[:100]}): inputs are random")
        return []
    means, spreads = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    steps = [transforms.Resize((size, size)), transforms.ToTensor(), transforms.Normalize(means, spreads)]
    ready = transforms.Compose(steps)
    return [(ready(data[i][0])[None],) for i in range(count)]
