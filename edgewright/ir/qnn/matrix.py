"""How the HTP's matrix unit brings sums of products to a result: to the last bit what Qualcomm's emulator gives.

Nobody published it; it was found by walking sums through the emulator. A factor has few bits, and a sum is shifted
until four bits behind the point are left of a result of bytes (eight of words): what the shift drops is lost. Of 16-bit
data the sum's last 8 bits are dropped first. Hexagons before V73 have shorter factors, add the zero point to the sum,
and take what was dropped for nothing; later ones for half of what it may be.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from edgewright.ir.graph import Array, QParams, Value
from edgewright.ir.numerics import single

_NEW = 73  # the first Hexagon of the later kind
_WORD = 8  # last bits that sums of 16-bit data lose
_KEPT = {1: 4, 2: 8}  # bits behind the point, by the bytes of a result
_BITS = {1: 12, 2: 22}  # of a factor
_OLD_BITS = 11
_MOST_SHIFT = 31
_LEAST, _MOST = 2.0**-40, 2.0**16  # factors beyond are no network's


@dataclass(frozen=True)
class MatrixScaling:
    """``(sum >> shift) * factor + added``, rounded; then the zero point, then limits. Nothing is ever halfway.

    Numbers are for each channel (the last dimension), or one for all. Single precision is enough for bytes.
    """

    shift: tuple[int, ...]
    factor: tuple[float, ...]
    added: tuple[float, ...]
    zero: int
    low: int
    high: int
    rounding: str = "matrix"
    possible: bool = True  # as others' scalings say it
    far: bool = False

    def apply(self, total: Array) -> Array:
        """Stored integers, in 64 bits."""
        shift, factor, added = (np.asarray(n if len(n) > 1 else n[0]) for n in (self.shift, self.factor, self.added))
        scaled = (np.asarray(total, np.int64) >> shift).astype(np.float64) * factor + added
        return np.clip(np.rint(scaled) + self.zero, self.low, self.high).astype(np.int64)

    def words(self) -> Array:
        """Three words of 32 bits for each channel: [3, channels]."""
        reals = np.array([self.factor, self.added], np.float32).view(np.int32)
        return np.concatenate((np.array([self.shift], np.int32), reals))

    @property
    def gain(self) -> float:
        """The largest factor of a sum."""
        return float(np.ldexp(np.asarray(self.factor), -np.asarray(self.shift)).max(initial=0))


def has_matrix(hexagon: int, x: Value, w: Value, out: Value) -> bool:
    """The matrix unit makes this product, of data by constants of bytes, or of half of them."""
    sizes = [v.q.dtype.itemsize for v in (x, w, out) if v.q is not None]
    alike = len(sizes) == 3 and sizes[0] == sizes[2] in _KEPT and sizes[1] == 1 and w.data is not None
    unsigned = alike and all(v.q is not None and v.q.dtype.kind == "u" and v.q.axis is None for v in (x, out))
    return hexagon > 0 and unsigned


def _factors(x: Value, scales: Array, out: Value) -> Array:
    """What an exact sum would be multiplied by."""
    assert x.q is not None and out.q is not None
    units = single(x.q.scale).astype(np.float64) * np.asarray(scales, np.float64).reshape(-1)
    return np.asarray(units / single(out.q.scale).astype(np.float64))


def _zero(q: QParams | None) -> int:
    return 0 if q is None else int(np.asarray(q.zero_point))


def matrix_scaling(hexagon: int, x: Value, scales: Array, out: Value) -> MatrixScaling | None:
    """How sums become results; None if a factor is out of all reason. ``scales``: of the weights."""
    assert out.q is not None
    size, made, new = out.q.dtype.itemsize, _factors(x, scales, out), hexagon >= _NEW
    if not ((made > _LEAST) & (made < _MOST)).all():
        return None
    dropped = _WORD if size == 2 else 0
    rows = [_row(factor, size, dropped, new) for factor in made.tolist()]
    shift, factor, added = (tuple(column) for column in zip(*rows, strict=True))
    return MatrixScaling(shift, factor, added, _zero(out.q) if new else 0, out.q.qmin, out.q.qmax)


def _row(factor: float, size: int, dropped: int, new: bool) -> tuple[int, float, float]:
    """A channel's shift, factor and what is added. Halves go up: what may be halfway is brought a little above."""
    bits = _BITS[size] if new else _OLD_BITS
    part, exponent = math.frexp(math.ldexp(factor, dropped))
    rounded = math.floor(part * (1 << bits) + 0.5) / (1 << bits)
    last = 1 - _KEPT[size]  # of a shifted sum, the last bit is worth rounded * 2**last
    shift = min(last - exponent, _MOST_SHIFT - dropped)
    unit = math.ldexp(rounded, exponent + shift)
    added = unit / 2 if new else math.ldexp(1.0, last - bits - 1)
    return (dropped + shift, unit, added) if shift >= 0 else (dropped, math.ldexp(unit, -shift), added)


def matrix_bias(hexagon: int, x: Value, scales: Array, out: Value, bias: Array, filters: Array) -> Array:
    """What is added to sums of data without its zero point. ``bias``: in units of the sums, as it is given;
    ``filters``: the sum of each channel's weights."""
    assert out.q is not None
    given, zero = np.asarray(bias, np.int64), 0.0 if hexagon >= _NEW else float(_zero(out.q))
    ahead = zero / _factors(x, scales, out) if zero else 0.0
    if out.q.dtype.itemsize == 1:
        return given + np.rint(ahead).astype(np.int64)
    unit, offset = 1 << _WORD, _zero(x.q) * np.asarray(filters, np.int64)
    whole = np.trunc((given + ahead) / unit) + np.rint(-offset / unit)
    return np.asarray(whole.astype(np.int64) * unit + offset)


def best_bias(hexagon: int, x: Value, scales: Array, out: Value, wanted: Array, filters: Array) -> Array:
    """The bias, in units of the sums, that brings results nearest to those of the ``wanted`` one: sums of 16-bit data
    lose what is below a step, and so does their bias."""
    assert out.q is not None
    if out.q.dtype.itemsize == 1:
        return np.rint(wanted)
    unit, offset = 1 << _WORD, -_zero(x.q) * np.asarray(filters, np.int64)
    ahead = 0.0 if hexagon >= _NEW else _zero(out.q) / (_factors(x, scales, out) * unit)
    mean = (unit - 1) / (2 * unit)  # of what a floor drops
    whole = np.rint((wanted + offset) / unit + ahead + mean - np.rint(offset / unit))
    return np.asarray(np.rint((whole + np.sign(whole) / 4 - ahead) * unit))  # a quarter, which truncating takes off
