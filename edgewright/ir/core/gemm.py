"""Linear layers and matrix products, and the arithmetic that they share with convolutions."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from edgewright.ir.core.evaluation import DynamicRows, EvaluationContext
from edgewright.ir.core.table import LIMITS, Shape, ShapeOf, define, integers, require
from edgewright.ir.dialect import FLAG, Attribute
from edgewright.ir.graph import Array, Op, Value
from edgewright.ir.numerics import as_float32, broadcast_params
from edgewright.ir.requant_scale import FixedPointScale, FloatScale

SCALING = Attribute("a FixedPointScale or a FloatScale", lambda value: isinstance(value, FixedPointScale | FloatScale))
FILTER_TYPES = "float float float? -> float | Q! weight#~ bias#? -> Q"
DYNAMIC_TYPES = "di8 weight#~ float#? -> float"
WEIGHT_ONLY_TYPES = "float! weight# float#? -> float"


def check_channels(op: Op, shape_of: ShapeOf, channels: int, axis: int) -> None:
    """Bias and weight scales must fit the output channels, which are dimension ``axis`` of the weights."""
    x, weight, bias = op.args["input"], op.args["weight"], op.args.get("bias")
    shape = () if bias is None else tuple(shape_of(bias))
    # (8, 1) would be added along another dimension than the channels.
    fits = bias is None or (math.prod(shape) == channels and shape[-1:] in ((), (channels,)))
    require(fits, f"the bias must have {channels} elements, in its last dimension")
    q = weight.q
    require(q is None or q.axis in (None, axis), f"weights must have a scale for each slice of dimension {axis}")
    scales = 1 if q is None or q.block is not None else len(q.scale) if isinstance(q.scale, tuple) else np.size(q.scale)
    require(scales in (1, channels), "weights need a scale for each channel")
    is_int16 = x.dtype is not None and x.dtype.kind in "iu" and x.dtype.itemsize == 2
    require(not is_int16 or op.args.get("scaling") is not None, "16-bit integers need scaling")


def accumulate(ex: EvaluationContext, op: Op, product: Callable[[Array, Array], Array], axis: int) -> Array:
    """Linear and convolution on float, quantized or dynamically quantized operands. ``axis``: output channels."""
    x, w, b, out = op.args["input"], op.args["weight"], op.args.get("bias"), op.outputs[0]
    assert out is not None
    data = ex.raw(x)
    bias = None if b is None else np.asarray(ex.raw(b))
    if isinstance(data, DynamicRows):
        return _dynamic(ex, op, data, product, bias)
    scaling = op.args.get("scaling")
    if scaling is None and (x.q is None or out.q is None):
        total = product(ex.real(x), ex.real(w))
        return ex.store(op, total if b is None else total + ex.real(b))
    zero = 0 if x.q is None else x.q.zero_point
    total = np.rint(product((data.astype(np.float64) - zero), np.asarray(ex.raw(w)).astype(np.float64)))
    if bias is not None:
        total = total + bias
    if scaling is not None:
        return np.asarray(scaling.apply(total.astype(np.int64)).astype(out.dtype))
    assert out.q is not None
    factor = as_float32(x.q.scale) * as_float32(w.q.scale) / as_float32(out.q.scale)
    broadcast_factor = broadcast_params(factor, axis if np.ndim(factor) else None, total.ndim)
    return ex.numerics.requantize(total, broadcast_factor, out.q, op.args.get("limits"))


def _dynamic(
    ex: EvaluationContext, op: Op, rows: DynamicRows, product: Callable[[Array, Array], Array], bias: Array | None
) -> Array:
    w: Value = op.args["weight"]
    assert w.q is not None
    centered = rows.raw.astype(np.float64) - rows.zero
    weight = np.asarray(ex.raw(w)).astype(np.float64)
    scales = np.asarray(w.q.scale, np.float32)
    if w.q.block:
        weight = weight * np.repeat(scales.reshape(weight.shape[0], -1), w.q.block, axis=1)
        total = product(centered, weight).astype(np.float32) / rows.scale
    else:
        total = product(centered, weight).astype(np.float32) * (np.float32(1) / rows.scale) * scales
    return ex.store(op, total if bias is None else total + bias.astype(np.float32))


# -------------------------------------------------------------------------------------------------------------- linear


def _linear(ex: EvaluationContext, op: Op) -> Array:
    transposed = op.args.get("transposed", False)
    return accumulate(ex, op, lambda x, w: x @ (w if transposed else w.T), -1)


def _linear_shape(op: Op, shape_of: ShapeOf) -> Shape:
    x, weight = tuple(shape_of(op.args["input"])), tuple(shape_of(op.args["weight"]))
    require(len(weight) == 2 and len(x) >= 1, "needs rows and a matrix")
    axis = 1 if op.args.get("transposed") else 0
    q = op.args["weight"].q
    require(q is None or q.block is None or axis == 0, "weights in blocks must not be transposed")
    require(x[-1] == weight[1 - axis], f"rows must have {weight[1 - axis]} elements")
    check_channels(op, shape_of, weight[axis], axis)
    return (*x[:-1], weight[axis])


define(
    "linear",
    "`input` @ `weight`ᵀ + `bias`; `weight` is [outputs, inputs], or [inputs, outputs] if `transposed`",
    "input weight bias?",
    f"{FILTER_TYPES} | float! rows# float#? -> float | di8 rows#~ float#? -> float",
    _linear_shape,
    _linear,
    {"transposed": FLAG.or_absent(False), "scaling": SCALING.or_absent(), **LIMITS},
    size=lambda op, shape_of: math.prod(shape_of(op.args["input"])[:-1]) * max(shape_of(op.args["weight"]), default=1),
)


# ------------------------------------------------------------------------------------------------------------ matrices


def _bmm(ex: EvaluationContext, op: Op) -> Array:
    return ex.store(op, ex.real(op.args["self"]) @ ex.real(op.args["other"]))


def _bmm_shape(op: Op, shape_of: ShapeOf) -> Shape:
    a, b = tuple(shape_of(op.args["self"])), tuple(shape_of(op.args["other"]))
    require(len(a) >= 2 and len(b) >= 2 and a[-1] == b[-2], "matrices must fit")
    return (*np.broadcast_shapes(a[:-2], b[:-2]), a[-2], b[-1])


def _int_matmul(ex: EvaluationContext, op: Op) -> Array:
    pair = zip((op.args["self"], op.args["other"]), op.args["zeros"], strict=True)
    left, right = (np.asarray(ex.raw(v)).astype(np.float64) - zero for v, zero in pair)
    out = op.outputs[0]
    assert out is not None
    return np.asarray(op.args["scaling"].apply((left @ right).astype(np.int64)).astype(out.dtype))


define(
    "bmm",
    "matrix product; leading dimensions are broadcast",
    "self other",
    "float float -> float",
    _bmm_shape,
    _bmm,
    LIMITS,
)
define(
    "int_matmul",
    "integer matrix product after subtracting `zeros`, requantized by `scaling`",
    "self other",
    "scaled scaled -> scaled",
    _bmm_shape,
    _int_matmul,
    {"zeros": integers(-(1 << 31), 2), "scaling": SCALING},
)
