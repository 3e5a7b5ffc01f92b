"""Weight quantization: 4-bit groups with a search for their scales, and int8 rows.

A 4-bit weight is ``scale * q`` with q from -8 to 7 and a bfloat16 scale, as XNNPACK stores it. The scale of a group
minimizes the squared error of its weights over a few candidates, each refined by the least-squares scale of the
integers that it gives. Scales of the source are candidates too, so that weights which already have this form keep their
values where a bfloat16 holds the scale.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
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

    @property
    def relative_error(self) -> float:
        """Root of the squared error over the squared weights."""
        return float((self.error / self.energy) ** 0.5) if self.energy else 0.0


def quantize_groups(weights: Matrix, group: int, hints: Array | None = None, threads: int = 2) -> QuantizedWeights:
    """4-bit groups of ``group`` columns. ``hints``: [rows, columns / group] scales to try as well."""
    rows, columns = weights.shape
    integers, scales = np.empty((rows, columns), np.int8), np.empty((rows, columns // group), np.float32)

    def run(part: slice) -> tuple[float, float]:
        groups = weights[part].reshape(-1, group)
        hint = None if hints is None else hints[part].reshape(-1)
        found, found_scales, error = _search(groups, hint)
        integers[part], scales[part] = found.reshape(-1, columns), found_scales.reshape(-1, columns // group)
        return float(error.sum(dtype=np.float64)), float(np.square(groups, dtype=np.float64).sum())

    with ThreadPoolExecutor(threads) as pool:
        totals = list(pool.map(run, _parts(rows, max(_CHUNK // columns, 1))))
    error, energy = (sum(t[i] for t in totals) for i in (0, 1))
    return QuantizedWeights(integers, scales, error, energy)


def _parts(count: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, count)) for start in range(0, count, size))


def _search(groups: Array, hints: Array | None) -> tuple[Array, Array, Array]:
    """The integers, scales and squared errors of float32 groups [n, size]."""
    largest = np.abs(groups).max(1)
    best_error = np.full(len(groups), np.inf, np.float32)
    best_scale = np.full(len(groups), _SMALLEST, np.float32)
    best = np.zeros(groups.shape, np.float32)
    candidates = [largest / np.float32(divisor) for divisor in _CANDIDATES]
    for index, candidate in enumerate((*candidates, *(() if hints is None else (np.abs(hints),)))):
        scale = candidate
        if index < len(candidates):
            q = _round(groups, _representable(scale))
            norm = np.einsum("ij,ij->i", q, q)
            scale = np.einsum("ij,ij->i", q, groups) / np.maximum(norm, 1)
        scale = _representable(scale)
        q = _round(groups, scale)
        residual = groups - q * scale[:, None]
        error = np.einsum("ij,ij->i", residual, residual)
        better = error < best_error
        best_error[better], best_scale[better], best[better] = error[better], scale[better], q[better]
    return best.astype(np.int8), best_scale, best_error


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


def scale_hints(tensor: StoredTensor, group: int) -> Array | None:
    """The scales of a Q4_0 tensor, [rows, groups]; None for other formats and other groups."""
    if tensor.kind != "Q4_0" or group != 32:
        return None
    blocks = np.ascontiguousarray(tensor.data).reshape(len(tensor.data), -1, 18)
    return np.ascontiguousarray(blocks[..., :2]).view(np.float16)[..., 0].astype(np.float32)
