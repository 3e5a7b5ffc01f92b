"""Pairwise p-norm distances between matrix rows."""

from __future__ import annotations

import math

import numpy as np

from edgewright.ir.aten.reference.dims import Array, Shape, numel
from edgewright.ir.aten.reference.elementwise import promote_operands

# Elements of the difference buffer: large enough for numpy to be efficient, small compared to any input.
_BLOCK = 1 << 16


def _norm(difference: Array, p: float) -> Array:
    """The p-norm over the last dim; 0 counts differences, inf is the maximum."""
    size = np.abs(difference)
    if p == 0:
        return np.asarray(np.sum(size != 0, axis=-1, dtype=difference.dtype))
    if math.isinf(p):
        return np.asarray(np.max(size, axis=-1))
    if p == 1:
        return np.asarray(np.sum(size, axis=-1))
    if p == 2:
        return np.asarray(np.sqrt(np.sum(size * size, axis=-1)))
    return np.asarray(np.sum(size ** difference.dtype.type(p), axis=-1) ** difference.dtype.type(1 / p))


def _check_p(p: float) -> None:
    if not p >= 0:
        raise ValueError(f"p must not be negative, got {p}")


def cdist(x1: Array, x2: Array, p: float = 2.0, compute_mode: int | None = None) -> Array:
    """From every row of ``x1`` to every row of ``x2``. ``compute_mode`` is ignored: it only selects an algorithm."""
    shape = cdist_shape(x1, x2, p)
    a, b = promote_operands(x1, x2, 0.0)[:2]
    result = np.zeros(shape, a.dtype)
    if not result.size or not a.shape[-1]:
        return result
    batch = shape[:-2]
    a, b = (np.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (a, b))
    rows = max(_BLOCK // numel(b.shape[-2:]), 1)
    for at in np.ndindex(*batch):
        for first in range(0, shape[-2], rows):
            block = slice(first, first + rows)
            result[at][block] = _norm(a[at][block, None] - b[at], p)
    return result


def cdist_shape(x1: Array, x2: Array, p: float = 2.0, compute_mode: int | None = None) -> Shape:
    _check_p(p)
    if min(x1.ndim, x2.ndim) < 2 or x1.shape[-1] != x2.shape[-1]:
        raise ValueError(f"matrices must have rows of one length, got shapes {list(x1.shape)} and {list(x2.shape)}")
    return (*np.broadcast_shapes(x1.shape[:-2], x2.shape[:-2]), x1.shape[-2], x2.shape[-2])


def pdist(self: Array, p: float = 2.0) -> Array:
    """From every row to every later row."""
    x = promote_operands(self, 0.0)[0]
    result = np.zeros(pdist_shape(self, p), x.dtype)
    if not result.size or not x.shape[1]:
        return result
    first, second = np.triu_indices(len(x), 1)
    pairs = max(_BLOCK // x.shape[1], 1)
    for start in range(0, len(result), pairs):
        block = slice(start, start + pairs)
        result[block] = _norm(x[first[block]] - x[second[block]], p)
    return result


def pdist_shape(self: Array, p: float = 2.0) -> Shape:
    _check_p(p)
    if self.ndim != 2:
        raise ValueError(f"tensor must be a matrix, got shape {list(self.shape)}")
    return (max(self.shape[0] * (self.shape[0] - 1) // 2, 0),)
