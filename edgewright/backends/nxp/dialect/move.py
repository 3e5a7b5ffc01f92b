"""References of data movement and min/max reductions: input and output have the same quantization parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from edgewright.ir.graph import Array, Op


def reshape(op: Op, arrays: Sequence[Array]) -> Array:
    return arrays[0].reshape([int(n) for n in arrays[1]])


def transpose(op: Op, arrays: Sequence[Array]) -> Array:
    return np.ascontiguousarray(arrays[0].transpose([int(d) for d in arrays[1]]))


def concatenation(op: Op, arrays: Sequence[Array]) -> Array:
    return np.concatenate(list(arrays), axis=int(op.args["axis"]))


def slice_(op: Op, arrays: Sequence[Array]) -> Array:
    x, begin, size = arrays
    return np.ascontiguousarray(x[tuple(slice(int(b), int(b) + int(s)) for b, s in zip(begin, size, strict=True))])


def pad_v2(op: Op, arrays: Sequence[Array]) -> Array:
    x, widths, value = arrays
    return np.pad(x, [(int(a), int(b)) for a, b in widths], constant_values=value.reshape(-1)[0])


def mirror_pad(op: Op, arrays: Sequence[Array]) -> Array:
    """Mode 0 (REFLECT) excludes the edge element, mode 1 (SYMMETRIC) repeats it."""
    widths = [(int(a), int(b)) for a, b in arrays[1]]
    return np.pad(arrays[0], widths, mode="symmetric" if op.args["mode"] else "reflect")


def reduce_extremum(function: Callable[..., Any]) -> Callable[[Op, Sequence[Array]], Array]:
    """REDUCE_MAX or REDUCE_MIN."""

    def apply(op: Op, arrays: Sequence[Array]) -> Array:
        axes = tuple(int(a) for a in np.atleast_1d(arrays[1]))
        return np.asarray(function(arrays[0], axis=axes, keepdims=bool(op.args["keep_dims"])))

    return apply
