"""References of convolution, matrix product, pooling and resizing. Images are NCHW, filters OIHW."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from edgewright.backends.samsung.dialect.numerics import (
    Values,
    all_quantized,
    in_exact_float,
    inputs_of,
    result_of,
    subtract_zero_point,
)
from edgewright.ir.aten.reference import conv, pool, resample
from edgewright.ir.graph import Array, Op, Value
from edgewright.ir.numerics import broadcast_params
from edgewright.ir.requant_scale import product_scale, quantize_bias

LIMITS = {"RELU": (0.0, float("inf")), "RELU6": (0.0, 6.0)}


def _pair(op: Op, name: str) -> list[int]:
    return [int(op.args[f"{name}_h"]), int(op.args[f"{name}_w"])]


def _sum_of_products(
    values: Values, op: Op, product: Callable[[Array, Array], Array], terms: int, axis: int | None
) -> None:
    """Sum of products, bias and fused activation. ``axis``: channel axis of the output."""
    (x, w), bias, out = inputs_of(op)[:2], inputs_of(op)[2:], result_of(op)
    limits = LIMITS[op.args["activation"]] if "activation" in op.args else None
    if all_quantized(op, x, w):
        left, right = in_exact_float(*(subtract_zero_point(v, values.raw(v)) for v in (x, w)), terms=terms)
        total = product(left, right).astype(np.float64)
        if bias:
            total = total + broadcast_params(quantize_bias(x, w, values.raw(bias[0])), axis, total.ndim)
        scaling = product_scale(x, w, out, limits)
        last = scaling.apply(total if axis is None else np.moveaxis(total, axis, -1))
        result = last if axis is None else np.moveaxis(last, -1, axis)
        values.set_raw(out, np.ascontiguousarray(result.astype(out.dtype)))
        return
    result = product(values.dequantized(x), values.dequantized(w))
    if bias:
        result = result + broadcast_params(
            values.raw(bias[0]) if out.q is not None else values.dequantized(bias[0]), axis, result.ndim
        )
    values.set_float(out, result if limits is None else np.clip(result, *limits))


def convolution(values: Values, op: Op) -> None:
    x, w = inputs_of(op)[:2]
    transposed = op.kind.endswith("DECONV2D")
    groups = int(op.args["groups"])
    top, left, bottom, right = (int(p) for p in op.args["explicit_padding"])

    def product(image: Array, filters: Array) -> Array:
        if transposed:  # filters are stored with their first two dimensions swapped
            filters = filters.swapaxes(0, 1)
        if (top, left) != (bottom, right):
            image = np.pad(image, ((0, 0), (0, 0), (top, bottom), (left, right)))
        pads = [top, left] if (top, left) == (bottom, right) else [0, 0]
        steps = (_pair(op, "stride"), pads, _pair(op, "dilation"))
        return conv.convolution(image, filters, None, *steps, transposed, [0, 0], groups)

    terms = int(np.prod(w.bound[2:])) * (x.bound[1] // groups)
    _sum_of_products(values, op, product, terms, 1)


def fully_connected(values: Values, op: Op) -> None:
    x = inputs_of(op)[0]
    rank = len(x.bound)
    _sum_of_products(values, op, lambda rows, weight: rows @ weight.T, x.bound[-1], rank - 1)


def batch_matmul(values: Values, op: Op) -> None:
    a = inputs_of(op)[0]
    _sum_of_products(values, op, np.matmul, a.bound[-1], None)


# ---------------------------------------------------------------------------------------------------------- pools


def _window(op: Op) -> tuple[list[int], list[int], list[int]]:
    return _pair(op, "kernel"), _pair(op, "stride"), [int(p) for p in op.args["explicit_padding"][:2]]


def average_pool(values: Values, op: Op) -> None:
    image = values.dequantized(inputs_of(op)[0])
    values.set_float(result_of(op), pool.avg_pool2d(image, *_window(op), False, bool(op.args["count_include_pad"])))


def max_pool(values: Values, op: Op) -> None:
    x, out = inputs_of(op)[0], result_of(op)
    if _same_encoding(x, out):
        result = pool.max_pool2d(values.raw(x), *_window(op), _pair(op, "dilation"), False)[0]
        values.set_raw(out, result)
    else:
        values.set_float(out, pool.max_pool2d(values.dequantized(x), *_window(op), _pair(op, "dilation"), False)[0])


def _same_encoding(x: Value, out: Value) -> bool:
    return x.q == out.q and x.dtype == out.dtype


# ------------------------------------------------------------------------------------------------------- resizing


def resize_bilinear(values: Values, op: Op) -> None:
    """Half-pixel centers, or aligned corners."""
    out = result_of(op)
    image = values.dequantized(inputs_of(op)[0])
    values.set_float(
        out, resample.upsample_bilinear2d(image, list(out.bound[2:]), bool(op.args["align_corners"]), None)
    )


def resize_nearest(values: Values, op: Op) -> None:
    """The pixel with the nearest center; ties select the lower index."""
    x, out = inputs_of(op)[0], result_of(op)
    image = values.raw(x)
    for axis in (2, 3):
        size, count = image.shape[axis], out.bound[axis]
        indices = ((2 * np.arange(count) + 1) * size) // (2 * count)
        image = image.take(np.minimum(indices, size - 1), axis)
    values.set_raw(out, np.ascontiguousarray(image))
