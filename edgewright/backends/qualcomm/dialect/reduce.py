"""References of average pooling and reductions.

Integer sums are exact and rescaled like accumulators of a product; floating point is summed in double precision.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from edgewright.backends.qualcomm.dialect.dtypes import convert_elements, from_float, round_to_fp16, subtract_zero_point
from edgewright.backends.qualcomm.dialect.numerics import QNN
from edgewright.ir.aten.reference.windows import reach
from edgewright.ir.graph import Array, Op, Value
from edgewright.ir.numerics import as_float32

Params = Mapping[str, Any]


def window_taps(params: Params, sizes: Sequence[int], counts: Sequence[int]) -> Iterator[tuple[Any, Any]]:
    """For each tap of the window: the output slice it contributes to, and the input slice it reads."""
    for tap in np.ndindex(*params["filter_size"]):
        ranges = [
            reach(size, count, stride, t - before)
            for size, count, stride, t, (before, _) in zip(
                sizes, counts, params["stride"], tap, params["pad_amount"], strict=True
            )
        ]
        if None not in ranges:
            write, read = (tuple(m[i] for m in ranges if m is not None) for i in (0, 1))
            yield (slice(None), *write), (slice(None), *read)


def element_counts(op: Op) -> Array:
    """Number of elements of each mean: shape [1, ..., 1], or one per output pixel."""
    (x,), out = op.args["inputs"], op.outputs[0]
    assert out is not None
    if "axes" in op.args:
        return np.full((1,) * len(out.bound), math.prod(x.bound[a] for a in op.args["axes"]))
    if op.args["count_pad_for_edges"]:
        return np.full((1,) * len(out.bound), math.prod(op.args["filter_size"]))
    inside = np.zeros((1, *out.bound[1:-1], 1), np.int64)
    for write, _ in window_taps(op.args, x.bound[1:-1], out.bound[1:-1]):
        inside[write] += 1
    return np.maximum(inside, 1)


def mean_factors(op: Op) -> Array:
    """Factors that rescale integer sums, in the shape of ``element_counts``."""
    (x,), out = op.args["inputs"], op.outputs[0]
    assert out is not None and x.q is not None and out.q is not None
    counts = element_counts(op) if not op.kind.endswith("ReduceSum") else np.ones((1,) * len(out.bound))
    return np.asarray(as_float32(x.q.scale) / (as_float32(out.q.scale) * counts.astype(np.float32)), np.float32)


def _io(op: Op) -> tuple[Value, Value]:
    (x,), out = op.args["inputs"], op.outputs[0]
    assert out is not None
    return x, out


def _widen(x: Value, array: Array) -> Array:
    if x.q is not None:
        return subtract_zero_point(array, x.q, np.int64)
    return round_to_fp16(array).astype(np.float64) if array.dtype.kind == "f" else array


def average_pool(op: Op, arrays: Sequence[Array]) -> Array:
    """``PoolAvg2d``, ``PoolAvg3d``."""
    x, out = _io(op)
    wide = _widen(x, arrays[0])
    total = np.zeros(out.bound, wide.dtype)
    for write, read in window_taps(op.args, x.bound[1:-1], out.bound[1:-1]):
        total[write] += wide[read]
    return _requantize(op, total)


def sum_or_mean(op: Op, arrays: Sequence[Array]) -> Array:
    """``ReduceMean``, ``ReduceSum``."""
    x, out = _io(op)
    return _requantize(op, _widen(x, arrays[0]).sum(axis=tuple(op.args["axes"])).reshape(out.bound))


def _requantize(op: Op, total: Array) -> Array:
    x, out = _io(op)
    if x.q is not None and out.q is not None:
        return QNN.requantize(total, mean_factors(op), out.q)
    real = total if x.q is None else total * np.float64(as_float32(x.q.scale))
    if op.kind.endswith("ReduceSum"):
        return from_float(out, real if real.dtype.kind != "f" else real.astype(np.float32))
    return from_float(out, (real / element_counts(op)).astype(np.float32))


def min_or_max(function: Any) -> Any:
    """``ReduceMax``, ``ReduceMin``: on stored values, since quantization preserves order."""

    def reference(op: Op, arrays: Sequence[Array]) -> Array:
        x, out = _io(op)
        result = np.asarray(function(arrays[0], axis=tuple(op.args["axes"]))).reshape(out.bound)
        return convert_elements(x, result, out) if x.q is not None else from_float(out, result)

    return reference


def cumulative_sum(op: Op, arrays: Sequence[Array]) -> Array:
    """``CumulativeSum``."""
    x, out = _io(op)
    axis, wide = int(op.args["axis"]), _widen(x, arrays[0])
    ordered = np.flip(wide, axis) if op.args["reverse"] else wide
    total = np.cumsum(ordered, axis, dtype=ordered.dtype)
    total = total - ordered if op.args["exclusive"] else total
    total = np.flip(total, axis) if op.args["reverse"] else total
    if x.q is not None and out.q is not None:
        return QNN.requantize(total, as_float32(x.q.scale) / as_float32(out.q.scale), out.q)
    return from_float(out, total if total.dtype.kind != "f" else total.astype(np.float32))
