"""Kernels of ExecuTorch's language-model operators (``llama::``): caches, attention over them, Hadamard transforms.

The result of a cache update is a placeholder that nobody reads: what the call does is write the cache. Arrays of caches
are views of planned memory, so these kernels write them in place.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from edgewright.ir.aten.reference.dims import Array, Shape
from edgewright.ir.core.cache import attend
from edgewright.ir.core.quantized_cache import dequantize_rows
from edgewright.ir.dtypes import bfloat16
from edgewright.runtime.kernel import kernel, register

_FLOATS = (np.dtype(np.float32), np.dtype(np.float16), bfloat16)

# -------------------------------------------------------------------------------------------------------------- caches


def _placeholder(*args: object) -> list[Shape | None]:
    """The shape function of cache updates: their result stays as it is."""
    return [None]


@kernel("llama::update_cache.out", _placeholder)
def update_cache(value: Array, cache: Array, start_pos: int) -> None:
    """``cache[b, start_pos + s] = value[b, s]`` for value [B, S, G, D] and cache [B, T, G, D]."""
    _check_rows(value, cache)
    _check_positions(start_pos, value.shape[1], cache.shape[1])
    cache[:, start_pos : start_pos + value.shape[1]] = value.view(cache.dtype)


@kernel("llama::update_cache_with_indices.out", _placeholder)
def update_cache_with_indices(value: Array, cache: Array, start_pos: int, indices: Array) -> None:
    """``cache[b, indices[b, s]] = value[b, s]``; ``start_pos`` is not used."""
    _check_rows(value, cache)
    if indices.shape != value.shape[:2] or indices.dtype != np.int64:
        rule = f"indices must be int64 {list(value.shape[:2])}"
        raise ValueError(f"{rule}, got {indices.dtype} {list(indices.shape)}")
    if indices.size and not (indices.min() >= 0 and indices.max() < cache.shape[1]):
        raise IndexError(f"indices must be in a cache of {cache.shape[1]}, got {indices.min()}..{indices.max()}")
    for batch, rows in enumerate(indices):
        cache[batch, rows] = value[batch].view(cache.dtype)


def _check_rows(value: Array, cache: Array) -> None:
    same = value.ndim == cache.ndim == 4 and (value.shape[0], *value.shape[2:]) == (cache.shape[0], *cache.shape[2:])
    if not same or value.dtype.itemsize != cache.dtype.itemsize:
        described = f"{value.dtype} {list(value.shape)} and {cache.dtype} {list(cache.shape)}"
        raise ValueError(f"a value [B, S, G, D] and its cache [B, T, G, D] must agree in B, G, D, got {described}")


def _check_positions(start_pos: int, count: int, length: int) -> None:
    if start_pos < 0 or start_pos + count > length:
        rule = f"a cache of {length} must hold positions {start_pos} to {start_pos + count - 1}"
        raise IndexError(f"{rule}: the sequence is longer than the context of this program")


# ----------------------------------------------------------------------------------------------------------- attention


def sdpa_shape(
    query: Array, key: Array, value: Array, start_pos: int, attn_mask: Array | None = None, drpout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None,
) -> Shape:  # fmt: skip
    """Check the operands; the result has the query's shape."""
    if query.dtype not in _FLOATS or not query.dtype == key.dtype == value.dtype:
        raise ValueError(f"one float type is required, got {query.dtype}, {key.dtype}, {value.dtype}")
    return _attention_shape(query, key, value, start_pos, attn_mask, is_causal)


def _attention_shape(
    query: Array, key: Array, value: Array, start_pos: int, attn_mask: Array | None, is_causal: bool
) -> Shape:
    """The rules of queries [B, S, H, D], keys and values [B, T, G, D]."""
    if query.ndim != 4 or key.ndim != 4 or key.shape != value.shape:
        shapes = f"{list(query.shape)}, {list(key.shape)}, {list(value.shape)}"
        raise ValueError(f"queries [B, S, H, D], keys and values [B, T, G, D] are required, got {shapes}")
    batch, count, heads, width = query.shape
    if (key.shape[0], key.shape[3]) != (batch, width) or not key.shape[2] or heads % key.shape[2]:
        raise ValueError(f"key heads must divide query heads, got {list(query.shape)} and {list(key.shape)}")
    if attn_mask is None:
        _check_positions(start_pos, count, key.shape[1])
    elif is_causal or attn_mask.shape != (count, key.shape[1]) or attn_mask.dtype != np.float32:
        found = f"{attn_mask.dtype} {list(attn_mask.shape)}{', causal' if is_causal else ''}"
        raise ValueError(f"a mask must be float32 [{count}, {key.shape[1]}] and not causal, got {found}")
    return query.shape


def sdpa(
    query: Array, key: Array, value: Array, start_pos: int, attn_mask: Array | None = None, drpout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None,
) -> Array:  # fmt: skip
    """``attend``, by default with a scale of 1 / sqrt(D)."""
    factor = np.float32(1 / math.sqrt(query.shape[3]) if scale is None else scale)
    return attend(query, key, value, start_pos, attn_mask, is_causal, factor)


register("llama::custom_sdpa.out", sdpa, sdpa_shape)


def sdpa_with_kv_cache_shape(
    query: Array, key: Array, value: Array, key_cache: Array, value_cache: Array, start_pos: int, seq_len: int,
    attn_mask: Array | None = None, drpout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
) -> Shape:  # fmt: skip
    for new, cached in ((key, key_cache), (value, value_cache)):
        _check_rows(new, cached)
        _check_positions(start_pos, new.shape[1], cached.shape[1])
    if not query.shape[1:2] == key.shape[1:2] == value.shape[1:2] == (seq_len,):
        shapes = f"{list(query.shape)}, {list(key.shape)}, {list(value.shape)}"
        raise ValueError(f"queries, keys and values must have {seq_len} positions, got {shapes}")
    return sdpa_shape(query, key_cache, value_cache, start_pos, attn_mask, drpout_p, is_causal, scale)


def sdpa_with_kv_cache(
    query: Array, key: Array, value: Array, key_cache: Array, value_cache: Array, start_pos: int, seq_len: int,
    attn_mask: Array | None = None, drpout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
) -> Array:  # fmt: skip
    """``update_cache`` of keys and values, then ``custom_sdpa``: one operator in files up to ExecuTorch 0.5."""
    update_cache(key, key_cache, start_pos)
    update_cache(value, value_cache, start_pos)
    return sdpa(query, key_cache, value_cache, start_pos, attn_mask, drpout_p, is_causal, scale)


register("llama::sdpa_with_kv_cache.out", sdpa_with_kv_cache, sdpa_with_kv_cache_shape)


def quantized_sdpa_shape(
    query: Array, key: Array, value: Array, start_pos: int, attn_mask: Array | None = None, drpout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, q_zero_points: Array | None = None,
    q_scales: Array | None = None, k_zero_points: Array | None = None, k_scales: Array | None = None,
    v_zero_points: Array | None = None, v_scales: Array | None = None, is_seq_at_dim_2: bool = False,
) -> Shape:  # fmt: skip
    operands = (query, q_scales, q_zero_points), (key, k_scales, k_zero_points), (value, v_scales, v_zero_points)
    for x, scales, zero_points in operands:
        for parameter in (scales, zero_points):
            if x.dtype != np.int8 or x.ndim != 4 or parameter is None or parameter.shape != (*x.shape[:3], 1):
                found = None if parameter is None else list(parameter.shape)
                rule = "int8 tensors of rank 4 need a scale and a zero point for each position and head"
                raise ValueError(f"{rule}, got {x.dtype} {list(x.shape)} with {found}")
    views = [x.swapaxes(1, 2) if is_seq_at_dim_2 else x for x in (query, key, value)]
    _attention_shape(views[0], views[1], views[2], start_pos, attn_mask, is_causal)
    return query.shape


def quantized_sdpa(
    query: Array, key: Array, value: Array, start_pos: int, attn_mask: Array | None = None, drpout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, q_zero_points: Array | None = None,
    q_scales: Array | None = None, k_zero_points: Array | None = None, k_scales: Array | None = None,
    v_zero_points: Array | None = None, v_scales: Array | None = None, is_seq_at_dim_2: bool = False,
) -> Array:  # fmt: skip
    """``custom_sdpa`` of int8 tensors with a scale and a zero point for each position and head.

    With ``is_seq_at_dim_2`` positions are the third dimension of all tensors, not the second.
    """
    operands = (query, q_scales, q_zero_points), (key, k_scales, k_zero_points), (value, v_scales, v_zero_points)
    wide = [_dequantize(*operand) for operand in operands]
    if is_seq_at_dim_2:
        wide = [x.swapaxes(1, 2) for x in wide]
    result = sdpa(wide[0], wide[1], wide[2], start_pos, attn_mask, drpout_p, is_causal, scale)
    return result.swapaxes(1, 2) if is_seq_at_dim_2 else result


def _dequantize(x: Array, scales: Array | None, zero_points: Array | None) -> Array:
    assert scales is not None
    assert zero_points is not None
    return dequantize_rows(x, scales.astype(np.float32), zero_points)


register("llama::custom_quantized_sdpa.out", quantized_sdpa, quantized_sdpa_shape)

# ------------------------------------------------------------------------------------------------- Hadamard transforms

# A Hadamard matrix of order 28: bit j of row i is set where the element is +1.
_HADAMARD_28 = (
    0xCD69E01, 0x9AD7C02, 0x37AB884, 0x6D57188, 0xD8AE390, 0xB3587A0, 0x66B4F40, 0xB4640C3, 0x6AC8107, 0xD59020E,
    0xAB2441C, 0x564C838, 0xAC99070, 0x5B32061, 0x8607325, 0x0E0A6CA, 0x1C10D95, 0x3821B2A, 0x7043654, 0xE082CA9,
    0xC3019D2, 0x02F1299, 0x05E2532, 0x09C4AE4, 0x118D549, 0x211EA13, 0x403D4A6, 0x807A94C,
)  # fmt: skip


@cache
def _hadamard_28() -> Array:
    return np.array([[1 if row >> j & 1 else -1 for j in range(28)] for row in _HADAMARD_28], np.float32)


def hadamard_shape(mat: Array) -> Shape:
    width = mat.shape[-1] if mat.ndim else 0
    odd = width // 28 if width and width % 28 == 0 else width
    if not odd or odd & (odd - 1) or mat.dtype not in (np.dtype(np.float32), np.dtype(np.float16)):
        rule = "float32 or float16 rows of 2^m or 28 * 2^m elements are required"
        raise ValueError(f"{rule}, got {mat.dtype} {list(mat.shape)}")
    return mat.shape


def hadamard(mat: Array) -> Array:
    """Rows times the orthonormal Sylvester matrix of their length n = 2^m.

    Rows of 28 * 2^m elements are seen as [28, 2^m]: each of the 28 is transformed like this, and a matrix of +1 and -1,
    not normalized, is applied across them, as in ExecuTorch.
    """
    width = mat.shape[-1]
    parts = 28 if width % 28 == 0 else 1
    n = width // parts
    x = mat.astype(np.float32).reshape(-1, parts, n)
    step = 1
    while step < n:
        pairs = x.reshape(-1, parts, n // (2 * step), 2, step)
        x = np.stack((pairs[..., 0, :] + pairs[..., 1, :], pairs[..., 0, :] - pairs[..., 1, :]), axis=-2)
        x = x.reshape(-1, parts, n)
        step *= 2
    x = x / np.float32(math.sqrt(n))
    if parts == 28:
        x = np.matmul(_hadamard_28().T, x)
    return x.reshape(mat.shape)


register("llama::fast_hadamard_transform.out", hadamard, hadamard_shape)
