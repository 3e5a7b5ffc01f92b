"""Quantize, dequantize and requantize, rounded as the backend's numerics require.

The engine stores int8 tensors as uint8 with an offset of 128: zero points and limits here refer to that storage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from edgewright.engine.codegen.builder import Function, Reg, const, lane_count, vec
from edgewright.engine.codegen.fixed_point import make_rescale
from edgewright.engine.codegen.vector import clamp, round_to_int, to_float32, widen_int8
from edgewright.ir.graph import QParams
from edgewright.ir.numerics import Numerics


@dataclass(frozen=True)
class Affine:
    """Per-tensor affine quantization of an 8-bit tensor."""

    scale: float
    zero: int
    shift: int = 0  # the storage offset

    def real(self, f: Function, x: Reg) -> Reg:
        """Dequantize to float32."""
        centered = f.add(widen_int8(f, x), -self.zero)
        return f.op("fmul", to_float32(f, centered), const(self.scale, vec(lane_count(x.type), "float")))

    def quantize(self, f: Function, scaled: Reg, low: int, high: int) -> Reg:
        """Round values in units of the scale, add the zero point and clamp; the result is int32."""
        clamped = clamp(f, scaled, low - self.zero, high - self.zero)
        return f.add(round_to_int(f, clamped), self.zero)

    def store(self, f: Function, scaled: Reg, low: int, high: int) -> Reg:
        """The same as uint8."""
        return f.cast("trunc", self.quantize(f, scaled, low, high), vec(lane_count(scaled.type), "i8"))


def quantize_to_int32(f: Function, x: Reg, affine: Affine, low: int, high: int) -> Reg:
    """Quantize float32 to the stored value, in int32; NaN becomes 0."""
    inverse = np.float32(1) / np.float32(affine.scale)
    scaled = f.op("fmul", x, const(float(inverse), x.type))
    ordered = f.select(f.compare("ord", scaled, scaled), scaled, const(affine.shift - affine.zero, x.type))
    return affine.quantize(f, ordered, low, high)


def quantize_to_uint8(f: Function, x: Reg, affine: Affine, low: int, high: int) -> Reg:
    """Quantize float32 to uint8 storage."""
    return f.cast("trunc", quantize_to_int32(f, x, affine, low, high), vec(lane_count(x.type), "i8"))


def storage_offset(q: QParams) -> int:
    """The offset the engine adds to a stored value: 128 for int8."""
    return 128 if q.dtype == np.dtype(np.int8) else 0


def scale_of(q: QParams) -> np.float32:
    return np.float32(np.asarray(q.scale).reshape(()))


def affine_of(q: QParams) -> Affine:
    return Affine(float(scale_of(q)), int(np.asarray(q.zero_point)) + storage_offset(q), storage_offset(q))


def clamp_limits(numerics: Numerics, q: QParams, limits: tuple[float, float] | None) -> tuple[int, int]:
    """The smallest and the largest stored value of a result."""
    low, high = numerics.limits(q, limits)
    return low + storage_offset(q), high + storage_offset(q)


Requantize = Callable[[Reg], Reg]
_MAX_MAGNITUDE = 1.0e9  # beyond any limit, within int32


def _float32_half_even(f: Function, words: Sequence[Reg], may_overflow: bool) -> Requantize:
    """Scale in float32, round once, ties to even."""

    def requantize(total: Reg) -> Reg:
        scaled = f.op("fmul", to_float32(f, total), words[0])
        return round_to_int(f, clamp(f, scaled, -_MAX_MAGNITUDE, _MAX_MAGNITUDE) if may_overflow else scaled)

    return requantize


@dataclass(frozen=True)
class Requantizer:
    """A requantization scheme.

    ``factor_words``: the LLVM types of the 32-bit words of each channel's factor. ``emit`` takes vectors of them, and
    whether results may overflow int32.
    """

    factor_words: tuple[str, ...]
    emit: Callable[[Function, Sequence[Reg], bool], Requantize]
    nothing: tuple[int, ...]  # the words of padding channels


def _fixed_point(name: str) -> Requantizer:
    return Requantizer(("i32", "i32"), lambda f, words, far: make_rescale(f, name, words[0], words[1], far), (0, 1))


# From int32 accumulators to the output's integers, before the zero point is added.
REQUANTIZERS: dict[str, Requantizer] = {
    "even": Requantizer(("float",), _float32_half_even, (0,)),
    **{name: _fixed_point(name) for name in ("single", "double", "twice", "once")},
}
