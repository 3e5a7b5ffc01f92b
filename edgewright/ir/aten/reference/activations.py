"""Activation functions and dropout."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from edgewright.ir.aten.reference.dims import at_dim, normal_dim, with_size
from edgewright.ir.aten.reference.elementwise import Array, Shape, cast, checked_cast, to_floating
from edgewright.ir.aten.reference.special import erf
from edgewright.ir.dtypes import compute_type, is_integral


def relu(self: Array) -> Array:
    x = cast(self, compute_type(self.dtype))
    return np.asarray(np.maximum(x, x.dtype.type(0)))


def hardtanh(self: Array, min_val: Any = -1, max_val: Any = 1) -> Array:
    """``self`` clamped to two bounds, cast to its dtype."""
    if self.dtype.kind in "ub" and (min_val < 0 or max_val < 0):
        raise ValueError(f"bounds of an unsigned tensor must not be negative, got {min_val} and {max_val}")
    x = cast(self, compute_type(self.dtype))
    return np.asarray(np.minimum(np.maximum(x, checked_cast(min_val, x.dtype)), checked_cast(max_val, x.dtype)))


def leaky_relu(self: Array, negative_slope: Any = 0.01) -> Array:
    x = to_floating(self)
    return np.where(x > 0, x, x * cast(negative_slope, x.dtype))


def elu(self: Array, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Array:
    x = to_floating(self)
    alpha, scale, input_scale = (cast(v, x.dtype) for v in (alpha, scale, input_scale))
    return np.where(x < 0, np.expm1(x * input_scale) * (alpha * scale), x * scale)


def gelu(self: Array, approximate: str = "none") -> Array:
    x = to_floating(self)
    half, one = x.dtype.type(0.5), x.dtype.type(1)
    if approximate == "none":
        return np.asarray(x * half * (one + erf(x * x.dtype.type(math.sqrt(0.5)))))
    if approximate == "tanh":
        inner = x.dtype.type(math.sqrt(2 / math.pi)) * (x + x.dtype.type(0.044715) * x * x * x)
        return np.asarray(x * half * (one + np.tanh(inner)))
    raise ValueError(f"approximate must be 'none' or 'tanh', got {approximate!r}")


def sigmoid(self: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-to_floating(self))))


def logit(self: Array, eps: float | None = None) -> Array:
    """log(x / (1 - x)), with x clamped to [eps, 1 - eps] unless eps is None or negative."""
    x = to_floating(self)
    if eps is not None and eps >= 0:
        dtype = x.dtype if is_integral(self.dtype) else self.dtype  # 16-bit floats have 16-bit bounds
        low, high = (cast(cast(bound, dtype), x.dtype) for bound in (eps, 1 - eps))
        x = np.where(x < low, low, np.where(x > high, high, x))
    return np.asarray(np.log(x / (1 - x)))


def glu_shape(self: Array, dim: int = -1) -> Shape:
    if not self.ndim:
        raise ValueError("glu takes a tensor of at least one dimension")
    dim = normal_dim(dim, self.ndim)
    if self.shape[dim] % 2:
        raise ValueError(f"glu halves dim {dim}, whose size must be even, got {self.shape[dim]}")
    return with_size(self.shape, dim, self.shape[dim] // 2)


def glu(self: Array, dim: int = -1) -> Array:
    """One half of ``self`` along ``dim``, gated by the sigmoid of the other."""
    half = glu_shape(self, dim)[dim]
    dim = normal_dim(dim, self.ndim)
    value, gate = self[at_dim(dim, slice(0, half))], self[at_dim(dim, slice(half, None))]
    return np.asarray(to_floating(value) * sigmoid(gate))


def dropout_shape(input: Array, p: float, train: bool | None) -> list[Shape]:
    if not 0 <= p <= 1:
        raise ValueError(f"p must be in [0, 1], got {p}")
    return [input.shape, input.shape]


def dropout(
    input: Array, p: float, train: bool | None, generator: np.random.Generator | None = None
) -> tuple[Array, Array]:
    """The input with elements zeroed with probability ``p`` and the rest rescaled, and the mask of retained elements.

    ``train=False`` retains everything; None means True.
    """
    if train is False:
        return input, np.ones(input.shape, np.bool_)
    draws = (generator or np.random.default_rng()).random(input.shape, np.float32)
    mask = np.asarray(draws >= p)
    x = cast(input, compute_type(input.dtype))
    return np.where(mask, x * cast(1 / (1 - p) if p < 1 else 0, x.dtype), x.dtype.type(0)), mask


def relu6(self: Array) -> Array:
    return hardtanh(self, 0, 6)


def hardsigmoid(self: Array) -> Array:
    x = to_floating(self)
    return np.asarray(np.clip(x + x.dtype.type(3), 0, 6) / x.dtype.type(6))


def hardswish(self: Array) -> Array:
    x = to_floating(self)
    return np.asarray(x * np.clip(x + x.dtype.type(3), 0, 6) / x.dtype.type(6))


def silu(self: Array) -> Array:
    x = to_floating(self)
    return np.asarray(x / (1 + np.exp(-x)))


def celu(self: Array, alpha: Any = 1.0) -> Array:
    """An elu that is continuously differentiable for any ``alpha``."""
    if alpha == 0:
        raise ZeroDivisionError("alpha must not be zero")
    return elu(self, alpha, 1, 1 / alpha)


def selu(self: Array) -> Array:
    """The self-normalizing elu: keeps mean 0 and variance 1 across layers."""
    return elu(self, 1.6732632423543772, 1.0507009873554805)


def softplus(self: Array, beta: Any = 1, threshold: Any = 20) -> Array:
    """log(1 + exp(beta x)) / beta; beyond ``threshold``, x itself."""
    x = to_floating(self)
    beta, threshold = (cast(v, x.dtype) for v in (beta, threshold))
    scaled = x * beta
    return np.where(scaled > threshold, x, np.log1p(np.exp(np.minimum(scaled, threshold))) / beta)


def mish(self: Array) -> Array:
    x = to_floating(self)
    return np.asarray(x * np.tanh(np.logaddexp(x, x.dtype.type(0))))


def prelu_shape(self: Array, weight: Array) -> Shape:
    channels = self.shape[1] if self.ndim > 1 else 1
    if weight.ndim > 1 or weight.size not in (1, channels):
        raise ValueError(f"weight must be one slope or one for each of {channels} channels, got {list(weight.shape)}")
    return tuple(self.shape)


def prelu(self: Array, weight: Array) -> Array:
    """leaky_relu with a learned slope, shared or per channel (dimension 1)."""
    x = to_floating(self)
    slope = cast(weight, x.dtype).reshape(-1, *(1,) * max(x.ndim - 2, 0)) if weight.size > 1 else weight.reshape(())
    return np.where(x > 0, x, x * cast(slope, x.dtype))


def inference_dropout_shape(input: Array, p: float, train: bool) -> Shape:
    if train and p:
        raise ValueError(f"dropout in training is random, got p {p}")
    return tuple(input.shape)


def inference_dropout(input: Array, p: float, train: bool) -> Array:
    """Dropout at inference: the identity."""
    inference_dropout_shape(input, p, train)
    return input
