"""Data movement: reshapes, permutations, slices, concatenation, rearranging views and padding."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

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
from edgewright.ir.dtypes import promote

# ------------------------------------------------------------------------------------------------------------- movement

# Data movement: reshapes, permutations, slices and repetitions.
#
# Returns a view of the input wherever numpy can express one.


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


# ------------------------------------------------------------------------------------------------------------ rearrange

# Concatenation and splitting, and rearranging views: windows, strides, pixel blocks.

# A file lists results one by one; the split of an empty tensor of huge size must not create more.
MAX_PIECES = 1 << 16


def cat(tensors: Sequence[Array], dim: int = 0) -> Array:
    """Concatenation along ``dim``, in the promoted dtype. Empty 1-d tensors are ignored."""
    dtype = promote(*(t.dtype for t in tensors))
    parts = [t.astype(dtype, copy=False) for t in tensors if t.shape != (0,)]
    return np.concatenate(parts, normal_dim(dim, parts[0].ndim)) if parts else np.empty((0,), dtype)


def cat_shape(tensors: Sequence[Array], dim: int = 0) -> Shape:
    shapes = [t.shape for t in tensors if t.shape != (0,)] or [t.shape for t in tensors[:1]]
    if not shapes:
        raise ValueError("there must be a tensor to concatenate")
    axis = existing_dim(dim, len(shapes[0]))
    total = 0
    for shape in shapes:
        if len(shape) != len(shapes[0]) or with_size(shape, axis, 0) != with_size(shapes[0], axis, 0):
            raise ValueError(f"shapes must agree except in dim {axis}, got {list(shapes[0])} and {list(shape)}")
        total += shape[axis]
    return with_size(shapes[0], axis, total)


def stack(tensors: Sequence[Array], dim: int = 0) -> Array:
    """Concatenation along a new ``dim``, in the promoted dtype."""
    dtype = promote(*(t.dtype for t in tensors))
    return np.stack([t.astype(dtype, copy=False) for t in tensors], normal_dim(dim, tensors[0].ndim + 1))


def stack_shape(tensors: Sequence[Array], dim: int = 0) -> Shape:
    if not tensors:
        raise ValueError("there must be a tensor to stack")
    shape = tensors[0].shape
    for tensor in tensors:
        if tensor.shape != shape:
            raise ValueError(f"shapes must be equal, got {list(shape)} and {list(tensor.shape)}")
    axis = normal_dim(dim, len(shape) + 1)
    return (*shape[:axis], len(tensors), *shape[axis:])


def split_sizes(self: Array, split_size: int, dim: int = 0) -> list[int]:
    """The sizes of equal pieces, the last of which may be smaller."""
    size = self.shape[existing_dim(dim, self.ndim)]
    if split_size < 0 or (size and not split_size):
        raise ValueError(f"split size must be positive, got {split_size}")
    count = max(-(-size // max(split_size, 1)), 1)
    if count > MAX_PIECES:
        raise ValueError(f"a tensor splits into at most {MAX_PIECES} pieces, got {count}")
    return [split_size] * (count - 1) + [size - split_size * (count - 1)]


def split(self: Array, split_size: int, dim: int = 0) -> list[Array]:
    """Pieces of ``split_size`` positions of ``dim``; the last may be smaller."""
    return split_with_sizes(self, split_sizes(self, split_size, dim), dim)


def split_shape(self: Array, split_size: int, dim: int = 0) -> list[Shape]:
    return split_with_sizes_shape(self, split_sizes(self, split_size, dim), dim)


def split_with_sizes(self: Array, split_sizes: Sequence[int], dim: int = 0) -> list[Array]:
    axis = existing_dim(dim, self.ndim)
    ends = np.cumsum([0, *split_sizes]).tolist()
    return [index_dim(self, axis, slice(a, b)) for a, b in pairwise(ends)]


def split_with_sizes_shape(self: Array, split_sizes: Sequence[int], dim: int = 0) -> list[Shape]:
    axis = existing_dim(dim, self.ndim)
    if any(s < 0 for s in split_sizes) or sum(split_sizes) != self.shape[axis]:
        raise ValueError(f"split sizes must add up to {self.shape[axis]}, got {list(split_sizes)[:8]}")
    return [with_size(self.shape, axis, size) for size in split_sizes]


def unbind(self: Array, dim: int = 0) -> list[Array]:
    """The slices at each position of ``dim``, without it."""
    return list(np.moveaxis(self, existing_dim(dim, self.ndim), 0))


def unbind_shape(self: Array, dim: int = 0) -> list[Shape]:
    axis = existing_dim(dim, self.ndim)
    if self.shape[axis] > MAX_PIECES:
        raise ValueError(f"a tensor splits into at most {MAX_PIECES} pieces, got {self.shape[axis]}")
    return [self.shape[:axis] + self.shape[axis + 1 :]] * self.shape[axis]


def as_strided(self: Array, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Array:
    """Read the tensor's storage with other sizes and strides."""
    shape = as_strided_shape(self, size, stride, storage_offset)
    if not numel(shape):
        return np.empty(shape, self.dtype)
    memory = self.ravel(order="K")[storage_offset or 0 :]
    steps = tuple(s * self.itemsize if n > 1 else 0 for s, n in zip(stride, size, strict=True))
    return _strided_view(memory, shape, steps)


def _strided_view(array: Array, shape: Shape, strides: Shape) -> Array:
    """A read-only view with these byte strides, which must stay inside ``array``."""
    raw = array.view(f"V{array.itemsize}")  # numpy rejects custom dtypes here
    return np.lib.stride_tricks.as_strided(raw, shape, strides, writeable=False).view(array.dtype)


def as_strided_shape(
    self: Array, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Shape:
    first = storage_offset or 0
    if len(size) != len(stride) or min(0, first, *size, *stride) < 0:
        raise ValueError(
            f"sizes, strides and offset must match and not be negative, got {list(size)}, {list(stride)}, {first}"
        )
    last = first + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    if numel(size) and last >= self.size:
        raise ValueError(f"element {last} is outside the tensor's memory of {self.size}")
    return tuple(size)


def unfold(self: Array, dimension: int, size: int, step: int) -> Array:
    """Windows of ``size`` along ``dimension`` with ``step``; positions within a window become the last dim."""
    if not self.ndim:
        return self.reshape(1)[:size]
    axis, shape = normal_dim(dimension, self.ndim), unfold_shape(self, dimension, size, step)
    if not numel(shape):
        return np.empty(shape, self.dtype)
    stride = step * self.strides[axis] if shape[axis] > 1 else 0
    return _strided_view(self, shape, (*with_size(self.strides, axis, stride), self.strides[axis]))


def unfold_shape(self: Array, dimension: int, size: int, step: int) -> Shape:
    axis = normal_dim(dimension, self.ndim)
    length = self.shape[axis] if self.ndim else 1
    if step < 1 or not 0 <= size <= length:
        raise ValueError(f"window must have a size in [0, {length}] and a positive step, got {size} and {step}")
    return (*with_size(self.shape, axis, (length - size) // step + 1), size)


def pixel_shuffle(self: Array, upscale_factor: int) -> Array:
    """Channels to blocks of ``upscale_factor`` x ``upscale_factor`` pixels."""
    *batch, c, h, w = self.shape
    n = len(batch)
    x = self.reshape(*batch, c // upscale_factor**2, upscale_factor, upscale_factor, h, w)
    return x.transpose(*range(n + 1), n + 3, n + 1, n + 4, n + 2).reshape(pixel_shuffle_shape(self, upscale_factor))


def pixel_shuffle_shape(self: Array, upscale_factor: int) -> Shape:
    *batch, c, h, w = _check_image(self, upscale_factor)
    if c % upscale_factor**2:
        raise ValueError(f"factor {upscale_factor} squared must divide the {c} channels")
    return (*batch, c // upscale_factor**2, h * upscale_factor, w * upscale_factor)


def pixel_unshuffle(self: Array, downscale_factor: int) -> Array:
    """Blocks of ``downscale_factor`` x ``downscale_factor`` pixels to channels."""
    *batch, c, h, w = self.shape
    n = len(batch)
    x = self.reshape(*batch, c, h // downscale_factor, downscale_factor, w // downscale_factor, downscale_factor)
    return x.transpose(*range(n + 1), n + 2, n + 4, n + 1, n + 3).reshape(pixel_unshuffle_shape(self, downscale_factor))


def pixel_unshuffle_shape(self: Array, downscale_factor: int) -> Shape:
    *batch, c, h, w = _check_image(self, downscale_factor)
    if h % downscale_factor or w % downscale_factor:
        raise ValueError(f"factor {downscale_factor} must divide height {h} and width {w}")
    return (*batch, c * downscale_factor**2, h // downscale_factor, w // downscale_factor)


def _check_image(self: Array, factor: int) -> Shape:
    if self.ndim < 3:
        raise ValueError(f"tensor must have channels, height and width, got shape {list(self.shape)}")
    if factor < 1:
        raise ValueError(f"factor must be positive, got {factor}")
    return self.shape


def chunk(self: Array, chunks: int, dim: int = 0) -> list[Array]:
    """At most ``chunks`` pieces of equal size, the last of which may be smaller."""
    return split(self, _chunk_size(self, chunks, dim), dim)


def chunk_shape(self: Array, chunks: int, dim: int = 0) -> list[Shape]:
    return split_shape(self, _chunk_size(self, chunks, dim), dim)


def _chunk_size(self: Array, chunks: int, dim: int) -> int:
    if chunks < 1:
        raise ValueError(f"chunks must be positive, got {chunks}")
    return max(-(-self.shape[existing_dim(dim, self.ndim)] // chunks), 1)


def channel_shuffle(self: Array, groups: int) -> Array:
    """Channels (dimension 1) interleaved between groups."""
    channels = channel_shuffle_shape(self, groups)[1]
    interleaved = self.reshape(self.shape[0], groups, channels // groups, *self.shape[2:])
    return interleaved.swapaxes(1, 2).reshape(self.shape)


def channel_shuffle_shape(self: Array, groups: int) -> Shape:
    if self.ndim < 3 or groups < 1 or self.shape[1] % groups:
        raise ValueError(f"groups must divide the channels of {list(self.shape)}, got {groups}")
    return self.shape


# ------------------------------------------------------------------------------------------------------------------ pad

# Padding. ``padding`` has two numbers per padded dim, last dim first; negative ones crop.


def _sides(self: Array, padding: Sequence[int]) -> list[tuple[int, int]]:
    """(before, after) of every dim, first dim first."""
    if len(padding) % 2 or len(padding) > 2 * self.ndim:
        raise ValueError(f"padding must be pairs for at most {self.ndim} dims, got {list(padding)}")
    pairs = [(padding[i], padding[i + 1]) for i in range(0, len(padding), 2)]
    return [(0, 0)] * (self.ndim - len(pairs)) + pairs[::-1]


def _padded_shape(self: Array, sides: Sequence[tuple[int, int]]) -> Shape:
    return tuple(size + before + after for size, (before, after) in zip(self.shape, sides, strict=True))


def constant_pad(self: Array, pad: Sequence[int], value: Any = 0) -> Array:
    """Pads with ``value``, in the tensor's dtype."""
    sides = _sides(self, pad)
    result = np.empty(_padded_shape(self, sides), self.dtype)
    result[...] = np.asarray(value).astype(self.dtype)
    inner = tuple(slice(max(a, 0), n - max(b, 0)) for n, (a, b) in zip(result.shape, sides, strict=True))
    source = tuple(slice(max(-a, 0), n - max(-b, 0)) for n, (a, b) in zip(self.shape, sides, strict=True))
    result[inner] = self[source]
    return result


def constant_pad_shape(self: Array, pad: Sequence[int], value: Any = 0) -> Shape:
    sides = _sides(self, pad)
    for size, (before, after) in zip(self.shape, sides, strict=True):
        if size + min(before, 0) + min(after, 0) < 0:
            raise ValueError(f"padding {list(pad)} crops more than the size of shape {list(self.shape)}")
    return _padded_shape(self, sides)


def _repeat_sides(self: Array, padding: Sequence[int]) -> list[tuple[int, int]]:
    """Validated sides of a padding that repeats elements: a channel dim, an optional batch, and nonempty data."""
    spatial = len(padding) // 2
    sides = _sides(self, padding)
    if self.ndim not in (spatial + 1, spatial + 2) or 0 in self.shape[-spatial - 1 :]:
        raise ValueError(f"shape {list(self.shape)} must be channels and {spatial} sizes, none of them 0")
    if min(_padded_shape(self, sides)[-spatial:]) < 1:
        raise ValueError(f"padding {list(padding)} leaves nothing of shape {list(self.shape)}")
    return sides


def reflection_pad_shape(self: Array, padding: Sequence[int]) -> Shape:
    sides = _repeat_sides(self, padding)
    if any(max(side) >= size and max(side) > 0 for side, size in zip(sides, self.shape, strict=True)):
        raise ValueError(f"padding {list(padding)} must be smaller than the sizes of shape {list(self.shape)}")
    return _padded_shape(self, sides)


def reflection_pad(self: Array, padding: Sequence[int]) -> Array:
    """With the elements mirrored at the borders, which are not repeated."""
    shape = reflection_pad_shape(self, padding)
    return _gather_positions(self, padding, shape, lambda at, last: last - np.abs(last - np.abs(at)))


def replication_pad_shape(self: Array, padding: Sequence[int]) -> Shape:
    return _padded_shape(self, _repeat_sides(self, padding))


def replication_pad(self: Array, padding: Sequence[int]) -> Array:
    """Repeats the border elements."""
    shape = replication_pad_shape(self, padding)
    return _gather_positions(self, padding, shape, lambda at, last: np.clip(at, 0, last))


def _gather_positions(self: Array, padding: Sequence[int], shape: Shape, source: Any) -> Array:
    """The element at ``source(position)``, where 0 is the first and ``last`` the last that exists."""
    if not numel(shape):  # then nothing bounds the positions
        return np.empty(shape, self.dtype)
    spatial = len(padding) // 2
    positions = []
    for dim in range(-spatial, 0):
        before = padding[2 * (-dim - 1)]
        at = source(np.arange(-before, shape[dim] - before), self.shape[dim] - 1)
        positions.append(at.reshape(-1, *(1,) * (-dim - 1)))
    where = (..., *positions)
    return np.asarray(self[where])


_MODES = {"reflect": (reflection_pad, reflection_pad_shape), "replicate": (replication_pad, replication_pad_shape)}


def pad_by_mode(self: Array, pad: Sequence[int], mode: str = "constant", value: Any = None) -> Array:
    """``constant_pad``, ``reflection_pad`` or ``replication_pad``."""
    if mode == "constant":
        return constant_pad(self, pad, 0 if value is None else value)
    if mode not in _MODES:
        raise ValueError(f"mode must be 'constant', 'reflect' or 'replicate', got {mode!r}")
    return _MODES[mode][0](self, pad)


def pad_by_mode_shape(self: Array, pad: Sequence[int], mode: str = "constant", value: Any = None) -> Shape:
    if mode != "constant" and mode not in _MODES:
        raise ValueError(f"mode must be 'constant', 'reflect' or 'replicate', got {mode!r}")
    return constant_pad_shape(self, pad) if mode == "constant" else _MODES[mode][1](self, pad)
