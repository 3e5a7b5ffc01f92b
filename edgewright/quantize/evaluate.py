"""Accuracy of a compiled model: its signal-to-quantization-noise ratio (SQNR) against the original, in decibels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from edgewright.ir.dtypes import is_floating

BEST = 200.0  # decibels: the value of equal results, and the upper limit


class Sqnr:
    """Accumulates signal and noise over any number of results, for elements that are finite in the expected one.

    ``mismatched`` counts, among all ``elements``, those that are infinite or NaN in one result and differ in the other.

    >>> measure = Sqnr()
    >>> measure.add(np.array([1.0, 2.0]), np.array([1.0, 2.0]))
    >>> measure.decibels
    200.0
    """

    def __init__(self) -> None:
        self.signal = 0.0
        self.noise = 0.0
        self.mismatched = 0
        self.elements = 0

    def add(self, expected: Any, actual: Any) -> None:
        a, b = (np.asarray(v).astype(np.float64).ravel() for v in (expected, actual))
        if a.shape != b.shape:
            self.noise = math.inf
            return
        finite, both_finite = np.isfinite(a), np.isfinite(a) & np.isfinite(b)
        self.elements += a.size
        self.mismatched += int(np.count_nonzero(~both_finite & (a != b) & ~(np.isnan(a) & np.isnan(b))))
        self.signal += float(np.square(a[finite]).sum())
        with np.errstate(invalid="ignore", over="ignore"):
            noise = float(np.square(a[finite] - b[finite]).sum())
        self.noise += noise if math.isfinite(noise) else math.inf

    def merge(self, other: Sqnr) -> None:
        """Add what another measure accumulated."""
        self.signal += other.signal
        self.noise += other.noise
        self.mismatched += other.mismatched
        self.elements += other.elements

    @property
    def decibels(self) -> float:
        if self.noise == 0 and self.signal == 0 and self.mismatched:
            return -BEST  # no finite element can be compared
        if self.noise == 0:
            return BEST
        if self.signal == 0 or math.isinf(self.noise):
            return -BEST
        return max(-BEST, min(BEST, 10 * math.log10(self.signal / self.noise)))


def sqnr(pairs: Iterable[tuple[Sequence[Any], Sequence[Any]]]) -> float:
    """The SQNR over several calls: each pair is the results of the model and of the compiled program."""
    measure = Sqnr()
    for expected, actual in pairs:
        for e, a in zip(expected, actual, strict=True):
            kind = np.asarray(e).dtype
            if kind.kind in "fiub" or is_floating(kind):  # bfloat16 is no numeric kind of numpy
                measure.add(e, a)
    return measure.decibels
