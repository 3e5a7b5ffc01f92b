"""References of max pooling and resizing, in floating point; images are channels-last. ``shape``: output shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edgewright.backends.qualcomm.dialect.dtypes import round_to_fp16
from edgewright.backends.qualcomm.dialect.reduce import window_taps
from edgewright.ir.aten.reference.grid_sample import cubic, grid_sampler
from edgewright.ir.aten.reference.resample import upsample_bilinear2d
from edgewright.ir.aten.reference.windows import cheaper_first
from edgewright.ir.graph import Array

Params = Mapping[str, Any]
_F32 = np.float32


def max_pool(params: Params, x: Array) -> Array:
    """Max pooling of stored values: quantization preserves order. Floating point is rounded to fp16."""
    x = round_to_fp16(x).astype(x.dtype) if x.dtype.kind == "f" else x
    minimum = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    total = np.full(params["shape"], minimum, x.dtype)
    for at, read in window_taps(params, x.shape[1:-1], params["shape"][1:-1]):
        total[at] = np.maximum(total[at], x[read])
    return total


def bilinear(params: Params, x: Array) -> Array:
    planes = np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    result = upsample_bilinear2d(planes, list(params["shape"][1:3]), bool(params["align_corners"]), None)
    return np.asarray(result.transpose(0, 2, 3, 1))


_BICUBIC, _CORNERS = 2, 2  # codes of modes


def resize_taps(params: Params, size: int, count: int) -> list[tuple[Array, Array]]:
    """Source indices and weights of each filter tap along one dimension."""
    corners = params["transformation_mode"] == _CORNERS
    ratio = ((size - 1) / (count - 1) if count > 1 else 0.0) if corners else size / count
    positions, step, middle = np.arange(count, dtype=_F32), _F32(ratio), _F32(0.5)
    at = positions * step if corners else (positions + middle) * step - middle
    if params["interpolation_mode"] == _BICUBIC:
        return [(_clamp_index(index, size), weight.astype(_F32)) for index, weight in cubic(at)]
    lower = _clamp_index(np.maximum(at, 0), size)
    part = np.clip(np.maximum(at, 0) - lower, 0, 1).astype(_F32)
    return [(lower, _F32(1) - part), (np.minimum(lower + 1, size - 1), part)]


def _clamp_index(index: Array, size: int) -> Array:
    return np.clip(np.nan_to_num(index), 0, size - 1).astype(np.int64)


def resize_axes(sizes: Sequence[int], output_sizes: Sequence[int]) -> list[int]:
    """Order in which the dimensions are resized: the cheaper one first."""
    return [3 + dim for dim in cheaper_first(tuple(sizes[1:3]), tuple(output_sizes[1:3]))]


def resize(params: Params, x: Array) -> Array:
    """Separable interpolation; every product and every sum is rounded to float32."""
    for axis in resize_axes(x.shape, params["shape"]):
        total = None
        for elements, weight in resize_taps(params, x.shape[axis], params["shape"][axis]):
            part = np.take(x, elements, axis) * weight.reshape(-1, *(1,) * (3 - axis))
            total = part if total is None else total + part
        x = np.asarray(total)
    return x


def grid_sample(params: Params, x: Array, grid: Array) -> Array:
    """Channels-last images; grid coordinates as in torch."""
    inner = range(1, x.ndim - 1)
    planes = np.ascontiguousarray(x.transpose(0, x.ndim - 1, *inner))
    result = grid_sampler(planes, grid, params["mode"], params["padding_mode"], bool(params["align_corners"]))
    return result.transpose(0, *range(2, x.ndim), 1)


def arg_reduce(function: Any) -> Any:
    """``Argmax`` and ``Argmin``."""

    def reference(params: Params, x: Array) -> Array:
        return np.asarray(function(x, axis=params["axis"], keepdims=bool(params["keep_dims"])))

    return reference


def softmax(params: Params, x: Array) -> Array:
    wide = x.astype(np.float64) * params["beta"]
    powers = np.exp(wide - wide.max(params["axis"], keepdims=True))
    return np.asarray((powers / powers.sum(params["axis"], keepdims=True)).astype(_F32))


def log_softmax(params: Params, x: Array) -> Array:
    wide = x.astype(np.float64) * params["beta"]
    wide = wide - wide.max(params["axis"], keepdims=True)
    return np.asarray((wide - np.log(np.exp(wide).sum(params["axis"], keepdims=True))).astype(_F32))
