"""Reductions and scans: sums, moments, extremes and their indices, cumulative sums, top-k.

``dtype`` is a scalar type's number, or None: the input is cast to it before it is reduced.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.ir.aten.reference.dims import Array, Shape, normal_dim, normal_dims, numel, reduced_shape, with_size
from edgewright.ir.aten.reference.elementwise import promote_operands
from edgewright.ir.dtypes import compute_type, is_complex, is_integral, to_numpy

Dims = Sequence[int] | int | None


def reduction_shape(self: Array, dim: Dims = None, keepdim: bool = False, *_: Any, **__: Any) -> Shape:
    """The shape of a reduction over some dims; None and [] mean all."""
    return reduced_shape(self.shape, normal_dims(dim, self.ndim), keepdim)


def _operand(self: Array, dtype: int | None) -> Array:
    return self if dtype is None else self.astype(to_numpy(dtype), copy=False)


def _sum_type(array: Array) -> np.dtype[Any]:
    """The accumulator type: int64 for integers, float32 for small floats."""
    return np.dtype(np.int64) if is_integral(array.dtype) else compute_type(array.dtype)


def reduce_sum(self: Array, dim: Dims = None, keepdim: bool = False, dtype: int | None = None) -> Array:
    x = _operand(self, dtype)
    return np.asarray(np.sum(x, axis=normal_dims(dim, x.ndim), dtype=_sum_type(x), keepdims=keepdim))


def reduce_prod(self: Array, dim: Dims = None, keepdim: bool = False, dtype: int | None = None) -> Array:
    x = _operand(self, dtype)
    return np.asarray(np.prod(x, axis=normal_dims(dim, x.ndim), dtype=_sum_type(x), keepdims=keepdim))


def reduce_mean(self: Array, dim: Dims = None, keepdim: bool = False, dtype: int | None = None) -> Array:
    """The mean; NaN if empty."""
    x = _operand(self, dtype)
    dims = normal_dims(dim, x.ndim)
    kind = np.dtype(np.float64) if is_integral(x.dtype) else _sum_type(x)
    count = numel([x.shape[d] for d in dims])
    return np.asarray(np.sum(x, axis=dims, dtype=kind, keepdims=keepdim)) / kind.type(count)


def var_mean(
    self: Array, dim: Dims = None, correction: float | None = None, keepdim: bool = False
) -> tuple[Array, Array]:
    """Variance and mean. The divisor is the count minus ``correction`` (None: 1), at least 0."""
    x = promote_operands(self, 0.0)[0]
    dims = normal_dims(dim, x.ndim)
    count = numel([x.shape[d] for d in dims])
    mean = np.asarray(np.sum(x, axis=dims, keepdims=True)) / x.dtype.type(count)
    deviation = x - mean
    square = (deviation * deviation.conj()).real if is_complex(x.dtype) else deviation * deviation
    total = np.asarray(np.sum(square, axis=dims, keepdims=keepdim))
    divisor = max(count - (1 if correction is None else correction), 0)
    return total / total.dtype.type(divisor), mean.reshape(reduced_shape(x.shape, dims, keepdim))


def var_mean_shape(
    self: Array, dim: Dims = None, correction: float | None = None, keepdim: bool = False
) -> list[Shape]:
    return [reduction_shape(self, dim, keepdim)] * 2


def variance(
    self: Array,
    dim: Dims = None,
    correction: float | None = None,
    keepdim: bool = False,
    unbiased: bool = True,
) -> Array:
    """``unbiased`` is the legacy form of a correction of 1."""
    return var_mean(self, dim, int(unbiased) if correction is None else correction, keepdim)[0]


def variance_shape(
    self: Array,
    dim: Dims = None,
    correction: float | None = None,
    keepdim: bool = False,
    unbiased: bool = True,
) -> Shape:
    return reduction_shape(self, dim, keepdim)


def reduce_any(self: Array, dim: Dims = None, keepdim: bool = False) -> Array:
    """Whether any element is nonzero (NaN counts). Unlike elsewhere, [] means no dimension."""
    dims = normal_dims(dim, self.ndim, empty_is_all=False)
    return np.asarray(np.any(self.astype(np.bool_, copy=False), axis=dims, keepdims=keepdim))


def reduce_any_shape(self: Array, dim: Dims = None, keepdim: bool = False) -> Shape:
    return reduced_shape(self.shape, normal_dims(dim, self.ndim, empty_is_all=False), keepdim)


def extreme_shape(self: Array, dim: Dims = None, keepdim: bool = False) -> Shape:
    """Like ``reduction_shape``, but an empty reduction has no extreme."""
    dims = normal_dims(dim, self.ndim)
    shape = reduced_shape(self.shape, dims, keepdim)
    if numel(shape) and not numel([self.shape[d] for d in dims]):
        raise ValueError(f"cannot reduce an empty dimension of shape {list(self.shape)} to its extreme")
    return shape


def _comparable(self: Array) -> Array:
    """The same values in a dtype whose comparisons treat NaN as numpy does."""
    return self.astype(compute_type(self.dtype), copy=False)


def amax(self: Array, dim: Dims = None, keepdim: bool = False) -> Array:
    """The maximum; NaN propagates."""
    return _extreme(np.max, self, dim, keepdim)


def amin(self: Array, dim: Dims = None, keepdim: bool = False) -> Array:
    """The minimum; NaN propagates."""
    return _extreme(np.min, self, dim, keepdim)


def _extreme(extreme: Any, self: Array, dim: Dims, keepdim: bool) -> Array:
    shape = extreme_shape(self, dim, keepdim)
    if not numel(shape):
        return np.empty(shape, self.dtype)
    return np.asarray(extreme(_comparable(self), axis=normal_dims(dim, self.ndim), keepdims=keepdim))


def _optional_dim(dim: int | None) -> Dims:
    return None if dim is None else [dim]


def arg_shape(self: Array, dim: int | None = None, keepdim: bool = False) -> Shape:
    return extreme_shape(self, _optional_dim(dim), keepdim)


def argmax(self: Array, dim: int | None = None, keepdim: bool = False) -> Array:
    """The index of the first maximum; of the flattened tensor if ``dim`` is None. NaN is the largest."""
    return _arg(np.argmax, self, dim, keepdim)


def argmin(self: Array, dim: int | None = None, keepdim: bool = False) -> Array:
    """The index of the first minimum; of the flattened tensor if ``dim`` is None. NaN is the smallest."""
    return _arg(np.argmin, self, dim, keepdim)


def _arg(extreme: Any, self: Array, dim: int | None, keepdim: bool) -> Array:
    shape = arg_shape(self, dim, keepdim)
    if not numel(shape):
        return np.empty(shape, np.int64)
    axis = None if dim is None or not self.ndim else normal_dim(dim, self.ndim)
    return np.asarray(extreme(_comparable(self), axis=axis)).reshape(shape)


def extreme_dim_shape(self: Array, dim: int, keepdim: bool = False) -> list[Shape]:
    return [arg_shape(self, dim, keepdim)] * 2


def max_dim(self: Array, dim: int, keepdim: bool = False) -> tuple[Array, Array]:
    """The maximum along ``dim``, and its index."""
    return _gather_extreme(self, argmax(self, dim, True), dim, keepdim)


def min_dim(self: Array, dim: int, keepdim: bool = False) -> tuple[Array, Array]:
    """The minimum along ``dim``, and its index."""
    return _gather_extreme(self, argmin(self, dim, True), dim, keepdim)


def _gather_extreme(self: Array, index: Array, dim: int, keepdim: bool) -> tuple[Array, Array]:
    shape = arg_shape(self, dim, keepdim)
    return _take_along(self, index, dim).reshape(shape), index.reshape(shape)


def _take_along(self: Array, index: Array, dim: int) -> Array:
    """The elements at ``index`` along ``dim``."""
    if not self.ndim:
        return self
    if not index.size:  # numpy would allocate indices of the other dims
        return np.empty(index.shape, self.dtype)
    return np.take_along_axis(self, index, normal_dim(dim, self.ndim))


def cumsum(self: Array, dim: int, dtype: int | None = None) -> Array:
    """Cumulative sums; float32 accumulates in float64, because errors add up."""
    x = _operand(self, dtype)
    axis = normal_dim(dim, x.ndim)
    kind = np.dtype(np.float64) if x.dtype == np.float32 else _sum_type(x)
    return np.asarray(np.cumsum(np.atleast_1d(x), axis=axis, dtype=kind)).reshape(x.shape)


def cumsum_shape(self: Array, dim: int, dtype: int | None = None) -> Shape:
    normal_dim(dim, self.ndim)
    return self.shape


def topk(self: Array, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Array, Array]:
    """The k largest or smallest along ``dim``, in order, and their indices; NaN counts as largest.

    Ties keep their order. ``sorted=False`` permits any order, so it is ignored.
    """
    if not self.ndim:
        return self, np.zeros((), np.int64)
    axis = normal_dim(dim, self.ndim)
    x = np.moveaxis(_comparable(self), axis, -1)
    if largest:  # a stable ascending sort of the reversed tensor, reversed, so that ties keep their order
        order = x.shape[-1] - 1 - np.argsort(x[..., ::-1], axis=-1, kind="stable")[..., ::-1]
    else:
        order = np.argsort(x, axis=-1, kind="stable")
    index = np.moveaxis(order[..., :k], -1, axis)
    return _take_along(self, index, axis), index


def topk_shape(self: Array, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> list[Shape]:
    axis = normal_dim(dim, self.ndim)
    size = self.shape[axis] if self.ndim else 1
    if not 0 <= k <= size:
        raise ValueError(f"k must be in [0, {size}], got {k}")
    return [with_size(self.shape, axis, k)] * 2


def sort_shape(self: Array, dim: int = -1, descending: bool = False, stable: bool | None = None) -> list[Shape]:
    normal_dim(dim, self.ndim)
    return [self.shape] * 2


def sort(self: Array, dim: int = -1, descending: bool = False, stable: bool | None = None) -> tuple[Array, Array]:
    """The elements along ``dim`` in order, and their indices; stable. NaN counts as largest."""
    return topk(self, self.shape[normal_dim(dim, self.ndim)] if self.ndim else 1, dim, descending)


def vector_norm(self: Array, ord: Any = 2, dim: Dims = None, keepdim: bool = False, dtype: int | None = None) -> Array:
    """The ``ord``-norm over some dims; 0 counts nonzeros, infinity is the maximum."""
    x = np.abs(promote_operands(_operand(self, dtype), 0.0)[0])
    dims = normal_dims(dim, x.ndim)
    if ord == 0:
        return np.asarray(np.sum(x != 0, axis=dims, keepdims=keepdim, dtype=x.dtype))
    if np.isinf(ord):
        return np.asarray((np.max if ord > 0 else np.min)(x, axis=dims, keepdims=keepdim))
    return np.asarray(np.sum(x ** x.dtype.type(ord), axis=dims, keepdims=keepdim) ** x.dtype.type(1 / ord))


def vector_norm_shape(
    self: Array, ord: Any = 2, dim: Dims = None, keepdim: bool = False, dtype: int | None = None
) -> Shape:
    return reduction_shape(self, dim, keepdim)
