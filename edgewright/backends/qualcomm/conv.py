"""Lowering of convolutions and matrix products."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.backends.qualcomm.lower import INT32, QnnLowering, real_numbers, result, scale_of, unsigned
from edgewright.backends.qualcomm.weights_int4 import finer_weight
from edgewright.backends.table import conv_argument, conv_padding
from edgewright.ir.graph import Array, Op, QParams, Value
from edgewright.lowering.passes.layout import identity

_WHOLE = 2**31 - 1


def roomy_weight(op: Op) -> Value:
    """The weight, with scales so large that the bias fits into 32 bits: those of 16 bits beside small activations may
    have to be coarser for it."""
    bias, x = op.args.get("bias"), op.args["input"]
    weight: Value = op.args["weight"]
    if (
        bias is None
        or x.q is None
        or weight.q is None
        or weight.q.block is not None
        or op.kind.startswith("conv_transpose")
    ):
        return weight
    scales, needed = scale_of(weight), np.abs(real_numbers(bias)) / (_WHOLE * scale_of(x))
    coarser = np.maximum(1.0, (needed if scales.ndim else needed.max(initial=0)) / scales)
    if (coarser == 1).all():
        return weight
    shape = (-1,) + (1,) * (len(weight.shape) - 1) if scales.ndim else ()
    made, data = scales * coarser, np.asarray(weight.data)
    q = replace(weight.q, scale=tuple(made.tolist()) if scales.ndim else float(made))
    return replace(weight, data=np.round(data / coarser.reshape(shape)).astype(data.dtype), q=q)


def bias_of(low: QnnLowering, op: Op, weight: Value) -> list[Value]:
    """The bias, in units of the accumulator: the input's scale times the weight's."""
    bias, x = op.args.get("bias"), op.args["input"]
    if bias is None:
        return []
    data = real_numbers(bias)
    if x.q is None:
        return [low.constant(data.astype(np.float32))]
    units = scale_of(x) * scale_of(weight)
    stored = np.clip(np.round(data / units), -_WHOLE, _WHOLE).astype(np.int32)
    scale: Any = float(units) if units.ndim == 0 else tuple(units.tolist())
    zero: Any = 0 if units.ndim == 0 else (0,) * units.size
    q = QParams(scale, zero, INT32, -_WHOLE, _WHOLE, None if units.ndim == 0 else 0)
    return [low.constant(stored, q)]


def is_depthwise(op: Op) -> bool:
    """Two groups are better as what they are, and so are several filters for a channel, which may not compile."""
    weight, groups = op.args["weight"], op.args.get("groups", 1)
    return bool(
        groups > 2 and weight.shape[1] == 1 and weight.shape[0] == groups and not op.kind.startswith("conv_transpose")
    )


def _filters(low: QnnLowering, weight: Value, transposed: bool) -> Value:
    """Weights as QNN has them: the window, input channels, output channels."""
    assert weight.data is not None
    data: Array = weight.data[:, :, None, :] if weight.data.ndim == 3 else weight.data
    window = range(2, data.ndim)
    turned = np.ascontiguousarray(data.transpose(*window, *((0, 1) if transposed else (1, 0))))
    q = weight.q
    if q is not None and q.axis is not None:
        q = replace(q, axis=turned.ndim - 1)
    return low.constant(turned, q)


def convolution(low: QnnLowering, op: Op) -> None:
    """Images and volumes; sequences are images one pixel high."""
    x, weight, out = op.args["input"], finer_weight(op, roomy_weight(op), low.target), result(op)
    rank, transposed = len(weight.shape), op.kind.startswith("conv_transpose")
    order = (0, *range(2, rank), 1)
    image = low.get(x, order)
    inputs = [_image(low, image), _filters(low, weight, transposed), *bias_of(low, op, weight)]
    params: dict[str, Any] = {
        "stride": unsigned(conv_argument(op, "stride", 1)),
        "pad_amount": unsigned(conv_padding(op)),
    }
    dims = "3d" if rank == 5 else "2d"
    if transposed:
        kind = f"TransposeConv{dims}"
        params["output_padding"] = unsigned(conv_argument(op, "output_padding", 0))
    else:
        kind = "DepthWiseConv2d" if is_depthwise(op) and rank < 5 else f"Conv{dims}"
        params["dilation"] = unsigned(conv_argument(op, "dilation", 1))
    if kind != "DepthWiseConv2d":
        params["group"] = int(op.args.get("groups", 1))
    if rank > 3:
        low.finish(op, order, kind, inputs, **params)
        return
    shape = [out.bound[d] for d in order]
    wide = low.temporary([shape[0], 1, *shape[1:]], out)
    low.into(op, wide, kind, inputs, **params)
    low.alias(out, order, low.reshaped(wide, shape))


def _image(low: QnnLowering, image: Value) -> Value:
    shape = image.bound
    return low.reshaped(image, [shape[0], 1, *shape[1:]]) if len(shape) == 3 else image


def linear(low: QnnLowering, op: Op) -> None:
    """QNN multiplies matrices only: rows of whatever dimensions become those of one."""
    x, weight, out = op.args["input"], finer_weight(op, roomy_weight(op), low.target), result(op)
    held = low.get(x)
    count = int(np.prod(held.bound[:-1], dtype=np.int64))
    rows = low.reshaped(held, [count, held.bound[-1]])
    if weight.q is not None and weight.q.block is not None:
        _linear_pixels(low, op, weight, rows)
        return
    made = low.temporary([count, weight.bound[0]], out)
    low.into(op, made, "FullyConnected", [rows, low.get(weight), *bias_of(low, op, weight)])
    low.alias(out, identity(len(out.shape)), low.reshaped(made, out.bound))


def _linear_pixels(low: QnnLowering, op: Op, weight: Value, rows: Value) -> None:
    """Blocks are for windows: rows become the pixels of an image. (Of matrices the compiler's bytes differ from run to
    run, and sometimes their numbers.)"""
    out = result(op)
    pixels = low.reshaped(rows, [1, 1, *rows.bound])
    assert weight.data is not None
    wide = replace(weight, data=weight.data[:, :, None, None], shape=(*weight.shape, 1, 1), dim_order=identity(4))
    params = {"stride": unsigned([1, 1]), "pad_amount": unsigned([[0, 0], [0, 0]]), "dilation": unsigned([1, 1])}
    made = low.temporary([1, 1, rows.bound[0], weight.bound[0]], out)
    inputs = [pixels, _filters(low, wide, transposed=False), *bias_of(low, op, weight)]
    low.into(op, made, "Conv2d", inputs, **params, group=1)
    low.alias(out, identity(len(out.shape)), low.reshaped(made, out.bound))


def matmul(low: QnnLowering, op: Op) -> None:
    a, b = op.args["self"], op.args["mat2"]
    inputs = [low.get(a), low.symmetric(low.get(b))]
    low.finish(op, identity(len(result(op).shape)), "MatMul", inputs)
