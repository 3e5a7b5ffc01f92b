"""Scaled dot-product attention."""

from __future__ import annotations

import math

import numpy as np

from edgewright.ir.aten.reference.dims import Array, Shape
from edgewright.ir.aten.reference.elementwise import promote_operands
from edgewright.ir.aten.reference.norm import safe_softmax


def scaled_dot_product_attention_shape(
    query: Array,
    key: Array,
    value: Array,
    attn_mask: Array | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Shape:
    if min(query.ndim, key.ndim, value.ndim) < 2 or query.shape[-1] != key.shape[-1]:
        raise ValueError(f"queries and keys must have one width, got {list(query.shape)} and {list(key.shape)}")
    if key.shape[-2] != value.shape[-2]:
        raise ValueError(f"each key needs a value, got {key.shape[-2]} and {value.shape[-2]}")
    if dropout_p or (is_causal and attn_mask is not None):
        raise ValueError("attention takes no dropout, and one mask at most")
    heads = _heads_per_key(query, key) if enable_gqa else 1
    batches = [
        x.shape[:-2] for x in (query, *(np.broadcast_to(0, _repeat_heads(x.shape, heads)) for x in (key, value)))
    ]
    return (*np.broadcast_shapes(*batches), query.shape[-2], value.shape[-1])


def scaled_dot_product_attention(
    query: Array,
    key: Array,
    value: Array,
    attn_mask: Array | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Array:
    """``softmax(query @ key.T * scale + mask) @ value``.

    A bool ``attn_mask`` is True where a query may attend; a float one is added to the scores. With ``enable_gqa``
    several query heads share a key and a value head.
    """
    q, k, v = promote_operands(query, key, value)
    if enable_gqa:
        k, v = (np.repeat(x, _heads_per_key(query, key), axis=-3) for x in (k, v))
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = np.matmul(q, np.swapaxes(k, -1, -2)) * q.dtype.type(factor)
    if is_causal:
        attn_mask = np.tri(scores.shape[-2], scores.shape[-1], dtype=np.bool_)
    if attn_mask is not None:
        allowed = attn_mask.dtype == np.bool_
        scores = np.where(attn_mask, scores, -np.inf) if allowed else scores + attn_mask.astype(scores.dtype)
    return np.asarray(np.matmul(safe_softmax(scores.astype(q.dtype), -1), v))


def _heads_per_key(query: Array, key: Array) -> int:
    """The number of query heads per key head."""
    if min(query.ndim, key.ndim) < 3 or not key.shape[-3] or query.shape[-3] % key.shape[-3]:
        raise ValueError(f"key heads must divide query heads, got {list(key.shape)} and {list(query.shape)}")
    return query.shape[-3] // key.shape[-3]


def _repeat_heads(shape: Shape, heads: int) -> Shape:
    return (*shape[:-3], shape[-3] * heads, *shape[-2:]) if heads > 1 else shape
