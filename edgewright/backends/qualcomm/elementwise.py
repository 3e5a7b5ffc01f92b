"""Lowering of elementwise operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from edgewright.backends.qualcomm.dialect.elementwise import FUNCTIONS
from edgewright.backends.qualcomm.lower import (
    QnnLowering,
    dequantize_constant,
    elementwise_order,
    output_of,
    quantize_per_tensor,
)
from edgewright.backends.qualcomm.norms import norm_weight
from edgewright.ir.aten.ops import OPS
from edgewright.ir.graph import Op, Value
from edgewright.lowering.passes.layout import identity
from edgewright.lowering.passes.value_storage import activation_limits, clamp_is_redundant, same_encoding

Lower = Callable[[QnnLowering, Op], None]
_FLOAT_MAX = float(np.finfo(np.float32).max)

BINARY = {
    "add": "ElementWiseAdd", "sub": "ElementWiseSubtract", "mul": "ElementWiseMultiply", "div": "ElementWiseDivide",
}  # fmt: skip
EXTREMA = {"maximum": "ElementWiseMaximum", "minimum": "ElementWiseMinimum"}
COMPARE = {
    "eq": "ElementWiseEqual", "ne": "ElementWiseNotEqual", "gt": "ElementWiseGreater", "ge": "ElementWiseGreaterEqual",
    "lt": "ElementWiseLess", "le": "ElementWiseLessEqual", "logical_and": "ElementWiseAnd",
    "logical_or": "ElementWiseOr", "logical_xor": "ElementWiseXor", "bitwise_and": "ElementWiseAnd",
    "bitwise_or": "ElementWiseOr", "bitwise_xor": "ElementWiseXor",
}  # fmt: skip


def elementwise(kind: str, *names: str, **params: Any) -> Lower:
    """A single node; ``names``: the arguments that are its inputs."""

    def lower(low: QnnLowering, op: Op) -> None:
        order = elementwise_order(low, op)
        low.finish(op, order, kind, [low.operand(op, name, order) for name in names or ("self",)], **params)

    return lower


def clamp(low: QnnLowering, op: Op) -> None:
    """Activations that are a clamp."""
    order, out = elementwise_order(low, op), output_of(op)
    limits = activation_limits(op.kind, op)
    assert limits is not None
    source = low.operand(op, "self", order)
    if clamp_is_redundant(out.q, limits) and same_encoding(source, out):
        low.alias(out, order, source)
    else:
        low.emit_clamp(source, low.make(out, order), *limits)


def extremum(kind: str) -> Lower:
    """``maximum`` and ``minimum``, of which a tensor and itself are that tensor. QNN 2.51 computes another tensor, of
    another operator, wrongly beside such a minimum."""

    def lower(low: QnnLowering, op: Op) -> None:
        order, out = elementwise_order(low, op), output_of(op)
        inputs = [low.operand(op, name, order) for name in ("self", "other")]
        if inputs[0] is not inputs[1] or op.args.get("limits") is not None:
            low.finish(op, order, kind, inputs)
        else:
            low.alias(out, order, low.requantize_like(inputs[0], out))

    return lower


def elu(low: QnnLowering, op: Op) -> None:
    order = elementwise_order(low, op)
    low.finish(op, order, "Elu", [low.operand(op, "self", order)], alpha=float(op.args.get("alpha", 1.0)))


def hardsigmoid(low: QnnLowering, op: Op) -> None:
    order = elementwise_order(low, op)
    params = {"operation": 2, "alpha": 1 / 6, "beta": 0.5}
    low.finish(op, order, "ElementWiseNeuron", [low.operand(op, "self", order)], **params)


def leaky_relu(low: QnnLowering, op: Op) -> None:
    """As PReLU with one slope."""
    order = elementwise_order(low, op)
    slope = low.scalar(float(op.args.get("negative_slope", 0.01)), op)
    low.finish(op, order, "Prelu", [low.operand(op, "self", order), slope])


def reciprocal(low: QnnLowering, op: Op) -> None:
    """As a division: the HTP has no reciprocal."""
    order = elementwise_order(low, op)
    low.finish(op, order, "ElementWiseDivide", [low.scalar(1.0, op), low.operand(op, "self", order)])


def power(low: QnnLowering, op: Op) -> None:
    """Exponents 2 and 0.5 are lowered to products and square roots, which are more accurate."""
    order, exponent = elementwise_order(low, op), op.args["exponent"]
    if exponent == 2:
        square(low, op)
    elif exponent == 0.5:
        elementwise(FUNCTIONS["sqrt"])(low, op)
    else:
        low.finish(op, order, "ElementWisePower", [low.operand(op, name, order) for name in ("self", "exponent")])


def floor_divide(low: QnnLowering, op: Op) -> None:
    order = elementwise_order(low, op)
    inputs = [low.operand(op, name, order) for name in ("self", "other")]
    low.finish(op, order, "ElementWiseBinary", inputs, operation=4)


def prelu(low: QnnLowering, op: Op) -> None:
    """One slope per channel; channels are last."""
    x = op.args["self"]
    rank = len(x.shape)
    order = (0, *range(2, rank), 1) if rank > 1 else identity(rank)
    slope = dequantize_constant(op.args["weight"]).reshape(-1)
    source = low.constant(slope.astype(np.float32)) if x.q is None else norm_weight(low, slope, x, signed=False)
    low.finish(op, order, "Prelu", [low.get(x, order), source])


def float_predicate(kind: str, **params: bool) -> Lower:
    """``isinf`` and ``isnan``, on fp16, in which the HTP computes."""

    def lower(low: QnnLowering, op: Op) -> None:
        order = elementwise_order(low, op)
        source = low.operand(op, "self", order)
        fp16 = low.plain_temporary(source.bound, np.float16)
        low.node("Cast", [source], fp16)
        low.finish(op, order, kind, [fp16], **params)

    return lower


def masked_fill(low: QnnLowering, op: Op) -> None:
    order = elementwise_order(low, op)
    low.finish(op, order, "ElementWiseSelect", [low.operand(op, name, order) for name in ("mask", "value", "self")])


def cast(low: QnnLowering, op: Op) -> None:
    """int64 is int32 already. Conversion to integers truncates, and to bool compares with zero, because QNN
    documents neither for its Cast."""
    x, out = op.args["self"], output_of(op)
    order = elementwise_order(low, op)
    source = low.get(x, order)
    result = low.make(out, order)
    assert source.dtype is not None and result.dtype is not None
    if source.dtype == result.dtype:
        low.alias(out, order, source)
    elif result.dtype == np.bool_:
        zero = low.constant(np.zeros([1] * max(len(source.bound), 1), source.dtype))
        low.node("ElementWiseNotEqual", [source, zero], result)
    else:
        low.node(
            "Cast",
            [_truncate(low, source) if source.dtype.kind == "f" and result.dtype.kind in "iu" else source],
            result,
        )


def _truncate(low: QnnLowering, source: Value) -> Value:
    """Round towards zero."""
    size, floor, sign, result = (low.temporary(source.bound, source) for _ in range(4))
    low.node("ElementWiseAbs", [source], size)
    low.node("ElementWiseFloor", [size], floor)
    low.node("ElementWiseSign", [source], sign)
    low.node("ElementWiseMultiply", [floor, sign], result)
    return result


def square(low: QnnLowering, op: Op) -> None:
    order = elementwise_order(low, op)
    x = low.operand(op, "self", order)
    low.finish(op, order, "ElementWiseMultiply", [x, x])


def convert(low: QnnLowering, op: Op) -> None:
    """Quantize, dequantize and requantize."""
    order, out = elementwise_order(low, op), output_of(op)
    source = low.operand(op, "self", order)
    if op.kind == "quantize" and source.data is not None:
        low.alias(out, order, low.constant(quantize_per_tensor(source.data, out.q), out.q))
        return
    kind = {"quantize": "Quantize", "dequantize": "Dequantize", "requantize": "Convert"}[op.kind]
    low.finish(op, order, kind, [source])


def constant(low: QnnLowering, op: Op) -> None:
    """Operators without inputs, evaluated to a constant. Infinities become the largest finite number."""
    out = output_of(op)
    data = np.asarray(OPS[op.kind].call(op.args)[0])
    if data.dtype.kind == "f":
        data = np.nan_to_num(data, nan=np.nan, posinf=_FLOAT_MAX, neginf=-_FLOAT_MAX)
    assert out.dtype is not None
    source = np.broadcast_to(data, out.bound).astype(np.int32 if out.dtype == np.int64 else out.dtype)
    low.alias(out, identity(len(out.shape)), low.constant(np.ascontiguousarray(source)))
