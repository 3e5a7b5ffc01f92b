"""Pooling over one, two or three dimensions, one dimension at a time, and adaptive pooling."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from edgewright.ir.aten.reference.dims import Array, Reach, Shape, at_dim, cheaper_first, numel, per_axis, reach
from edgewright.ir.dtypes import compute_type, is_integral


class _Axis(NamedTuple):
    """The windows along one dimension."""

    size: int
    windows: int
    kernel: int
    stride: int
    padding: int
    dilation: int


def _axes(
    self: Array,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    rank: int = 2,
) -> list[_Axis]:
    if self.ndim not in (rank + 1, rank + 2) or 0 in self.shape[1:] or (self.ndim == rank + 1 and 0 in self.shape):
        raise ValueError(f"input must be [(batch,) channels, then {rank} sizes], got {list(self.shape)}")
    kernel = per_axis(kernel_size, rank, "kernel_size", 1)
    strides = per_axis(stride, rank, "stride", 1) if stride else kernel
    paddings, dilations = per_axis(padding, rank, "padding", 0), per_axis(dilation, rank, "dilation", 1)
    axes = []
    for size, k, s, p, d in zip(self.shape[-rank:], kernel, strides, paddings, dilations, strict=True):
        if 2 * p > k:
            raise ValueError(f"padding must be at most half the kernel, got {p} for {k}")
        count = (size + 2 * p - d * (k - 1) - 1 + (s - 1 if ceil_mode else 0)) // s + 1
        if ceil_mode and (count - 1) * s >= size + p:  # the last window must start inside the input
            count -= 1
        if count < 1:
            raise ValueError(f"the window must fit in the padded input, got kernel {k} for size {size}")
        axes.append(_Axis(size, count, k, s, p, d))
    return axes


def _pooled_shape(self: Array, axes: list[_Axis]) -> Shape:
    return (*self.shape[: -len(axes)], *(axis.windows for axis in axes))


def _tap_visits(axis: _Axis) -> Iterator[Reach]:
    """For each tap, the windows it is part of and the elements it reads there.

    Only taps that overlap the input are visited: at most about three per input element, because padding is at most half
    a kernel.
    """
    size, count, kernel, stride, padding, dilation = axis
    starts = [o * stride - padding for o in (range(count) if stride > size else (0, count - 1))]
    reached = [range(max(0, -(at // dilation)), min(kernel, (size - 1 - at) // dilation + 1)) for at in starts]
    taps = sorted(set().union(*reached)) if stride > size else range(reached[-1].start, reached[0].stop)
    for tap in taps:
        visits = reach(size, count, stride, tap * dilation - padding)
        if visits:
            yield visits


def max_pool2d_shape(
    self: Array,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> list[Shape]:
    return [_pooled_shape(self, _axes(self, kernel_size, stride, padding, dilation, ceil_mode))] * 2


def max_pool2d(
    self: Array,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> tuple[Array, Array]:
    """The maximum of each window and its index in the plane: the first of equals, but the last NaN."""
    height, width = _axes(self, kernel_size, stride, padding, dilation, ceil_mode)
    x = self.astype(compute_type(self.dtype), copy=False)
    values, indices = _max_along(x, np.broadcast_to(np.arange(width.size), x.shape), x.ndim - 1, width)
    return _max_along(values, indices + width.size * np.arange(height.size)[:, None], x.ndim - 2, height)


def _max_along(values: Array, indices: Array, dim: int, axis: _Axis) -> tuple[Array, Array]:
    shape = (*values.shape[:dim], axis.windows, *values.shape[dim + 1 :])
    best, where = np.empty(shape, values.dtype), np.empty(shape, np.int64)
    fresh = np.ones((axis.windows, *(1,) * (values.ndim - dim - 1)), np.bool_)
    for positions, elements in _tap_visits(axis):
        value, now = values[at_dim(dim, elements)], best[at_dim(dim, positions)]
        better = (value > now) | (value != value) | fresh[positions]
        np.copyto(now, value, where=better)
        np.copyto(where[at_dim(dim, positions)], indices[at_dim(dim, elements)], where=better)
        fresh[positions] = False
    return best, where


def max_pool2d_backward_shape(
    grad_output: Array,
    self: Array,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    indices: Array,
) -> Shape:
    pooled = _pooled_shape(self, _axes(self, kernel_size, stride, padding, dilation, ceil_mode))
    if grad_output.shape != pooled or indices.shape != pooled:
        raise ValueError(f"grad_output and indices must have shape {list(pooled)}, got {list(grad_output.shape)}")
    return self.shape


def max_pool2d_backward(
    grad_output: Array,
    self: Array,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    indices: Array,
) -> Array:
    """Scatters each gradient to the maximum of its window."""
    plane = numel(self.shape[-2:])
    if indices.size and not 0 <= int(indices.min()) <= int(indices.max()) < plane:
        raise IndexError(f"indices must be in [0, {plane - 1}]")
    planes = numel(self.shape[:-2])
    result = np.zeros((planes, plane), compute_type(grad_output.dtype))
    rows = np.arange(planes)[:, None]
    shape = (planes, numel(grad_output.shape[-2:]))
    np.add.at(result, (rows, indices.reshape(shape)), grad_output.reshape(shape).astype(result.dtype))
    return result.reshape(self.shape)


def avg_pool_shape(
    self: Array,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    rank: int = 2,
) -> Shape:
    if divisor_override == 0:
        raise ValueError("divisor must not be zero")
    return _pooled_shape(self, _axes(self, kernel_size, stride, padding, (1,), ceil_mode, rank))


def avg_pool(
    self: Array,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    rank: int = 2,
) -> Array:
    axes = _axes(self, kernel_size, stride, padding, (1,), ceil_mode, rank)
    result = self.astype(np.int64 if is_integral(self.dtype) else compute_type(self.dtype), copy=False)
    for dim, axis in zip(range(self.ndim - 1, self.ndim - 1 - rank, -1), reversed(axes), strict=True):
        total = np.zeros((*result.shape[:dim], axis.windows, *result.shape[dim + 1 :]), result.dtype)
        for positions, elements in _tap_visits(axis):
            total[at_dim(dim, positions)] += result[at_dim(dim, elements)]
        result = total
    if divisor_override is not None:
        return _divide(result, np.asarray(divisor_override, np.int64))
    extents = np.ix_(*(_extents(axis, count_include_pad) for axis in axes))
    return _divide(result, math.prod(extents[1:], start=extents[0]))


avg_pool2d, avg_pool2d_shape = avg_pool, avg_pool_shape


def _extents(axis: _Axis, with_padding: bool) -> Array:
    """The number of elements of each window along this dimension, with or without padding."""
    margin = axis.padding if with_padding else 0
    starts = [o * axis.stride - axis.padding for o in range(axis.windows)]
    ends = [min(s + axis.kernel, axis.size + axis.padding) for s in starts]
    limits = [(max(s, -margin), min(e, axis.size + margin)) for s, e in zip(starts, ends, strict=True)]
    return np.array([max(e - s, 1) for s, e in limits])


def _divide(total: Array, divisor: Array) -> Array:
    if total.dtype.kind != "i":
        return np.asarray(total / divisor.astype(total.dtype))
    return np.asarray(np.sign(total) * np.sign(divisor) * (np.abs(total) // np.abs(divisor)))  # towards zero


def adaptive_avg_pool2d_shape(self: Array, output_size: Sequence[int]) -> Shape:
    counts = per_axis(output_size, 2, "output_size", 0)
    if self.ndim not in (3, 4) or 0 in self.shape[-3:]:
        raise ValueError(f"input must be [(batch,) channels, height, width], got {list(self.shape)}")
    return (*self.shape[:-2], *counts)


def adaptive_avg_pool2d(self: Array, output_size: Sequence[int]) -> Array:
    """The mean of windows that divide the input as evenly as possible."""
    counts = per_axis(output_size, 2, "output_size", 0)
    result = self.astype(compute_type(self.dtype), copy=False)
    for dim in cheaper_first(self.shape[-2:], counts):
        size, count = self.shape[dim], counts[dim]
        parts = [
            result[at_dim(self.ndim + dim, slice(o * size // count, -(-(o + 1) * size // count)))].mean(dim)
            for o in range(count)
        ]
        empty = np.zeros((*result.shape[:dim], 0, *result.shape[dim:][1:]), result.dtype)
        result = np.stack(parts, dim) if parts else empty
    return result


Numbers = Sequence[int]

avg_pool3d, avg_pool3d_shape = partial(avg_pool, rank=3), partial(avg_pool_shape, rank=3)
avg_pool1d, avg_pool1d_shape = partial(avg_pool, rank=1), partial(avg_pool_shape, rank=1)


def _pair(values: Numbers, other: int) -> tuple[int, ...]:
    """A 1-d argument as the second of a pair; an empty one stays empty."""
    return (other, *values) if values else ()


def _max_pool1d(
    compute: Callable[..., Any], self: Array, kernel_size: Numbers, stride: Numbers = (), padding: Numbers = (0,),
    dilation: Numbers = (1,), ceil_mode: bool = False,
) -> Any:  # fmt: skip
    windows = _pair(kernel_size, 1), _pair(stride, 1), _pair(padding, 0), _pair(dilation, 1)
    result = compute(self[..., None, :], *windows, ceil_mode)[0]
    return (*result[:-2], result[-1]) if isinstance(result, tuple) else result[..., 0, :]


max_pool1d, max_pool1d_shape = partial(_max_pool1d, max_pool2d), partial(_max_pool1d, max_pool2d_shape)


def _adaptive(self: Array, output_size: Sequence[int | None], rank: int) -> Shape:
    """The sizes of the result along the pooled dimensions; None keeps a size."""
    if self.ndim not in (rank + 1, rank + 2) or 0 in self.shape[-rank - 1 :]:
        raise ValueError(f"input must be [(batch,) channels, then {rank} sizes], got {list(self.shape)}")
    sizes = [n if want is None else want for want, n in zip(output_size, self.shape[-rank:], strict=False)]
    return per_axis(sizes, rank, "output_size", 0)


def _adaptive_pool(self: Array, counts: Shape, reduction: str) -> Array:
    result = self.astype(compute_type(self.dtype), copy=False)
    for dim, count in enumerate(counts, self.ndim - len(counts)):
        size = self.shape[dim]
        spans = [slice(o * size // count, -(-(o + 1) * size // count)) for o in range(count)]
        parts = [getattr(result[at_dim(dim, span)], reduction)(axis=dim, keepdims=True) for span in spans]
        result = np.concatenate(parts, dim) if parts else result[at_dim(dim, slice(0))]
    return result


def adaptive_avg_pool1d_shape(self: Array, output_size: Numbers) -> Shape:
    return (*self.shape[:-1], *_adaptive(self, output_size, 1))


def adaptive_avg_pool1d(self: Array, output_size: Numbers) -> Array:
    return _adaptive_pool(self, _adaptive(self, output_size, 1), "mean")


def adaptive_avg_pool3d_shape(self: Array, output_size: Numbers) -> Shape:
    return (*self.shape[:-3], *_adaptive(self, output_size, 3))


def adaptive_avg_pool3d(self: Array, output_size: Numbers) -> Array:
    return _adaptive_pool(self, _adaptive(self, output_size, 3), "mean")


def adaptive_max_pool2d_shape(self: Array, output_size: Numbers) -> list[Shape]:
    return [(*self.shape[:-2], *_adaptive(self, output_size, 2))] * 2


def adaptive_max_pool2d(self: Array, output_size: Numbers) -> tuple[Array, Array]:
    """The maximum of each window and its index in the plane, first of equals; NaN is the largest."""
    (height, width), (rows, columns) = self.shape[-2:], _adaptive(self, output_size, 2)
    x = self.astype(compute_type(self.dtype), copy=False)
    best = np.empty((*self.shape[:-2], rows, columns), x.dtype)
    where = np.empty(best.shape, np.int64)
    for r in range(rows):
        top, bottom = r * height // rows, -(-(r + 1) * height // rows)
        for c in range(columns):
            left, right = c * width // columns, -(-(c + 1) * width // columns)
            window = x[..., top:bottom, left:right].reshape(*x.shape[:-2], -1)
            index = window.argmax(-1)
            best[..., r, c] = window.max(-1)
            where[..., r, c] = (top + index // (right - left)) * width + left + index % (right - left)
    return best, where
