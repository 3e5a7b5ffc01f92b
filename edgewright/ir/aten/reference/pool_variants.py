"""Pooling with the signatures of torch.nn.functional: over one, two or three dimensions, and adaptive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from edgewright.ir.aten.reference import pool
from edgewright.ir.aten.reference.dims import Array, Shape, at_dim
from edgewright.ir.aten.reference.windows import per_axis
from edgewright.ir.dtypes import compute_type

Numbers = Sequence[int]

avg_pool3d, avg_pool3d_shape = partial(pool.avg_pool, rank=3), partial(pool.avg_pool_shape, rank=3)
avg_pool1d, avg_pool1d_shape = partial(pool.avg_pool, rank=1), partial(pool.avg_pool_shape, rank=1)


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


max_pool1d, max_pool1d_shape = partial(_max_pool1d, pool.max_pool2d), partial(_max_pool1d, pool.max_pool2d_shape)


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
