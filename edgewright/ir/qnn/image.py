"""References of max pooling and resizing, in floating point; images are channels-last. ``shape``: output shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edgewright.ir.aten.reference.grid_sample import cubic, grid_sampler
from edgewright.ir.aten.reference.resample import upsample_bilinear2d
from edgewright.ir.aten.reference.windows import cheaper_first
from edgewright.ir.graph import Array
from edgewright.ir.qnn.dtypes import half
from edgewright.ir.qnn.reduce import visits

Params = Mapping[str, Any]
_F32 = np.float32


def max_pool(params: Params, x: Array) -> Array:
    """Of what is stored, which is in the same order as what it stands for; real numbers are held in 16 bits."""
    x = half(x).astype(x.dtype) if x.dtype.kind == "f" else x
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


def resize_taps(params: Params, size: int, count: int) -> list[tuple[Array, Array]]:
    """For each tap of a side, which elements results read, and with what weights."""
    corners = params["transformation_mode"] == _CORNERS
    ratio = ((size - 1) / (count - 1) if count > 1 else 0.0) if corners else size / count
    positions, step, middle = np.arange(count, dtype=_F32), _F32(ratio), _F32(0.5)
    at = positions * step if corners else (positions + middle) * step - middle
    if params["interpolation_mode"] == _BICUBIC:
        return [(_element(place, size), weight.astype(_F32)) for place, weight in cubic(at)]
    lower = _element(np.maximum(at, 0), size)
    part = np.clip(np.maximum(at, 0) - lower, 0, 1).astype(_F32)
    return [(lower, _F32(1) - part), (np.minimum(lower + 1, size - 1), part)]


def _element(place: Array, size: int) -> Array:
    return np.clip(np.nan_to_num(place), 0, size - 1).astype(np.int64)


def resize_axes(have: Sequence[int], wanted: Sequence[int]) -> list[int]:
    """The dimensions of an image in the order that they are resized in: first the one that leaves less to do."""
    return [3 + dim for dim in cheaper_first(tuple(have[1:3]), tuple(wanted[1:3]))]


def resize(params: Params, x: Array) -> Array:
    """Sums by weights, along one side and then the other, each product and each sum rounded to single precision."""
    for axis in resize_axes(x.shape, params["shape"]):
        total = None
        for elements, weight in resize_taps(params, x.shape[axis], params["shape"][axis]):
            part = np.take(x, elements, axis) * weight.reshape(-1, *(1,) * (3 - axis))
            total = part if total is None else total + part
        x = np.asarray(total)
    return x


def grid_sample(params: Params, x: Array, grid: Array) -> Array:
    """Images channels-last, places as torch has them."""
    inner = range(1, x.ndim - 1)
    given = np.ascontiguousarray(x.transpose(0, x.ndim - 1, *inner))
    made = grid_sampler(given, grid, params["mode"], params["padding_mode"], bool(params["align_corners"]))
    return made.transpose(0, *range(2, x.ndim), 1)


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
