"""From sums of integers to stored ones by fixed-point factors: each way of rounding that a vendor's software has.

>>> Scaling((1 << 30,), (31,), "single", zero=3, low=-128, high=127).apply(np.array([[5, -5, 600]]))
array([[  6,   1, 127]])
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgewright.ir.graph import Array
from edgewright.ir.tflite.rounding import scaled, scaled_once
from edgewright.ir.tosa.elementwise import apply_scale

# A sum times multiplier / 2**shift. TOSA rounds once or twice, halves up; TFLite's convolutions twice and its matrix
# products once, halves away from zero at the end.
ROUNDINGS: dict[str, Callable[[Array, Array, Array], Any]] = {
    "single": lambda total, multiplier, shift: apply_scale(total, multiplier, shift, False),
    "double": lambda total, multiplier, shift: apply_scale(total, multiplier, shift, True),
    "twice": lambda total, multiplier, shift: scaled(total, multiplier, 31 - shift),
    "once": lambda total, multiplier, shift: scaled_once(total, multiplier, 31 - shift),
}


@dataclass(frozen=True)
class FixedPointScale:
    """Factors for each channel (the last dimension), or one for all; then the zero point, then limits."""

    multiplier: tuple[int, ...]
    shift: tuple[int, ...]
    rounding: str
    zero: int
    low: int
    high: int

    def apply(self, total: Array) -> Array:
        """Stored integers, in 64 bits."""
        multiplier, shift = (np.asarray(n, np.int64) for n in (self.multiplier, self.shift))
        made = ROUNDINGS[self.rounding](np.asarray(total, np.int64), multiplier, shift)
        return np.clip(made + self.zero, self.low, self.high)

    @property
    def is_valid(self) -> bool:
        """Factors are such that 64 bits are enough for every product of a 32-bit sum."""
        least = 1 if self.rounding == "twice" else 2
        return all(0 <= m < 1 << 31 for m in self.multiplier) and all(least <= s <= 62 for s in self.shift)

    def packed(self) -> Array:
        """Two words of 32 bits for each factor: [2, factors]."""
        return np.array([self.multiplier, self.shift], np.int32)

    @property
    def max_factor(self) -> float:
        """The largest factor."""
        return float(np.ldexp(np.asarray(self.multiplier, np.float64), -np.asarray(self.shift)).max(initial=0))

    @property
    def may_exceed_int32(self) -> bool:
        """Factors may make integers of more than 32 bits."""
        return min(self.shift) < 31
