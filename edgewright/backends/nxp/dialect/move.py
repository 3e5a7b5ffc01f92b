"""References of data movement: input and output have the same quantization parameters."""

from __future__ import annotations

from collections.abc import Sequence

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
