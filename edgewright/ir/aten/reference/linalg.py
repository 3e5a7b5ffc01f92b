"""Matrix products."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.ir.aten.reference.dims import Array, Shape
from edgewright.ir.aten.reference.elementwise import promote_operands


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
