"""Affine quantization: per tensor, per channel, per token.

A quantized value ``q`` represents ``(q - zero_point) * scale``. Rounding is to nearest, ties to even.
"""

from __future__ import annotations

import numpy as np

from edgewright.ir.aten.reference.dims import Array, Shape, normal_dim, numel
from edgewright.ir.dtypes import DType, compute_type, is_floating, promote, to_numpy

_MIN_SCALE = np.finfo(np.float32).eps


def to_compute_type(x: Array, *params: Array) -> Array:
    """``x`` in torch's computation type: float32, or float64 if a parameter tensor is float64."""
    floats = [a.dtype for a in (x, *params) if is_floating(a.dtype)]
    return x.astype(compute_type(promote(np.float32, *floats)), copy=False)


def saturate(q: Array, quant_min: int, quant_max: int) -> Array:
    """Integers clamped to the range; NaN becomes the minimum."""
    bounded = np.clip(q.astype(np.float64), quant_min, quant_max)
    return np.where(np.isnan(bounded), quant_min, bounded).astype(np.int64)


def _check_range(quant_min: int, quant_max: int, dtype: int) -> None:
    number: DType = to_numpy(dtype)
    if number.kind not in "iu":
        raise ValueError(f"quantized type must be an integer type, got {number}")
    limits = np.iinfo(number)
    if not limits.min <= quant_min <= quant_max <= limits.max:
        raise ValueError(f"range must be within {number}, got [{quant_min}, {quant_max}]")


def _scalar(x: Array, name: str) -> float:
    if x.size != 1:
        raise ValueError(f"{name} must be one number, got {list(x.shape)}")
    return float(x.reshape(())[()])


def quantize_per_tensor_shape(
    input: Array, scale: float | Array, zero_point: int | Array, quant_min: int, quant_max: int, dtype: int
) -> Shape:
    _check_range(quant_min, quant_max, dtype)
    if _scalar(np.asarray(scale), "scale") == 0:
        raise ValueError("scale must not be zero")
    _scalar(np.asarray(zero_point), "zero_point")
    return input.shape


def quantize_per_tensor(
    input: Array, scale: float | Array, zero_point: int | Array, quant_min: int, quant_max: int, dtype: int
) -> Array:
    x = to_compute_type(input)
    inverse = x.dtype.type(1.0 / _scalar(np.asarray(scale), "scale"))
    shift = x.dtype.type(_scalar(np.asarray(zero_point), "zero_point"))
    return saturate(np.rint(x * inverse) + shift, quant_min, quant_max)


def dequantize_per_tensor_shape(
    input: Array,
    scale: float | Array,
    zero_point: int | Array | None,
    quant_min: int,
    quant_max: int,
    dtype: int,
    out_dtype: int | None = None,
) -> Shape:
    _scalar(np.asarray(scale), "scale")
    _scalar(np.asarray(0 if zero_point is None else zero_point), "zero_point")
    return input.shape


def dequantize_per_tensor(
    input: Array,
    scale: float | Array,
    zero_point: int | Array | None,
    quant_min: int,
    quant_max: int,
    dtype: int,
    out_dtype: int | None = None,
) -> Array:
    shift = _scalar(np.asarray(0 if zero_point is None else zero_point), "zero_point")
    wide: DType = np.dtype(np.float64 if out_dtype is not None and to_numpy(out_dtype) == np.float64 else np.float32)
    return np.asarray((input.astype(wide) - wide.type(shift)) * wide.type(_scalar(np.asarray(scale), "scale")))


def _broadcast_along(parameters: Array, rank: int, axis: int) -> Array:
    return parameters.reshape(-1, *(1,) * (rank - 1 - axis))


def _check_channels(input: Array, scales: Array, zero_points: Array | None, axis: int) -> Shape:
    if input.ndim == 0:
        raise ValueError("input must have at least one dimension")
    count = input.shape[normal_dim(axis, input.ndim)]
    if scales.shape != (count,) or (zero_points is not None and zero_points.shape != (count,)):
        raise ValueError(f"axis {axis} needs {count} scales and zero points, got {list(scales.shape)}")
    return input.shape


def quantize_per_channel_shape(
    input: Array, scales: Array, zero_points: Array, axis: int, quant_min: int, quant_max: int, dtype: int
) -> Shape:
    _check_range(quant_min, quant_max, dtype)
    return _check_channels(input, scales, zero_points, axis)


def quantize_per_channel(
    input: Array, scales: Array, zero_points: Array, axis: int, quant_min: int, quant_max: int, dtype: int
) -> Array:
    axis = normal_dim(axis, input.ndim)
    x = to_compute_type(input, scales)
    inverse, shift = (
        _broadcast_along(a, x.ndim, axis) for a in (1 / to_compute_type(scales), zero_points.astype(x.dtype))
    )
    return saturate(np.rint(x * inverse) + shift, quant_min, quant_max)


def dequantize_per_channel_shape(
    input: Array,
    scales: Array,
    zero_points: Array | None,
    axis: int,
    quant_min: int,
    quant_max: int,
    dtype: int,
    out_dtype: int | None = None,
) -> Shape:
    return _check_channels(input, scales, zero_points, axis)


def dequantize_per_channel(
    input: Array,
    scales: Array,
    zero_points: Array | None,
    axis: int,
    quant_min: int,
    quant_max: int,
    dtype: int,
    out_dtype: int | None = None,
) -> Array:
    axis = normal_dim(axis, input.ndim)
    return dequantize(
        input,
        _broadcast_along(scales, input.ndim, axis),
        None if zero_points is None else _broadcast_along(zero_points, input.ndim, axis),
    )


def dequantize(q: Array, scales: Array, zero_points: Array | None) -> Array:
    factors = to_compute_type(scales)
    if zero_points is None:
        return np.asarray(q.astype(factors.dtype) * factors)
    if zero_points.dtype.kind in "iu" and q.dtype.itemsize < 8:  # exact: the difference may need one more bit
        return np.asarray((q.astype(np.int64) - zero_points.astype(np.int64)).astype(factors.dtype) * factors)
    return np.asarray((q.astype(factors.dtype) - zero_points.astype(factors.dtype)) * factors)


def _check_tokens(input: Array, scales: Array, zero_points: Array) -> Shape:
    tokens = numel(input.shape[:-1])
    if input.ndim == 0 or scales.size != tokens or zero_points.size != tokens:
        raise ValueError(f"{tokens} tokens need as many scales and zero points, got {scales.size}, {zero_points.size}")
    return input.shape


def quantize_per_token_shape(
    input: Array, scales: Array, zero_points: Array, quant_min: int, quant_max: int, dtype: int
) -> Shape:
    _check_range(quant_min, quant_max, dtype)
    return _check_tokens(input, scales, zero_points)


def quantize_per_token(
    input: Array, scales: Array, zero_points: Array, quant_min: int, quant_max: int, dtype: int
) -> Array:
    x = to_compute_type(input, scales)
    tokens = (*input.shape[:-1], 1)
    inverse, shift = (1 / to_compute_type(scales)).reshape(tokens), zero_points.astype(x.dtype).reshape(tokens)
    return saturate(np.rint(x * inverse + shift), quant_min, quant_max)  # per token, the sum is rounded


def dequantize_per_token_shape(
    input: Array, scales: Array, zero_points: Array, quant_min: int, quant_max: int, dtype: int, output_dtype: int
) -> Shape:
    return _check_tokens(input, scales, zero_points)


def dequantize_per_token(
    input: Array, scales: Array, zero_points: Array, quant_min: int, quant_max: int, dtype: int, output_dtype: int
) -> Array:
    tokens = (*input.shape[:-1], 1)
    return dequantize(input, scales.reshape(tokens), zero_points.reshape(tokens))


def choose_qparams_shape(input: Array, quant_min: int, quant_max: int, eps: float, dtype: int) -> list[Shape]:
    if quant_min >= quant_max or abs(quant_min) > 2**31 or abs(quant_max) > 2**31 or not input.size:
        raise ValueError(f"needs elements and a range, got {list(input.shape)} and [{quant_min}, {quant_max}]")
    return [(1,), (1,)]


def choose_qparams(input: Array, quant_min: int, quant_max: int, eps: float, dtype: int) -> tuple[Array, Array]:
    """Scale (at least ``eps``) and zero point that cover the input's range and represent 0 exactly."""
    x = to_compute_type(input)
    low, high = np.minimum(x.min(), 0), np.maximum(x.max(), 0)
    scale = np.maximum((high - low) / x.dtype.type(quant_max - quant_min), x.dtype.type(eps))
    zero_point = saturate(quant_min - np.rint(low / scale), quant_min, quant_max)
    return scale.reshape(1), zero_point.reshape(1)


def choose_qparams_per_token_asymmetric_shape(input: Array, dtype: int) -> list[Shape]:
    if input.ndim == 0 or input.shape[-1] == 0:
        raise ValueError(f"tokens must have elements, got {list(input.shape)}")
    return [(*input.shape[:-1], 1)] * 2


def choose_qparams_per_token_asymmetric(input: Array, dtype: int) -> tuple[Array, Array]:
    """int8 scale and zero point per token; computed from the end with the smaller error."""
    x = to_compute_type(input)
    low = np.minimum(x.min(-1, keepdims=True), 0)
    high = np.maximum(x.max(-1, keepdims=True), 0)
    scale = np.maximum((high - low) / x.dtype.type(255), x.dtype.type(_MIN_SCALE))
    from_low, from_high = low / scale - 128, high / scale + 127
    zero_point = np.where(from_low + from_high > 0, -128 - low / scale, 127 - high / scale)
    return scale, saturate(np.rint(np.clip(zero_point, -128, 127)), -128, 127)
