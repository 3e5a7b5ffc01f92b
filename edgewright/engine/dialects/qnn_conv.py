"""QNN's convolutions and matrix products as the engine's.

Bytes are multiplied and rounded as XNNPACK's are, so these are the engine's own operators; 16 bits have a ``scaling``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from edgewright.engine.dialects.qnn_rewrite import (
    QnnRewrite,
    element_count,
    io_of,
    is_float32,
    is_int8,
    is_quantized,
    make_constant,
    non_empty,
    result_of,
    rule,
    same_type,
)  # fmt: skip
from edgewright.ir.float_scale import FloatScale, all_8bit, product_scale
from edgewright.ir.graph import Array, Op, QParams, Value
from edgewright.ir.numerics import QNN, as_float32
from edgewright.ir.qnn.dtypes import half, quantized
from edgewright.ir.qnn.scaling import bias_of, product_scaling, weights_of
from edgewright.ir.qnn.table import PREFIX

_INT8, _INT16 = np.dtype(np.int8), np.dtype(np.int16)
_MOST = 1 << 24  # weights, where filters of groups are made filters of all channels
Limits = tuple[float, float]


def fuse_activation(made: QnnRewrite, op: Op) -> tuple[Limits | None, Value]:
    """Limits of an activation that follows, in the same scale; and the last result."""
    out = result_of(op)
    after = made.only_reader(out)
    if after is None or not same_type(out, result_of(after)):
        return None, out
    if after.kind == f"{PREFIX}Relu":
        limits = (0.0, float("inf"))
    elif after.kind == f"{PREFIX}ReluMinMax":
        limits = (float(after.args["min_value"]), float(after.args["max_value"]))
    else:
        return None, out
    if out.q is not None and not _same_limits(out.q, limits):
        return None, out
    made.done.add(after)
    return limits, result_of(after)


def _same_limits(q: QParams, limits: Limits) -> bool:
    """Limits of what is stored are those of the numbers, stored."""
    kept = quantized(np.array(limits, np.float32), q)
    return QNN.limits(q, limits) == (int(kept[0]), int(kept[1]))


@dataclass
class ConvOperands:
    """A product's weights, [window..., inputs, outputs], its bias, and how its sums are brought to the result."""

    x: Value
    weights: Array
    scales: Array | None  # of integers
    bias: Array | None
    out: Value
    how: dict[str, Any]

    def filters(self, data: Array, channels: int) -> Value:
        """Weights, arranged: ``channels`` is the dimension of the result's."""
        data = np.ascontiguousarray(data)
        if self.scales is None:
            return make_constant("weight", data)
        dtype = _INT8 if np.abs(data).max(initial=0) < 128 else _INT16
        low, high = (int(n) for n in (np.iinfo(dtype).min, np.iinfo(dtype).max))
        many = self.scales.size > 1
        scale: Any = tuple(self.scales.tolist()) if many else float(self.scales[0])
        q = QParams(scale, (0,) * self.scales.size if many else 0, dtype, low, high, channels if many else None)
        return make_constant("weight", data.astype(dtype), q)

    @property
    def words(self) -> bool:
        return "scaling" in self.how


def conv_operands(made: QnnRewrite, op: Op, tiles: int = 1) -> ConvOperands | None:
    """None if the engine has no such product. ``tiles``: groups that share their scales."""
    (x, w, *rest), out = io_of(op)
    if not non_empty(x, w, out) or w.data is None or any(b.data is None for b in rest):
        return None
    if is_float32(x, w, out, *rest):
        bias = None if not rest else half(np.asarray(rest[0].data)).reshape(-1)
        return ConvOperands(made.half(op, x), half(w.data), None, bias, out, {})
    if not is_quantized(x, out) or w.q is None or w.q.dtype.itemsize > 2:
        return None
    weights, scales = weights_of(w, w.data)
    scales = np.tile(scales, tiles) if scales.size > 1 else scales
    units = as_float32(x.q.scale).astype(np.float64) * scales.astype(np.float64)  # type: ignore[union-attr]
    bias = bias_of(rest[0], np.asarray(rest[0].data), units) if rest else None
    bytes_only = all_8bit(x, w, out)
    largest = int(np.abs(weights).max(initial=0))
    if largest > (127 if bytes_only else 32767) or (not bytes_only and (is_int8(x) or is_int8(out))):
        return None
    if bias is not None and np.abs(bias).max(initial=0) >= (1 << 31 if bytes_only else 1 << 48):
        return None
    limits, last = fuse_activation(made, op)
    if bytes_only:
        return ConvOperands(x, weights, scales, bias, last, {"limits": limits})
    return ConvOperands(
        x, weights, scales, bias, last, {"scaling": _limited(product_scaling(x, scales, out), out, limits)}
    )


def _limited(scaling: FloatScale, out: Value, limits: Limits | None) -> FloatScale:
    assert out.q is not None
    low, high = QNN.limits(out.q, limits)
    return replace(scaling, low=low, high=high)


def emit_conv(made: QnnRewrite, kind: str, op: Op, p: ConvOperands, out: Value, /, **args: Any) -> None:
    """The product itself; real numbers are brought to half precision."""
    bias = None
    if p.bias is not None:
        dtype = np.float32 if p.scales is None else np.int64 if p.words else np.int32
        repeats = np.resize(p.bias, out.bound[-1])
        bias = make_constant("bias", repeats.astype(dtype))
    if p.scales is None:
        made.computed(kind, op, out, bias=bias, **args)
    else:
        made.emit(kind, op, out, bias=bias, **args, **p.how)


def emit_conv2d(made: QnnRewrite, op: Op, p: ConvOperands, x: Value, weights: Array, out: Value, groups: int,
          window: dict[str, Any]) -> None:  # fmt: skip
    """A convolution of images by [high, wide, inputs, outputs]."""
    inputs, outputs = weights.shape[2:]
    if inputs == 1 and groups == x.bound[-1] == outputs:
        deep = p.filters(weights.transpose(2, 0, 1, 3), 3)
        emit_conv(made, "depthwise_conv2d", op, p, out, input=x, weight=deep, groups=groups, **window)
        return
    data = weights.transpose(3, 0, 1, 2)
    if groups > 1 and p.scales is not None and (p.words or (outputs // groups) % 16):
        data, groups = dense_filters(data, groups), 1
    emit_conv(made, "conv2d", op, p, out, input=x, weight=p.filters(data, 0), groups=groups, **window)


def dense_filters(data: Array, groups: int) -> Array:
    """Filters of groups as ones of all channels, zero elsewhere: [outputs, high, wide, inputs]."""
    outputs, high, wide, inputs = data.shape
    made = np.zeros((outputs, high, wide, inputs * groups), data.dtype)
    each = outputs // groups
    for g in range(groups):
        span = slice(g * each, (g + 1) * each)
        made[span, ..., g * inputs : (g + 1) * inputs] = data[span]
    return made


def is_affordable(op: Op) -> bool:
    """Filters of groups, where they are made filters of all channels, are not too large."""
    (x, w, *_), out = io_of(op)
    times = int(op.args["group"]) if "output_padding" in op.args else x.bound[-1] // max(w.bound[-2], 1)
    alone = op.kind.endswith("DepthWiseConv2d") and x.bound[-1] == out.bound[-1]  # they stay what they are
    return times <= 1 or alone or element_count(w.bound) * times <= _MOST


@rule("Conv2d", "DepthWiseConv2d")
def _convolution(made: QnnRewrite, op: Op) -> bool:
    p = conv_operands(made, op) if is_affordable(op) else None
    if p is None:
        return False
    groups = p.x.bound[-1] if op.kind.endswith("DepthWiseConv2d") else int(op.args["group"])
    pads = [n for pair in op.args["pad_amount"] for n in pair]
    window = {"stride": list(op.args["stride"]), "padding": pads, "dilation": list(op.args["dilation"])}
    emit_conv2d(made, op, p, p.x, p.weights, p.out, groups, window)
    return True


@rule("TransposeConv2d")
def _transposed(made: QnnRewrite, op: Op) -> bool:
    groups = int(op.args["group"])
    p = conv_operands(made, op, groups) if is_affordable(op) else None
    if p is None:
        return False
    data = transposed_filters(p.weights, groups)
    if groups > 1 and p.scales is not None and (p.words or p.weights.shape[-1] % 16):
        data, groups = dense_filters(data, groups), 1
    emit_conv_transpose2d(made, op, p, p.x, data, p.out, groups)
    return True


def transposed_filters(weights: Array, groups: int) -> Array:
    """Filters of a transposed convolution, [high, wide, inputs, outputs of a group], by result."""
    high, wide, inputs, outputs = weights.shape
    split = weights.reshape(high, wide, groups, inputs // groups, outputs)
    return split.transpose(2, 4, 0, 1, 3).reshape(groups * outputs, high, wide, inputs // groups)


def emit_conv_transpose2d(
    made: QnnRewrite, op: Op, p: ConvOperands, x: Value, data: Array, out: Value, groups: int
) -> None:
    """A transposed convolution of images by filters for each result."""
    steps, more = (list(op.args[name])[-2:] for name in ("stride", "output_padding"))
    pads = [n for pair in op.args["pad_amount"][-2:] for n in pair]
    if p.words:
        _spread(made, op, p, x, data, out, (steps, pads, more))
    else:
        emit_conv(made, "conv_transpose2d", op, p, out, input=x, weight=p.filters(data, 0), groups=groups,
                     stride=steps, padding=pads, dilation=[1, 1], output_padding=more)  # fmt: skip


def _spread(made: QnnRewrite, op: Op, p: ConvOperands, x: Value, data: Array, out: Value,
            window: tuple[list[int], list[int], list[int]]) -> None:  # fmt: skip
    """A plain convolution of pixels that are spread, with nothing between them."""
    ((down, along), pads, more), (images, high, wide, channels) = window, x.bound
    apart = made.view(op, x, (images, high, 1, wide, 1, channels))
    apart = made.padded(op, apart, [(0, 0), (0, 0), (0, down - 1), (0, 0), (0, along - 1), (0, 0)])
    flat = made.view(op, apart, (images, high * down, wide * along, channels))
    flat = made.cut(op, flat, [0] * 4, (images, (high - 1) * down + 1, (wide - 1) * along + 1, channels))
    flat, around = _reached(made, op, flat, data.shape[1:3], pads, more)
    emit_conv(made, "conv2d", op, p, out, input=flat, weight=p.filters(data[:, ::-1, ::-1], 0), groups=1,
                 stride=[1, 1], padding=around, dilation=[1, 1])  # fmt: skip


def _reached(made: QnnRewrite, op: Op, x: Value, sizes: Sequence[int], pads: Sequence[int],
             more: Sequence[int]) -> tuple[Value, list[int]]:  # fmt: skip
    """Pixels that results are made of, and what lies around them: padding of more than a window leaves some out."""
    around = [sizes[side // 2] - 1 - pad + (more[side // 2] if side % 2 else 0) for side, pad in enumerate(pads)]
    out = [max(-n, 0) for n in around]
    length = (x.bound[0], x.bound[1] - out[0] - out[1], x.bound[2] - out[2] - out[3], x.bound[3])
    return made.cut(op, x, [0, out[0], out[2], 0], length), [max(n, 0) for n in around]


@rule("FullyConnected")
def _linear(made: QnnRewrite, op: Op) -> bool:
    p = conv_operands(made, op)
    if p is None:
        return False
    depth, rows = p.weights.shape[1], element_count(p.x.bound) // p.weights.shape[1]
    if p.words:
        flat = made.temporary(p.out, (1, 1, rows, p.weights.shape[0]))
        x, weight = made.view(op, p.x, (1, 1, rows, depth)), p.filters(p.weights[:, None, None, :], 0)
        emit_conv(made, "conv2d", op, p, flat, input=x, weight=weight, groups=1, stride=[1, 1], padding=[0] * 4,
                     dilation=[1, 1])  # fmt: skip
        made.finish_as(op, flat, p.out)
        return True
    emit_conv(made, "linear", op, p, p.out, input=made.view(op, p.x, (rows, depth)), weight=p.filters(p.weights, 0))
    return True


@rule("MatMul")
def _matrices(made: QnnRewrite, op: Op) -> bool:
    given, out = io_of(op)
    if len(given) != 2 or not non_empty(*given, out) or (not is_float32(*given, out) and not is_quantized(*given, out)):
        return False
    turns = [bool(op.args[f"transpose_in{i}"]) for i in (0, 1)]
    a, b = (made.turned(op, v, _swapped(len(v.bound))) if t else v for v, t in zip(given, turns, strict=True))
    if is_float32(out):
        a, b = made.half(op, a), made.half(op, b)
        made.computed("bmm", op, out, self=a, other=b)
        return True
    if a.constant or b.constant:
        return False
    zeros = [int(np.asarray(v.q.zero_point)) for v in (a, b) if v.q is not None]
    made.emit("whole_matmul", op, out, self=a, other=b, zeros=zeros, scaling=product_scale(a, b, out, None))
    return True


def _swapped(rank: int) -> list[int]:
    return [*range(rank - 2), rank - 1, rank - 2]
