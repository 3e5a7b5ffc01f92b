"""Numerics: the rounding of each vendor's quantize, dequantize and requantize."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from edgewright.hints import not_among
from edgewright.ir.graph import Array, QParams

_F32 = np.float32


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


def _zero(q: QParams) -> int:
    return int(np.asarray(q.zero_point))


class MeanParams(NamedTuple):
    """Parameters of a mean of stored integers: ``rint((sum - subtract) * factor + offset) + zero``."""

    subtract: int
    factor: np.float32
    offset: np.float32
    zero: int


class Numerics:
    """Round half to even in float32, as XNNPACK's x86 and Arm kernels do."""

    name = "xnnpack"

    def quantize(self, x: Array, q: QParams) -> Array:
        inverse = _F32(1) / broadcast_params(np.asarray(q.scale, _F32), q.axis, x.ndim)
        scaled = x.astype(_F32) * inverse
        return self._store(np.rint(scaled), q, x.ndim)

    def dequantize(self, x: Array, q: QParams) -> Array:
        zero = broadcast_params(q.zero_point, q.axis, x.ndim)
        scale = broadcast_params(np.asarray(q.scale, _F32), q.axis, x.ndim)
        return np.asarray((x.astype(np.int32) - zero).astype(_F32) * scale)

    def requantize(self, total: Array, scale: Any, q: QParams, limits: tuple[float, float] | None = None) -> Array:
        """An integer accumulator times ``scale``, rounded, in the output's integers, clamped to its real limits."""
        lo, hi = self.limits(q, limits)
        zero = int(np.asarray(q.zero_point))
        scaled = total.astype(_F32) * np.asarray(scale, _F32)
        clamped = np.clip(scaled, _F32(lo - zero), _F32(hi - zero))
        return (np.rint(clamped).astype(np.int32) + zero).astype(q.dtype)

    def convert(
        self, x: Array, input_q: QParams, q: QParams, limits: tuple[float, float] | None = None
    ) -> Array | None:
        """Requantize to another scale, or None if the conversion goes through float32.

        XNNPACK's ``vcvt`` kernels multiply by the ratio of scales in units of 1/256, rounding half up.
        """
        ratio = (
            _F32(np.asarray(input_q.scale)) / _F32(np.asarray(q.scale)) if _plain(input_q) and _plain(q) else _F32(0)
        )
        if input_q.dtype != q.dtype or not 2.0**-8 <= ratio <= 2.0**7:
            return None
        factor = int(np.rint(_F32(256) * ratio))
        scaled = (x.astype(np.int64) - int(np.asarray(input_q.zero_point))) * factor + 128 >> 8
        lo, hi = self.limits(q, limits)
        return np.asarray(np.clip(scaled + int(np.asarray(q.zero_point)), lo, hi).astype(q.dtype))

    def mean(self, x: Array, input_q: QParams, q: QParams, limits: tuple[float, float] | None = None) -> Array:
        """Global average of NHWC int8 images."""
        steps = self.mean_steps(input_q, q, x.shape[1] * x.shape[2])
        total = x.astype(np.int64).sum((1, 2), keepdims=True) - steps.subtract
        rounded = np.rint(total.astype(_F32) * steps.factor + steps.offset) + steps.zero
        return np.asarray(np.clip(rounded, *self.limits(q, limits)).astype(q.dtype))

    def mean_steps(self, input_q: QParams, q: QParams, count: int) -> MeanParams:
        """XNNPACK's reductions add the zero point before rounding half to even."""
        factor = _F32(as_float32(input_q.scale) / as_float32(q.scale) * (_F32(1) / _F32(count)))
        offset = _zero(q) - factor * _F32(_zero(input_q) * count)
        return MeanParams(0, factor, _F32(offset), 0)

    def sum(
        self, x: Array, y: Array, input_qs: tuple[QParams, QParams], q: QParams, limits: tuple[float, float] | None
    ) -> Array:
        """Add two int8 operands, zero points removed, in the output's scale.

        Factors are 21-bit fixed point, normalized to the larger one; rounds half up.
        """
        first, second, shift = self.sum_factors(input_qs, q)
        total = (x * first + y * second + (1 << shift - 1)) >> shift
        lo, hi = self.limits(q, limits)
        return np.asarray(np.clip(total + int(np.asarray(q.zero_point)), lo, hi).astype(q.dtype))

    def sum_factors(self, input_qs: tuple[QParams, QParams], q: QParams) -> tuple[int, int, int]:
        """The multipliers of both operands, and the right shift of their sum; 1 to 30 if int32 suffices."""
        left, right = (np.asarray(g.scale, _F32) / np.asarray(q.scale, _F32) for g in input_qs)
        if not (np.isfinite(left) and np.isfinite(right)):
            return 0, 0, 0
        shift = 21 - int(np.frexp(max(left, right))[1])
        first, second = (int(np.rint(np.ldexp(np.float64(f), shift))) for f in (left, right))
        return first, second, shift

    def limits(self, q: QParams, limits: tuple[float, float] | None) -> tuple[int, int]:
        """Real limits as integers of the output."""
        if limits is None:
            return q.qmin, q.qmax
        scale, zero = _F32(np.asarray(q.scale)), int(np.asarray(q.zero_point))
        with np.errstate(all="ignore"):  # infinities are limits too
            steps = np.rint(np.asarray(limits, _F32) / scale + _F32(zero))  # the zero point takes part in rounding
        lo, hi = np.clip(steps, q.qmin, q.qmax)
        return int(lo), int(hi)

    def quantize_rows(self, x: Array, dims: int) -> tuple[Array, Array, Array]:
        """Dynamically quantize each row of the last ``dims`` dimensions: integers, 1/scale, zero points."""
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

    def _store(self, rounded: Array, q: QParams, rank: int) -> Array:
        zero = broadcast_params(np.asarray(q.zero_point, _F32), q.axis, rank)
        return np.clip(np.nan_to_num(rounded + zero), q.qmin, q.qmax).astype(q.dtype)


def _plain(q: QParams) -> bool:
    """8 bits with one scale."""
    return q.dtype.itemsize == 1 and q.axis is None and q.dynamic is None


XNNPACK = Numerics()


class _VendorNumerics(Numerics):
    """Requantization is an operator of the vendor's dialect; means round as products do."""

    def convert(
        self, x: Array, input_q: QParams, q: QParams, limits: tuple[float, float] | None = None
    ) -> Array | None:
        return None

    def mean_steps(self, input_q: QParams, q: QParams, count: int) -> MeanParams:
        factor = _F32(as_float32(input_q.scale) / (as_float32(q.scale) * _F32(count)))
        return MeanParams(_zero(input_q) * count, factor, _F32(0), _zero(q))


class TfliteNumerics(_VendorNumerics):
    """For graphs of TFLite's operators, which round by themselves (``backends/nxp/dialect``)."""

    name = "tflite"


class TosaNumerics(_VendorNumerics):
    """For graphs of TOSA's operators (``backends/ethos_u/dialect``)."""

    name = "tosa"


class QnnNumerics(_VendorNumerics):
    """For graphs of QNN's operators (``backends/qualcomm/dialect``), which round once, as XNNPACK's do."""

    name = "qnn"


class EnnNumerics(_VendorNumerics):
    """For graphs of ENN's operators, which round by themselves (``backends/samsung/dialect``)."""

    name = "enn"


TFLITE, TOSA, QNN, ENN = TfliteNumerics(), TosaNumerics(), QnnNumerics(), EnnNumerics()
NUMERICS_BY_NAME: dict[str, Numerics] = {n.name: n for n in (XNNPACK, TFLITE, TOSA, QNN, ENN)}


def get_numerics(numerics: str | Numerics) -> Numerics:
    """Numerics by their name."""
    if isinstance(numerics, Numerics):
        return numerics
    if numerics not in NUMERICS_BY_NAME:
        raise not_among("numerics", numerics, NUMERICS_BY_NAME)
    return NUMERICS_BY_NAME[numerics]
