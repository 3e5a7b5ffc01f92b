"""Weight quantization: 4-bit groups with a search for their scales, and int8 rows.

A 4-bit weight is ``scale * q`` with q from -8 to 7 and a bfloat16 scale, as XNNPACK stores it. The scale of a group
minimizes the squared error of its weights over a few candidates, each refined by the least-squares scale of the
integers that it gives. Groups of Q4_0 keep their integers where this form has them (``held_groups``).
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from edgewright.ir.dtypes import bfloat16
from edgewright.llm.stored_tensor import StoredTensor

Array = np.ndarray[Any, Any]

_CANDIDATES = (8.0, 7.5, 7.0, 6.5)  # the largest weight of a group becomes this, or less where it is clipped
_CHUNK = 1 << 17  # weights at a time: temporary arrays stay in the cache
_SMALLEST = 2.0**-100  # of scales: XNNPACK wants normal numbers


class Matrix(Protocol):
    """Rows that are loaded when they are read: an array, or ``stored_tensor.LazyRows``."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __getitem__(self, part: slice, /) -> Array: ...


@dataclass(frozen=True)
class QuantizedWeights:
    """Integers [rows, columns] and float32 scales [rows, groups]; ``error``: squared, summed over all weights."""

    integers: Array
    scales: Array
    error: float
    energy: float  # sum of squares of the original weights
    carried: int = 0  # groups whose integers are the source's

    @classmethod
    def of(cls, weights: Array, integers: Array, scales: Array) -> QuantizedWeights:
        """With the errors of integers and scales that were chosen elsewhere."""
        made = cls(integers, scales, 0.0, float(np.vdot(weights, weights)))
        residual = weights - made.gather()
        return replace(made, error=float(np.vdot(residual, residual)))

    @property
    def relative_error(self) -> float:
        """Root of the squared error over the squared weights."""
        return float((self.error / self.energy) ** 0.5) if self.energy else 0.0

    @property
    def group(self) -> int:
        """Weights that share a scale."""
        return int(self.integers.shape[1] // self.scales.shape[1])

    def gather(self, rows: Array | slice = slice(None)) -> Array:
        """The float32 weights of some rows, by default of all."""
        integers, scales = self.integers[rows], self.scales[rows]
        grouped = integers.reshape(*scales.shape, self.group) * scales[..., None]
        values: Array = grouped.reshape(integers.shape)
        return values


@dataclass(frozen=True)
class HeldGroups:
    """Integers [rows, columns] and scales [rows, groups] of a source; ``held``: which groups this form has."""

    integers: Array
    scales: Array
    held: Array


def quantize_groups(
    weights: Matrix, group: int, source: HeldGroups | None = None, threads: int = 2
) -> QuantizedWeights:
    """4-bit groups of ``group`` columns; those that ``source`` holds are its own."""
    rows, columns = weights.shape
    integers, scales = np.empty((rows, columns), np.int8), np.empty((rows, columns // group), np.float32)

    def run(part: slice) -> tuple[float, float]:
        groups = weights[part].reshape(-1, group)
        found, found_scales = _search(groups)
        if source is not None:
            held = source.held[part].reshape(-1)
            found[held] = source.integers[part].reshape(-1, group)[held]
            found_scales[held] = source.scales[part].reshape(-1)[held]
        integers[part], scales[part] = found.reshape(-1, columns), found_scales.reshape(-1, columns // group)
        residual = groups - found * found_scales[:, None]
        return tuple(float(np.square(x, dtype=np.float64).sum()) for x in (residual, groups))  # type: ignore[return-value]

    with ThreadPoolExecutor(threads) as pool:
        totals = list(pool.map(run, _parts(rows, max(_CHUNK // columns, 1))))
    error, energy = (sum(t[i] for t in totals) for i in (0, 1))
    return QuantizedWeights(integers, scales, error, energy, 0 if source is None else int(source.held.sum()))


def nearest_groups(weights: Array, group: int) -> Array:
    """The weights after rounding to nearest, each group with the scale of its largest weight: for comparison."""
    groups = weights.reshape(-1, group)
    scale = _representable(np.abs(groups).max(1) / np.float32(7.5))
    rounded: Array = _round(groups, scale) * scale[:, None]
    return rounded.reshape(weights.shape)


def _parts(count: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, count)) for start in range(0, count, size))


def _search(groups: Array) -> tuple[Array, Array]:
    """The integers and scales of float32 groups [n, size]."""
    scale = search_scales(groups, np.ones(groups.shape[1], np.float32))
    return _round(groups, scale).astype(np.int8), scale


def search_scales(groups: Array, importance: Array) -> Array:
    """The scale of each of float32 groups [n, size] that minimizes its squared error, weighted by column."""
    largest = np.abs(groups).max(1)
    best_error, best_scale = np.full(len(groups), np.inf, np.float32), np.full(len(groups), _SMALLEST, np.float32)
    for divisor in _CANDIDATES:
        q = _round(groups, _representable(largest / np.float32(divisor)))
        norm = np.square(q) @ importance
        scale = _representable((q * groups) @ importance / np.where(norm > 0, norm, 1))
        error = np.square(groups - _round(groups, scale) * scale[:, None]) @ importance
        better = error < best_error
        best_error[better], best_scale[better] = error[better], scale[better]
    return best_scale


def _representable(scale: Array) -> Array:
    """The nearest bfloat16 scales, positive and normal."""
    rounded: Array = np.maximum(scale, np.float32(_SMALLEST)).astype(bfloat16).astype(np.float32)
    return rounded


def _round(groups: Array, scale: Array) -> Array:
    q: Array = groups * (1 / scale)[:, None]
    np.rint(q, out=q)
    np.clip(q, -8, 7, out=q)
    return q


def quantize_rows(weights: Matrix) -> QuantizedWeights:
    """int8 rows from -127 to 127, each with the scale of its largest weight."""
    rows, columns = weights.shape
    integers, scales = np.empty((rows, columns), np.int8), np.empty((rows, 1), np.float32)
    error = energy = 0.0
    for part in _parts(rows, max(_CHUNK // columns, 1)):
        chunk = weights[part]
        scale = np.maximum(np.abs(chunk).max(1, keepdims=True) / np.float32(127), np.float32(_SMALLEST))
        q = np.rint(chunk / scale)
        residual = chunk - q * scale
        integers[part], scales[part] = q.astype(np.int8), scale
        error += float(np.vdot(residual, residual))
        energy += float(np.vdot(chunk, chunk))
    return QuantizedWeights(integers, scales, error, energy)


def held_groups(tensor: StoredTensor, group: int) -> HeldGroups | None:
    """The groups of a Q4_0 tensor; None for other formats and other groups.

    A negative scale becomes positive by negating the integers, which -8 does not survive. Scales are rounded from
    float16 to bfloat16.
    """
    if tensor.kind != "Q4_0" or group != 32:
        return None
    rows, columns = tensor.shape
    blocks = np.ascontiguousarray(tensor.data).reshape(rows, -1, 18)
    scales = np.ascontiguousarray(blocks[..., :2]).view(np.float16)[..., 0].astype(np.float32)
    packed = blocks[..., 2:]
    integers = np.concatenate([packed & 15, packed >> 4], -1).astype(np.int8) - np.int8(8)
    negative = scales < 0
    held = np.isfinite(scales) & ~(negative & (integers == -8).any(-1))
    integers = np.where(negative[..., None], -integers, integers).astype(np.int8)
    return HeldGroups(integers.reshape(rows, columns), _representable(np.abs(scales)), held)


def count_carried(made: QuantizedWeights, source: HeldGroups | None) -> QuantizedWeights:
    """With the number of groups that have a source's integers: the search finds scales where they are exact."""
    if source is None:
        return made
    same = (made.integers == source.integers).reshape(*source.held.shape, -1).all(-1)
    return replace(made, carried=int((same & source.held).sum()))


def rows_of_q8_0(tensor: StoredTensor) -> QuantizedWeights | None:
    """A Q8_0 tensor as int8 in groups of 32, exactly; None for other formats."""
    if tensor.kind != "Q8_0":
        return None
    rows, columns = tensor.shape
    blocks = np.ascontiguousarray(tensor.data).reshape(rows, -1, 34)
    scales = np.ascontiguousarray(blocks[..., :2]).view(np.float16)[..., 0].astype(np.float32)
    integers = np.ascontiguousarray(blocks[..., 2:]).view(np.int8).reshape(rows, columns)
    energy = float((np.square(scales) * np.square(integers.reshape(rows, -1, 32), dtype=np.float32).sum(-1)).sum())
    return QuantizedWeights(integers, scales, 0.0, energy, scales.size)
