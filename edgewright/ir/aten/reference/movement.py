"""Data movement: reshapes, permutations, slices and repetitions.

Returns a view of the input wherever numpy can express one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgewright.ir.aten.reference.dims import (
    Array,
    Shape,
    existing_dim,
    index_dim,
    normal_dim,
    normal_dims,
    normal_index,
    numel,
    slice_bounds,
    slice_length,
    with_size,
)


def view(self: Array, size: Sequence[int]) -> Array:
    """The elements in the same (logical) order, in another shape; one size may be -1."""
    return self.reshape(view_shape(self, size))


def view_shape(self: Array, size: Sequence[int]) -> Shape:
    size_product = numel([s for s in size if s != -1])
    unknown = list(size).count(-1)
    if unknown > 1 or any(s < -1 for s in size) or (unknown and not size_product):
        raise ValueError(f"view shape must be sizes and at most one -1 that follows from them, got {list(size)}")
    shape = tuple(self.size // size_product if s == -1 else s for s in size)
    if numel(shape) != self.size:
        raise ValueError(f"shape {list(self.shape)} cannot be viewed as {list(size)}")
    return shape


def permute(self: Array, dims: Sequence[int]) -> Array:
    return self.transpose([normal_dim(d, self.ndim) for d in dims])


def permute_shape(self: Array, dims: Sequence[int]) -> Shape:
    if len(dims) != self.ndim:
        raise ValueError(f"permutation must name all {self.ndim} dims, got {list(dims)}")
    normal_dims(dims, self.ndim)
    return tuple(self.shape[normal_dim(d, self.ndim)] for d in dims)


def transpose(self: Array, dim0: int, dim1: int) -> Array:
    return self.swapaxes(normal_dim(dim0, self.ndim), normal_dim(dim1, self.ndim)) if self.ndim else self


def transpose_shape(self: Array, dim0: int, dim1: int) -> Shape:
    shape = list(self.shape)
    a, b = normal_dim(dim0, self.ndim), normal_dim(dim1, self.ndim)
    if shape:
        shape[a], shape[b] = shape[b], shape[a]
    return tuple(shape)


def matrix_transpose(self: Array) -> Array:
    """The transpose of a matrix; vectors and scalars are unchanged."""
    return self.T


def matrix_transpose_shape(self: Array) -> Shape:
    if self.ndim > 2:
        raise ValueError(f"only tensors of at most 2 dims are transposed without naming dims, got {self.ndim}")
    return self.shape[::-1]


def squeeze(self: Array, dim: Sequence[int] | int | None = None) -> Array:
    """Without those of ``dim`` (None: all) that have size 1."""
    return self.reshape(squeeze_shape(self, dim))


def squeeze_shape(self: Array, dim: Sequence[int] | int | None = None) -> Shape:
    dims = normal_dims(dim, self.ndim, empty_is_all=False)
    return tuple(size for i, size in enumerate(self.shape) if size != 1 or i not in dims)


def unsqueeze(self: Array, dim: int) -> Array:
    return self.reshape(unsqueeze_shape(self, dim))


def unsqueeze_shape(self: Array, dim: int) -> Shape:
    at = normal_dim(dim, self.ndim + 1)
    return (*self.shape[:at], 1, *self.shape[at:])


def expand(self: Array, size: Sequence[int], implicit: bool = False) -> Array:
    """Broadcast along dims of size 1 and new leading ones; -1 leaves a dim unchanged."""
    return np.broadcast_to(self, expand_shape(self, size))


def expand_shape(self: Array, size: Sequence[int], implicit: bool = False) -> Shape:
    new = len(size) - self.ndim
    if new < 0 or any(s < 0 for s in size[:new]):
        raise ValueError(f"shape {list(self.shape)} cannot be expanded to {list(size)}")
    sizes = tuple(old if s == -1 else s for s, old in zip(size[new:], self.shape, strict=True))
    if any(s < 0 or old not in (1, s) for s, old in zip(sizes, self.shape, strict=True)):
        raise ValueError(f"shape {list(self.shape)} cannot be expanded to {list(size)}")
    return (*size[:new], *sizes)


def repeat(self: Array, repeats: Sequence[int]) -> Array:
    """The tensor tiled along each dim; surplus leading repeats add dims."""
    shape = repeat_shape(self, repeats)
    return np.tile(self, tuple(repeats)) if numel(shape) else np.empty(shape, self.dtype)


def repeat_shape(self: Array, repeats: Sequence[int]) -> Shape:
    new = len(repeats) - self.ndim
    if new < 0 or any(r < 0 for r in repeats):
        raise ValueError(f"repeats must be counts, at least one for each of {self.ndim} dims, got {list(repeats)}")
    return tuple(r * size for r, size in zip(repeats, (*(1,) * new, *self.shape), strict=True))


def slice_(self: Array, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Array:
    """Every ``step``-th position from ``start`` up to ``end``, both clamped to the tensor."""
    axis = existing_dim(dim, self.ndim)
    first, last = slice_bounds(start, end, self.shape[axis])
    return index_dim(self, axis, slice(first, last, step))


def slice_shape(self: Array, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Shape:
    axis = existing_dim(dim, self.ndim)
    return with_size(self.shape, axis, slice_length(start, end, step, self.shape[axis]))


def narrow(self: Array, dim: int, start: int, length: int) -> Array:
    """``length`` positions from ``start``, all of which must exist."""
    axis = existing_dim(dim, self.ndim)
    first = start + self.shape[axis] if start < 0 else start
    return index_dim(self, axis, slice(first, first + length))


def narrow_shape(self: Array, dim: int, start: int, length: int) -> Shape:
    axis = existing_dim(dim, self.ndim)
    size = self.shape[axis]
    first = start + size if start < 0 else start
    if length < 0 or not 0 <= first <= size - length:
        raise IndexError(f"start {start} and length {length} reach outside a dimension of size {size}")
    return with_size(self.shape, axis, length)


def select(self: Array, dim: int, index: int) -> Array:
    axis = existing_dim(dim, self.ndim)
    return index_dim(self, axis, normal_index(index, self.shape[axis]))


def select_shape(self: Array, dim: int, index: int) -> Shape:
    axis = existing_dim(dim, self.ndim)
    normal_index(index, self.shape[axis])
    return self.shape[:axis] + self.shape[axis + 1 :]


def flip(self: Array, dims: Sequence[int]) -> Array:
    return np.flip(self, normal_dims(dims, self.ndim, empty_is_all=False))


def flip_shape(self: Array, dims: Sequence[int]) -> Shape:
    normal_dims(dims, self.ndim, empty_is_all=False)
    return self.shape


def roll(self: Array, shifts: Sequence[int], dims: Sequence[int] = ()) -> Array:
    """Each dim rotated by its shift; without dims, the flattened tensor by the only shift."""
    if not self.size:
        return self
    if not dims:
        return np.roll(self, shifts[0] % self.size)
    axes = [existing_dim(d, self.ndim) for d in dims]
    return np.roll(self, [s % self.shape[a] for s, a in zip(shifts, axes, strict=True)], axes)


def roll_shape(self: Array, shifts: Sequence[int], dims: Sequence[int] = ()) -> Shape:
    if not shifts or len(shifts) != (len(dims) or 1):
        raise ValueError(f"there must be one shift for each dim, got {list(shifts)} for {list(dims)}")
    for dim in dims:
        existing_dim(dim, self.ndim)
    return self.shape


def diagonal(self: Array, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Array:
    """The diagonal of two dims, moved to the end."""
    a, b = normal_dim(dim1, self.ndim), normal_dim(dim2, self.ndim)
    inside = min(max(offset, -self.shape[a]), self.shape[b])
    return np.diagonal(self, inside, a, b)


def diagonal_shape(self: Array, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Shape:
    a, b = existing_dim(dim1, self.ndim), existing_dim(dim2, self.ndim)
    if a == b:
        raise ValueError(f"a diagonal needs two different dims, got {dim1} and {dim2}")
    rows, columns = self.shape[a] + min(offset, 0), self.shape[b] - max(offset, 0)
    outer = (size for i, size in enumerate(self.shape) if i not in (a, b))
    return (*outer, max(min(rows, columns), 0))


def tril(self: Array, diagonal: int = 0) -> Array:
    """The lower triangle of the last two dims, zeros elsewhere."""
    if not self.size:  # the mask alone could exceed the planned memory
        return self
    rows, columns = self.shape[-2:]
    offset = min(max(diagonal, -rows), columns)
    return np.where(np.tri(rows, columns, offset, dtype=np.bool_), self, np.zeros((), self.dtype))


def tril_shape(self: Array, diagonal: int = 0) -> Shape:
    if self.ndim < 2:
        raise ValueError(f"tensor must have at least 2 dims, got {self.ndim}")
    return self.shape


def flatten(self: Array, start_dim: int = 0, end_dim: int = -1) -> Array:
    """The dims from ``start_dim`` to ``end_dim`` as one."""
    return self.reshape(flatten_shape(self, start_dim, end_dim))


def flatten_shape(self: Array, start_dim: int = 0, end_dim: int = -1) -> Shape:
    first, last = normal_dim(start_dim, self.ndim), normal_dim(end_dim, self.ndim)
    if first > last:
        raise ValueError(f"start_dim must not come after end_dim, got {start_dim} and {end_dim}")
    return (*self.shape[:first], numel(self.shape[first : last + 1]), *self.shape[last + 1 :])


def expand_as(self: Array, other: Array) -> Array:
    return expand(self, other.shape)


def expand_as_shape(self: Array, other: Array) -> Shape:
    return expand_shape(self, other.shape)


def reshape(self: Array, shape: Sequence[int]) -> Array:
    return view(self, shape)


def reshape_shape(self: Array, shape: Sequence[int]) -> Shape:
    return view_shape(self, shape)
