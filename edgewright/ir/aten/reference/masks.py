"""Operators with data-dependent result sizes, and their inverse."""

from __future__ import annotations

import numpy as np

from edgewright.ir.aten.reference.dims import Array, Shape, numel


def masked_select_shape(self: Array, mask: Array) -> Shape:
    full = np.broadcast_shapes(self.shape, mask.shape)
    return (int(np.count_nonzero(mask)) * numel(full) // max(mask.size, 1),)


def masked_select(self: Array, mask: Array) -> Array:
    full = np.broadcast_shapes(self.shape, mask.shape)
    return np.asarray(np.broadcast_to(self, full)[np.broadcast_to(mask.astype(np.bool_), full)])


def masked_scatter_shape(self: Array, mask: Array, source: Array) -> Shape:
    (count,) = masked_select_shape(self, mask)
    if source.size < count:
        raise ValueError(f"source must have an element for each of {count} set in mask, got {source.size}")
    return np.broadcast_shapes(self.shape, mask.shape)


def masked_scatter(self: Array, mask: Array, source: Array) -> Array:
    """A copy with the elements of ``source``, in order, where ``mask`` is set."""
    full = np.broadcast_shapes(self.shape, mask.shape)
    result, where = np.broadcast_to(self, full).copy(), np.broadcast_to(mask.astype(np.bool_), full)
    result[where] = source.reshape(-1)[: np.count_nonzero(where)]
    return result


def nonzero_shape(self: Array) -> Shape:
    return (int(np.count_nonzero(self)), self.ndim)


def nonzero(self: Array) -> Array:
    return np.argwhere(self)


def repeat_interleave_shape(repeats: Array, output_size: int | None = None) -> Shape:
    if repeats.ndim != 1 or repeats.dtype.kind not in "iu":
        raise ValueError(f"repeats must be one list of integers, got {repeats.dtype}{list(repeats.shape)}")
    if repeats.size and int(repeats.min()) < 0:
        raise ValueError(f"repeats must not be negative, got {repeats.min()}")
    total = sum(repeats.tolist())
    if output_size is not None and output_size != total:
        raise ValueError(f"output_size must be the sum of repeats, {total}, got {output_size}")
    return (total,)


def repeat_interleave(repeats: Array, output_size: int | None = None) -> Array:
    """Each index into ``repeats``, repeated that many times."""
    return np.repeat(np.arange(repeats.size), repeats)
