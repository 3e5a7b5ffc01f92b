"""Lowering of elementwise arithmetic, matrix products, normalization and quantization."""

from __future__ import annotations

import numpy as np

from edgewright.ir.graph import Array, Op, QParams, Value
from edgewright.lowering.aten_to_core.operands import limits
from edgewright.lowering.passes.layout import NHWC, GroupLowering, common_order, identity, order_with_last


def softmax(low: GroupLowering, op: Op) -> None:
    """XNNPACK's softmax runs over the last dimension: any other is transposed to the end."""
    x, out = op.args["self"], op.outputs[0]
    assert out is not None
    rank = len(x.shape)
    order = order_with_last(op.args["dim"] % rank, rank)
    low.emit("core.softmax", low.make(out, order), self=low.get(x, order))


def lower_bias(low: GroupLowering, op: Op) -> Value | None:
    """The bias: int32 at the accumulator's scale for statically quantized operands, else floating point."""
    bias, x, weight = op.args.get("bias"), op.args["input"], op.args["weight"]
    if bias is None:
        return None
    data = np.asarray(bias.data)
    if x.q is None or x.q.dynamic or weight.q is None:
        dtype = np.float32 if op.kind != "linear" or x.q is not None else data.dtype
        return low.constant(data.astype(dtype))
    scale = np.float64(x.q.scale) * np.asarray(weight.q.scale, np.float64)
    quantized = np.rint(data / scale)
    axis = None if np.ndim(scale) == 0 else 0
    low32, high32 = -(1 << 31), (1 << 31) - 1
    scales = float(scale) if axis is None else tuple(scale.tolist())
    zero = 0 if axis is None else (0,) * data.size
    q = QParams(scales, zero, np.dtype(np.int32), low32, high32, axis)
    return low.constant(np.clip(quantized, low32, high32).astype(np.int32), q)


def linear(low: GroupLowering, op: Op) -> None:
    x, weight, out = op.args["input"], op.args["weight"], op.outputs[0]
    assert out is not None
    args = {"input": low.get(x), "weight": low.get(weight), "bias": lower_bias(low, op), "transposed": False}
    low.emit("core.linear", low.make(out), **args, **limits(op))


def matmul(low: GroupLowering, op: Op) -> None:
    """``mm`` and ``addmm`` with a constant matrix become a fully connected node, else a batched matrix product."""
    x, weight, out = op.args.get("mat1", op.args["self"]), op.args["mat2"], op.outputs[0]
    assert out is not None
    if not weight.constant:
        low.emit("core.bmm", low.make(out), self=low.get(x), other=low.get(weight))
        return
    as_linear = Op(
        "linear", {"input": x, "weight": weight, "bias": op.args["self"] if "mat1" in op.args else None}, [out]
    )
    args = {"input": low.get(x), "weight": low.get(weight), "bias": lower_bias(low, as_linear), "transposed": True}
    low.emit("core.linear", low.make(out), **args, **limits(op))


def batch_matmul(low: GroupLowering, op: Op) -> None:
    out = op.outputs[0]
    assert out is not None
    low.emit("core.bmm", low.make(out), self=low.get(op.args["self"]), other=low.get(op.args["mat2"]))


def convert(low: GroupLowering, op: Op) -> None:
    """Quantize or dequantize.

    Dynamic quantization has two granularities, chosen by ``num_nonbatch_dims`` of the quantized value: a fully
    connected layer quantizes each row (1: the last dimension) and a convolution each image (3: H, W and C). The
    parameters depend on which elements share a range, so the order is fixed here: the original order for rows, NHWC
    for images. ``is_core_pointwise_gemm`` is the exception: XNNPACK runs some 1x1 convolutions as a matrix
    product, in which each pixel is a row of its own.
    """
    x, out = op.args["self"], op.outputs[0]
    assert out is not None
    rank = len(out.shape)
    order = common_order(low, op, rank)
    if out.q is not None and out.q.dynamic:
        order = NHWC if out.q.axis == -3 else identity(rank)
    low.emit("core.convert", low.make(out, order), self=low.get(x, order))


def batch_norm(low: GroupLowering, op: Op) -> None:
    """Inference-mode batch norm: multiply and add per channel."""
    x, out = op.args["input"], op.outputs[0]
    assert out is not None
    scale, shift = batch_norm_scale_shift(op)
    order = common_order(low, op, len(out.shape))
    shape = [1] * len(order)
    shape[order.index(1)] = scale.size
    scaled = low.temporary([out.bound[d] for d in order], out)
    low.emit("core.mul", scaled, self=low.get(x, order), other=low.constant(scale.reshape(shape).astype(out.dtype)))
    offset = low.constant(shift.reshape(shape).astype(out.dtype))
    low.emit("core.add", low.make(out, order), self=scaled, other=offset, **limits(op))


def batch_norm_scale_shift(op: Op) -> tuple[Array, Array]:
    """Scale and shift per channel of an inference-mode batch norm."""
    mean, var = (np.asarray(op.args[n].data, np.float64) for n in ("running_mean", "running_var"))
    weight, bias = (None if op.args[n] is None else np.asarray(op.args[n].data, np.float64) for n in ("weight", "bias"))
    scale = (1 if weight is None else weight) / np.sqrt(var + op.args["eps"])
    return np.asarray(scale), np.asarray((0 if bias is None else bias) - mean * scale)
