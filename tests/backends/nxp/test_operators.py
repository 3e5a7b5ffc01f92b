"""Every operator of the manual page's list, and those that came later: alone in a model, quantized, taken as a whole by
Neutron, and computed as LiteRT does. Most of them read the model's input: what only moves it is quantized, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.backends.nxp.lowered import Lowered

IMAGE, ROWS, SEQUENCE = (1, 8, 8, 8), (4, 16), (1, 8, 16)
PAIR = (IMAGE, IMAGE)


def conv() -> nn.Module:
    return nn.Conv2d(8, 6, 3)


class Case(nn.Module):
    """A function of tensors and, first, of a layer."""

    def __init__(self, function: Callable[..., Any], layer: nn.Module | None) -> None:
        super().__init__()
        self.function, self.layer = function, layer

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(*inputs) if self.layer is None else self.function(self.layer, *inputs)


Row = tuple[Callable[..., Any], Any, "Callable[[], nn.Module] | None"]
PAGE: dict[str, Row] = {
    "abs": (torch.abs, IMAGE, None),
    "adaptive_avg_pool2d": (lambda x: functional.adaptive_avg_pool2d(x, 4), IMAGE, None),
    "addmm": (lambda m, x: torch.addmm(m.bias, x, m.weight.t()), ROWS, lambda: nn.Linear(16, 5)),
    "add.Tensor": (torch.add, PAIR, None),
    "avg_pool2d": (lambda x: functional.avg_pool2d(x, 3, 2, 1), IMAGE, None),
    "cat": (lambda x, y: torch.cat([x, y], 1), PAIR, None),
    "conv1d": (lambda m, x: m(x), SEQUENCE, lambda: nn.Conv1d(8, 6, 3)),
    "conv2d": (lambda m, x: m(x), IMAGE, conv),
    "dropout": (lambda m, x: functional.dropout(m(x), 0.5, False), IMAGE, conv),
    "flatten.using_ints": (lambda m, x: m(x).flatten(1), IMAGE, conv),
    "hardtanh": (lambda x: functional.hardtanh(x, -0.5, 0.7), IMAGE, None),
    "hardtanh_": (lambda x: functional.hardtanh_(x + 0, 0, 6), IMAGE, None),
    "linear": (lambda m, x: m(x), ROWS, lambda: nn.Linear(16, 5)),
    "max_pool2d": (lambda x: functional.max_pool2d(x, 2), IMAGE, None),
    "mean.dim": (lambda x: x.mean((2, 3)), IMAGE, None),
    "pad": (lambda x: functional.pad(x, (1, 2, 0, 1)), IMAGE, None),
    "permute": (lambda m, x: m(x).permute(0, 2, 3, 1), IMAGE, conv),
    "relu": (torch.relu, IMAGE, None),
    "relu_": (lambda x: torch.relu_(x + 0), IMAGE, None),
    "reshape": (lambda m, x: m(x).reshape(1, -1), IMAGE, conv),
    "view": (lambda m, x: m(x).view(2, -1), ROWS, lambda: nn.Linear(16, 6)),
    "softmax.int": (lambda x: torch.softmax(x, 1), IMAGE, None),
    "sigmoid": (torch.sigmoid, IMAGE, None),
    "tanh": (torch.tanh, IMAGE, None),
    "tanh_": (lambda x: torch.tanh_(x + 0), IMAGE, None),
}
LATER: dict[str, Row] = {
    "amax": (lambda x: x.amax((2, 3)), IMAGE, None),
    "amin": (lambda x: x.amin(1, keepdim=True), IMAGE, None),
    "avg_pool1d": (lambda x: functional.avg_pool1d(x, 2), SEQUENCE, None),
    "batch_norm": (lambda m, x: m(x), IMAGE, lambda: nn.Sequential(conv(), nn.BatchNorm2d(6))),
    "batch_norm of a linear layer": (
        lambda m, x: m(x), ROWS, lambda: nn.Sequential(nn.Linear(16, 6), nn.BatchNorm1d(6))),
    "bmm": (lambda x, y: torch.bmm(x.view(8, 8, 8), y.view(8, 8, 8)), PAIR, None),
    "bmm of a transpose": (lambda x, y: torch.bmm(x.view(8, 8, 8), y.view(8, 8, 8).transpose(1, 2)), PAIR, None),
    "chunk": (lambda m, x: torch.cat(m(x).chunk(2, 1)[::-1], 1), IMAGE, conv),
    "clamp": (lambda x: x.clamp(-1, 0.5), IMAGE, None),
    "clone": (lambda m, x: m(x).clone() * 2, IMAGE, conv),
    "conv2d of groups": (lambda m, x: m(x), IMAGE, lambda: nn.Conv2d(8, 6, 3, groups=2)),
    "conv2d of channels": (lambda m, x: m(x), IMAGE, lambda: nn.Conv2d(8, 8, 3, groups=8)),
    "conv_transpose2d": (lambda m, x: m(x), IMAGE, lambda: nn.ConvTranspose2d(8, 6, 4, 2, 1)),
    "div": (lambda x: x / 2.5, IMAGE, None),
    "exp": (torch.exp, ROWS, None),
    "hardswish": (functional.hardswish, IMAGE, None),
    "leaky_relu": (lambda x: functional.leaky_relu(x, 0.1), IMAGE, None),
    "log": (lambda x: torch.log(x.abs() + 1), ROWS, None),
    "matmul": (torch.matmul, ((3, 4, 5), (3, 5, 6)), None),
    "maximum": (torch.maximum, PAIR, None),
    "max_pool1d": (lambda x: functional.max_pool1d(x, 2), SEQUENCE, None),
    "minimum": (torch.minimum, PAIR, None),
    "mm": (lambda m, x: x @ m.weight.t(), ROWS, lambda: nn.Linear(16, 5)),
    "mul": (torch.mul, PAIR, None),
    "mul by a number": (lambda x: x * 3, IMAGE, None),
    "neg": (torch.neg, IMAGE, None),
    "pad by reflection": (lambda x: functional.pad(x, (1, 2, 2, 1), mode="reflect"), IMAGE, None),
    "pool with two readers": (lambda x: (lambda p: p + torch.tanh(p))(functional.max_pool2d(x, 2)), IMAGE, None),
    "prelu": (lambda m, x: m(x), IMAGE, lambda: nn.PReLU(8)),
    "relu6": (functional.relu6, IMAGE, None),
    "rsqrt": (lambda x: torch.rsqrt(torch.relu(x) + 0.5), ROWS, None),
    "slice": (lambda m, x: m(x)[:, 1:4], IMAGE, conv),
    "split": (lambda m, x: sum(m(x).split(3, 1)), IMAGE, conv),
    "squeeze": (lambda m, x: m(x).squeeze(0), IMAGE, conv),
    "sub": (torch.sub, PAIR, None),
    "sum": (lambda x: x.sum((2, 3)), IMAGE, None),
    "unsqueeze": (lambda m, x: m(x).unsqueeze(1), IMAGE, conv),
    "upsample_bilinear2d": (lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear"), IMAGE, None),
    "upsample_nearest2d": (lambda x: functional.interpolate(x, scale_factor=2), IMAGE, None),
}  # fmt: skip


@pytest.mark.sample(10)
@pytest.mark.parametrize("name", [*PAGE, *LATER])
def test_operators_are_quantized_taken_and_computed_as_litert_does(name: str) -> None:
    torch.manual_seed(0)
    function, shapes, layer = {**PAGE, **LATER}[name]
    inputs = tuple(torch.randn(s) for s in (shapes if isinstance(shapes[0], tuple) else (shapes,)))
    more = tuple(torch.randn_like(x) for x in inputs)
    lowered = Lowered(Case(function, None if layer is None else layer()), inputs, [inputs, more])
    assert lowered.whole, str(lowered.report)
    assert np.array_equal(lowered.host(*inputs), lowered.litert(*inputs, kernels="sum" if name == "sum" else "tflite"))
