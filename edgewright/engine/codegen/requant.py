"""Between stored bytes and real numbers, rounded as the named numerics say.

Inside the engine signed bytes are kept 128 higher, as unsigned ones: all zero points and limits here are of those.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from edgewright.engine.codegen.builder import Function, Reg, const, lane_count, vec
from edgewright.engine.codegen.fixed_point import make_rescale
from edgewright.engine.codegen.vector import clamp, int_max, int_min, round_to_int, to_float32, widen_int8
from edgewright.ir.graph import QParams
from edgewright.ir.numerics import Numerics


@dataclass(frozen=True)
class Affine:
    """One scale and zero point for bytes."""

    scale: float
    zero: int
    shift: int = 0  # what is added to a stored value

    def real(self, f: Function, x: Reg) -> Reg:
        """Bytes as the real numbers they stand for."""
        whole = f.add(widen_int8(f, x), -self.zero)
        return f.op("fmul", to_float32(f, whole), const(self.scale, vec(lane_count(x.type), "float")))

    def whole(self, f: Function, scaled: Reg, low: int, high: int) -> Reg:
        """Real numbers in steps of the scale, rounded, between two limits; in 32 bits."""
        bounded = clamp(f, scaled, low - self.zero, high - self.zero)
        return f.add(round_to_int(f, bounded), self.zero)

    def store(self, f: Function, scaled: Reg, low: int, high: int) -> Reg:
        """The same as bytes."""
        return f.cast("trunc", self.whole(f, scaled, low, high), vec(lane_count(scaled.type), "i8"))


def quantize_to_int32(f: Function, x: Reg, made: Affine, low: int, high: int) -> Reg:
    """A real number as it is stored, in 32 bits: NaN is stored as 0."""
    inverse = np.float32(1) / np.float32(made.scale)
    scaled = f.op("fmul", x, const(float(inverse), x.type))
    known = f.select(f.compare("ord", scaled, scaled), scaled, const(made.shift - made.zero, x.type))
    return made.whole(f, known, low, high)


def quantize_to_uint8(f: Function, x: Reg, made: Affine, low: int, high: int) -> Reg:
    """A real number as bytes."""
    return f.cast("trunc", quantize_to_int32(f, x, made, low, high), vec(lane_count(x.type), "i8"))


def storage_offset(q: QParams) -> int:
    """What is added to a stored value inside the engine."""
    return 128 if q.dtype == np.dtype(np.int8) else 0


def scale_of(q: QParams) -> np.float32:
    return np.float32(np.asarray(q.scale).reshape(()))


def affine_of(q: QParams) -> Affine:
    return Affine(float(scale_of(q)), int(np.asarray(q.zero_point)) + storage_offset(q), storage_offset(q))


def clamp_limits(numerics: Numerics, q: QParams, limits: tuple[float, float] | None) -> tuple[int, int]:
    """The least and the largest byte of a result."""
    low, high = numerics.limits(q, limits)
    return low + storage_offset(q), high + storage_offset(q)


def bounded_ints(f: Function, x: Reg, low: int, high: int) -> Reg:
    return int_min(f, int_max(f, x, const(low, x.type)), const(high, x.type))


Requantize = Callable[[Reg], Reg]
_MAX_MAGNITUDE = 1.0e9  # farther than any limit, and still 32 bits


def _float32_half_even(f: Function, words: Sequence[Reg], far: bool) -> Requantize:
    """By single precision, rounded once, halves to even: XNNPACK's."""

    def made(total: Reg) -> Reg:
        scaled = f.op("fmul", to_float32(f, total), words[0])
        return round_to_int(f, clamp(f, scaled, -_MAX_MAGNITUDE, _MAX_MAGNITUDE) if far else scaled)

    return made


@dataclass(frozen=True)
class Requantizer:
    """``words``: LLVM's types of what each channel's factor is made of. ``emit`` is given vectors of them, and whether
    results may leave 32 bits."""

    words: tuple[str, ...]
    emit: Callable[[Function, Sequence[Reg], bool], Requantize]
    nothing: tuple[int, ...]  # the words of channels that are not there


def _fixed_point(name: str) -> Requantizer:
    return Requantizer(("i32", "i32"), lambda f, words, far: make_rescale(f, name, words[0], words[1], far), (0, 1))


# From sums in 32 bits to integers of the output, still without its zero point.
REQUANTIZERS: dict[str, Requantizer] = {
    "even": Requantizer(("float",), _float32_half_even, (0,)),
    **{name: _fixed_point(name) for name in ("single", "double", "twice", "once")},
}
