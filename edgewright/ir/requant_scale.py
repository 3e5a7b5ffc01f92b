"""Requantization of exact integer sums: in fixed point, with each vendor's rounding, or in floating point.

>>> FixedPointScale((1 << 30,), (31,), "single", zero=3, low=-128, high=127).apply(np.array([[5, -5, 600]]))
array([[  6,   1, 127]])
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgewright.ir.fixed_point import apply_scale, multiply_by_quantized, multiply_by_quantized_once
from edgewright.ir.graph import Array, Value
from edgewright.ir.numerics import as_float32, limits_float32

# accumulator * multiplier / 2**shift. "single" and "double" round half up, in one step or two. "twice" is gemmlowp's
# saturating doubling high multiply, then a rounding shift; the last step, and "once", round half away from zero.
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


Limits = tuple[float, float] | None


@dataclass(frozen=True)
class FloatScale:
    """A sum times a factor, rounded half to even; then zero point and clamp.

    One factor per channel (the last dimension) or per tensor. ``rounding``: ``even`` computes in float32, ``real`` in
    float64.
    """

    factor: tuple[float, ...]
    zero: int
    low: int
    high: int
    rounding: str

    def apply(self, total: Array) -> Array:
        """Requantize; returns int64."""
        kind: Any = np.float32 if self.rounding == "even" else np.float64
        factor = np.asarray(self.factor if len(self.factor) > 1 else self.factor[0], kind)
        with np.errstate(all="ignore"):
            scaled = np.asarray(total).astype(kind) * factor
            return np.clip(np.rint(scaled) + kind(self.zero), self.low, self.high).astype(np.int64)

    @property
    def is_valid(self) -> bool:
        """Whether factors are finite and limits are in order."""
        return bool(np.all(np.isfinite(self.factor))) and self.low <= self.high


def scale_array(value: Value) -> Array:
    """The scale, per tensor or per channel, as float64."""
    assert value.q is not None
    return as_float32(value.q.scale).astype(np.float64)


def all_8bit(*values: Value) -> bool:
    """Whether all values are 8-bit, so that float32 suffices."""
    return all(v.q is not None and v.q.dtype.itemsize == 1 for v in values)


def product_scale(x: Value, w: Value, out: Value, limits: Limits) -> FloatScale:
    """The requantization of a product of two quantized operands."""
    assert x.q is not None and w.q is not None and out.q is not None
    single_precision = all_8bit(x, w, out)
    if single_precision:
        with np.errstate(all="ignore"):
            factor = as_float32(x.q.scale) * as_float32(w.q.scale) / as_float32(out.q.scale)
    else:
        factor = scale_array(x) * scale_array(w) / scale_array(out)
    low, high = limits_float32(out.q, limits)
    factors = tuple(float(n) for n in np.ravel(factor))
    return FloatScale(factors, int(np.asarray(out.q.zero_point)), low, high, "even" if single_precision else "real")


def mean_scale(x: Value, out: Value, count: int) -> FloatScale:
    """The requantization of a sum of ``count`` elements to their mean, in float32; 1 keeps the sum."""
    assert x.q is not None and out.q is not None
    with np.errstate(all="ignore"):
        factor = as_float32(x.q.scale) / (as_float32(out.q.scale) * np.float32(count))
    zero = int(np.asarray(out.q.zero_point))
    return FloatScale((float(factor),), zero, out.q.qmin, out.q.qmax, "even")


def quantize_bias(x: Value, w: Value, bias: Array) -> Array:
    """Quantize a bias to the scale of the accumulator, rounding half to even."""
    with np.errstate(all="ignore"):
        return np.asarray(np.rint(np.asarray(bias, np.float64).reshape(-1) / (scale_array(x) * scale_array(w))))
