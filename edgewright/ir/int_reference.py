"""Runs elementwise rules and descriptions of integer operators (``ir/int_rules.py``) in numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from edgewright.ir.aten.reference.conv import convolution
from edgewright.ir.core.index_bounds import OutOfRangePolicy
from edgewright.ir.dialect import array_of
from edgewright.ir.fixed_point import SUM_BITS, doubling_high_mul, one_over_one_plus_x, rounding_divide_by_pot
from edgewright.ir.graph import Array, GraphError, Op, Value
from edgewright.ir.int_arithmetic import IntRangeError, RangedInt
from edgewright.ir.int_rules import (
    ELEMENTWISE,
    AccumulatorConv,
    ArgMaxReduction,
    BatchedGather,
    BatchedScatter,
    BilinearResize,
    FixedPointSoftmax,
    FloatConversion,
    IndexGather,
    IntReduction,
    ResizeAxis,
    describe,
    dtype_range,
    result_of,
)
from edgewright.ir.numerics import Numerics
from edgewright.ir.numpy_ints import NumpyInts, load

Arrays = Mapping[Value, Array]
_INTS = NumpyInts()
_REDUCE: dict[str, Any] = {"sum": np.add.reduce, "max": np.maximum.reduce, "min": np.minimum.reduce}


def run_definition(op: Op, arrays: Arrays, numerics: Numerics) -> Array | None:
    """The result of an operator by its rule or description; None if it has none for these operands."""
    out, rule = result_of(op), ELEMENTWISE.get(op.kind)
    if rule is not None and rule.emit is not None and _is_integer(out, *rule.operands(op)):
        try:
            result = rule.emit(_INTS, op, [load(array_of(v, arrays)) for v in rule.operands(op)])
            return np.asarray(np.asarray(result.data).astype(out.dtype))
        except IntRangeError:
            pass
    description = describe(op, numerics)
    run = _RUN.get(type(description))
    return None if run is None else np.asarray(run(description, op, arrays))


def undefined(op: Op) -> GraphError:
    """The error of an operator whose definition does not apply to its operands: they were not checked."""
    return GraphError(op.kind, "is not defined for these operands", value=[f"{v.dtype} {v.bound}" for v in op.inputs()])


def _is_integer(*values: Value) -> bool:
    return all(v.dtype is not None and v.dtype.kind in "biu" for v in values)


def _reduce(reduction: IntReduction, op: Op, arrays: Arrays) -> Array:
    """Exact sums; those that are not requantized wrap in the result's type."""
    out, x = result_of(op), array_of(reduction.data, arrays)
    wide: Array = x if x.dtype.kind == "f" else x.astype(np.int64)
    reduce = _REDUCE[reduction.kind]
    if reduction.window is None:
        total = reduce(wide, axis=reduction.axes, keepdims=reduction.keepdims)
    else:
        total = reduce(_windows(reduction, wide, out), axis=tuple(range(-len(reduction.window), 0)))
    if reduction.finish is None:
        return np.asarray(total).astype(out.dtype)
    count = reduction.count if reduction.kind == "sum" else 1
    low, high = (n * count for n in dtype_range(reduction.data))
    extras = [load(array_of(v, arrays)) for v in reduction.extras]
    return np.asarray(reduction.finish(_INTS, RangedInt(np.asarray(total), low, high), extras).data).astype(out.dtype)


def _windows(reduction: IntReduction, x: Array, out: Value) -> Array:
    """A view of all windows: the result's dimensions, then the window's."""
    assert reduction.window is not None
    pads = [(0, 0)] * x.ndim
    if any(reduction.pads):
        pads[1:3] = [reduction.pads[:2], reduction.pads[2:]]
    padded = np.pad(x, pads, constant_values=reduction.zero)
    inner = tuple(range(1, x.ndim - 1))
    windows: Array = np.lib.stride_tricks.sliding_window_view(padded, reduction.window, inner)  # type: ignore[call-overload]
    steps = (slice(None, (n - 1) * s + 1, s) for n, s in zip(out.bound[1:-1], reduction.stride, strict=True))
    index = (slice(None), *steps)
    return windows[index]


def _resize(resize: BilinearResize, op: Op, arrays: Arrays) -> Array:
    """Columns first, then rows."""
    out, x = result_of(op), array_of(resize.data, arrays)
    rows, columns = resize.axes
    total = _interpolate(_interpolate(x.astype(np.float64 if x.dtype.kind == "f" else np.int64), columns, 2), rows, 1)
    if x.dtype.kind == "f":
        return (total / resize.divisor).astype(out.dtype)
    if resize.finish is None:
        return total.astype(out.dtype)
    low, high = dtype_range(resize.data)
    bound = max(-low, high) * rows.weight_bound * columns.weight_bound
    return np.asarray(resize.finish(_INTS, RangedInt(total, -bound, bound)).data).astype(out.dtype)


def _interpolate(x: Array, axis: ResizeAxis, dim: int) -> Array:
    first, second = (
        np.take(x, indices, dim) * weights.reshape(-1, *(1,) * (3 - dim))
        for indices, weights in zip(axis.indices, axis.weights, strict=True)
    )
    return np.asarray(first + second)


def _index(gather: IndexGather, op: Op, arrays: Arrays) -> Array:
    return np.ascontiguousarray(array_of(gather.data, arrays)[np.ix_(*gather.indices)])


def _argmax(argmax: ArgMaxReduction, op: Op, arrays: Arrays) -> Array:
    return np.argmax(array_of(argmax.data, arrays), argmax.axis).astype(np.int32).reshape(result_of(op).bound)


def _convolve(conv: AccumulatorConv, op: Op, arrays: Arrays) -> Array:
    """Exact in float64: accumulators have 48 bits at most."""
    image = (array_of(conv.data, arrays).astype(np.float64) - conv.zero).transpose(0, 3, 1, 2)
    filters = conv.weights.transpose(2, 0, 1)[:, None] if conv.depthwise else conv.weights.transpose(3, 2, 0, 1)
    groups = len(filters) if conv.depthwise else 1
    total = convolution(image, filters.astype(np.float64), conv.bias, conv.stride, (0, 0), conv.dilation, False, (0, 0),
                        groups)  # fmt: skip
    return total.transpose(0, 2, 3, 1).astype(result_of(op).dtype)


def _rows(op: Op, indices: Array, size: int) -> Array:
    checked = OutOfRangePolicy(op.kind, wrap=True).check(indices, size)
    return checked[:, :, None].astype(np.int64)


def _gather(gather: BatchedGather, op: Op, arrays: Arrays) -> Array:
    values = array_of(gather.values, arrays)
    return np.take_along_axis(values, _rows(op, array_of(gather.indices, arrays), values.shape[1]), axis=1)


def _scatter(scatter: BatchedScatter, op: Op, arrays: Arrays) -> Array:
    updated = array_of(scatter.values, arrays).copy()
    indices = _rows(op, array_of(scatter.indices, arrays), updated.shape[1])
    np.put_along_axis(updated, indices, array_of(scatter.rows, arrays), axis=1)
    return updated


def _softmax(softmax: FixedPointSoftmax, op: Op, arrays: Arrays) -> Array:
    """The results have the scale 1/256 and the zero point -128."""
    x = array_of(softmax.data, arrays).astype(np.int64)
    diff = x.max(axis=-1, keepdims=True) - x
    total = softmax.summands[diff].sum(axis=-1, keepdims=True)
    headroom = 32 - np.floor(np.log2(total)).astype(np.int64) - 1
    ratio = doubling_high_mul(one_over_one_plus_x((total << headroom) - (1 << 31)), softmax.exps[diff])
    result = rounding_divide_by_pot(ratio, SUM_BITS - headroom + 31 - 8) - 128
    return np.asarray(np.clip(result, -128, 127), np.int8)


def _convert(conversion: FloatConversion, op: Op, arrays: Arrays) -> Array:
    x, out = array_of(conversion.data, arrays), result_of(op)
    if conversion.dequantize is not None:
        return np.asarray(conversion.dequantize(_INTS, load(x))).astype(out.dtype)
    assert conversion.quantize is not None
    return np.asarray(conversion.quantize(_INTS, x).data).astype(out.dtype)


_RUN: dict[type, Callable[[Any, Op, Arrays], Array]] = {
    AccumulatorConv: _convolve, ArgMaxReduction: _argmax, BatchedGather: _gather, BatchedScatter: _scatter,
    BilinearResize: _resize, FixedPointSoftmax: _softmax, FloatConversion: _convert, IndexGather: _index,
    IntReduction: _reduce,
}  # fmt: skip
