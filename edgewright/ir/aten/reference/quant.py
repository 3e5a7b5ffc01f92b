"""Affine quantization per tensor, channel, token and block, and operators on quantized tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.ir.aten.reference.dims import Array, Shape, normal_dim, numel
from edgewright.ir.aten.reference.elementwise import broadcast_shape
from edgewright.ir.aten.reference.indexing import embedding
from edgewright.ir.dtypes import DType, compute_type, is_floating, promote, to_numpy

# ---------------------------------------------------------------------------------------------------------------- quant

# Affine quantization: per tensor, per channel, per token.
#
# A quantized value ``q`` represents ``(q - zero_point) * scale``. Rounding is to nearest, ties to even.

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


# --------------------------------------------------------------------------------------------------------------- affine

# Affine quantization in blocks: one scale and zero point per block of elements along each dimension (torchao).


def _blocks(input: Array, block_size: Sequence[int]) -> Shape:
    """The number of blocks along each dimension; a block size of -1 is the entire dimension."""
    sizes = [n if b == -1 else b for n, b in zip(input.shape, block_size, strict=True)]
    if any(b < 1 or n % b for n, b in zip(input.shape, sizes, strict=True)):
        raise ValueError(f"blocks {list(block_size)} must divide shape {list(input.shape)}")
    return tuple(n // b for n, b in zip(input.shape, sizes, strict=True))


def _broadcast_blocks(parameters: Array, input: Array, block_size: Sequence[int]) -> Array:
    """Each block's parameter at each of its elements."""
    counts = _blocks(input, block_size)
    if parameters.size != numel(counts):
        raise ValueError(f"{numel(counts)} blocks need as many parameters, got {parameters.size}")
    result = parameters.reshape(counts)
    for dim, (size, count) in enumerate(zip(input.shape, counts, strict=True)):
        result = np.repeat(result, size // max(count, 1), axis=dim)
    return result


def _limits(dtype: int, quant_min: Any, quant_max: Any) -> tuple[int, int]:
    kind = to_numpy(dtype)
    if kind.kind not in "iu":
        raise ValueError(f"quantized type must be an integer type, got {kind}")
    info = np.iinfo(kind)
    low, high = (info.min if quant_min is None else quant_min), (info.max if quant_max is None else quant_max)
    if not info.min <= low < high <= info.max:
        raise ValueError(f"range must be within {kind}, got [{low}, {high}]")
    return int(low), int(high)


def affine_shape(input: Array, block_size: Sequence[int], scale: Array, *_: Any, **__: Any) -> Shape:
    """The shape of ``quantize_affine`` and ``dequantize_affine``."""
    if len(block_size) != input.ndim or scale.size != numel(_blocks(input, block_size)):
        raise ValueError(f"blocks {list(block_size)} of shape {list(input.shape)} need a scale each")
    return input.shape


def quantize_affine(
    input: Array,
    block_size: Sequence[int],
    scale: Array,
    zero_point: Array | None,
    output_dtype: int,
    quant_min: Any = None,
    quant_max: Any = None,
) -> Array:
    x, (low, high) = to_compute_type(input), _limits(output_dtype, quant_min, quant_max)
    steps = np.rint(x * (1 / _broadcast_blocks(scale, input, block_size).astype(x.dtype)))
    shift = 0 if zero_point is None else _broadcast_blocks(zero_point, input, block_size).astype(x.dtype)
    return saturate(np.asarray(steps + shift), low, high)


def dequantize_affine(
    input: Array,
    block_size: Sequence[int],
    scale: Array,
    zero_point: Array | None,
    input_dtype: int,
    quant_min: Any = None,
    quant_max: Any = None,
    output_dtype: int = 6,
) -> Array:
    wide = to_compute_type(scale).dtype
    shift = 0 if zero_point is None else _broadcast_blocks(zero_point, input, block_size).astype(np.int64)
    steps = (input.astype(np.int64) - shift).astype(wide)
    return np.asarray(steps * _broadcast_blocks(scale, input, block_size).astype(wide))


def choose_qparams_affine_shape(
    input: Array,
    mapping_type: str,
    block_size: Sequence[int],
    target_dtype: int,
    quant_min: Any = None,
    quant_max: Any = None,
    eps: float | None = None,
    scale_dtype: int | None = None,
    zero_point_dtype: int | None = None,
    keepdim: bool = False,
) -> list[Shape]:
    if mapping_type not in ("SYMMETRIC", "SYMMETRIC_NO_CLIPPING_ERR", "ASYMMETRIC") or not input.size:
        raise ValueError(f"needs elements and a known mapping, got {list(input.shape)} and {mapping_type!r}")
    counts = _blocks(input, block_size)
    if not keepdim:  # a dimension of one block disappears
        counts = tuple(c for c, b, n in zip(counts, block_size, input.shape, strict=True) if b not in (n, -1) or b == 1)
    return [counts, counts]


def choose_qparams_affine(
    input: Array,
    mapping_type: str,
    block_size: Sequence[int],
    target_dtype: int,
    quant_min: Any = None,
    quant_max: Any = None,
    eps: float | None = None,
    scale_dtype: int | None = None,
    zero_point_dtype: int | None = None,
    keepdim: bool = False,
) -> tuple[Array, Array]:
    """Scales and zero points that cover each block's range, symmetrically or from minimum to maximum."""
    shape = choose_qparams_affine_shape(input, mapping_type, block_size, target_dtype, keepdim=keepdim)[0]
    low, high = _limits(target_dtype, quant_min, quant_max)
    x = to_compute_type(input)
    counts = _blocks(input, block_size)
    split = [part for n, c in zip(input.shape, counts, strict=True) for part in (c, n // max(c, 1))]
    inner = tuple(range(1, 2 * input.ndim, 2))
    minimum = np.minimum(x.reshape(split).min(axis=inner), 0)
    maximum = np.maximum(x.reshape(split).max(axis=inner), 0)
    smallest = x.dtype.type(np.finfo(input.dtype).eps if eps is None else eps)
    if mapping_type == "ASYMMETRIC":
        scale = np.maximum((maximum - minimum) / x.dtype.type(high - low), smallest)
        zero_point = saturate(np.asarray(low - np.rint(minimum / scale)), low, high)
    else:
        scale = _symmetric_scale(minimum, maximum, low, high, mapping_type == "SYMMETRIC_NO_CLIPPING_ERR")
        scale, zero_point = np.maximum(scale, smallest), np.full(scale.shape, (low + high + 1) // 2)
    return np.asarray(scale).reshape(shape), np.asarray(zero_point).reshape(shape)


def _symmetric_scale(minimum: Array, maximum: Array, low: int, high: int, no_clipping: bool) -> Array:
    """``no_clipping``: the larger of the scales that each half of the range needs."""
    if no_clipping:
        return np.maximum(minimum / minimum.dtype.type(low), maximum / maximum.dtype.type(high))
    return np.asarray(np.maximum(-minimum, maximum) / maximum.dtype.type((high - low) / 2))


# ------------------------------------------------------------------------------------------------------------ quant ops

# Operators on quantized tensors: addition, and matmuls and embeddings with quantized weights.


def quantized_add_shape(
    a: Array,
    a_scale: float,
    a_zero_point: int,
    a_quant_min: int,
    a_quant_max: int,
    b: Array,
    b_scale: float,
    b_zero_point: int,
    b_quant_min: int,
    b_quant_max: int,
    out_scale: float,
    out_zero_point: int,
    out_quant_min: int,
    out_quant_max: int,
) -> Shape:
    if out_scale == 0 or out_quant_min > out_quant_max:
        raise ValueError(f"output needs a scale and a range, got {out_scale}, [{out_quant_min}, {out_quant_max}]")
    return broadcast_shape(a, b)


def quantized_add(
    a: Array,
    a_scale: float,
    a_zero_point: int,
    a_quant_min: int,
    a_quant_max: int,
    b: Array,
    b_scale: float,
    b_zero_point: int,
    b_quant_min: int,
    b_quant_max: int,
    out_scale: float,
    out_zero_point: int,
    out_quant_min: int,
    out_quant_max: int,
) -> Array:
    left = dequantize_per_tensor(a, a_scale, a_zero_point, a_quant_min, a_quant_max, 0)
    right = dequantize_per_tensor(b, b_scale, b_zero_point, b_quant_min, b_quant_max, 0)
    return quantize_per_tensor(left + right, out_scale, out_zero_point, out_quant_min, out_quant_max, 0)


def _groups(weight_width: int, rows: int, scales: Array, zero_points: Array | None) -> int:
    """The number of column groups with a common scale in each row."""
    groups = scales.shape[1] if scales.ndim == 2 else 1
    if scales.ndim not in (1, 2) or scales.shape[0] != rows or groups < 1 or weight_width < groups:
        raise ValueError(f"scales must be [{rows}] or [{rows}, groups], got {list(scales.shape)}")
    if zero_points is not None and zero_points.shape != scales.shape:
        raise ValueError(f"zero points must have the scales' shape, got {list(zero_points.shape)}")
    return groups


def _spread_groups(parameters: Array, width: int) -> Array:
    """Per-column parameters from per-group ones; the last group may be short."""
    columns = parameters if parameters.ndim == 2 else parameters[:, None]
    return columns[:, np.arange(width) // max(-(-width // columns.shape[1]), 1)]


def quantized_embedding_shape(
    weight: Array, scales: Array, zero_points: Array | None, indices: Array, bits: int = 8
) -> Shape:
    if weight.ndim != 2 or weight.dtype.itemsize != 1 or indices.dtype.kind not in "iu":
        raise ValueError(f"needs byte weights [rows, width] and integer indices, got {weight.dtype}, {indices.dtype}")
    width = weight.shape[1] * (8 // bits)
    groups = _groups(max(width, 1), weight.shape[0], scales, zero_points)
    if width % groups:
        raise ValueError(f"{groups} groups must divide width {width}")
    return (*indices.shape, width)


def quantized_embedding(
    weight: Array, scales: Array, zero_points: Array | None, indices: Array, bits: int = 8
) -> Array:
    """Rows of a weight quantized per row or per column group, with ``bits`` per element."""
    rows = unpack(embedding(weight, indices.reshape(-1)), bits)
    factors = _spread_groups(embedding(scales, indices.reshape(-1)), rows.shape[1])
    shifts = None
    if zero_points is not None:
        shifts = _spread_groups(embedding(zero_points, indices.reshape(-1)), rows.shape[1])
    return dequantize(rows, factors, shifts).reshape(*indices.shape, rows.shape[1])


def unpack(packed: Array, bits: int) -> Array:
    """Signed sub-byte elements from bytes: 4-bit high nibble first, 2-bit low bits first."""
    if bits == 8:
        return packed
    shifts = np.array([4, 0] if bits == 4 else [0, 2, 4, 6], np.uint8)
    parts = (packed.view(np.uint8)[..., None] >> shifts) & np.uint8(2**bits - 1)
    return parts.reshape(*packed.shape[:-1], packed.shape[-1] * len(shifts)).astype(np.int8) - np.int8(2 ** (bits - 1))


def mixed_mm_shape(input: Array, weight: Array, weight_scales: Array, weight_zero_points: Array | None) -> Shape:
    if input.ndim != 2 or weight.ndim != 2 or weight.shape[0] != input.shape[1]:
        raise ValueError(f"weight [in, out] must fit input [n, in], got {list(weight.shape)}, {list(input.shape)}")
    _groups(max(weight.shape[1], 1), weight.shape[0], weight_scales, weight_zero_points)
    return (input.shape[0], weight.shape[1])


def mixed_mm(input: Array, weight: Array, weight_scales: Array, weight_zero_points: Array | None) -> Array:
    """``input @ weight`` for a weight quantized per row, that is, per input feature."""
    x = to_compute_type(input)
    w = _wide_weight(weight, weight_scales, weight_zero_points).astype(x.dtype)
    return np.asarray(np.matmul(x, w))


def mixed_linear_shape(
    input: Array, weight: Array, weight_scales: Array, weight_zero_points: Array | None, dtype: int | None = None
) -> Shape:
    if input.ndim != 2 or weight.ndim != 2 or weight.shape[1] != input.shape[1]:
        raise ValueError(f"weight [out, in] must fit input [n, in], got {list(weight.shape)}, {list(input.shape)}")
    _groups(max(weight.shape[1], 1), weight.shape[0], weight_scales, weight_zero_points)
    return (input.shape[0], weight.shape[0])


def mixed_linear(
    input: Array, weight: Array, weight_scales: Array, weight_zero_points: Array | None, dtype: int | None = None
) -> Array:
    """``input @ weight.T`` for a weight quantized per output row or per column group."""
    x = to_compute_type(input)
    w = _wide_weight(weight, weight_scales, weight_zero_points).astype(x.dtype)
    return np.asarray(np.matmul(x, w.T))


def _wide_weight(weight: Array, scales: Array, zero_points: Array | None) -> Array:
    width = weight.shape[1]
    shifts = None if zero_points is None else _spread_groups(zero_points, width)
    return dequantize(weight, _spread_groups(scales, width), shifts)
