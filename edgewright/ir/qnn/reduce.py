"""References of average pooling and reductions.

Integer sums are exact and rescaled like accumulators of a product; floating point is summed in double precision.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from edgewright.ir.aten.reference.windows import reach
from edgewright.ir.graph import Array, Op, Value
from edgewright.ir.numerics import QNN, as_float32
from edgewright.ir.qnn.dtypes import centred, converted, half, stored

Params = Mapping[str, Any]


def visits(params: Params, sizes: Sequence[int], counts: Sequence[int]) -> Iterator[tuple[Any, Any]]:
    """Where each tap of the window is written and read."""
    for tap in np.ndindex(*params["filter_size"]):
        met = [
            reach(size, count, stride, t - before)
            for size, count, stride, t, (before, _) in zip(
                sizes, counts, params["stride"], tap, params["pad_amount"], strict=True
            )
        ]
        if None not in met:
            at, read = (tuple(m[i] for m in met if m is not None) for i in (0, 1))
            yield (slice(None), *at), (slice(None), *read)


def counts_of(op: Op) -> Array:
    """How many elements each mean is of: [1, ..., 1], or for each pixel of the result."""
    (x,), out = op.args["inputs"], op.outputs[0]
    assert out is not None
    if "axes" in op.args:
        return np.full((1,) * len(out.bound), math.prod(x.bound[a] for a in op.args["axes"]))
    if op.args["count_pad_for_edges"]:
        return np.full((1,) * len(out.bound), math.prod(op.args["filter_size"]))
    inside = np.zeros((1, *out.bound[1:-1], 1), np.int64)
    for at, _ in visits(op.args, x.bound[1:-1], out.bound[1:-1]):
        inside[at] += 1
    return np.maximum(inside, 1)


def factors_of(op: Op) -> Array:
    """What integer sums are multiplied by, shaped as ``counts_of``."""
    (x,), out = op.args["inputs"], op.outputs[0]
    assert out is not None and x.q is not None and out.q is not None
    counts = counts_of(op) if not op.kind.endswith("ReduceSum") else np.ones((1,) * len(out.bound))
    return np.asarray(as_float32(x.q.scale) / (as_float32(out.q.scale) * counts.astype(np.float32)), np.float32)


def _ends(op: Op) -> tuple[Value, Value]:
    (x,), out = op.args["inputs"], op.outputs[0]
    assert out is not None
    return x, out


def _wide(x: Value, array: Array) -> Array:
    if x.q is not None:
        return centred(array, x.q, np.int64)
    return half(array).astype(np.float64) if array.dtype.kind == "f" else array


def average(op: Op, arrays: Sequence[Array]) -> Array:
    """``PoolAvg2d``, ``PoolAvg3d``."""
    x, out = _ends(op)
    wide = _wide(x, arrays[0])
    total = np.zeros(out.bound, wide.dtype)
    for at, read in visits(op.args, x.bound[1:-1], out.bound[1:-1]):
        total[at] += wide[read]
    return _finished(op, total)


def reduced(op: Op, arrays: Sequence[Array]) -> Array:
    """``ReduceMean``, ``ReduceSum``."""
    x, out = _ends(op)
    return _finished(op, _wide(x, arrays[0]).sum(axis=tuple(op.args["axes"])).reshape(out.bound))


def _finished(op: Op, total: Array) -> Array:
    x, out = _ends(op)
    if x.q is not None and out.q is not None:
        return QNN.requantize(total, factors_of(op), out.q)
    real = total if x.q is None else total * np.float64(as_float32(x.q.scale))
    if op.kind.endswith("ReduceSum"):
        return stored(out, real if real.dtype.kind != "f" else real.astype(np.float32))
    return stored(out, (real / counts_of(op)).astype(np.float32))


def extreme(function: Any) -> Any:
    """``ReduceMax``, ``ReduceMin``: of what is stored, which is in the order of what it stands for."""

    def meaning(op: Op, arrays: Sequence[Array]) -> Array:
        x, out = _ends(op)
        made = np.asarray(function(arrays[0], axis=tuple(op.args["axes"]))).reshape(out.bound)
        return converted(x, made, out) if x.q is not None else stored(out, made)

    return meaning


def running(op: Op, arrays: Sequence[Array]) -> Array:
    """``CumulativeSum``."""
    x, out = _ends(op)
    axis, wide = int(op.args["axis"]), _wide(x, arrays[0])
    turned = np.flip(wide, axis) if op.args["reverse"] else wide
    total = np.cumsum(turned, axis, dtype=turned.dtype)
    total = total - turned if op.args["exclusive"] else total
    total = np.flip(total, axis) if op.args["reverse"] else total
    if x.q is not None and out.q is not None:
        return QNN.requantize(total, as_float32(x.q.scale) / as_float32(out.q.scale), out.q)
    return stored(out, total if total.dtype.kind != "f" else total.astype(np.float32))
