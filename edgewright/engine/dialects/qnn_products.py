"""QNN's convolutions and matrix products as the engine's.

Bytes are multiplied and rounded as XNNPACK's are, so these are the engine's own operators; 16 bits have a ``scaling``.
Volumes are images whose channels are those of all the planes that a result is made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from edgewright.engine.dialects.qnn_rewrite import (
    QnnRewrite,
    alike,
    byte,
    constant,
    count,
    ends,
    real,
    result,
    rule,
    some,
    whole,
)  # fmt: skip
from edgewright.ir.graph import Array, Op, QParams, Value
from edgewright.ir.numerics import QNN, single
from edgewright.ir.qnn.scaling import bias_of, is_bytes, weights_of, word_scaling
from edgewright.ir.qnn.table import PREFIX
from edgewright.ir.qnn.values import half, quantized
from edgewright.ir.real_scaling import RealScaling, real_scaling

_INT8, _INT16 = np.dtype(np.int8), np.dtype(np.int16)
_MOST = 1 << 24  # weights, where filters of groups are made filters of all channels
Limits = tuple[float, float]


def following(made: QnnRewrite, op: Op) -> tuple[Limits | None, Value]:
    """Limits of an activation that follows, in the same scale; and the last result."""
    out = result(op)
    after = made.only_reader(out)
    if after is None or not alike(out, result(after)):
        return None, out
    if after.kind == f"{PREFIX}Relu":
        limits = (0.0, float("inf"))
    elif after.kind == f"{PREFIX}ReluMinMax":
        limits = (float(after.args["min_value"]), float(after.args["max_value"]))
    else:
        return None, out
    if out.q is not None and not _same_limits(out.q, limits):
        return None, out
    made.done.add(id(after))
    return limits, result(after)


def _same_limits(q: QParams, limits: Limits) -> bool:
    """Limits of what is stored are those of the numbers, stored."""
    kept = quantized(np.array(limits, np.float32), q)
    return QNN.limits(q, limits) == (int(kept[0]), int(kept[1]))


@dataclass
class _Product:
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
            return constant("weight", data)
        dtype = _INT8 if np.abs(data).max(initial=0) < 128 else _INT16
        low, high = (int(n) for n in (np.iinfo(dtype).min, np.iinfo(dtype).max))
        many = self.scales.size > 1
        scale: Any = tuple(self.scales.tolist()) if many else float(self.scales[0])
        q = QParams(scale, (0,) * self.scales.size if many else 0, dtype, low, high, channels if many else None)
        return constant("weight", data.astype(dtype), q)

    @property
    def words(self) -> bool:
        return "scaling" in self.how


def _product(made: QnnRewrite, op: Op, tiles: int = 1) -> _Product | None:
    """None if the engine has no such product. ``tiles``: groups that share their scales."""
    (x, w, *rest), out = ends(op)
    if not some(x, w, out) or w.data is None or any(b.data is None for b in rest):
        return None
    if real(x, w, out, *rest):
        bias = None if not rest else half(np.asarray(rest[0].data)).reshape(-1)
        return _Product(made.half(op, x), half(w.data), None, bias, out, {})
    if not whole(x, out) or w.q is None or w.q.dtype.itemsize > 2:
        return None
    weights, scales = weights_of(w, w.data)
    scales = np.tile(scales, tiles) if scales.size > 1 else scales
    units = single(x.q.scale).astype(np.float64) * scales.astype(np.float64)  # type: ignore[union-attr]
    bias = bias_of(rest[0], np.asarray(rest[0].data), units) if rest else None
    narrow = is_bytes(x, w, out)
    largest = int(np.abs(weights).max(initial=0))
    if largest > (127 if narrow else 32767) or (not narrow and (byte(x) or byte(out))):
        return None
    if bias is not None and np.abs(bias).max(initial=0) >= (1 << 31 if narrow else 1 << 48):
        return None
    limits, last = following(made, op)
    if narrow:
        return _Product(x, weights, scales, bias, last, {"limits": limits})
    return _Product(x, weights, scales, bias, last, {"scaling": _limited(word_scaling(x, scales, out), out, limits)})


def _limited(scaling: RealScaling, out: Value, limits: Limits | None) -> RealScaling:
    assert out.q is not None
    low, high = QNN.limits(out.q, limits)
    return replace(scaling, low=low, high=high)


def _emit(made: QnnRewrite, kind: str, op: Op, p: _Product, out: Value, /, **args: Any) -> None:
    """The product itself; real numbers are brought to half precision."""
    bias = None
    if p.bias is not None:
        dtype = np.float32 if p.scales is None else np.int64 if p.words else np.int32
        repeats = np.resize(p.bias, out.bound[-1])
        bias = constant("bias", repeats.astype(dtype))
    if p.scales is None:
        made.computed(kind, op, out, bias=bias, **args)
    else:
        made.emit(kind, op, out, bias=bias, **args, **p.how)


def _image(made: QnnRewrite, op: Op, p: _Product, x: Value, weights: Array, out: Value, groups: int,
           window: dict[str, Any]) -> None:  # fmt: skip
    """A convolution of images by [high, wide, inputs, outputs]."""
    inputs, outputs = weights.shape[2:]
    if inputs == 1 and groups == x.bound[-1] == outputs:
        deep = p.filters(weights.transpose(2, 0, 1, 3), 3)
        _emit(made, "depthwise_conv2d", op, p, out, input=x, weight=deep, groups=groups, **window)
        return
    data = weights.transpose(3, 0, 1, 2)
    if groups > 1 and p.scales is not None and (p.words or (outputs // groups) % 16):
        data, groups = _joined(data, groups), 1
    _emit(made, "conv2d", op, p, out, input=x, weight=p.filters(data, 0), groups=groups, **window)


def _joined(data: Array, groups: int) -> Array:
    """Filters of groups as ones of all channels, zero elsewhere: [outputs, high, wide, inputs]."""
    outputs, high, wide, inputs = data.shape
    joined = np.zeros((outputs, high, wide, inputs * groups), data.dtype)
    each = outputs // groups
    for g in range(groups):
        span = slice(g * each, (g + 1) * each)
        joined[span, ..., g * inputs : (g + 1) * inputs] = data[span]
    return joined


def _affordable(op: Op) -> bool:
    """Filters of groups, made filters of all channels, are not too large."""
    (x, w, *_), _ = ends(op)
    return count(w.bound) // w.bound[-2] * x.bound[-1] <= _MOST


@rule("Conv2d", "DepthWiseConv2d")
def _convolution(made: QnnRewrite, op: Op) -> bool:
    p = _product(made, op) if _affordable(op) else None
    if p is None:
        return False
    groups = p.x.bound[-1] if op.kind.endswith("DepthWiseConv2d") else int(op.args["group"])
    pads = [n for pair in op.args["pad_amount"] for n in pair]
    window = {"stride": list(op.args["stride"]), "padding": pads, "dilation": list(op.args["dilation"])}
    _image(made, op, p, p.x, p.weights, p.out, groups, window)
    return True


@rule("Conv3d")
def _volume(made: QnnRewrite, op: Op) -> bool:
    p, groups = _product(made, op) if _affordable(op) else None, int(op.args["group"])
    if p is None:
        return False
    if groups > 1:
        p.weights = np.stack([_joined(w.transpose(3, 0, 1, 2), groups).transpose(1, 2, 3, 0) for w in p.weights])
    (deep, down, along), pads, dilation = (list(op.args[n]) for n in ("stride", "pad_amount", "dilation"))
    planes = _planes(made, op, p.x, p.weights.shape[0], deep, pads[0], dilation[0], p.out.bound[1])
    weights = np.concatenate(list(p.weights), axis=2)  # [high, wide, planes by inputs, outputs]
    flat = made.temporary(p.out, (p.out.bound[0] * p.out.bound[1], *p.out.bound[2:]))
    window = {"stride": [down, along], "padding": [n for pair in pads[1:] for n in pair], "dilation": dilation[1:]}
    _image(made, op, p, planes, weights, flat, 1, window)
    made.finish_as(op, flat, p.out)
    return True


def _planes(made: QnnRewrite, op: Op, x: Value, window: int, stride: int, pads: Sequence[int], dilation: int,
            results: int) -> Value:  # fmt: skip
    """For each plane of the result the planes it is made of, side by side in the channels of an image."""
    wide = made.padded(op, x, [(0, 0), (pads[0], pads[1]), (0, 0), (0, 0), (0, 0)])
    images, _, *size = wide.bound
    taps = []
    for tap in range(window):
        shape, start = [images, 1, *size], [0] * 5
        parts = []
        for n in range(results):
            start[1] = n * stride + tap * dilation
            parts.append(made.cut(op, wide, start, shape))
        taps.append(made.joined(op, parts, 1))
    joined = made.joined(op, taps, 4)
    return made.view(op, joined, (images * results, *joined.bound[2:]))


@rule("TransposeConv2d")
def _transposed(made: QnnRewrite, op: Op) -> bool:
    groups, pads = int(op.args["group"]), [n for pair in op.args["pad_amount"] for n in pair]
    p = _product(made, op, groups) if _affordable(op) else None
    if p is None:
        return False
    high, wide, inputs, outputs = p.weights.shape
    split = p.weights.reshape(high, wide, groups, inputs // groups, outputs)
    data = split.transpose(2, 4, 0, 1, 3).reshape(groups * outputs, high, wide, inputs // groups)
    if groups > 1 and p.scales is not None and (p.words or outputs % 16):
        data, groups = _joined(data, groups), 1
    if p.words:
        return _spread(made, op, p, data, pads)
    _emit(made, "conv_transpose2d", op, p, p.out, input=p.x, weight=p.filters(data, 0), groups=groups,
          stride=list(op.args["stride"]), padding=pads, dilation=[1, 1],
          output_padding=list(op.args["output_padding"]))  # fmt: skip
    return True


def _spread(made: QnnRewrite, op: Op, p: _Product, data: Array, pads: list[int]) -> bool:
    """A plain convolution of pixels that are spread, with nothing between them."""
    (down, along), (images, high, wide, channels) = op.args["stride"], p.x.bound
    around = [size - 1 - pad for size, pad in zip((data.shape[1],) * 2 + (data.shape[2],) * 2, pads, strict=True)]
    around[1] += int(op.args["output_padding"][0])
    around[3] += int(op.args["output_padding"][1])
    if min(around) < 0:
        return False
    apart = made.view(op, p.x, (images, high, 1, wide, 1, channels))
    apart = made.padded(op, apart, [(0, 0), (0, 0), (0, down - 1), (0, 0), (0, along - 1), (0, 0)])
    flat = made.view(op, apart, (images, high * down, wide * along, channels))
    flat = made.cut(op, flat, [0] * 4, (images, (high - 1) * down + 1, (wide - 1) * along + 1, channels))
    _emit(made, "conv2d", op, p, p.out, input=flat, weight=p.filters(data[:, ::-1, ::-1], 0), groups=1, stride=[1, 1],
          padding=around, dilation=[1, 1])  # fmt: skip
    return True


@rule("FullyConnected")
def _linear(made: QnnRewrite, op: Op) -> bool:
    p = _product(made, op)
    if p is None:
        return False
    depth, rows = p.weights.shape[1], count(p.x.bound) // p.weights.shape[1]
    if p.words:
        flat = made.temporary(p.out, (1, 1, rows, p.weights.shape[0]))
        _emit(made, "conv2d", op, p, flat, input=made.view(op, p.x, (1, 1, rows, depth)), groups=1, stride=[1, 1],
              weight=p.filters(p.weights[:, None, None, :], 0), padding=[0] * 4, dilation=[1, 1])  # fmt: skip
        made.finish_as(op, flat, p.out)
        return True
    _emit(made, "linear", op, p, p.out, input=made.view(op, p.x, (rows, depth)), weight=p.filters(p.weights, 0))
    return True


@rule("MatMul")
def _matrices(made: QnnRewrite, op: Op) -> bool:
    given, out = ends(op)
    if len(given) != 2 or not some(*given, out) or (not real(*given, out) and not whole(*given, out)):
        return False
    turns = [bool(op.args[f"transpose_in{i}"]) for i in (0, 1)]
    a, b = (made.turned(op, v, _swapped(len(v.bound))) if t else v for v, t in zip(given, turns, strict=True))
    if real(out):
        a, b = made.half(op, a), made.half(op, b)
        made.computed("bmm", op, out, self=a, other=b)
        return True
    if a.constant or b.constant:
        return False
    zeros = [int(np.asarray(v.q.zero_point)) for v in (a, b) if v.q is not None]
    made.emit("whole_matmul", op, out, self=a, other=b, zeros=zeros, scaling=real_scaling(a, b, out, None))
    return True


def _swapped(rank: int) -> list[int]:
    return [*range(rank - 2), rank - 1, rank - 2]
