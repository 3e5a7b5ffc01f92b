"""Lowering of convolutions and matrix products."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.backends.table import conv_argument
from edgewright.ir.graph import Array, Op, QParams, Value
from edgewright.lowering.aten_to_core.elementwise import Lowering
from edgewright.lowering.aten_to_core.operands import (
    F32,
    dtype_of,
    emit_result,
    float_node,
    limits,
    require_floats,
    reshape_sizes,
    result,
    store,
)
from edgewright.lowering.passes.layout import NHWC, NLC, LoweringContext, common_order, identity, require, with_axis


def _require_products(x: Value, weight: Value, bias: Value | None) -> None:
    if x.q is None and weight.q is None:
        require_floats(x, weight, *(() if bias is None else (bias,)))


def lower_bias(low: LoweringContext, x: Value, weight: Value, bias: Value | None, *, widened: bool) -> Value | None:
    """The bias: int32 at the accumulator's scale for statically quantized operands, else floating point."""
    if bias is None:
        return None
    data = np.asarray(bias.data)
    if x.q is None or x.q.dynamic or weight.q is None:
        return low.constant(data.astype(np.float32) if widened or x.q is not None else data)
    scale = np.asarray(x.q.scale, np.float64) * np.asarray(weight.q.scale, np.float64)
    quantized = np.rint(data / scale)
    axis = None if np.ndim(scale) == 0 else 0
    low32, high32 = -(1 << 31), (1 << 31) - 1
    scales = float(scale) if axis is None else tuple(scale.tolist())
    zero = 0 if axis is None else (0,) * data.size
    q = QParams(scales, zero, np.dtype(np.int32), low32, high32, axis)
    return low.constant(np.clip(quantized, low32, high32).astype(np.int32), q)


# -------------------------------------------------------------------------------------------------------- convolutions


def convolution(low: LoweringContext, op: Op) -> None:
    """2-D convolution; 1-D as 2-D of height 1. Weights must be constant."""
    x, weight, bias, out = op.args["input"], op.args["weight"], op.args["bias"], result(op)
    require(weight.constant and (bias is None or bias.constant), "weights must be constant")
    require(len(x.shape) in (3, 4) and len(weight.shape) == len(x.shape), "must be 1-D or 2-D, and batched")
    _require_products(x, weight, bias)
    stride, padding, dilation, extra = (
        conv_argument(op, name, default)
        for name, default in (("stride", 1), ("padding", 0), ("dilation", 1), ("output_padding", 0))
    )
    kind, filters = _conv_filter(op)
    args: dict[str, Any] = {
        "weight": filters, "bias": lower_bias(low, x, weight, bias, widened=filters.dtype == F32), "stride": stride,
        "padding": [padding[0], padding[0], padding[1], padding[1]], "dilation": dilation, "groups": op.args["groups"],
        "output_padding": extra, **limits(op),
    }  # fmt: skip
    if len(x.shape) == 4:
        low.emit(kind, low.make(out, NHWC), input=low.get(x, NHWC), **args)
        return
    image, rows = low.get(x, NLC), low.make(out, NLC)
    unsqueezed, unsqueezed_out = (low.temporary((v.bound[0], 1, *v.bound[1:]), v) for v in (image, rows))
    batch, length, channels = reshape_sizes(x, NLC)
    low.emit("core.view", unsqueezed, self=image, size=[batch, 1, length, channels])
    low.emit(kind, unsqueezed_out, input=unsqueezed, **args)
    low.emit("core.view", rows, self=unsqueezed_out, size=reshape_sizes(out, NLC))


def _conv_filter(op: Op) -> tuple[str, Value]:
    """The kind of a convolution and its filter: OHWI, or 1HWO if depthwise. float16 is stored as float32."""
    weight: Value = op.args["weight"]
    assert weight.data is not None
    data, groups, q = weight.data, op.args["groups"], weight.q
    if data.ndim == 3:
        data = data[:, :, None, :]
    axis = 0
    if op.args["transposed"]:
        group_outputs = data.shape[1]
        grouped = data.reshape(groups, -1, *data.shape[1:]).transpose(0, 2, 1, 3, 4)
        data = grouped.reshape(groups * group_outputs, -1, *data.shape[2:])
        kind, data = "core.conv_transpose2d", data.transpose(0, 2, 3, 1)
    elif data.shape[1] == 1 and groups > 1:
        kind, data, axis = "core.depthwise_conv2d", data.transpose(1, 2, 3, 0), 3
    else:
        kind, data = "core.conv2d", data.transpose(0, 2, 3, 1)
    if q is not None and q.axis is not None:
        q = with_axis(q, axis)
    if q is None and data.dtype == np.float16:
        data = data.astype(np.float32)
    data = np.ascontiguousarray(data)
    return kind, Value(weight.name, data.dtype, data.shape, identity(4), data, q=q)


# ----------------------------------------------------------------------------------------------------- matrix products


def linear(low: LoweringContext, op: Op) -> None:
    _emit_linear(low, op, op.args["input"], op.args["weight"], op.args.get("bias"), transposed=False)


def _emit_linear(
    low: LoweringContext, op: Op, x: Value, weight: Value, bias: Value | None, *, transposed: bool
) -> None:
    require(weight.constant and (bias is None or bias.constant), "weights must be constant")
    columns = weight.bound[1 if transposed else 0]
    require(x.shape and (bias is None or bias.bound == (columns,)), "the bias must have an element for each column")
    _require_products(x, weight, bias)
    low.emit("core.linear", low.make(result(op)), input=low.get(x), weight=low.get(weight),
             bias=lower_bias(low, x, weight, bias, widened=False), transposed=transposed, **limits(op))  # fmt: skip


def matmul(low: LoweringContext, op: Op) -> None:
    """``mm`` and ``addmm``: with a constant matrix a fully connected layer, else a batched matrix product."""
    x, weight, out = op.args.get("mat1", op.args["self"]), op.args["mat2"], result(op)
    bias = op.args["self"] if "mat1" in op.args else None
    alpha, beta = (float(op.args.get(name, 1)) for name in ("alpha", "beta"))
    columns = bias is None or (bias.constant and bias.bound == (weight.bound[1],))
    if weight.constant and columns and alpha == beta == 1:
        _emit_linear(low, op, x, weight, bias, transposed=True)
        return
    require_floats(x, weight, *(() if bias is None else (bias,)))
    if alpha == 1 and (bias is None or beta == 0):  # a factor of 0 drops infinities, too
        low.emit("core.bmm", low.make(out), self=low.get(x), other=low.get(weight))
        return
    product = low.compute("core.bmm", out.bound, F32, self=low.get(x), other=low.get(weight))
    if alpha != 1:
        product = float_node(low, "core.mul", product, alpha)
    if bias is None or beta == 0:
        store(low, product, out)
        return
    addend = low.get(bias)
    if beta != 1 and addend.data is not None:
        addend = low.constant(addend.data * np.float32(beta))
    elif beta != 1:
        addend = float_node(low, "core.mul", addend, beta)
    emit_result(low, "core.add", out, F32, self=product, other=addend)


def batch_matmul(low: LoweringContext, op: Op) -> None:
    x, y = op.args["self"], op.args["mat2"]
    require_floats(x, y)
    low.emit("core.bmm", low.make(result(op)), self=low.get(x), other=low.get(y))


# --------------------------------------------------------------------------------------------------------- batch norm


def batch_norm(low: LoweringContext, op: Op) -> None:
    """Inference-mode batch norm with constant statistics: multiply and add per channel."""
    x, out = op.args["input"], result(op)
    require(len(x.shape) > 1, "must have channels")
    scale, shift = batch_norm_scale_shift(op, low.statistics_dtype)
    order = common_order(low, op, len(out.shape))
    shape = [1] * len(order)
    shape[order.index(1)] = scale.size
    dtype = low.scalar_dtype(dtype_of(out))
    factor, offset = (low.constant(v.reshape(shape).astype(dtype)) for v in (scale, shift))
    scaled = low.compute("core.mul", [out.bound[d] for d in order], dtype, self=low.get(x, order), other=factor)
    low.emit("core.add", low.make(out, order), self=scaled, other=offset, **limits(op))


def batch_norm_scale_shift(op: Op, dtype: type[np.floating[Any]] = np.float64) -> tuple[Array, Array]:
    """Scale and shift per channel of an inference-mode batch norm, computed in ``dtype``."""
    statistics = [op.args[n] for n in ("running_mean", "running_var", "weight", "bias")]
    require(all(v is None or v.constant for v in statistics), "statistics must be constant")
    mean, var, weight, bias = (None if v is None else np.asarray(v.data, dtype) for v in statistics)
    assert mean is not None and var is not None
    scale = (1 if weight is None else weight) / np.sqrt(var + dtype(op.args["eps"]))
    return np.asarray(scale), np.asarray((0 if bias is None else bias) - mean * scale)


LOWERINGS: dict[str, Lowering] = {
    **dict.fromkeys(("conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d"), convolution),
    "linear": linear, "mm": matmul, "addmm": matmul, "bmm": batch_matmul, "batch_norm": batch_norm,
}  # fmt: skip
