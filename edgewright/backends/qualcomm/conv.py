"""Lowering of convolutions and matrix products."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.backends.qualcomm.lower import INT32, QnnLowering, as_uint32, dequantize_constant, output_of, scale_of
from edgewright.backends.qualcomm.weights_int4 import refine_weight
from edgewright.backends.table import conv_argument, conv_padding
from edgewright.ir.graph import Array, Op, QParams, Value
from edgewright.lowering.passes.layout import identity

_INT32_MAX = 2**31 - 1


def coarsen_weight(op: Op) -> Value:
    """The weight, with scales large enough for the bias to fit in int32; 16-bit weights with small activations may need
    coarser ones."""
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
    scales, needed = scale_of(weight), np.abs(dequantize_constant(bias)) / (_INT32_MAX * scale_of(x))
    factor = np.maximum(1.0, (needed if scales.ndim else needed.max(initial=0)) / scales)
    if (factor == 1).all():
        return weight
    shape = (-1,) + (1,) * (len(weight.shape) - 1) if scales.ndim else ()
    result, data = scales * factor, np.asarray(weight.data)
    q = replace(weight.q, scale=tuple(result.tolist()) if scales.ndim else float(result))
    return replace(weight, data=np.round(data / factor.reshape(shape)).astype(data.dtype), q=q)


def accumulator_bias(low: QnnLowering, op: Op, weight: Value) -> list[Value]:
    """The bias at the accumulator's scale: input scale times weight scale."""
    bias, x = op.args.get("bias"), op.args["input"]
    if bias is None:
        return []
    data = dequantize_constant(bias)
    if x.q is None:
        return [low.constant(data.astype(np.float32))]
    units = scale_of(x) * scale_of(weight)
    data_int32 = np.clip(np.round(data / units), -_INT32_MAX, _INT32_MAX).astype(np.int32)
    scale: Any = float(units) if units.ndim == 0 else tuple(units.tolist())
    zero: Any = 0 if units.ndim == 0 else (0,) * units.size
    q = QParams(scale, zero, INT32, -_INT32_MAX, _INT32_MAX, None if units.ndim == 0 else 0)
    return [low.constant(data_int32, q)]


def is_depthwise(op: Op) -> bool:
    """True if a convolution becomes ``DepthWiseConv2d``. Two groups are faster as a grouped convolution, and several
    filters per channel may fail to compile."""
    weight, groups = op.args["weight"], op.args.get("groups", 1)
    return bool(
        groups > 2 and weight.shape[1] == 1 and weight.shape[0] == groups and not op.kind.startswith("conv_transpose")
    )


def _filter_constant(low: QnnLowering, weight: Value, transposed: bool) -> Value:
    """Weights in QNN's layout: HWIO (DHWIO)."""
    assert weight.data is not None
    data: Array = weight.data[:, :, None, :] if weight.data.ndim == 3 else weight.data
    window = range(2, data.ndim)
    filters = np.ascontiguousarray(data.transpose(*window, *((0, 1) if transposed else (1, 0))))
    q = weight.q
    if q is not None and q.axis is not None:
        q = replace(q, axis=filters.ndim - 1)
    return low.constant(filters, q)


def convolution(low: QnnLowering, op: Op) -> None:
    """2-D and 3-D convolution; 1-D becomes 2-D of height 1."""
    x, weight, out = op.args["input"], refine_weight(op, coarsen_weight(op), low.target), output_of(op)
    rank, transposed = len(weight.shape), op.kind.startswith("conv_transpose")
    order = (0, *range(2, rank), 1)
    image = low.get(x, order)
    inputs = [_as_image(low, image), _filter_constant(low, weight, transposed), *accumulator_bias(low, op, weight)]
    params: dict[str, Any] = {
        "stride": as_uint32(conv_argument(op, "stride", 1)),
        "pad_amount": as_uint32(conv_padding(op)),
    }
    dims = "3d" if rank == 5 else "2d"
    if transposed:
        kind = f"TransposeConv{dims}"
        params["output_padding"] = as_uint32(conv_argument(op, "output_padding", 0))
    else:
        kind = "DepthWiseConv2d" if is_depthwise(op) and rank < 5 else f"Conv{dims}"
        params["dilation"] = as_uint32(conv_argument(op, "dilation", 1))
    if kind != "DepthWiseConv2d":
        params["group"] = int(op.args.get("groups", 1))
    if rank > 3:
        low.finish(op, order, kind, inputs, **params)
        return
    shape = [out.bound[d] for d in order]
    wide = low.temporary([shape[0], 1, *shape[1:]], out)
    low.emit_into(op, wide, kind, inputs, **params)
    low.alias(out, order, low.reshape(wide, shape))


def _as_image(low: QnnLowering, image: Value) -> Value:
    shape = image.bound
    return low.reshape(image, [shape[0], 1, *shape[1:]]) if len(shape) == 3 else image


def linear(low: QnnLowering, op: Op) -> None:
    """QNN's FullyConnected takes matrices: leading dimensions are flattened."""
    x, weight, out = op.args["input"], refine_weight(op, coarsen_weight(op), low.target), output_of(op)
    source = low.get(x)
    count = int(np.prod(source.bound[:-1], dtype=np.int64))
    rows = low.reshape(source, [count, source.bound[-1]])
    if weight.q is not None and weight.q.block is not None:
        _linear_as_conv(low, op, weight, rows)
        return
    result = low.temporary([count, weight.bound[0]], out)
    low.emit_into(op, result, "FullyConnected", [rows, low.get(weight), *accumulator_bias(low, op, weight)])
    low.alias(out, identity(len(out.shape)), low.reshape(result, out.bound))


def _linear_as_conv(low: QnnLowering, op: Op, weight: Value, rows: Value) -> None:
    """Blockwise weights as a 1x1 convolution over pixels: with FullyConnected the compiler's output differs from run to
    run, and sometimes its results do."""
    out = output_of(op)
    pixels = low.reshape(rows, [1, 1, *rows.bound])
    assert weight.data is not None
    wide = replace(weight, data=weight.data[:, :, None, None], shape=(*weight.shape, 1, 1), dim_order=identity(4))
    params = {"stride": as_uint32([1, 1]), "pad_amount": as_uint32([[0, 0], [0, 0]]), "dilation": as_uint32([1, 1])}
    result = low.temporary([1, 1, rows.bound[0], weight.bound[0]], out)
    inputs = [pixels, _filter_constant(low, wide, transposed=False), *accumulator_bias(low, op, weight)]
    low.emit_into(op, result, "Conv2d", inputs, **params, group=1)
    low.alias(out, identity(len(out.shape)), low.reshape(result, out.bound))


def matmul(low: QnnLowering, op: Op) -> None:
    a, b = op.args["self"], op.args["mat2"]
    inputs = [low.get(a), low.to_symmetric(low.get(b))]
    low.finish(op, identity(len(output_of(op).shape)), "MatMul", inputs)
