"""References of normalization, in floating point; channels are last."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from edgewright.ir.graph import Array

Params = Mapping[str, Any]


def _affine(x: Array, constants: tuple[Array, ...]) -> Array:
    """Multiply with the first constant and add the second, if present."""
    for index, constant in enumerate(constants):
        x = x + constant if index else x * constant
    return np.asarray(x, np.float32)


def batch_norm(params: Params, x: Array, *constants: Array) -> Array:
    """In float32, rounded after each operation."""
    return _affine(x, constants)


def _normalize(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    wide = x.astype(np.float64)
    centered = wide - wide.mean(axes, keepdims=True)
    return np.asarray(centered / np.sqrt(np.square(centered).mean(axes, keepdims=True) + epsilon))


def layer_norm(params: Params, x: Array, *constants: Array) -> Array:
    return _affine(_normalize(x, tuple(params["axes"]), params["epsilon"]), constants)


def rms_norm(params: Params, x: Array, *constants: Array) -> Array:
    wide = x.astype(np.float64)
    power = np.square(wide).mean(tuple(params["axes"]), keepdims=True)
    return _affine(wide / np.sqrt(power + params["epsilon"]), constants)


def group_norm(params: Params, x: Array, *constants: Array) -> Array:
    split = x.reshape(*x.shape[:-1], params["group"], x.shape[-1] // params["group"])
    axes = (*range(1, x.ndim - 1), x.ndim)
    return _affine(_normalize(split, axes, params["epsilon"]).reshape(x.shape), constants)


def instance_norm(params: Params, x: Array, *constants: Array) -> Array:
    return _affine(_normalize(x, tuple(range(1, x.ndim - 1)), params["epsilon"]), constants)


def l2_norm(params: Params, x: Array) -> Array:
    wide = x.astype(np.float64)
    length = np.sqrt(np.maximum(np.square(wide).sum(params["axis"], keepdims=True), params["epsilon"]))
    return np.asarray(wide / length, np.float32)


def hadamard(params: Params, x: Array) -> Array:
    """Orthonormal Walsh-Hadamard transform of the last dimension, times ``scale``; its size is a power of two."""
    wide, size = x.astype(np.float64), x.shape[-1]
    step = 1
    while step < size:
        pairs = wide.reshape(*x.shape[:-1], -1, 2, step)
        wide = np.stack([pairs[..., 0, :] + pairs[..., 1, :], pairs[..., 0, :] - pairs[..., 1, :]], -2)
        wide = wide.reshape(x.shape)
        step *= 2
    return np.asarray(wide * (params["scale"] / np.sqrt(size)), np.float32)
