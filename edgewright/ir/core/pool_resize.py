"""Pooling and resizing of channels-last images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.ir.aten.reference.pool import avg_pool2d, max_pool2d
from edgewright.ir.aten.reference.resample import upsample_bilinear2d
from edgewright.ir.core.conv import image_shape, pad_pairs, padded_elements, padded_window
from edgewright.ir.core.evaluation import EvaluationContext
from edgewright.ir.core.table import LIMITS, POSITIVES, Shape, ShapeOf, define, define_aten, integer, integers, require
from edgewright.ir.dialect import FLAG
from edgewright.ir.graph import Array, Op

_POOL = {"padding": integers(0, 4), "stride": integers(1, 2), "kernel_size": integers(1, 2)}


def _planar(array: Array) -> Array:
    return array.transpose(0, 3, 1, 2)


def _padded(x: Array, pads: Sequence[int], fill: Any) -> Array:
    top, bottom, left, right = pads
    return np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=fill)


def _pool_shape(op: Op, shape_of: ShapeOf) -> Shape:
    batch, *image, channels = image_shape(shape_of(op.args["self"]))
    dilation = op.args.get("dilation") or (1, 1)
    sizes = [padded_window(n, p, k, s, d) for n, p, k, s, d in zip(image, pad_pairs(op), op.args["kernel_size"],
             op.args["stride"], dilation, strict=True)]  # fmt: skip
    return (batch, *sizes, channels)


def _max_pool2d(ex: EvaluationContext, op: Op) -> Array:
    value = op.args["self"]
    x: Array = _planar(ex.raw(value))
    lowest = -np.inf if value.q is None else value.q.qmin
    image = _padded(x, op.args["padding"], lowest)
    pooled = max_pool2d(
        image, op.args["kernel_size"], op.args["stride"], [0, 0], op.args.get("dilation") or [1, 1], False
    )[0]
    result = pooled.transpose(0, 2, 3, 1)
    if value.q is not None:
        lo, hi = ex.numerics.limits(value.q, op.args.get("limits"))
        return np.clip(result, lo, hi).astype(x.dtype)
    return ex.store(op, result)


def _avg_pool2d(ex: EvaluationContext, op: Op) -> Array:
    """Padding is excluded from the average."""
    image = _planar(ex.real(op.args["self"]))
    kernel, stride, pads = op.args["kernel_size"], op.args["stride"], op.args["padding"]
    top, bottom, left, right = pads
    if (top, left) == (bottom, right):
        pooled = avg_pool2d(image, kernel, stride, [top, left], False, False)
    else:
        inside = _padded(np.ones((1, 1, *image.shape[2:]), np.float32), pads, 0)
        shares = avg_pool2d(inside, kernel, stride, [0, 0], False, False)
        pooled = avg_pool2d(_padded(image, pads, 0), kernel, stride, [0, 0], False, False) / shares
    return ex.store(op, pooled.transpose(0, 2, 3, 1))


def _global_avg_pool2d(ex: EvaluationContext, op: Op) -> Array:
    value, out = op.args["self"], op.outputs[0]
    assert out is not None
    x: Array = ex.raw(value)
    if value.q is None or out.q is None:
        return ex.store(op, ex.real(value).mean((1, 2), keepdims=True))
    return ex.numerics.mean(x, value.q, out.q, op.args.get("limits"))


def _global_shape(op: Op, shape_of: ShapeOf) -> Shape:
    batch, _, _, channels = image_shape(shape_of(op.args["self"]))
    return (batch, 1, 1, channels)


define("max_pool2d", "maximum of each window; padding is lower than any element", "self", "F -> F | Q= -> Q=",
       _pool_shape, _max_pool2d, {**_POOL, "dilation": integers(1, 2).or_absent(), **LIMITS},
       size=padded_elements)  # fmt: skip
define("avg_pool2d", "mean of each window's elements in the image", "self", "F -> F | Q -> Q", _pool_shape, _avg_pool2d,
       {**_POOL, **LIMITS}, size=padded_elements)  # fmt: skip
define("global_avg_pool2d", "mean of each channel", "self", "F -> F | Q -> Q", _global_shape, _global_avg_pool2d,
       LIMITS, size=lambda op, shape_of: math.prod(shape_of(op.args["self"])))  # fmt: skip

# ------------------------------------------------------------------------------------------------------------- resizing


def _upsample_bilinear2d(ex: EvaluationContext, op: Op) -> Array:
    image = _planar(ex.real(op.args["input"]))
    scaled = upsample_bilinear2d(image, op.args["output_size"], op.args["align_corners"], None)
    return ex.store(op, scaled.transpose(0, 2, 3, 1))


def _bilinear_shape(op: Op, shape_of: ShapeOf) -> Shape:
    batch, _, _, channels = image_shape(shape_of(op.args["input"]))
    return (batch, *op.args["output_size"], channels)


def _bilinear_size(op: Op, shape_of: ShapeOf) -> int:
    (batch, height, width, channels), new = shape_of(op.args["input"]), op.args["output_size"]
    return batch * channels * max(height, new[0]) * max(width, new[1])


def _separable_resize(ex: EvaluationContext, op: Op) -> Array:
    """Separable resize along one dimension: a weighted sum of ``counts`` neighbors from ``starts``."""
    x, dim = np.moveaxis(ex.real(op.args["self"]), op.args["dim"], 0), op.args["dim"]
    starts, counts, weights = (op.args[name].data for name in ("starts", "counts", "weights"))
    result = np.zeros((len(starts), *x.shape[1:]), np.float32)
    for i, (start, count) in enumerate(zip(starts, counts, strict=True)):
        for k in range(count):
            result[i] += weights[i, k] * x[start + k]
    return ex.store(op, np.moveaxis(result, 0, dim))


def _separable_shape(op: Op, shape_of: ShapeOf) -> Shape:
    """The taps of every result must be in range."""
    shape, dim = list(shape_of(op.args["self"])), op.args["dim"]
    starts, counts, weights = (op.args[name].data for name in ("starts", "counts", "weights"))
    require(0 <= dim < len(shape), f"the dimension must be one of {len(shape)}")
    fits = starts.ndim == counts.ndim == 1 and weights.ndim == 2 and len(starts) == len(counts) == len(weights)
    require(fits, "starts, counts and weights need a row for each result")
    require(bool(np.all(counts <= weights.shape[1])), "needs a weight for each neighbor")
    require(bool(np.all((starts >= 0) & (counts > 0) & (starts + counts <= shape[dim]))), "neighbors must be inside")
    return (*shape[:dim], len(starts), *shape[dim + 1 :])


define("upsample_bilinear2d", "bilinear resize to `output_size`", "input", "F -> F | Q -> Q", _bilinear_shape,
       _upsample_bilinear2d, {"output_size": integers(1, 2), "align_corners": FLAG, **LIMITS},
       size=_bilinear_size)  # fmt: skip
define("separable_resize", "weighted sums of `counts` neighbors from `starts`, along `dim`",
       "self starts counts weights", "float index# index# f32# -> float", _separable_shape, _separable_resize,
       {"dim": integer(0)})  # fmt: skip
define_aten("upsample_nearest2d", "nearest neighbor, rounded down; NCHW", "input", "N -> N",
            {"output_size": integers(1, 2).or_absent(), "scale_factors": POSITIVES.or_absent()},
            stored=True)  # fmt: skip
define_aten("resize_nearest2d", "nearest neighbor, rounded down; NCHW", "self", "N -> N",
            {"output_size": integers(1, 2)}, stored=True)  # fmt: skip
