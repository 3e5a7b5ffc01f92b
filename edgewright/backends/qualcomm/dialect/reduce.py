"""Factors of means. Integer sums are exact, and rescaled like accumulators of a product."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from edgewright.ir.aten.reference.dims import reach
from edgewright.ir.graph import Array, Op
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
    if "counts" in op.args:  # of a pool whose padding was made explicit
        return np.asarray(op.args["counts"])
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
