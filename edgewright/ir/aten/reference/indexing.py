"""Gather, scatter, indexing by tensors, and operators with data-dependent result sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.ir.aten.reference.dims import (
    Array,
    Shape,
    at_dim,
    normal_dim,
    normal_index,
    numel,
    slice_bounds,
    slice_length,
    with_size,
)
from edgewright.ir.dtypes import compute_type

Indices = Sequence[Array | None]


def _check_index(index: Array, size: int, *, wrap: bool = False) -> Array:
    """``index`` as int64, with every element in [0, size), or in [-size, size) with ``wrap``."""
    if index.dtype.kind not in "iu":
        raise ValueError(f"indices must be integers, got {index.dtype}")
    low = -size if wrap else 0
    if index.size and not low <= int(index.min()) <= int(index.max()) < size:
        raise IndexError(f"indices must be in [{low}, {size - 1}], got [{index.min()}, {index.max()}]")
    return index.astype(np.int64, copy=False)


def gather_shape(self: Array, dim: int, index: Array, sparse_grad: bool = False) -> Shape:
    _check_index_fits(self, dim, index)
    return index.shape


def gather(self: Array, dim: int, index: Array, sparse_grad: bool = False) -> Array:
    dim = normal_dim(dim, self.ndim)
    source, positions = np.atleast_1d(self), np.atleast_1d(index)
    result = (
        source[_full_positions(source.shape, dim, positions)]
        if positions.size
        else np.empty(positions.shape, self.dtype)
    )
    return np.asarray(result.reshape(index.shape))


def scatter_shape(self: Array, dim: int, index: Array, src: Any) -> Shape:
    _check_index_fits(self, dim, index)
    if isinstance(src, np.ndarray) and index.size:
        sizes = zip(np.atleast_1d(index).shape, np.atleast_1d(src).shape, strict=False)
        if max(src.ndim, 1) != max(index.ndim, 1) or any(n > have for n, have in sizes):
            raise ValueError(f"src {list(src.shape)} must cover index {list(index.shape)}")
    return self.shape


def scatter(self: Array, dim: int, index: Array, src: Any) -> Array:
    """A copy with ``src`` (a tensor or a number) written at ``index`` along ``dim``."""
    return _scatter_into(self.copy(), dim, index, src, accumulate=False)


def scatter_add(self: Array, dim: int, index: Array, src: Any) -> Array:
    return _scatter_into(self.astype(compute_type(self.dtype)), dim, index, src, accumulate=True)


def _scatter_into(result: Array, dim: int, index: Array, src: Any, *, accumulate: bool) -> Array:
    target, positions = np.atleast_1d(result), np.atleast_1d(index)
    if positions.size:
        at = _full_positions(target.shape, normal_dim(dim, result.ndim), positions)
        values = np.asarray(src).astype(result.dtype)
        if values.ndim:
            values = values[tuple(slice(n) for n in positions.shape)]
        _write(target, at, values, accumulate)
    return target.reshape(result.shape)


def _write(target: Array, at: Any, values: Array, accumulate: bool) -> None:
    if accumulate:
        np.add.at(target, at, values)
    else:
        target[at] = values


def _check_index_fits(self: Array, dim: int, index: Array) -> None:
    dim = normal_dim(dim, self.ndim)
    if not index.size:
        return
    if max(self.ndim, 1) != max(index.ndim, 1):
        raise ValueError(f"index must have the input's rank, got {list(index.shape)} for {list(self.shape)}")
    pairs = zip(np.atleast_1d(index).shape, np.atleast_1d(self).shape, strict=True)
    if any(n > have for d, (n, have) in enumerate(pairs) if d != dim):
        raise ValueError(f"index {list(index.shape)} must fit in {list(self.shape)} except at dim {dim}")


def _full_positions(shape: Shape, dim: int, index: Array) -> tuple[Array, ...]:
    """The full index: ``index`` along ``dim``, and each element's position along the others."""
    grid = np.ogrid[tuple(slice(n) for n in index.shape)]
    return (*grid[:dim], _check_index(index, shape[dim]), *grid[dim + 1 :])


def index_select_shape(self: Array, dim: int, index: Array) -> Shape:
    dim = normal_dim(dim, self.ndim)
    if index.ndim > 1 or (self.ndim == 0 and index.size != 1):
        raise ValueError(f"index must be one list of indices, got {list(index.shape)} for {list(self.shape)}")
    return with_size(self.shape, dim, index.size)


def index_select(self: Array, dim: int, index: Array) -> Array:
    dim, source = normal_dim(dim, self.ndim), np.atleast_1d(self)
    result = np.take(source, _check_index(index.reshape(-1), source.shape[dim]), axis=dim)
    return np.asarray(result if self.ndim else result.reshape(()))


def embedding_shape(weight: Array, indices: Array, *_: Any, **__: Any) -> Shape:
    if weight.ndim != 2:
        raise ValueError(f"weight must be [rows, width], got {list(weight.shape)}")
    return (*indices.shape, weight.shape[1])


def embedding(weight: Array, indices: Array, *_: Any, **__: Any) -> Array:
    """Rows of ``weight``. The other arguments of the operator affect only the gradient."""
    return np.asarray(np.take(weight, _check_index(indices, weight.shape[0]), axis=0))


def _full_index(self: Array, indices: Indices) -> tuple[Any, ...]:
    """torch's index list as a numpy index: masks become positions, None selects a whole dim."""
    key: list[Any] = []
    for index in indices:
        if index is None:
            key.append(slice(None))
        elif index.dtype == np.bool_ or index.dtype == np.uint8:
            if index.ndim == 0 or self.shape[len(key) : len(key) + index.ndim] != index.shape:
                raise IndexError(f"mask {list(index.shape)} must match dims {len(key)}.. of {list(self.shape)}")
            key.extend(np.nonzero(index))
        else:
            if len(key) >= self.ndim:
                raise IndexError(f"too many indices for shape {list(self.shape)}")
            key.append(_check_index(index, self.shape[len(key)], wrap=True))
    if len(key) > self.ndim or all(isinstance(k, slice) for k in key):
        raise IndexError(f"needs between one and {self.ndim} indices, got {len(key)}")
    return tuple(key)


def index_shape(self: Array, indices: Indices) -> Shape:
    key = _full_index(self, indices)
    where = [d for d, k in enumerate(key) if not isinstance(k, slice)]
    positions = np.broadcast_shapes(*(key[d].shape for d in where))
    # The dims of adjacent indices stay in position; those of separated ones move to the front.
    front = where[0] if where[-1] - where[0] == len(where) - 1 else 0
    sliced = [size for d, size in enumerate(self.shape) if d not in where]
    return (*sliced[:front], *positions, *sliced[front:])


def index(self: Array, indices: Indices) -> Array:
    return np.asarray(self[_full_index(self, indices)])


def index_put_shape(self: Array, indices: Indices, values: Array, accumulate: bool = False) -> Shape:
    positions = index_shape(self, indices)
    if values.ndim > len(positions) or np.broadcast_shapes(values.shape, positions) != positions:
        raise ValueError(f"values {list(values.shape)} must broadcast to the indexed shape {list(positions)}")
    return self.shape


def index_put(self: Array, indices: Indices, values: Array, accumulate: bool = False) -> Array:
    """A copy with ``values`` written, or accumulated, at ``indices``."""
    index_put_shape(self, indices, values, accumulate)
    result = self.astype(compute_type(self.dtype)) if accumulate else self.copy()
    _write(result, _full_index(self, indices), values.astype(result.dtype), accumulate)
    return result


def select_scatter_shape(self: Array, src: Array, dim: int, index: int) -> Shape:
    if self.ndim == 0:
        raise IndexError("input must have at least one dimension")
    dim = normal_dim(dim, self.ndim)
    normal_index(index, self.shape[dim])
    if src.shape != (*self.shape[:dim], *self.shape[dim + 1 :]):
        raise ValueError(f"src must have the shape of one slice of {list(self.shape)}, got {list(src.shape)}")
    return self.shape


def select_scatter(self: Array, src: Array, dim: int, index: int) -> Array:
    dim, result = normal_dim(dim, self.ndim), self.copy()
    result[at_dim(dim, normal_index(index, self.shape[dim]))] = src
    return result


def slice_scatter_shape(
    self: Array, src: Array, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Shape:
    if self.ndim == 0:
        raise IndexError("input must have at least one dimension")
    dim = normal_dim(dim, self.ndim)
    shape = with_size(self.shape, dim, slice_length(start, end, step, self.shape[dim]))
    if src.shape != shape:
        raise ValueError(f"src must have the slice's shape {list(shape)}, got {list(src.shape)}")
    return self.shape


def slice_scatter(
    self: Array, src: Array, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Array:
    dim, result = normal_dim(dim, self.ndim), self.copy()
    result[at_dim(dim, slice(*slice_bounds(start, end, self.shape[dim]), step))] = src
    return result


_REDUCTIONS: dict[str, Any] = {
    "sum": np.add,
    "mean": np.add,
    "prod": np.multiply,
    "amax": np.maximum,
    "amin": np.minimum,
}
_NEUTRAL = {"sum": 0, "mean": 0, "prod": 1, "amax": -np.inf, "amin": np.inf}


def scatter_reduce_shape(
    self: Array, dim: int, index: Array, src: Array, reduce: str, include_self: bool = True
) -> Shape:
    if reduce not in _REDUCTIONS:
        raise ValueError(f"reduce must be one of {', '.join(_REDUCTIONS)}, got {reduce!r}")
    return scatter_shape(self, dim, index, src)


def scatter_reduce(self: Array, dim: int, index: Array, src: Array, reduce: str, include_self: bool = True) -> Array:
    """A copy in which values scattered to one position are reduced, including the old value if ``include_self``."""
    scatter_reduce_shape(self, dim, index, src, reduce)
    result = np.atleast_1d(self).astype(compute_type(self.dtype))
    positions = np.atleast_1d(index)
    if not positions.size:
        return result.reshape(self.shape)
    at = _full_positions(result.shape, normal_dim(dim, self.ndim), positions)
    count = np.zeros(result.shape, np.int64)
    np.add.at(count, at, 1)
    if not include_self:
        neutral = _NEUTRAL[reduce]
        if result.dtype.kind in "iu" and reduce in ("amax", "amin"):
            neutral = getattr(np.iinfo(result.dtype), "min" if reduce == "amax" else "max")
        result[count > 0] = neutral
    values = np.atleast_1d(src).astype(result.dtype)[tuple(slice(n) for n in positions.shape)]
    _REDUCTIONS[reduce].at(result, at, values)
    if reduce == "mean":
        divisor = np.maximum(count + int(include_self), 1)
        result = result // divisor if result.dtype.kind in "iu" else result / divisor.astype(result.dtype)
    return result.reshape(self.shape)


def scatter_value_shape(self: Array, dim: int, index: Array, value: Any) -> Shape:
    return scatter_shape(self, dim, index, value)


def scatter_value(self: Array, dim: int, index: Array, value: Any) -> Array:
    return scatter(self, dim, index, value)


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
