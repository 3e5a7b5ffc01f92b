"""Networks that every release runs: the kinds that people ship, small, with random weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

import edgewright
from edgewright import to_edge_transform_and_lower
from tests.backends.networks import NETWORKS as SMALL
from tests.program.networks import MODELS, conv_norm

BOTH = ("portable", "xnnpack")
FLOAT_TOLERANCE = 1e-4


@dataclass(frozen=True)
class Network:
    """A compiled network, what it is called with, and how far results may be apart."""

    program: bytes
    calls: list[list[np.ndarray]]
    tolerance: float


class UNet(nn.Module):
    """Two levels down and up again, with connections across; the result is scaled by constants."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Sequential(*conv_norm(3, 8), nn.ReLU(), *conv_norm(8, 8), nn.ReLU())
        self.two = nn.Sequential(*conv_norm(8, 16), nn.ReLU())
        self.three = nn.Sequential(*conv_norm(16, 32), nn.LeakyReLU(0.1))
        self.up_two, self.up_one = nn.ConvTranspose2d(32, 16, 2, 2), nn.ConvTranspose2d(16, 8, 2, 2)
        self.join_two = nn.Sequential(*conv_norm(32, 16), nn.PReLU(16))
        self.join_one = nn.Sequential(*conv_norm(16, 8), nn.ReLU())
        self.head = nn.Conv2d(8, 2, 1)

    def forward(self, pixels: Tensor) -> Tensor:
        one = self.one(pixels.float() / 255.0 * 2 - 1)
        two = self.two(F.max_pool2d(one, 2))
        three = self.three(F.max_pool2d(two, 2))
        two = self.join_two(torch.cat([two, self.up_two(three)], 1))
        return torch.sigmoid(self.head(self.join_one(torch.cat([one, self.up_one(two)], 1))) * 2)


class AudioEncoder(nn.Module):
    """Whisper's encoder: two convolutions over time, positions, attention without a mask, layer norms."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.one, self.two = nn.Conv1d(20, width, 3, padding=1), nn.Conv1d(width, width, 3, 2, 1)
        self.register_buffer("positions", torch.randn(25, width) * 0.1)
        layer = nn.TransformerEncoderLayer(width, 4, 96, batch_first=True, activation="gelu", norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)

    def forward(self, mel: Tensor) -> Tensor:
        x = F.gelu(self.two(F.gelu(self.one(mel)))).transpose(1, 2)
        return self.norm(self.blocks(x + self.positions))


class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(12, 24, batch_first=True), nn.Linear(24, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0][:, -1])


class Counter(nn.Module):
    """State that lives from call to call."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("total", torch.zeros(2, 8))
        self.register_buffer("steps", torch.zeros(1, dtype=torch.long))

    def forward(self, x: Tensor) -> Tensor:
        self.steps.add_(1)
        self.total.add_(self.linear(x))
        return self.total / self.steps


def _mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 64), nn.GELU(), nn.Linear(64, 10))


def _of(kind: Callable[[], nn.Module], *inputs: Callable[[], Tensor]) -> Callable[[], Any]:
    def make() -> Any:
        torch.manual_seed(3)
        model = kind().eval().requires_grad_(False)
        return model, tuple(each() for each in inputs)

    return make


def _image() -> Tensor:
    return torch.randn(1, 3, 64, 64)


def _smaller(name: str) -> Callable[[], Any]:
    """A network of the usual size on a small image: portable kernels are slow."""
    return lambda: (MODELS[name]()[0], (_image(),))


@dataclass(frozen=True)
class Spec:
    """How a network is made and compiled."""

    make: Callable[[], Any]
    backends: Sequence[str] = BOTH
    quantize: str | None = None
    dynamic: dict[int, Any] | None = None  # of the first input
    tolerance: float = FLOAT_TOLERANCE
    calls: int = 1


_SPECS: dict[str, Spec] = {
    "unet": Spec(_of(UNet, lambda: torch.randint(0, 256, (1, 3, 32, 32), dtype=torch.uint8))),
    "bert": Spec(SMALL["bert"]),
    "vit": Spec(SMALL["vit"]),
    "audio_encoder": Spec(_of(AudioEncoder, lambda: torch.randn(1, 20, 50))),
    "mobilenet_v2": Spec(_smaller("mobilenet_v2")),
    "mobilenet_v3": Spec(SMALL["mobilenet_v3"]),
    "resnet18": Spec(_smaller("resnet18")),
    "deeplab": Spec(SMALL["deeplab"]),
    "lstm": Spec(_of(Lstm, lambda: torch.randn(1, 6, 12))),
    "bilstm": Spec(MODELS["bilstm"]),
    "upscaler": Spec(SMALL["upscaler"]),
    "dynamic_batch": Spec(_of(_mlp, lambda: torch.randn(3, 64)), dynamic={0: (1, 8)}),
    "dynamic_encoder": Spec(MODELS["encoder"], dynamic={1: (2, 16)}),
    "decoder_cache": Spec(MODELS["decoder"], calls=3),
    "counter": Spec(_of(Counter, lambda: torch.randn(2, 8)), calls=3),
    "mobilenet_v2_int8": Spec(_smaller("mobilenet_v2"), quantize="int8"),
    "mobilenet_v3_int8": Spec(SMALL["mobilenet_v3"], quantize="int8"),
    "bert_dynamic_int8": Spec(SMALL["bert"], ("xnnpack",), "dynamic", tolerance=1e-2),
    "mlp_dynamic_int8": Spec(_of(_mlp, lambda: torch.randn(3, 64)), ("xnnpack",), "dynamic", tolerance=1e-3),
    "mlp_4bit": Spec(_of(_mlp, lambda: torch.randn(3, 64)), ("xnnpack",), "dynamic-w4", tolerance=1e-3),
}
NETWORKS: dict[str, Sequence[str]] = {name: spec.backends for name, spec in _SPECS.items()}


def network(name: str, backend: str) -> Network:
    """Compile a network for a backend, or for portable kernels."""
    spec = _SPECS[name]
    model, inputs = spec.make()
    shapes = _shapes(spec, inputs)
    options: dict[str, Any] = {"quantize": spec.quantize, "calibration": [inputs]} if spec.quantize else {}
    if backend == "xnnpack":
        result = edgewright.compile(model, inputs, target="xnnpack", dynamic_shapes=shapes, quiet=True, **options)
        program = result.program.buffer
    else:
        program = _portable(model, inputs, shapes, options)
    arrays = [i.numpy() for i in inputs]
    return Network(program, [arrays] * spec.calls, spec.tolerance)


def _shapes(spec: Spec, inputs: Sequence[Tensor]) -> Any:
    if spec.dynamic is None:
        return None
    sizes = {dim: torch.export.Dim(f"size{dim}", min=low, max=high) for dim, (low, high) in spec.dynamic.items()}
    return (sizes, *(None for _ in inputs[1:]))


def _portable(model: nn.Module, inputs: Sequence[Tensor], shapes: Any, options: dict[str, Any]) -> bytes:
    """The same graph without a delegate: a quantized one calls the kernels of quantized operators."""
    exported = torch.export.export(model, tuple(inputs), dynamic_shapes=shapes, strict=False)
    if options:
        exported = edgewright.compile(model, inputs, target="xnnpack", quiet=True, **options).exported
    return to_edge_transform_and_lower(exported).to_executorch().buffer
