"""Concatenation and splitting, and rearranging views: windows, strides, pixel blocks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from edgewright.ir.aten.reference.dims import Array, Shape, existing_dim, index_dim, normal_dim, numel, with_size
from edgewright.ir.dtypes import promote

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
