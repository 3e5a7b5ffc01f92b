"""Fixed-point requantization: int32 accumulators to stored integers, with each vendor's rounding.

>>> FixedPointScale((1 << 30,), (31,), "single", zero=3, low=-128, high=127).apply(np.array([[5, -5, 600]]))
array([[  6,   1, 127]])
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgewright.ir.graph import Array
from edgewright.ir.tflite.rounding import multiply_by_quantized, multiply_by_quantized_once
from edgewright.ir.tosa.elementwise import apply_scale

# accumulator * multiplier / 2**shift. TOSA's RESCALE rounds half up, in one step or two (``double_round``). TFLite's
# convolutions round twice (gemmlowp: saturating doubling high multiply, then a rounding shift), its matrix products
# once; the last step rounds half away from zero.
ROUNDINGS: dict[str, Callable[[Array, Array, Array], Any]] = {
    "single": lambda total, multiplier, shift: apply_scale(total, multiplier, shift, False),
    "double": lambda total, multiplier, shift: apply_scale(total, multiplier, shift, True),
    "twice": lambda total, multiplier, shift: multiply_by_quantized(total, multiplier, 31 - shift),
    "once": lambda total, multiplier, shift: multiply_by_quantized_once(total, multiplier, 31 - shift),
}


@dataclass(frozen=True)
class FixedPointScale:
    """Multiplier and shift per channel (the last dimension) or per tensor, then zero point and clamp."""

    multiplier: tuple[int, ...]
    shift: tuple[int, ...]
    rounding: str
    zero: int
    low: int
    high: int

    def apply(self, total: Array) -> Array:
        """Requantize; returns int64."""
        multiplier, shift = (np.asarray(n, np.int64) for n in (self.multiplier, self.shift))
        scaled = ROUNDINGS[self.rounding](np.asarray(total, np.int64), multiplier, shift)
        return np.clip(scaled + self.zero, self.low, self.high)

    @property
    def is_valid(self) -> bool:
        """Whether int64 holds the product of every int32 accumulator and multiplier."""
        min_shift = 1 if self.rounding == "twice" else 2
        return all(0 <= m < 1 << 31 for m in self.multiplier) and all(min_shift <= s <= 62 for s in self.shift)

    def packed(self) -> Array:
        """Multipliers and shifts as int32: [2, channels]."""
        return np.array([self.multiplier, self.shift], np.int32)

    @property
    def max_factor(self) -> float:
        """The largest factor."""
        return float(np.ldexp(np.asarray(self.multiplier, np.float64), -np.asarray(self.shift)).max(initial=0))

    @property
    def may_exceed_int32(self) -> bool:
        """Whether scaled values may exceed int32."""
        return min(self.shift) < 31
