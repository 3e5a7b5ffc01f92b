"""From exact sums of integers to stored ones by real factors: ``ir/fixed_point_scale.py`` has those in fixed point."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from edgewright.ir.graph import Array, Value
from edgewright.ir.numerics import XNNPACK, single

Limits = tuple[float, float] | None


@dataclass(frozen=True)
class RealScaling:
    """A sum times a factor, rounded to the nearest, halves to even; then the zero point, then limits.

    Factors are for each channel (the last dimension), or one for all. ``rounding`` names what engines do: ``even`` in
    single precision, ``real`` in double.
    """

    factor: tuple[float, ...]
    zero: int
    low: int
    high: int
    rounding: str

    def apply(self, total: Array) -> Array:
        """Stored integers, in 64 bits."""
        kind: Any = np.float32 if self.rounding == "even" else np.float64
        factor = np.asarray(self.factor if len(self.factor) > 1 else self.factor[0], kind)
        with np.errstate(all="ignore"):
            scaled = np.asarray(total).astype(kind) * factor
            return np.clip(np.rint(scaled) + kind(self.zero), self.low, self.high).astype(np.int64)

    @property
    def possible(self) -> bool:
        """Numbers are such that nothing is infinite."""
        return bool(np.all(np.isfinite(self.factor))) and self.low <= self.high


def scale_of(value: Value) -> Array:
    """A scale, or one for each channel, in double precision."""
    assert value.q is not None
    return single(value.q.scale).astype(np.float64)


def narrow(*values: Value) -> bool:
    """All of bytes: single precision is enough."""
    return all(v.q is not None and v.q.dtype.itemsize == 1 for v in values)


def real_scaling(x: Value, w: Value, out: Value, limits: Limits) -> RealScaling:
    """Of a product of two operands."""
    assert x.q is not None and w.q is not None and out.q is not None
    single_precision = narrow(x, w, out)
    if single_precision:
        with np.errstate(all="ignore"):
            factor = single(x.q.scale) * single(w.q.scale) / single(out.q.scale)
    else:
        factor = scale_of(x) * scale_of(w) / scale_of(out)
    low, high = XNNPACK.limits(out.q, limits)
    made = tuple(float(n) for n in np.ravel(factor))
    return RealScaling(made, int(np.asarray(out.q.zero_point)), low, high, "even" if single_precision else "real")


def mean_scaling(x: Value, out: Value, count: int) -> RealScaling:
    """A sum of ``count`` elements to their mean, in single precision; a count of 1 leaves the sum."""
    assert x.q is not None and out.q is not None
    with np.errstate(all="ignore"):
        factor = single(x.q.scale) / (single(out.q.scale) * np.float32(count))
    zero = int(np.asarray(out.q.zero_point))
    return RealScaling((float(factor),), zero, out.q.qmin, out.q.qmax, "even")


def bias_units(x: Value, w: Value, bias: Array) -> Array:
    """A bias in units of the sums it is added to, rounded to whole ones, halves to even."""
    with np.errstate(all="ignore"):
        return np.asarray(np.rint(np.asarray(bias, np.float64).reshape(-1) / (scale_of(x) * scale_of(w))))
