"""Pooling and resizing of channels-last images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.ir.aten.reference.pool import avg_pool2d, max_pool2d
from edgewright.ir.aten.reference.resample import upsample_bilinear2d
from edgewright.ir.core.registry import EvaluationContext, implements
from edgewright.ir.graph import Array, Op


def _planar(array: Array) -> Array:
    return array.transpose(0, 3, 1, 2)


def _padded(x: Array, pads: Sequence[int], fill: Any) -> Array:
    top, bottom, left, right = pads
    return np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=fill)


@implements("max_pool2d")
def _max_pool2d(ex: EvaluationContext, op: Op) -> Array:
    value = op.args["self"]
    x: Array = _planar(ex.raw(value))
    lowest = -np.inf if value.q is None else value.q.qmin
    image = _padded(x, op.args["padding"], lowest)
    pooled = max_pool2d(image, op.args["kernel_size"], op.args["stride"], [0, 0], op.args["dilation"], False)[0]
    result = pooled.transpose(0, 2, 3, 1)
    if value.q is not None:
        lo, hi = ex.numerics.limits(value.q, op.args.get("limits"))
        return np.clip(result, lo, hi).astype(x.dtype)
    return ex.store(op, result)


@implements("avg_pool2d")
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


@implements("global_avg_pool2d")
def _global_avg_pool2d(ex: EvaluationContext, op: Op) -> Array:
    value, out = op.args["self"], op.outputs[0]
    assert out is not None
    x: Array = ex.raw(value)
    if value.q is None or out.q is None:
        return ex.store(op, ex.real(value).mean((1, 2), keepdims=True))
    return ex.numerics.mean(x, value.q, out.q, op.args.get("limits"))


@implements("upsample_bilinear2d")
def _upsample_bilinear2d(ex: EvaluationContext, op: Op) -> Array:
    image = _planar(ex.real(op.args["input"]))
    scaled = upsample_bilinear2d(image, op.args["output_size"], op.args["align_corners"], None)
    return ex.store(op, scaled.transpose(0, 2, 3, 1))
