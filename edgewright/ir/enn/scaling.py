"""From exact sums of products to stored integers, as ``numbers`` has it: double precision, halves to even."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgewright.ir.enn.numbers import scale_of
from edgewright.ir.graph import Array, QParams, Value


@dataclass(frozen=True)
class RealScaling:
    """A sum times its ``unit``, plus a ``bias``, by the result's ``step``, then the zero point, then limits.

    Units and biases are for each channel (the last dimension), or one for all. ``rounding`` names what the engine does.
    """

    unit: tuple[float, ...]
    bias: tuple[float, ...]
    step: float
    zero: int
    low: int
    high: int
    rounding: str = "divided"

    def apply(self, total: Array) -> Array:
        """Stored integers, in 64 bits."""
        made = np.asarray(total, np.float64) * np.asarray(self.unit) + np.asarray(self.bias)
        return np.clip(np.rint(made / self.step) + self.zero, self.low, self.high).astype(np.int64)

    def words(self) -> Array:
        """Unit, bias and step for each channel, each as its lower 32 bits and its upper ones: [6, channels]."""
        rows = np.broadcast_arrays(*(np.asarray(n, np.float64) for n in (self.unit, self.bias, (self.step,))))
        split = [np.ascontiguousarray(row).view(np.int32).reshape(-1, 2).T for row in rows]
        return np.concatenate(split)

    @property
    def possible(self) -> bool:
        """Numbers are such that nothing is infinite."""
        return bool(np.all(np.isfinite(self.unit)) and np.all(np.isfinite(self.bias)))

    @property
    def gain(self) -> float:
        return max(self.unit) / self.step

    @property
    def far(self) -> bool:
        return True


def real_scaling(x: Value, w: Value, bias: Value | None, out: Value, limits: tuple[float, float]) -> RealScaling:
    """Of a product with constant weights. Limits of real numbers are as good as those of the integers they make."""
    assert out.q is not None
    step = float(scale_of(out))
    unit = np.atleast_1d(scale_of(x) * scale_of(w))
    added = np.zeros(1) if bias is None or bias.data is None else np.asarray(bias.data, np.float64).reshape(-1)
    low, high = (_limit(n, step, out.q) for n in limits)
    return RealScaling(tuple(unit.tolist()), tuple(added.tolist()), step, int(np.asarray(out.q.zero_point)), low, high)


def _limit(real: float, step: float, q: QParams) -> int:
    if not np.isfinite(real):
        return q.qmin if real < 0 else q.qmax
    return int(np.clip(np.rint(real / step) + int(np.asarray(q.zero_point)), q.qmin, q.qmax))
