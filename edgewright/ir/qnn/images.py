"""Largest of windows, resizing and softmax, in real numbers; images are channels-last. ``shape`` is the result's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from edgewright.ir.graph import Array
from edgewright.ir.qnn.folds import visits
from edgewright.ir.reference.grid import grid_sampler
from edgewright.ir.reference.resample import upsample_bicubic2d, upsample_bilinear2d

Params = Mapping[str, Any]
_F32 = np.float32


def max_pool(params: Params, x: Array) -> Array:
    """Of what is stored, which is in the same order as what it stands for."""
    least = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    total = np.full(params["shape"], least, x.dtype)
    for at, read in visits(params, x.shape[1:-1], params["shape"][1:-1]):
        total[at] = np.maximum(total[at], x[read])
    return total


def _planar(resized: Any) -> Any:
    def meaning(params: Params, x: Array) -> Array:
        made: Array = resized(params, np.ascontiguousarray(x.transpose(0, 3, 1, 2)), list(params["shape"][1:3]))
        return made.transpose(0, 2, 3, 1)

    return meaning


def _nearest(params: Params, x: Array, size: list[int]) -> Array:
    """The pixel that a result's place, or its middle, falls into."""
    middle = 0.5 if params["half_pixel_centers"] else 0.0
    rows, columns = (
        np.clip(np.floor((np.arange(m) + middle) * (n / m)).astype(np.int64), 0, n - 1)
        for n, m in zip(x.shape[2:], size, strict=True)
    )
    return x[:, :, rows][:, :, :, columns]


nearest = _planar(_nearest)
bilinear = _planar(lambda params, x, size: upsample_bilinear2d(x, size, bool(params["align_corners"]), None))
_BICUBIC, _CORNERS = 2, 2  # numbers of modes


def _resize(params: Params, x: Array, size: list[int]) -> Array:
    corners = params["transformation_mode"] == _CORNERS
    resized = upsample_bicubic2d if params["interpolation_mode"] == _BICUBIC else upsample_bilinear2d
    return resized(x, size, corners, None)


resize = _planar(_resize)


def grid_sample(params: Params, x: Array, grid: Array) -> Array:
    """Images channels-last, places as torch has them."""
    inner = range(1, x.ndim - 1)
    given = np.ascontiguousarray(x.transpose(0, x.ndim - 1, *inner))
    made = grid_sampler(given, grid, params["mode"], params["padding_mode"], bool(params["align_corners"]))
    return made.transpose(0, *range(2, x.ndim), 1)


def summed(params: Params, x: Array) -> Array:
    """Running sums."""
    axis = params["axis"]
    turned = np.flip(x, axis) if params["reverse"] else x
    total = np.cumsum(turned, axis, dtype=np.float64 if x.dtype.kind == "f" else x.dtype)
    total = total - turned if params["exclusive"] else total
    return np.asarray(np.flip(total, axis) if params["reverse"] else total).astype(x.dtype)


def place(function: Any) -> Any:
    """``Argmax`` and ``Argmin``."""

    def meaning(params: Params, x: Array) -> Array:
        return np.asarray(function(x, axis=params["axis"], keepdims=bool(params["keep_dims"])))

    return meaning


def softmax(params: Params, x: Array) -> Array:
    wide = x.astype(np.float64) * params["beta"]
    powers = np.exp(wide - wide.max(params["axis"], keepdims=True))
    return np.asarray((powers / powers.sum(params["axis"], keepdims=True)).astype(_F32))


def log_softmax(params: Params, x: Array) -> Array:
    wide = x.astype(np.float64) * params["beta"]
    wide = wide - wide.max(params["axis"], keepdims=True)
    return np.asarray((wide - np.log(np.exp(wide).sum(params["axis"], keepdims=True))).astype(_F32))
