"""The ten networks of Samsung's examples, with example inputs. Weights are random: real ones are loaded from a file."""

from __future__ import annotations

from collections.abc import Callable

import torch
from inception import InceptionV3, InceptionV4
from layers import initial
from mobile import MobileNetV2, MobileNetV3
from others import Edsr, ViT, Wav2Letter
from residual import DeepLabV3, ResNet
from torch import Tensor, nn

MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mv2": (MobileNetV2, (1, 3, 224, 224)),
    "ic3": (InceptionV3, (1, 3, 299, 299)),
    "ic4": (InceptionV4, (1, 3, 299, 299)),
    "resnet18": (lambda: ResNet((2, 2, 2, 2), False), (1, 3, 224, 224)),
    "resnet50": (lambda: ResNet((3, 4, 6, 3), True), (1, 3, 224, 224)),
    "mv3": (MobileNetV3, (1, 3, 224, 224)),
    "edsr": (Edsr, (1, 3, 224, 224)),
    "dl3": (DeepLabV3, (1, 3, 224, 224)),
    "vit": (ViT, (1, 3, 224, 224)),
    "w2l": (Wav2Letter, (10, 1, 700)),
}


def make(name: str, seed: int = 0) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """A network and its example inputs."""
    torch.manual_seed(seed)
    factory, shape = MODELS[name]
    return initial(factory()), (torch.randn(shape),)
