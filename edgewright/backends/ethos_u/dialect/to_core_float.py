"""Translation of TOSA's float32 operators to core operators; sums and functions use the engine's order and accuracy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from edgewright.backends.ethos_u.dialect.table import PREFIX
from edgewright.backends.ethos_u.dialect.to_core_rewrite import TosaRewrite, int_pairs, make_constant, result_of
from edgewright.ir.graph import Op, Value

_FLOAT32 = np.dtype(np.float32)
_SAME = ("abs", "exp", "log", "ceil", "floor", "sin", "cos", "tanh", "erf", "reciprocal", "rsqrt", "sigmoid")
_PAIRS = ("add", "sub", "mul", "maximum", "minimum")
_REDUCED = {"reduce_sum": "core.sum", "reduce_max": "core.amax", "reduce_min": "core.amin"}


def translate_float(rw: TosaRewrite, op: Op) -> bool:
    """Translate an operator on float32 tensors; False if it has other types or no rule."""
    rule = _RULES.get(op.kind.removeprefix(PREFIX))
    if rule is None or any(v.dtype != _FLOAT32 for v in (*op.inputs(), result_of(op))):
        return False
    return rule(rw, op)


def _unary(rw: TosaRewrite, op: Op) -> bool:
    name = op.kind.removeprefix(PREFIX)
    rw.emit("core.neg" if name == "negate" else f"core.{name}", op, result_of(op), self=op.args["input"])
    return True


def _binary(rw: TosaRewrite, op: Op) -> bool:
    if op.args.get("shift") or all(v.data is not None for v in op.inputs()):
        return False
    rw.emit(f"core.{op.kind.removeprefix(PREFIX)}", op, result_of(op), self=op.args["a"], other=op.args["b"])
    return True


def _clamp(rw: TosaRewrite, op: Op) -> bool:
    limits = float(op.args["min_val"]), float(op.args["max_val"])
    if not limits[0] <= limits[1]:
        return False
    rw.emit("core.clamp", op, result_of(op), self=op.args["input"], limits=limits)
    return True


def _reduce(rw: TosaRewrite, op: Op) -> bool:
    kind = _REDUCED[op.kind.removeprefix(PREFIX)]
    rw.emit(kind, op, result_of(op), self=op.args["input"], dim=[int(op.args["axis"])], keepdim=True)
    return True


def _bias(op: Op, channels: int) -> Value | None:
    bias = op.args["bias"].data
    if bias is None or bias.size not in (1, channels):
        return None
    return make_constant(np.broadcast_to(bias.reshape(-1), channels).astype(np.float32))


def _convolve(rw: TosaRewrite, op: Op, kind: str, filters: Any, channels: int, **sizes: Any) -> bool:
    bias = _bias(op, channels)
    if bias is None or op.args["input_zp"] or op.args["weight_zp"]:
        return False
    rw.emit(kind, op, result_of(op), input=op.args["input"], weight=make_constant(filters), bias=bias, **sizes)
    return True


def _conv2d(rw: TosaRewrite, op: Op) -> bool:
    weight = op.args["weight"]
    return weight.data is not None and _convolve(
        rw, op, "core.conv2d", weight.data, weight.bound[0], padding=[int(n) for n in op.args["pad"]], groups=1,
        **int_pairs(op, "stride", "dilation"),
    )  # fmt: skip


def _depthwise(rw: TosaRewrite, op: Op) -> bool:
    weight = op.args["weight"]
    if weight.data is None or weight.bound[3] != 1:
        return False
    channels = weight.bound[2]
    return _convolve(rw, op, "core.depthwise_conv2d", weight.data.reshape(1, *weight.bound[:3]), channels,
                     groups=channels,
                     padding=[int(n) for n in op.args["pad"]], **int_pairs(op, "stride", "dilation"))  # fmt: skip


def _transposed(rw: TosaRewrite, op: Op) -> bool:
    weight, out_pad = op.args["weight"], [int(n) for n in op.args["out_pad"]]
    if weight.data is None or max(out_pad) > 0:
        return False
    return _convolve(rw, op, "core.conv_transpose2d", weight.data, weight.bound[0], padding=[-n for n in out_pad],
                     groups=1, dilation=[1, 1], output_padding=[0, 0], **int_pairs(op, "stride"))  # fmt: skip


def _matmul(rw: TosaRewrite, op: Op) -> bool:
    if op.args["a_zp"] or op.args["b_zp"]:
        return False
    rw.emit("core.bmm", op, result_of(op), self=op.args["a"], other=op.args["b"])
    return True


def _pool(rw: TosaRewrite, op: Op) -> bool:
    kind, window = f"core.{op.kind.removeprefix(PREFIX)}", int_pairs(op, "kernel", "stride")
    if op.args.get("input_zp") or op.args.get("output_zp"):
        return False
    dilation = {"dilation": [1, 1]} if kind == "core.max_pool2d" else {}
    rw.emit(kind, op, result_of(op), self=op.args["input"], kernel_size=window["kernel"], stride=window["stride"],
              padding=[int(n) for n in op.args["pad"]], **dilation)  # fmt: skip
    return True


_RULES: dict[str, Callable[[TosaRewrite, Op], bool]] = {
    **dict.fromkeys((*_SAME, "negate"), _unary),
    **dict.fromkeys(_PAIRS, _binary),
    **dict.fromkeys(_REDUCED, _reduce),
    **dict.fromkeys(("max_pool2d", "avg_pool2d"), _pool),
    "clamp": _clamp,
    "conv2d": _conv2d,
    "depthwise_conv2d": _depthwise,
    "transpose_conv2d": _transposed,
    "matmul": _matmul,
}
