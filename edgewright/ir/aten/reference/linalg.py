"""Matrix products, distances between rows, and scaled dot-product attention."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from edgewright.ir.aten.reference.dims import Array, Shape, numel
from edgewright.ir.aten.reference.elementwise import promote_operands
from edgewright.ir.aten.reference.norm import safe_softmax

# --------------------------------------------------------------------------------------------------------------- linalg

# Matrix products.


def mm_shape(self: Array, mat2: Array) -> Shape:
    return _product_shape(self, mat2, 2)


def mm(self: Array, mat2: Array) -> Array:
    return np.asarray(np.matmul(*promote_operands(self, mat2)))


def bmm_shape(self: Array, mat2: Array) -> Shape:
    shape = _product_shape(self, mat2, 3)
    if self.shape[0] != mat2.shape[0]:
        raise ValueError(f"batches must agree, got {list(self.shape)} and {list(mat2.shape)}")
    return shape


def bmm(self: Array, mat2: Array) -> Array:
    return np.asarray(np.matmul(*promote_operands(self, mat2)))


def addmm_shape(self: Array, mat1: Array, mat2: Array, beta: Any = 1, alpha: Any = 1) -> Shape:
    shape = _product_shape(mat1, mat2, 2)
    if self.ndim > 2 or np.broadcast_shapes(self.shape, shape) != shape:
        raise ValueError(f"{list(self.shape)} must broadcast to the product's shape {list(shape)}")
    return shape


def addmm(self: Array, mat1: Array, mat2: Array, beta: Any = 1, alpha: Any = 1) -> Array:
    """``beta * self + alpha * (mat1 @ mat2)``; with ``beta`` 0, ``self`` is ignored, even NaN."""
    a, b, c = promote_operands(mat1, mat2, self)
    number = a.dtype.type  # scalars are cast to the tensors' dtype: 2.5 is 2 for integers
    result = np.matmul(a, b)
    if number(alpha) != 1:
        result = result * number(alpha)
    if number(beta) != 0:
        result = result + (c if number(beta) == 1 else c * number(beta))
    return np.asarray(result)


def linear_shape(input: Array, weight: Array, bias: Array | None = None) -> Shape:
    if input.ndim < 1 or weight.ndim != 2 or input.shape[-1] != weight.shape[1]:
        raise ValueError(f"a weight [out, in] must fit input [..., in], got {list(weight.shape)}, {list(input.shape)}")
    if bias is not None and bias.shape not in (weight.shape[:1], (1,), ()):
        raise ValueError(f"bias must have {weight.shape[0]} elements, got {list(bias.shape)}")
    return (*input.shape[:-1], weight.shape[0])


def linear(input: Array, weight: Array, bias: Array | None = None) -> Array:
    if bias is None:
        x, w = promote_operands(input, weight)
        return np.asarray(np.matmul(x, w.T))
    x, w, b = promote_operands(input, weight, bias)
    return np.asarray(np.matmul(x, w.T) + b)


def _product_shape(a: Array, b: Array, rank: int) -> Shape:
    if a.ndim != rank or b.ndim != rank or a.shape[-1] != b.shape[-2]:
        raise ValueError(f"must be {rank}-d with equal inner sizes, got {list(a.shape)} and {list(b.shape)}")
    return (*a.shape[:-1], b.shape[-1])


def matmul_shape(self: Array, other: Array) -> Shape:
    """A vector is a row on the left and a column on the right; its dimension of 1 is dropped afterwards."""
    if not (self.ndim and other.ndim):
        raise ValueError("a product needs two tensors of at least one dimension")
    left = self.shape if self.ndim > 1 else (1, *self.shape)
    right = other.shape if other.ndim > 1 else (*other.shape, 1)
    if left[-1] != right[-2]:
        raise ValueError(f"inner sizes must be equal, got {list(self.shape)} and {list(other.shape)}")
    rows, columns = left[-2:-1] if self.ndim > 1 else (), right[-1:] if other.ndim > 1 else ()
    return (*np.broadcast_shapes(left[:-2], right[:-2]), *rows, *columns)


def matmul(self: Array, other: Array) -> Array:
    return np.asarray(np.matmul(*promote_operands(self, other)))


# ------------------------------------------------------------------------------------------------------------- distance

# Pairwise p-norm distances between matrix rows.

# Elements of the difference buffer: large enough for numpy to be efficient, small compared to any input.
_BLOCK = 1 << 16


def _norm(difference: Array, p: float) -> Array:
    """The p-norm over the last dim; 0 counts differences, inf is the maximum."""
    size = np.abs(difference)
    if p == 0:
        return np.asarray(np.sum(size != 0, axis=-1, dtype=difference.dtype))
    if math.isinf(p):
        return np.asarray(np.max(size, axis=-1))
    if p == 1:
        return np.asarray(np.sum(size, axis=-1))
    if p == 2:
        return np.asarray(np.sqrt(np.sum(size * size, axis=-1)))
    return np.asarray(np.sum(size ** difference.dtype.type(p), axis=-1) ** difference.dtype.type(1 / p))


def _check_p(p: float) -> None:
    if not p >= 0:
        raise ValueError(f"p must not be negative, got {p}")


def cdist(x1: Array, x2: Array, p: float = 2.0, compute_mode: int | None = None) -> Array:
    """From every row of ``x1`` to every row of ``x2``. ``compute_mode`` is ignored: it only selects an algorithm."""
    shape = cdist_shape(x1, x2, p)
    a, b = promote_operands(x1, x2, 0.0)[:2]
    result = np.zeros(shape, a.dtype)
    if not result.size or not a.shape[-1]:
        return result
    batch = shape[:-2]
    a, b = (np.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (a, b))
    rows = max(_BLOCK // numel(b.shape[-2:]), 1)
    for at in np.ndindex(*batch):
        for first in range(0, shape[-2], rows):
            block = slice(first, first + rows)
            result[at][block] = _norm(a[at][block, None] - b[at], p)
    return result


def cdist_shape(x1: Array, x2: Array, p: float = 2.0, compute_mode: int | None = None) -> Shape:
    _check_p(p)
    if min(x1.ndim, x2.ndim) < 2 or x1.shape[-1] != x2.shape[-1]:
        raise ValueError(f"matrices must have rows of one length, got shapes {list(x1.shape)} and {list(x2.shape)}")
    return (*np.broadcast_shapes(x1.shape[:-2], x2.shape[:-2]), x1.shape[-2], x2.shape[-2])


def pdist(self: Array, p: float = 2.0) -> Array:
    """From every row to every later row."""
    x = promote_operands(self, 0.0)[0]
    result = np.zeros(pdist_shape(self, p), x.dtype)
    if not result.size or not x.shape[1]:
        return result
    first, second = np.triu_indices(len(x), 1)
    pairs = max(_BLOCK // x.shape[1], 1)
    for start in range(0, len(result), pairs):
        block = slice(start, start + pairs)
        result[block] = _norm(x[first[block]] - x[second[block]], p)
    return result


def pdist_shape(self: Array, p: float = 2.0) -> Shape:
    _check_p(p)
    if self.ndim != 2:
        raise ValueError(f"tensor must be a matrix, got shape {list(self.shape)}")
    return (max(self.shape[0] * (self.shape[0] - 1) // 2, 0),)


# ------------------------------------------------------------------------------------------------------------ attention

# Scaled dot-product attention.


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
