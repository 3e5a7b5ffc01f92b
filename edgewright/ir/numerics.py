"""Numerics: how quantized core operators round.

Every vendor has its own class, in its backend. A graph's runner is given the object, and the reference and the engine
ask it. The functions here are the arithmetic that several of them share; ``FLOAT32`` is for graphs that are no
vendor's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np

from edgewright.ir.graph import Array, QParams

_F32 = np.float32
Limits = tuple[float, float] | None


def as_float32(parameter: Any) -> Array:
    """A scale, per tensor or per channel, as float32."""
    return np.asarray(parameter, _F32)


def broadcast_params(parameter: Any, axis: int | None, rank: int) -> Array:
    """Per-channel parameters, shaped to broadcast along ``axis``."""
    values = np.asarray(parameter)
    if axis is None or values.ndim == 0:
        return values
    shape = [1] * rank
    shape[axis] = values.size
    return values.reshape(shape)


class MeanParams(NamedTuple):
    """Parameters of a mean of stored integers: ``rint((sum - subtract) * factor + offset) + zero``."""

    subtract: int
    factor: np.float32
    offset: np.float32
    zero: int


class Numerics(ABC):
    """The rounding rules of quantized core operators. ``name`` is part of the keys of cached plans."""

    name: str

    @abstractmethod
    def quantize(self, x: Array, q: QParams) -> Array:
        """Real numbers as integers."""

    @abstractmethod
    def dequantize(self, x: Array, q: QParams) -> Array:
        """Integers as float32."""

    @abstractmethod
    def requantize(self, total: Array, scale: Any, q: QParams, limits: Limits = None) -> Array:
        """An integer accumulator times ``scale``, rounded, in the output's integers, clamped to its real limits."""

    @abstractmethod
    def convert(self, x: Array, input_q: QParams, q: QParams, limits: Limits = None) -> Array | None:
        """Integers in another scale, or None if the conversion goes through float32."""

    @abstractmethod
    def mean_steps(self, input_q: QParams, q: QParams, count: int) -> MeanParams:
        """The requantization of a sum of ``count`` stored integers to their mean."""

    @abstractmethod
    def sum_factors(self, input_qs: tuple[QParams, QParams], q: QParams) -> tuple[int, int, int]:
        """The integer multipliers of both operands of an 8-bit sum, and the right shift of their sum, which rounds half
        up; a shift from 1 to 30 if int32 suffices."""

    @abstractmethod
    def limits(self, q: QParams, limits: Limits) -> tuple[int, int]:
        """Real limits as integers of the output."""

    @abstractmethod
    def quantize_rows(self, x: Array, dims: int) -> tuple[Array, Array, Array]:
        """Dynamically quantize each row of the last ``dims`` dimensions: integers, 1/scale, zero points."""

    def mean(self, x: Array, input_q: QParams, q: QParams, limits: Limits = None) -> Array:
        """Global average of NHWC int8 images."""
        steps = self.mean_steps(input_q, q, x.shape[1] * x.shape[2])
        total = x.astype(np.int64).sum((1, 2), keepdims=True) - steps.subtract
        rounded = np.rint(total.astype(_F32) * steps.factor + steps.offset) + steps.zero
        return np.asarray(np.clip(rounded, *self.limits(q, limits)).astype(q.dtype))

    def sum(self, x: Array, y: Array, input_qs: tuple[QParams, QParams], q: QParams, limits: Limits) -> Array:
        """Add two int8 operands, zero points removed, in the output's scale."""
        first, second, shift = self.sum_factors(input_qs, q)
        total = (x * first + y * second + (1 << shift - 1)) >> shift
        lo, hi = self.limits(q, limits)
        return np.asarray(np.clip(total + zero_point(q), lo, hi).astype(q.dtype))


# --------------------------------------------------------------------------------------------------- shared arithmetic


def zero_point(q: QParams) -> int:
    """The zero point of a tensor with one."""
    return int(np.asarray(q.zero_point))


def quantize_float32(x: Array, q: QParams) -> Array:
    """Multiply by the reciprocal of the scale, round half to even, saturate; NaN becomes 0."""
    inverse = _F32(1) / broadcast_params(np.asarray(q.scale, _F32), q.axis, x.ndim)
    zero = broadcast_params(np.asarray(q.zero_point, _F32), q.axis, x.ndim)
    return np.clip(np.nan_to_num(np.rint(x.astype(_F32) * inverse) + zero), q.qmin, q.qmax).astype(q.dtype)


def dequantize_float32(x: Array, q: QParams) -> Array:
    """Subtract the zero point, multiply by the scale."""
    zero = broadcast_params(q.zero_point, q.axis, x.ndim)
    scale = broadcast_params(np.asarray(q.scale, _F32), q.axis, x.ndim)
    return np.asarray((x.astype(np.int32) - zero).astype(_F32) * scale)


def limits_float32(q: QParams, limits: Limits) -> tuple[int, int]:
    """Real limits as integers; the zero point takes part in rounding."""
    if limits is None:
        return q.qmin, q.qmax
    with np.errstate(all="ignore"):  # infinities are limits too
        steps = np.rint(np.asarray(limits, _F32) / _F32(np.asarray(q.scale)) + _F32(zero_point(q)))
    lo, hi = np.clip(steps, q.qmin, q.qmax)
    return int(lo), int(hi)


def requantize_float32(total: Array, scale: Any, q: QParams, limits: Limits = None) -> Array:
    """Multiply in float32, clamp, round half to even."""
    (lo, hi), zero = limits_float32(q, limits), zero_point(q)
    scaled = total.astype(_F32) * np.asarray(scale, _F32)
    clamped = np.clip(scaled, _F32(lo - zero), _F32(hi - zero))
    return (np.rint(clamped).astype(np.int32) + zero).astype(q.dtype)


def mean_steps_float32(input_q: QParams, q: QParams, count: int) -> MeanParams:
    """Round the mean as a product: subtract the zero points, multiply, round half to even."""
    factor = _F32(as_float32(input_q.scale) / (as_float32(q.scale) * _F32(count)))
    return MeanParams(zero_point(input_q) * count, factor, _F32(0), zero_point(q))


def sum_factors_21bit(input_qs: tuple[QParams, QParams], q: QParams) -> tuple[int, int, int]:
    """21-bit fixed point, normalized to the larger factor."""
    left, right = (np.asarray(g.scale, _F32) / np.asarray(q.scale, _F32) for g in input_qs)
    if not (np.isfinite(left) and np.isfinite(right)):
        return 0, 0, 0
    shift = 21 - int(np.frexp(max(left, right))[1])
    first, second = (int(np.rint(np.ldexp(np.float64(f), shift))) for f in (left, right))
    return first, second, shift


def quantize_rows_int8(x: Array, dims: int) -> tuple[Array, Array, Array]:
    """Rows from their minimum to their maximum, including 0, as int8; the zero point is rounded toward the end of the
    range whose rounding error is smaller."""
    axes = tuple(range(x.ndim - dims, x.ndim))
    real = x.astype(_F32)
    low = np.minimum(real.min(axes, keepdims=True, initial=0), _F32(0))
    high = np.maximum(real.max(axes, keepdims=True, initial=0), _F32(0))
    scale = np.where(low == high, _F32(1), _F32(255) / np.where(low == high, _F32(1), high - low)).astype(_F32)
    below, above = low * scale, high * scale
    zero = np.where((_F32(-128) + below) + (_F32(127) + above) > 0, _F32(-128) - below, _F32(127) - above)
    zero = np.rint(np.clip(zero, -128, 127)).astype(np.int32)
    stored = np.clip(np.rint(real * scale).astype(np.int64) + zero, -128, 127).astype(np.int8)
    return stored, scale, zero


def convert_by_float32(x: Array, input_q: QParams, q: QParams, limits: Limits = None) -> Array | None:
    """Conversions go through float32."""
    return None


class Float32Numerics(Numerics):
    """Round once, half to even, in float32; 8-bit sums in 21-bit fixed point. The quantized operators of ATen, and the
    rules from which those of a vendor differ in what its class overrides."""

    name = "float32"
    quantize = staticmethod(quantize_float32)
    dequantize = staticmethod(dequantize_float32)
    requantize = staticmethod(requantize_float32)
    convert = staticmethod(convert_by_float32)
    mean_steps = staticmethod(mean_steps_float32)
    sum_factors = staticmethod(sum_factors_21bit)
    limits = staticmethod(limits_float32)
    quantize_rows = staticmethod(quantize_rows_int8)


FLOAT32 = Float32Numerics()
