"""Rows quantized to int8 as they are written to a cache, and attention over such a cache.

Each row (the last dimension: a position's keys or values of one head) has a scale, and a zero point so that 0 is
exact. The parameters are those that the stock runtime's kernels choose: in double precision, and with a least scale.
"""

from __future__ import annotations

import math

import numpy as np

from edgewright.ir.core.cache import attend, cached_attention_shape, clamped_position
from edgewright.ir.core.evaluation import EvaluationContext
from edgewright.ir.core.table import REAL, Shape, ShapeOf, define, first_operand, require
from edgewright.ir.dialect import FLAG
from edgewright.ir.graph import Array, Op

MIN_ROW_SCALE = np.float32(6.1e-5)
EMPTY_ROW_SCALE = 0.1  # of rows without a range
_STEPS = 255.0  # of int8

# ---------------------------------------------------------------------------------------------------------------- rows


def row_parameters(x: Array) -> tuple[Array, Array]:
    """The scale (float64) and the zero point (int64) of each row of float32, both [..., 1]."""
    low, high = (least.reduce(x, -1, keepdims=True, initial=0) for least in (np.fmin, np.fmax))
    with np.errstate(all="ignore"):
        exact = (high.astype(np.float64) - low) / _STEPS
        narrow = exact.astype(np.float32)
        exact = np.where((narrow == 0) | np.isinf(1 / narrow), EMPTY_ROW_SCALE, exact)
        low, high, scale = _raise_small_scales(low, high, exact)
        from_low, from_high = low / scale, high / scale
        zero = np.where(128 - np.abs(from_low) < 127 - np.abs(from_high), -128 - from_low, 127 - from_high)
        rounded = np.rint(np.clip(zero, -128, 127).astype(np.float32))
    return scale, np.where(np.isnan(rounded), -128, rounded).astype(np.int64)


def _raise_small_scales(low: Array, high: Array, scale: Array) -> tuple[Array, Array, Array]:
    """Scales of at least ``MIN_ROW_SCALE``, and the ends of the ranges that they cover."""
    small, least = scale < MIN_ROW_SCALE, MIN_ROW_SCALE
    factor = least / scale.astype(np.float32)
    end = least * np.float32(_STEPS)
    wide_low = np.where(low == 0, low, np.where(high == 0, -end, low * factor))
    wide_high = np.where(low == 0, end, np.where(high == 0, high, high * factor))
    return np.where(small, wide_low, low), np.where(small, wide_high, high), np.where(small, np.float64(least), scale)


def quantize_rows(x: Array, scale: Array, zero_point: Array) -> Array:
    """int8 rows; NaN becomes -128."""
    with np.errstate(all="ignore"):
        steps = np.rint(x * (1 / scale.astype(np.float32))) + zero_point.astype(np.float32)
    clamped = np.clip(steps, -128, 127)
    return np.where(np.isnan(clamped), -128, clamped).astype(np.int8)


def _row_scale(ex: EvaluationContext, op: Op) -> Array:
    return row_parameters(ex.raw(op.args["self"]))[0].astype(np.float32)


def _row_zero_point(ex: EvaluationContext, op: Op) -> Array:
    return row_parameters(ex.raw(op.args["self"]))[1].astype(np.int8)


def _quantize_rows(ex: EvaluationContext, op: Op) -> Array:
    x: Array = ex.raw(op.args["self"])
    return quantize_rows(x, *row_parameters(x))


def _parameter_shape(op: Op, shape_of: ShapeOf) -> Shape:
    shape = tuple(shape_of(op.args["self"]))
    require(bool(shape) and shape[-1] > 0, "rows must have elements")
    return (*shape[:-1], 1)


define("row_scale", "the scale of each row (the last dimension), to quantize it to int8",
       "self", "f32 -> f32", _parameter_shape, _row_scale)  # fmt: skip
define("row_zero_point", "the zero point of each row, to quantize it to int8",
       "self", "f32 -> i8", _parameter_shape, _row_zero_point)  # fmt: skip
define("quantize_rows", "rows as int8, by `row_scale` and `row_zero_point`",
       "self", "f32 -> i8", first_operand, _quantize_rows)  # fmt: skip

# ----------------------------------------------------------------------------------------------------------- attention

_TENSORS = ("query", "key", "value")


def dequantize_rows(x: Array, scale: Array, zero_point: Array) -> Array:
    """int8 rows as float32."""
    difference: Array = x.astype(np.float32) - zero_point.astype(np.float32)
    return difference * scale


def _quantized_attention(ex: EvaluationContext, op: Op) -> Array:
    args = op.args
    query, key, value = (
        dequantize_rows(ex.raw(args[n]), ex.raw(args[f"{n}_scale"]), ex.raw(args[f"{n}_zero_point"])) for n in _TENSORS
    )
    mask = None if args.get("mask") is None else ex.raw(args["mask"])
    start = clamped_position(ex, op, key.shape[1] - query.shape[1])
    with np.errstate(all="ignore"):
        return attend(query, key, value, start, mask, args["causal"], np.float32(args["scale"]))


def _quantized_attention_shape(op: Op, shape_of: ShapeOf) -> Shape:
    for name in _TENSORS:
        expected = (*tuple(shape_of(op.args[name]))[:-1], 1)
        found = [tuple(shape_of(op.args[f"{name}_{parameter}"])) for parameter in ("scale", "zero_point")]
        require(found == [expected, expected], "a row must have one scale and one zero point")
    return cached_attention_shape(op, shape_of)


define("quantized_cached_attention",
       "`cached_attention` of int8 rows, each with a scale and a zero point",
       "query query_scale query_zero_point key key_scale key_zero_point value value_scale value_zero_point position"
       " mask?", "i8 f32 i8 i8 f32 i8 i8 f32 i8 index f32? -> f32", _quantized_attention_shape, _quantized_attention,
       {"scale": REAL, "causal": FLAG},
       size=lambda op, shape_of: math.prod(shape_of(op.args["query"])[:3]) * shape_of(op.args["key"])[1]
       + 3 * math.prod(shape_of(op.args["key"])))  # fmt: skip
