"""Normalization with the signatures of torch.nn: group norm by group count, instance norm, RMS norm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from edgewright.ir.aten.reference import norm
from edgewright.ir.aten.reference.dims import Array, Shape, numel
from edgewright.ir.aten.reference.elementwise import promote_operands
from edgewright.ir.dtypes import compute_type


def group_norm(
    input: Array,
    num_groups: int,
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Array:
    n, c, size = _sizes(input)
    return norm.group_norm(input, weight, bias, n, c, size, num_groups, eps)[0]


def group_norm_shape(
    input: Array,
    num_groups: int,
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Shape:
    n, c, size = _sizes(input)
    return norm.group_norm_shape(input, weight, bias, n, c, size, num_groups, eps)[0]


def _sizes(input: Array) -> tuple[int, int, int]:
    if input.ndim < 2:
        raise ValueError(f"input must have a batch and a channel dimension, got shape {list(input.shape)}")
    return input.shape[0], input.shape[1], numel(input.shape[2:])


def native_group_norm(input: Array, weight: Any, bias: Any, group: int, eps: float, **sizes: int) -> Any:
    """With explicit sizes ``N``, ``C`` and ``HxW``; also returns means and reciprocal standard deviations."""
    return norm.group_norm(input, weight, bias, sizes["N"], sizes["C"], sizes["HxW"], group, eps)


def native_group_norm_shape(input: Array, weight: Any, bias: Any, group: int, eps: float, **sizes: int) -> Any:
    return norm.group_norm_shape(input, weight, bias, sizes["N"], sizes["C"], sizes["HxW"], group, eps)


def _instance_norm(
    group_norm_fn: Callable[..., Any], batch_norm_fn: Callable[..., Any], input: Array, weight: Array | None,
    bias: Array | None, running_mean: Array | None, running_var: Array | None, use_input_stats: bool, momentum: float,
    eps: float, cudnn_enabled: bool = False,
) -> Any:  # fmt: skip
    """Normalize each channel of each image or, with running statistics, as batch norm."""
    if use_input_stats:
        return group_norm_fn(input, input.shape[1] if input.ndim > 1 else 1, weight, bias, eps)
    if running_mean is None or running_var is None:
        raise ValueError("without the input's statistics, running ones are required")
    return batch_norm_fn(input, weight, bias, running_mean, running_var, momentum, eps)


instance_norm = partial(_instance_norm, group_norm, norm.batch_norm)
instance_norm_shape = partial(_instance_norm, group_norm_shape, norm.batch_norm_shape)


def rms_norm(
    input: Array, normalized_shape: Sequence[int], weight: Array | None = None, eps: float | None = None
) -> Array:
    """RMS norm over the last dimensions. ``eps`` None: the machine epsilon of the dtype."""
    x = promote_operands(input, 0.0)[0]
    axes = tuple(range(x.ndim - len(normalized_shape), x.ndim))
    square = np.mean(x * x, axis=axes, keepdims=True, dtype=x.dtype)
    epsilon = np.finfo(compute_type(x.dtype)).eps if eps is None else eps
    result = x / np.sqrt(square + x.dtype.type(epsilon))
    return np.asarray(result if weight is None else result * weight.astype(x.dtype, copy=False))


def rms_norm_shape(
    input: Array, normalized_shape: Sequence[int], weight: Array | None = None, eps: float | None = None
) -> Shape:
    return tuple(norm.layer_norm_shape(input, normalized_shape, weight, None, 0.0)[0])
