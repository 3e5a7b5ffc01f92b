"""Normalization: softmax, and batch, layer and group norm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.ir.aten.reference.dims import Array, Shape, normal_dim, numel
from edgewright.ir.aten.reference.elementwise import promote_operands
from edgewright.ir.dtypes import to_numpy


def softmax(self: Array, dim: int, half_to_float: bool = False, dtype: int | None = None) -> Array:
    """Softmax along ``dim``, in ``dtype`` if it is not None. ``half_to_float`` only selects the result's dtype."""
    if not self.size:  # sums along an empty dim could exceed the planned memory
        return self
    x, axis = _subtract_max(self, dim, dtype)
    power = np.exp(x)
    return np.divide(power, np.sum(power, axis=axis, keepdims=True)).reshape(self.shape)


def log_softmax(self: Array, dim: int, half_to_float: bool = False, dtype: int | None = None) -> Array:
    if not self.size:
        return self
    x, axis = _subtract_max(self, dim, dtype)
    return np.subtract(x, np.log(np.sum(np.exp(x), axis=axis, keepdims=True))).reshape(self.shape)


def safe_softmax(self: Array, dim: int, dtype: int | None = None) -> Array:
    """Softmax that is 0, not NaN, where every element is minus infinity."""
    masked = np.all(np.isneginf(promote_operands(self, 0.0)[0]), axis=normal_dim(dim, self.ndim) if self.ndim else None)
    return np.where(
        np.expand_dims(masked, normal_dim(dim, self.ndim)) if self.ndim else masked, 0, softmax(self, dim, dtype=dtype)
    )


def softmax_shape(self: Array, dim: int, half_to_float: bool = False, dtype: int | None = None) -> Shape:
    normal_dim(dim, self.ndim)
    return self.shape


def _subtract_max(self: Array, dim: int, dtype: int | None) -> tuple[Array, int]:
    """The input minus its maximum, so that exp does not overflow; and the axis."""
    x = np.atleast_1d(promote_operands(self if dtype is None else self.astype(to_numpy(dtype)), 0.0)[0])
    axis = normal_dim(dim, x.ndim)
    return x - np.max(x, axis=axis, keepdims=True), axis


def _moments(x: Array, axes: Shape) -> tuple[Array, Array]:
    """Mean and (biased) variance with reduced axes kept; 0 and NaN for empty inputs."""
    count = numel([x.shape[a] for a in axes])
    mean = np.asarray(np.sum(x, axis=axes, keepdims=True)) / x.dtype.type(max(count, 1))
    deviation = x - mean
    return mean, np.asarray(np.sum(deviation * deviation, axis=axes, keepdims=True)) / x.dtype.type(count)


def _affine(x: Array, weight: Array | None, bias: Array | None, shape: Shape) -> Array:
    """``x * weight + bias``, each optional and reshaped to ``shape``."""
    if weight is not None:
        x = x * weight.reshape(shape).astype(x.dtype, copy=False)
    return x if bias is None else x + bias.reshape(shape).astype(x.dtype, copy=False)


def _check_parameters(size: Shape, **parameters: Array | None) -> None:
    for name, value in parameters.items():
        if value is not None and value.shape != size:
            raise ValueError(f"{name} must have shape {list(size)}, got {list(value.shape)}")


def _channels(input: Array) -> Shape:
    if input.ndim < 2:
        raise ValueError(f"input must have a batch and a channel dimension, got shape {list(input.shape)}")
    return (input.shape[1],)


def batch_norm(
    input: Array,
    weight: Array | None,
    bias: Array | None,
    running_mean: Array,
    running_var: Array,
    momentum: float,
    eps: float,
) -> Array:
    """Batch norm with running statistics per channel (dimension 1). ``momentum`` is unused."""
    x = promote_operands(input, 0.0)[0]
    shape = (1, -1, *(1,) * (x.ndim - 2))
    scale = 1 / np.sqrt(running_var.astype(x.dtype, copy=False) + x.dtype.type(eps))
    centered = x - running_mean.reshape(shape).astype(x.dtype, copy=False)
    return _affine(centered * scale.reshape(shape), weight, bias, shape)


def batch_norm_shape(
    input: Array,
    weight: Array | None,
    bias: Array | None,
    running_mean: Array,
    running_var: Array,
    momentum: float,
    eps: float,
) -> Shape:
    _check_parameters(_channels(input), weight=weight, bias=bias, running_mean=running_mean, running_var=running_var)
    return input.shape


def batch_norm_inference(
    input: Array,
    weight: Array | None,
    bias: Array | None,
    running_mean: Array,
    running_var: Array,
    momentum: float,
    eps: float,
    **_: Any,
) -> tuple[Array, Array, Array]:
    """``batch_norm``, and empty batch statistics."""
    nothing = input.reshape(-1)[:0]
    return batch_norm(input, weight, bias, running_mean, running_var, momentum, eps), nothing, nothing


def batch_norm_inference_shape(
    input: Array,
    weight: Array | None,
    bias: Array | None,
    running_mean: Array,
    running_var: Array,
    momentum: float,
    eps: float,
    **_: Any,
) -> list[Shape]:
    return [batch_norm_shape(input, weight, bias, running_mean, running_var, momentum, eps), (0,), (0,)]


def batch_moments(input: Array) -> tuple[Array, Array]:
    """Mean and (biased) variance per channel."""
    x = promote_operands(input, 0.0)[0]
    mean, var = _moments(x, (0, *range(2, x.ndim)))
    return mean.reshape(-1), var.reshape(-1)


def batch_norm_training(
    input: Array, weight: Array | None, bias: Array | None, training: bool, momentum: float, eps: float
) -> tuple[Array, Array, Array]:
    """Batch norm with the batch's statistics: the result, the means, and the reciprocal standard deviations."""
    mean, var = batch_moments(input)
    result = batch_norm(input, weight, bias, mean, var, momentum, eps)
    return result, mean, 1 / np.sqrt(var + var.dtype.type(eps))


def batch_norm_training_shape(
    input: Array, weight: Array | None, bias: Array | None, training: bool, momentum: float, eps: float
) -> list[Shape]:
    channels = _channels(input)
    _check_parameters(channels, weight=weight, bias=bias)
    if not training:
        raise ValueError("without running statistics there is only training")
    if not input.size:
        raise ValueError(f"input must have elements to take statistics of, got shape {list(input.shape)}")
    return [input.shape, channels, channels]


def running_moments(input: Array, running_mean: Array, running_var: Array, momentum: float) -> tuple[Array, Array]:
    """The running statistics after this batch, with unbiased variance."""
    mean, var = batch_moments(input)
    count = input.size // max(mean.size, 1)
    unbiased = var * var.dtype.type(count) / var.dtype.type(count - 1)
    keep, take = var.dtype.type(1 - momentum), var.dtype.type(momentum)
    old_mean, old_var = (r.astype(var.dtype, copy=False) for r in (running_mean, running_var))
    return old_mean * keep + mean * take, old_var * keep + unbiased * take


def layer_norm(
    input: Array,
    normalized_shape: Sequence[int],
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> tuple[Array, Array, Array]:
    """Over the last dimensions: the result, the means, and the reciprocal standard deviations."""
    x = promote_operands(input, 0.0)[0]
    mean, var = _moments(x, tuple(range(x.ndim - len(normalized_shape), x.ndim)))
    rstd = 1 / np.sqrt(var + x.dtype.type(eps))
    return _affine((x - mean) * rstd, weight, bias, tuple(normalized_shape)), mean, rstd


def layer_norm_shape(
    input: Array,
    normalized_shape: Sequence[int],
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> list[Shape]:
    inner = tuple(normalized_shape)
    if not inner or input.shape[-len(inner) :] != inner:
        raise ValueError(f"normalized shape {list(inner)} must end the input's shape {list(input.shape)}")
    _check_parameters(inner, weight=weight, bias=bias)
    outer = (*input.shape[: -len(inner)], *(1,) * len(inner))
    return [input.shape, outer, outer]


def group_norm(
    input: Array, weight: Array | None, bias: Array | None, n: int, c: int, hxw: int, group: int, eps: float
) -> tuple[Array, Array, Array]:
    """Over each group of channels: the result, the means, and the reciprocal standard deviations."""
    x = promote_operands(input, 0.0)[0].reshape(n, group, c // group, hxw)
    mean, var = _moments(x, (2, 3))
    rstd = 1 / np.sqrt(var + x.dtype.type(eps))
    result = _affine((x - mean) * rstd, weight, bias, (1, group, c // group, 1))
    return result.reshape(input.shape), mean.reshape(n, group), rstd.reshape(n, group)


def group_norm_shape(
    input: Array, weight: Array | None, bias: Array | None, n: int, c: int, hxw: int, group: int, eps: float
) -> list[Shape]:
    if min(n, c, hxw) < 0 or n * c * hxw != input.size:
        raise ValueError(f"N x C x HxW = {n} x {c} x {hxw} must cover the input's shape {list(input.shape)}")
    if group < 1 or c % group:
        raise ValueError(f"groups must divide the {c} channels, got {group}")
    _check_parameters((c,), weight=weight, bias=bias)
    return [input.shape, (n, group), (n, group)]
