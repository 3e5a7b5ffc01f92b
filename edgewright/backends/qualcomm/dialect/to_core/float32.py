"""Translation of QNN's float elementwise operators, with results rounded to fp16; comparisons and casts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.backends.qualcomm.dialect.elementwise import BINARY_BY_CODE, FUNCTIONS, NEURONS
from edgewright.backends.qualcomm.dialect.to_core.rewrite import (
    FLOAT32,
    QnnRewrite,
    io_of,
    is_float32,
    is_int8,
    is_int16,
    make_constant,
    non_empty,
    rule,
    same_type,
)  # fmt: skip
from edgewright.ir.graph import Op, Value

_EXACT = ("core.abs", "core.ceil", "core.floor", "core.neg", "core.round", "core.sign")
_BINARY = {
    "Add": "core.add", "Subtract": "core.sub", "Multiply": "core.mul", "Divide": "core.div",
    "Maximum": "core.maximum", "Minimum": "core.minimum", "Power": "core.pow",
}  # fmt: skip
_COMPARISONS = {
    "Equal": "core.eq", "NotEqual": "core.ne", "Greater": "core.gt", "GreaterEqual": "core.ge", "Less": "core.lt",
    "LessEqual": "core.le",
}  # fmt: skip


def _unary_operands(rw: QnnRewrite, op: Op) -> tuple[Value, Value] | None:
    """The operand rounded to fp16, and the result; None if they are not float."""
    (x,), out = io_of(op)
    return (rw.round_half(op, x), out) if is_float32(x, out) and non_empty(x) else None


def _unary_rule(kind: str) -> Callable[[QnnRewrite, Op], bool]:
    def translate(rw: QnnRewrite, op: Op) -> bool:
        operands = _unary_operands(rw, op)
        if operands is None:
            return False
        (rw.emit_exact if kind in _EXACT else rw.emit_rounded)(kind, op, operands[1], self=operands[0])
        return True

    return translate


for _function, _name in FUNCTIONS.items():
    rule(_name)(_unary_rule(f"core.{_function}"))


def emit_clamp(rw: QnnRewrite, op: Op, low: float, high: float) -> bool:
    """Emit a clamp; the upper limit wins if limits are not ordered."""
    operands, low = _unary_operands(rw, op), min(low, high)
    if operands is None or not low <= high:
        return False
    rw.emit_rounded(
        "core.clamp", op, operands[1], self=operands[0], limits=(float(np.float32(low)), float(np.float32(high)))
    )
    return True


@rule("Relu")
def _relu(rw: QnnRewrite, op: Op) -> bool:
    return emit_clamp(rw, op, 0.0, float("inf"))


@rule("Relu6")
def _relu6(rw: QnnRewrite, op: Op) -> bool:
    return emit_clamp(rw, op, 0.0, 6.0)


@rule("ReluMinMax")
def _relu_min_max(rw: QnnRewrite, op: Op) -> bool:
    return emit_clamp(rw, op, float(op.args["min_value"]), float(op.args["max_value"]))


@rule("Elu")
def _elu(rw: QnnRewrite, op: Op) -> bool:
    operands = _unary_operands(rw, op)
    if operands is None:
        return False
    rw.emit_rounded("core.elu", op, operands[1], self=operands[0], alpha=float(op.args["alpha"]))
    return True


def _hard_sigmoid(rw: QnnRewrite, op: Op) -> bool:
    operands = _unary_operands(rw, op)
    if operands is None:
        return False
    x, out = operands
    scaled = rw.emit_temporary("core.mul", op, x, x.bound, self=x, other=scalar(op.args["alpha"]))
    rw.emit_rounded("core.add", op, out, self=scaled, other=scalar(op.args["beta"]), limits=(0.0, 1.0))
    return True


def scalar(value: float) -> Value:
    return make_constant("number", np.asarray([value], np.float32))


_NEURON_RULES: dict[str, Callable[[QnnRewrite, Op], bool]] = {
    "elu": _elu, "hard_sigmoid": _hard_sigmoid, "relu": _relu, "relu_min_max": _relu_min_max,
}  # fmt: skip


@rule("ElementWiseNeuron")
def _neuron(rw: QnnRewrite, op: Op) -> bool:
    name = NEURONS[op.args["operation"]]
    function = name.replace("_", "")
    translate = _unary_rule(f"core.{function}") if function in FUNCTIONS else _NEURON_RULES.get(name)
    return translate is not None and translate(rw, op)


# ------------------------------------------------------------------------------------------------------------ binary


def _round_operands(rw: QnnRewrite, op: Op, values: list[Value]) -> list[Value] | None:
    if not is_float32(*values) or not non_empty(*values):
        return None
    return [rw.round_half(op, v) for v in values]


def _binary_rule(kind: str) -> Callable[[QnnRewrite, Op], bool]:
    def translate(rw: QnnRewrite, op: Op) -> bool:
        inputs, out = io_of(op)
        operands = _round_operands(rw, op, inputs) if is_float32(out) else None
        if operands is None:
            return False
        key = "exponent" if kind == "core.pow" else "other"
        (rw.emit_exact if kind in ("core.maximum", "core.minimum") else rw.emit_rounded)(
            kind, op, out, self=operands[0], **{key: operands[1]}
        )
        return True

    return translate


BINARY = {name: _binary_rule(kind) for name, kind in _BINARY.items()}
for _name in ("Multiply", "Divide", "Maximum", "Minimum", "Power"):
    rule(f"ElementWise{_name}")(BINARY[_name])


def _comparison_rule(kind: str) -> Callable[[QnnRewrite, Op], bool]:
    def translate(rw: QnnRewrite, op: Op) -> bool:
        inputs, out = io_of(op)
        operands = _round_operands(rw, op, inputs) if out.dtype == np.dtype(bool) else None
        if operands is None:
            return False
        rw.emit(kind, op, out, self=operands[0], other=operands[1])
        return True

    return translate


for _name, _kind in _COMPARISONS.items():
    rule(f"ElementWise{_name}")(_comparison_rule(_kind))


@rule("Prelu")
def _prelu(rw: QnnRewrite, op: Op) -> bool:
    """One slope, or one per channel."""
    inputs, out = io_of(op)
    operands = _round_operands(rw, op, inputs) if is_float32(out) else None
    channels = inputs[0].bound[-1:] or (1,)
    if operands is None or not inputs[1].constant or (inputs[1].bound or (1,)) not in ((1,), channels):
        return False
    x, slope = (rw.reshape(op, v, v.bound or (1,)) for v in operands)
    result = rw.emit_temporary("core.prelu", op, out, x.bound, self=x, weight=slope)
    rw.emit_reshape(op, rw.round_half(op, result), out)
    rw.rounded[out] = out
    return True


@rule("Batchnorm")
def _batch_norm(rw: QnnRewrite, op: Op) -> bool:
    (x, *factors), out = io_of(op)
    if not is_float32(x, out, *factors) or not non_empty(x):
        return False
    rounded = [rw.round_half(op, v) for v in factors]
    product: dict[str, Any] = {"self": rw.round_half(op, x), "other": rounded[0]}
    if len(rounded) == 1:
        rw.emit_rounded("core.mul", op, out, **product)
    else:
        rw.emit_rounded(
            "core.add", op, out, self=rw.emit_temporary("core.mul", op, out, out.bound, **product), other=rounded[1]
        )
    return True


@rule("ElementWiseSelect")
def _select(rw: QnnRewrite, op: Op) -> bool:
    (condition, *inputs), out = io_of(op)
    operands = _round_operands(rw, op, inputs) if is_float32(out) and condition.dtype == np.dtype(bool) else None
    if operands is None:
        return False
    rw.emit_exact("core.where", op, out, condition=condition, self=operands[0], other=operands[1])
    return True


@rule("IsNan", "IsInf")
def _is_nan_or_inf(rw: QnnRewrite, op: Op) -> bool:
    (x,), out = io_of(op)
    if x.q is not None or not non_empty(x) or x.dtype not in (FLOAT32, np.dtype(np.float16)):
        return False
    operand = rw.round_half(
        op, x if is_float32(x) else rw.emit_temporary("core.convert", op, replace(x, dtype=FLOAT32), x.bound, self=x)
    )
    signs = [sign for sign, name in ((-1, "negative"), (1, "positive")) if op.args.get(f"detect_{name}", True)]
    if op.kind.endswith("IsNan") or len(signs) == 2:
        rw.emit("core.isnan" if op.kind.endswith("IsNan") else "core.isinf", op, out, self=operand)
    elif signs:
        rw.emit("core.eq", op, out, self=operand, other=scalar(signs[0] * np.inf))
    else:
        rw.emit("core.lt", op, out, self=operand, other=operand)  # nothing is detected
    return True


@rule("ElementWiseBinary")
def _numbered_binary(rw: QnnRewrite, op: Op) -> bool:
    name, (inputs, out) = BINARY_BY_CODE[op.args["operation"]], io_of(op)
    if name in BINARY:
        return BINARY[name](rw, op)
    operands = _round_operands(rw, op, inputs) if name == "FloorDiv" and is_float32(out) else None
    if operands is None:
        return False
    rw.emit_rounded("core.floor_divide", op, out, self=operands[0], other=operands[1])
    return True


@rule("Cast", "Convert", "Quantize", "Dequantize")
def _cast(rw: QnnRewrite, op: Op) -> bool:
    (x,), out = io_of(op)
    if is_int8(x) and (is_int8(out) or is_float32(out)) and not op.kind.endswith("Cast"):
        rw.emit("core.convert", op, out, self=x)
        return True
    if is_float32(x) and (is_int8(out) or is_int16(out)):
        operand = x if op.kind.endswith("Quantize") else rw.round_half(op, x)
        rw.emit(
            "core.convert" if is_int8(out) else op.kind,
            op,
            out,
            **({"self": operand} if is_int8(out) else {"inputs": [operand]}),
        )
        return True
    if x.q is not None or out.q is not None or not non_empty(x):
        return False
    if is_float32(x, out):
        rw.emit_exact("core.clone", op, out, self=rw.round_half(op, x))
    elif same_type(x, out):
        rw.emit("core.clone", op, out, self=x)
    else:
        rw.emit("core.cast", op, out, self=rw.round_half(op, x) if is_float32(x) else x)
        if is_float32(out):
            rw.rounded.pop(out, None)
    return True
