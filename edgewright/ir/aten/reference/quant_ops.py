"""Operators on quantized tensors: addition, and matmuls and embeddings with quantized weights."""

from __future__ import annotations

import numpy as np

from edgewright.ir.aten.reference.dims import Array, Shape
from edgewright.ir.aten.reference.elementwise import broadcast_shape
from edgewright.ir.aten.reference.indexing import embedding
from edgewright.ir.aten.reference.quant import dequantize, dequantize_per_tensor, quantize_per_tensor, to_compute_type


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
