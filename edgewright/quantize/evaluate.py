"""How far a compiled model is from the original: the signal-to-quantization-noise ratio, in decibels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from edgewright.ir.dtypes import is_floating

BEST = 200.0  # decibels at which nobody can tell; also what equal results get


class Sqnr:
    """Sums signal and noise over any number of results: of elements that are finite in the first of the two.

    ``apart`` of all ``elements`` are infinite or NaN in one of the two, and not the same in the other.

    >>> measure = Sqnr()
    >>> measure.add(np.array([1.0, 2.0]), np.array([1.0, 2.0]))
    >>> measure.decibels
    200.0
    """

    def __init__(self) -> None:
        self.signal = 0.0
        self.noise = 0.0
        self.apart = 0
        self.elements = 0

    def add(self, expected: Any, actual: Any) -> None:
        a, b = (np.asarray(v).astype(np.float64).ravel() for v in (expected, actual))
        if a.shape != b.shape:
            self.noise = math.inf
            return
        finite, known = np.isfinite(a), np.isfinite(a) & np.isfinite(b)
        self.elements += a.size
        self.apart += int(np.count_nonzero(~known & (a != b) & ~(np.isnan(a) & np.isnan(b))))
        self.signal += float(np.square(a[finite]).sum())
        with np.errstate(invalid="ignore", over="ignore"):
            noise = float(np.square(a[finite] - b[finite]).sum())
        self.noise += noise if math.isfinite(noise) else math.inf

    @property
    def decibels(self) -> float:
        if self.noise == 0 and self.signal == 0 and self.apart:
            return -BEST  # nothing that is finite can be compared
        if self.noise == 0:
            return BEST
        if self.signal == 0 or math.isinf(self.noise):
            return -BEST
        return max(-BEST, min(BEST, 10 * math.log10(self.signal / self.noise)))


def sqnr(pairs: Iterable[tuple[Sequence[Any], Sequence[Any]]]) -> float:
    """Of the results of several calls: each pair is what the model gives, and what was compiled."""
    measure = Sqnr()
    for expected, actual in pairs:
        for e, a in zip(expected, actual, strict=True):
            kind = np.asarray(e).dtype
            if kind.kind in "fiub" or is_floating(kind):  # numpy does not know bfloat16 for a number
                measure.add(e, a)
    return measure.decibels
