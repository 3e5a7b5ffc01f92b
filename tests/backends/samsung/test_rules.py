"""Every rule of the table is broken by something, and then says what it asks for, what it found and in which module."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from edgewright.backends.samsung.ops import BACKEND, GLOBAL_RULES
from edgewright.ir.graph import Array, Dim, Op, QParams, Value
from tests.backends.samsung.test_flow import lowered
from tests.backends.samsung.test_rows import MORE, PARTITIONER, ROWS, TYPES, samples
from tests.support.quantized_calls import value

_I8 = QParams(0.1, 3, np.dtype(np.int8), -128, 127)
_I16 = QParams(0.001, 0, np.dtype(np.int16), -32767, 32767)
_I32 = QParams(0.001, 0, np.dtype(np.int32), -(2**31), 2**31 - 1)


def _numbers(*shape: int) -> Array:
    return np.ones(shape, np.float32)


def _x(q: QParams | None = None, name: str = "x", *shape: int) -> Value:
    held = _numbers(*(shape or (2, 4)))
    return value(name, held if q is None else held.astype(q.dtype), q)


def _real_weights() -> Op:
    weight = value("w", _numbers(4, 4), held=True)
    return Op("linear", {"input": _x(_I8), "weight": weight, "bias": None}, [_x(_I8, "y")])


def _grouped_by_channel() -> Op:
    op = MORE["grouped"](np.int8).op
    weight = op.args["weight"]
    scales = QParams((0.1,) * weight.bound[1], (0,) * weight.bound[1], np.dtype(np.int8), -127, 127, axis=1)
    op.args["weight"] = replace(weight, q=scales)
    return op


def _computed_statistics() -> Op:
    args = {n: value(n, _numbers(4), held=True) for n in ("weight", "bias", "running_var")}
    given = {**args, "running_mean": _x(None, "running_mean", 4), "momentum": 0.1, "eps": 1e-5}
    return Op("batch_norm", {"input": _x(None, "x", 2, 4, 3, 3), **given}, [_x(None, "y", 2, 4, 3, 3)])


def _rootless_statistics() -> Op:
    op = _computed_statistics()
    held = np.array([1, 0, -0.25, 2], np.float32)
    op.args |= {
        "running_mean": value("running_mean", _numbers(4), held=True),
        "running_var": value("v", held, held=True),
    }
    return op


def _two_constants() -> Op:
    held = [value(n, _numbers(2, 4), held=True) for n in ("a", "b")]
    return Op("cat", {"tensors": [_x(), *held], "dim": 0}, [_x(None, "y", 6, 4)])


def _any_size() -> Op:
    size = (Dim("n", 1, 8), 4)
    return Op("relu", {"self": replace(_x(), shape=size)}, [replace(_x(None, "y"), shape=size)])


def _places_read() -> Op:
    window = {"kernel_size": [2, 2], "stride": [2, 2], "padding": [0, 0], "dilation": [1, 1], "ceil_mode": False}
    made: list[Value | None] = [_x(None, "y", 1, 4, 2, 2), value("places", np.zeros((1, 4, 2, 2), np.int64))]
    return Op("max_pool2d", {"self": _x(None, "x", 1, 4, 4, 4), **window}, made)


def _by_channel() -> Op:
    q = QParams((0.1, 0.2), (0, 0), np.dtype(np.int8), -128, 127, axis=0)
    return Op("quantize", {"self": _x()}, [_x(q, "y")])


# What samples of the op table do not have.
BROKEN: dict[str, Callable[[], Op]] = {
    "weights must be quantized if": _real_weights,
    "weights of grouped transposed convolutions": _grouped_by_channel,
    "quantized activations must all have the same type": lambda: Op(
        "add", {"self": _x(_I8), "other": _x(_I16, "z"), "alpha": 1}, [_x(_I8, "y")]
    ),
    "slopes must be constant": lambda: Op("prelu", {"self": _x(), "weight": _x(None, "w", 4)}, [_x(None, "y")]),
    "statistics must be constant": _computed_statistics,
    "running_var + eps must be positive": _rootless_statistics,
    "at most one tensor": _two_constants,
    "quantized tensors must have 8 or 16 bits": lambda: Op("relu", {"self": _x(_I32)}, [_x(_I32, "y")]),
    "shapes must be static": _any_size,
    "only the first output may be used": _places_read,
    "quantization must be per tensor": _by_channel,
}


def test_every_rule_is_broken_by_something_and_says_what_it_found() -> None:
    rules = {r.text for row in BACKEND.rows.values() for r in row.rules} | {r.text for r in GLOBAL_RULES}
    found = {why for op in ROWS for dtype in TYPES for case in samples(op, dtype) for why in _why(case.op)}
    for text, make in BROKEN.items():
        said = [why for why in _why(make()) if why.startswith(text)]
        assert said, (text, _why(make()))
        found |= set(said)
    texts, values = zip(*(why.split("; got ", 1) for why in found), strict=True)
    assert all(values) and rules <= set(texts), rules - set(texts)


def _why(op: Op) -> list[str]:
    return [str(refusal) for refusal in PARTITIONER.rejections(op)]


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pool = nn.MaxPool2d(3, 2, ceil_mode=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.pad(self.pool(x), (1, 1), value=1.0)
        return torch.add(x, x, alpha=2)


def test_every_refusal_names_the_module() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ModuleDict({"deep": _Block()})["deep"])
    report = lowered(model.eval(), (torch.randn(1, 3, 16, 16),)).partition_reports["forward"]
    where = {verdict.operator: verdict.module for verdict in report.rejected}
    assert where == {"max_pool2d": "1.pool", "pad": "1", "add": "1"}
    assert all(verdict.rejections and verdict.module in str(verdict) for verdict in report.rejected)


def test_a_variance_that_has_no_root_stays_where_torch_divides_by_it() -> None:
    norm = nn.BatchNorm2d(4).eval()
    norm.running_var[2] = -0.25
    report = lowered(norm, (torch.randn(1, 4, 8, 8),)).partition_reports["forward"]
    (verdict,) = report.rejected
    assert "must be positive" in str(verdict) and "got -0.25 for channel 2" in str(verdict)
