"""Lowering of arithmetic: element by element, products with weights, norms."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.backends.xnnpack.operands import limits, operand
from edgewright.ir.graph import Array, Op, QParams, Value
from edgewright.lowering.passes.layout import NHWC, GroupLowering, common_order, identity, order_with_last


def binary(kind: str, first: str = "self", second: str = "other") -> Any:
    """A node of two inputs."""

    def lower(low: GroupLowering, op: Op) -> None:
        out = op.outputs[0]
        assert out is not None
        order = common_order(low, op, len(out.shape))
        a, b = operand(low, op, first, order), operand(low, op, second, order)
        low.emit(kind, low.make(out, order), self=a, other=b, **limits(op))

    return lower


def unary(kind: str, **arguments: str) -> Any:
    """A node of one input; ``arguments`` maps its attributes to the operator's."""

    def lower(low: GroupLowering, op: Op) -> None:
        source, out = next(op.inputs()), op.outputs[0]
        assert out is not None
        order = common_order(low, op, len(out.shape))
        attributes = {name: op.args[given] for name, given in arguments.items()}
        low.emit(kind, low.make(out, order), self=low.get(source, order), **attributes, **limits(op))

    return lower


def softmax(low: GroupLowering, op: Op) -> None:
    """Along the last dimension: any other is put last."""
    x, out = op.args["self"], op.outputs[0]
    assert out is not None
    rank = len(x.shape)
    order = order_with_last(op.args["dim"] % rank, rank)
    low.emit("softmax", low.make(out, order), self=low.get(x, order))


def prelu(low: GroupLowering, op: Op) -> None:
    """A slope for each channel; channels go last."""
    x, slopes, out = op.args["self"], op.args["weight"], op.outputs[0]
    assert out is not None
    rank = len(x.shape)
    order = order_with_last(1, rank) if rank > 1 else identity(rank)
    channels = int(x.bound[order[-1]])
    weight = low.constant(np.ascontiguousarray(np.broadcast_to(slopes.data.reshape(-1), (channels,))))
    low.emit("prelu", low.make(out, order), self=low.get(x, order), weight=weight)


def clamp(bounds: Any) -> Any:
    """An activation that only limits values."""

    def lower(low: GroupLowering, op: Op) -> None:
        source, out = op.args["self"], op.outputs[0]
        assert out is not None
        order = common_order(low, op, len(out.shape))
        low.emit("clamp", low.make(out, order), self=low.get(source, order), limits=bounds(op))

    return lower


def bias_of(low: GroupLowering, op: Op) -> Value | None:
    """A bias as the product of its operands needs it: integers for integers, else single precision."""
    bias, x, weight = op.args.get("bias"), op.args["input"], op.args["weight"]
    if bias is None:
        return None
    data = np.asarray(bias.data)
    if x.q is None or x.q.dynamic or weight.q is None:
        wide = np.float32 if op.kind != "linear" or x.q is not None else data.dtype
        return low.constant(data.astype(wide))
    scale = np.float64(x.q.scale) * np.asarray(weight.q.scale, np.float64)
    stored = np.rint(data / scale)
    axis = None if np.ndim(scale) == 0 else 0
    low32, high32 = -(1 << 31), (1 << 31) - 1
    shown = float(scale) if axis is None else tuple(scale.tolist())
    zero = 0 if axis is None else (0,) * data.size
    q = QParams(shown, zero, np.dtype(np.int32), low32, high32, axis)
    return low.constant(np.clip(stored, low32, high32).astype(np.int32), q)


def linear(low: GroupLowering, op: Op) -> None:
    x, weight, out = op.args["input"], op.args["weight"], op.outputs[0]
    assert out is not None
    args = {"input": low.get(x), "weight": low.get(weight), "bias": bias_of(low, op), "transposed": False}
    low.emit("linear", low.make(out), **args, **limits(op))


def matmul(low: GroupLowering, op: Op) -> None:
    """``mm`` and ``addmm`` by a constant are linear; by something computed, a batch of one product."""
    x, weight, out = op.args.get("mat1", op.args["self"]), op.args["mat2"], op.outputs[0]
    assert out is not None
    if not weight.constant:
        low.emit("bmm", low.make(out), self=low.get(x), other=low.get(weight))
        return
    given = Op("linear", {"input": x, "weight": weight, "bias": op.args["self"] if "mat1" in op.args else None}, [out])
    args = {"input": low.get(x), "weight": low.get(weight), "bias": bias_of(low, given), "transposed": True}
    low.emit("linear", low.make(out), **args, **limits(op))


def batch_matmul(low: GroupLowering, op: Op) -> None:
    out = op.outputs[0]
    assert out is not None
    low.emit("bmm", low.make(out), self=low.get(op.args["self"]), other=low.get(op.args["mat2"]))


def convert(low: GroupLowering, op: Op) -> None:
    """Between real numbers and integers. Rows are those of the original order (or of images, channels last)."""
    x, out = op.args["self"], op.outputs[0]
    assert out is not None
    rank = len(out.shape)
    order = common_order(low, op, rank)
    if out.q is not None and out.q.dynamic:
        order = NHWC if out.q.axis == -3 else identity(rank)
    low.emit("convert", low.make(out, order), self=low.get(x, order))


def batch_norm(low: GroupLowering, op: Op) -> None:
    """With given statistics: a product and a sum by channel."""
    x, out = op.args["input"], op.outputs[0]
    assert out is not None
    scale, shift = batch_norm_factors(op)
    order = common_order(low, op, len(out.shape))
    shape = [1] * len(order)
    shape[order.index(1)] = scale.size
    scaled = low.temporary([out.bound[d] for d in order], out)
    low.emit("mul", scaled, self=low.get(x, order), other=low.constant(scale.reshape(shape).astype(out.dtype)))
    moved = low.constant(shift.reshape(shape).astype(out.dtype))
    low.emit("add", low.make(out, order), self=scaled, other=moved, **limits(op))


def batch_norm_factors(op: Op) -> tuple[Array, Array]:
    """What a batch norm multiplies by and adds, per channel."""
    mean, var = (np.asarray(op.args[n].data, np.float64) for n in ("running_mean", "running_var"))
    weight, bias = (None if op.args[n] is None else np.asarray(op.args[n].data, np.float64) for n in ("weight", "bias"))
    scale = (1 if weight is None else weight) / np.sqrt(var + op.args["eps"])
    return np.asarray(scale), np.asarray((0 if bias is None else bias) - mean * scale)
