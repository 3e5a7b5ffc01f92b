"""Affine quantization in blocks: one scale and zero point per block of elements along each dimension (torchao)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.ir.aten.reference.dims import Array, Shape, numel
from edgewright.ir.aten.reference.quant import saturate, to_compute_type
from edgewright.ir.dtypes import to_numpy


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
