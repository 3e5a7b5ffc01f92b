"""Calibrated rounding (Frantar et al., "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained
Transformers", 2022).

Columns are rounded one after the other, those with the largest inputs first. The error of each is compensated by the
columns that are not rounded yet, so that the layer's outputs on the calibration text change least. Scales are chosen
before, since a group's columns are not neighbours in that order. Only the integers and scales differ from rounding to
nearest: the program's size, speed and operators are the same. (AWQ scales channels instead, which moves factors into
norms and other layers' weights, and does not correct what rounding did.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from edgewright.engine.jit.thread_count import thread_count
from edgewright.llm.quantize_weights import QuantizedWeights, search_scales

Array = np.ndarray[Any, Any]

_DAMPING = 0.01  # of the mean diagonal: inputs that calibration hardly saw
_BLOCK = 128  # columns whose corrections are applied to the rest at once
_ROWS = 256  # rounded at a time: what is left of a block stays in the cache


class CalibratedRounding:
    """Rounds matrices that read the same inputs, to groups of ``group`` columns.

    ``products``: for each span of columns, the sums of products of the inputs, float64 [columns, columns].
    """

    def __init__(self, products: Sequence[Array], group: int) -> None:
        self._spans, self._group = [_Span(part, group) for part in products], group

    def round(self, weights: Array) -> QuantizedWeights:
        scales = self.scales(weights)
        return QuantizedWeights.of(weights, self.integers(weights, scales), scales)

    def scales(self, weights: Array) -> Array:
        """Of each row's groups: bfloat16 values."""
        scales = np.empty((len(weights), weights.shape[1] // self._group), np.float32)

        def run(rows: slice) -> None:
            for span, columns, groups in self._parts():
                scales[rows, groups] = span.scales(weights[rows, columns])

        _each_rows(run, len(weights))
        return scales

    def integers(self, weights: Array, scales: Array) -> Array:
        """Of 4 bits, for float32 scales of each row's groups."""
        integers = np.empty(weights.shape, np.int8)

        def run(rows: slice) -> None:
            for span, columns, groups in self._parts():
                integers[rows, columns] = span.integers(weights[rows, columns], scales[rows, groups])

        _each_rows(run, len(weights))
        return integers

    def _parts(self) -> Iterator[tuple[_Span, slice, slice]]:
        """Spans, with their columns and groups."""
        start = 0
        for span in self._spans:
            end = start + len(span.order)
            yield span, slice(start, end), slice(start // self._group, end // self._group)
            start = end


def _each_rows(run: Callable[[slice], None], count: int) -> None:
    with ThreadPoolExecutor(thread_count()) as pool:
        list(pool.map(run, (slice(start, start + _ROWS) for start in range(0, count, _ROWS))))


class _Span:
    """Columns whose errors compensate each other."""

    def __init__(self, products: Array, group: int) -> None:
        mean = float(np.mean(np.diagonal(products)))
        damped = products + np.eye(len(products)) * max(_DAMPING * mean, 1e-12)
        self._group = group
        self._importance = np.diagonal(damped).astype(np.float32)
        self.order = np.argsort(-self._importance, kind="stable")
        self._factor = _inverse_factor(damped[np.ix_(self.order, self.order)]).astype(np.float32)

    def scales(self, weights: Array) -> Array:
        found = []
        for start in range(0, weights.shape[1], self._group):
            part = slice(start, start + self._group)
            found.append(search_scales(np.ascontiguousarray(weights[:, part]), self._importance[part]))
        return np.stack(found, 1)

    def integers(self, weights: Array, scales: Array) -> Array:
        rest = np.ascontiguousarray(weights.T[self.order])  # each row a column of the weights, corrected so far
        by_column = np.ascontiguousarray(scales.T)
        columns, result = len(rest), np.empty((weights.shape[1], weights.shape[0]), np.int8)
        for start in range(0, columns, _BLOCK):
            end = min(start + _BLOCK, columns)
            errors = np.empty((end - start, rest.shape[1]), np.float32)
            for column in range(start, end):
                own, values = self.order[column], rest[column]
                scale = by_column[own // self._group]
                rounded = np.clip(np.rint(values / scale), -8, 7)
                result[own] = rounded
                error = (values - rounded * scale) / self._factor[column, column]
                errors[column - start] = error
                rest[column + 1 : end] -= self._factor[column, column + 1 : end, None] * error
            rest[end:] -= self._factor[start:end, end:].T @ errors
        return result.T


def _inverse_factor(products: Array) -> Array:
    """The upper triangular U with transposed(U) U = inverse(products)."""
    # Cholesky from the last column to the first gives an upper triangular R with R transposed(R) = products.
    reversed_factor = np.linalg.cholesky(products[::-1, ::-1])
    return np.triu(np.linalg.inv(reversed_factor[::-1, ::-1]))
