"""QNN's operators on single real numbers as the engine's, each result rounded to half precision; comparisons and
conversions between types."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.engine.dialects.qnn_rewrite import (
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
from edgewright.ir.qnn.elementwise import BY_NUMBER, NEURONS

_UNARY = {
    "Asin": "asin", "Atan": "atan", "Cos": "cos", "Exp": "exp", "Log": "log", "Rsqrt": "rsqrt", "Sin": "sin",
    "SquareRoot": "sqrt",
}  # fmt: skip
_EXACT = {"Abs": "abs", "Ceil": "ceil", "Floor": "floor", "Neg": "neg", "Round": "round", "Sign": "sign"}
_BINARY = {
    "Add": "add", "Subtract": "sub", "Multiply": "mul", "Divide": "div", "Maximum": "maximum", "Minimum": "minimum",
    "Power": "pow",
}  # fmt: skip
_COMPARED = {
    "Equal": "eq", "NotEqual": "ne", "Greater": "gt", "GreaterEqual": "ge", "Less": "lt", "LessEqual": "le",
}  # fmt: skip
_ACTIVATIONS = {"Sigmoid": "sigmoid", "Tanh": "tanh", "Gelu": "gelu", "HardSwish": "hardswish"}


def _one(made: QnnRewrite, op: Op) -> tuple[Value, Value] | None:
    """The operand in half precision, and the result; None of integers."""
    (x,), out = io_of(op)
    return (made.half(op, x), out) if is_float32(x, out) and not x.constant and non_empty(x) else None


def _unary(names: dict[str, str], prefix: str, exact: bool) -> None:
    for name, kind in names.items():

        @rule(prefix + name)
        def way(made: QnnRewrite, op: Op, kind: str = kind) -> bool:
            found = _one(made, op)
            if found is None:
                return False
            (made.exact if exact else made.computed)(kind, op, found[1], self=found[0])
            return True


_unary(_UNARY, "ElementWise", False)
_unary(_EXACT, "ElementWise", True)
_unary(_ACTIVATIONS, "", False)


def emit_clamp(made: QnnRewrite, op: Op, low: float, high: float) -> bool:
    """Of limits that are not in order, the upper one has the last word."""
    found, low = _one(made, op), min(low, high)
    if found is None or not low <= high:
        return False
    made.computed("clamp", op, found[1], self=found[0], limits=(float(np.float32(low)), float(np.float32(high))))
    return True


@rule("Relu")
def _relu(made: QnnRewrite, op: Op) -> bool:
    return emit_clamp(made, op, 0.0, float("inf"))


@rule("Relu6")
def _relu6(made: QnnRewrite, op: Op) -> bool:
    return emit_clamp(made, op, 0.0, 6.0)


@rule("ReluMinMax")
def _relu_min_max(made: QnnRewrite, op: Op) -> bool:
    return emit_clamp(made, op, float(op.args["min_value"]), float(op.args["max_value"]))


@rule("Elu")
def _elu(made: QnnRewrite, op: Op) -> bool:
    found = _one(made, op)
    if found is None:
        return False
    made.computed("elu", op, found[1], self=found[0], alpha=float(op.args["alpha"]), scale=1, input_scale=1)
    return True


def _hard_sigmoid(made: QnnRewrite, op: Op) -> bool:
    found = _one(made, op)
    if found is None:
        return False
    x, out = found
    scaled = made.then("mul", op, x, x.bound, self=x, other=scalar(op.args["alpha"]))
    made.computed("add", op, out, self=scaled, other=scalar(op.args["beta"]), limits=(0.0, 1.0))
    return True


def scalar(given: float) -> Value:
    return make_constant("number", np.asarray([given], np.float32))


_WAYS: dict[str, Callable[[QnnRewrite, Op], bool]] = {
    "elu": _elu, "hard_sigmoid": _hard_sigmoid, "relu": _relu, "relu_min_max": _relu_min_max,
}  # fmt: skip


@rule("ElementWiseNeuron")
def _neuron(made: QnnRewrite, op: Op) -> bool:
    name = NEURONS[op.args["operation"]]
    if name in _WAYS:
        return _WAYS[name](made, op)
    found, kind = _one(made, op), {"gelu": "gelu", "hard_swish": "hardswish", "sigmoid": "sigmoid", "tanh": "tanh"}
    if found is None or name not in kind:
        return False
    made.computed(kind[name], op, found[1], self=found[0])
    return True


# ------------------------------------------------------------------------------------------------------ two operands


def _reals(made: QnnRewrite, op: Op, values: list[Value]) -> list[Value] | None:
    if not is_float32(*values) or all(v.constant for v in values) or not non_empty(*values):
        return None
    return [made.half(op, v) for v in values]


def _binary(name: str, kind: str) -> Callable[[QnnRewrite, Op], bool]:
    def way(made: QnnRewrite, op: Op) -> bool:
        given, out = io_of(op)
        found = _reals(made, op, given) if is_float32(out) else None
        if found is None:
            return False
        key = "exponent" if kind == "pow" else "other"
        (made.exact if kind in ("maximum", "minimum") else made.computed)(
            kind, op, out, self=found[0], **{key: found[1]}
        )
        return True

    return way


BINARY = {name: _binary(name, kind) for name, kind in _BINARY.items()}
for _name in ("Multiply", "Divide", "Maximum", "Minimum", "Power"):
    rule(f"ElementWise{_name}")(BINARY[_name])


def _compared(kind: str) -> Callable[[QnnRewrite, Op], bool]:
    def way(made: QnnRewrite, op: Op) -> bool:
        given, out = io_of(op)
        found = _reals(made, op, given) if out.dtype == np.dtype(bool) else None
        if found is None:
            return False
        made.emit(kind, op, out, self=found[0], other=found[1])
        return True

    return way


for _name, _kind in _COMPARED.items():
    rule(f"ElementWise{_name}")(_compared(_kind))


@rule("Prelu")
def _prelu(made: QnnRewrite, op: Op) -> bool:
    """By one slope, or one for each channel."""
    given, out = io_of(op)
    found = _reals(made, op, given) if is_float32(out) else None
    channels = given[0].bound[-1:] or (1,)
    if found is None or not given[1].constant or (given[1].bound or (1,)) not in ((1,), channels):
        return False
    x, slope = (made.view(op, v, v.bound or (1,)) for v in found)
    last = made.then("prelu", op, out, x.bound, self=x, weight=slope)
    made.finish_as(op, made.half(op, last), out)
    made.halves[out] = out
    return True


@rule("Batchnorm")
def _batch_norm(made: QnnRewrite, op: Op) -> bool:
    (x, *factors), out = io_of(op)
    if not is_float32(x, out, *factors) or x.constant or not non_empty(x):
        return False
    kept = [made.half(op, v) for v in factors]
    product: dict[str, Any] = {"self": made.half(op, x), "other": kept[0]}
    if len(kept) == 1:
        made.computed("mul", op, out, **product)
    else:
        made.computed("add", op, out, self=made.then("mul", op, out, out.bound, **product), other=kept[1])
    return True


@rule("ElementWiseSelect")
def _select(made: QnnRewrite, op: Op) -> bool:
    (which, *given), out = io_of(op)
    found = _reals(made, op, given) if is_float32(out) and which.dtype == np.dtype(bool) else None
    if found is None or which.constant:
        return False
    made.exact("where", op, out, condition=which, self=found[0], other=found[1])
    return True


@rule("IsNan", "IsInf")
def _odd(made: QnnRewrite, op: Op) -> bool:
    (x,), out = io_of(op)
    both = op.args.get("detect_negative", True) and op.args.get("detect_positive", True)
    if x.q is not None or x.constant or not non_empty(x) or not both or x.dtype not in (FLOAT32, np.dtype(np.float16)):
        return False
    given = made.half(op, x if is_float32(x) else made.then("convert", op, replace(x, dtype=FLOAT32), x.bound, self=x))
    made.emit("isnan" if op.kind.endswith("IsNan") else "isinf", op, out, self=given)
    return True


@rule("ElementWiseBinary")
def _by_number(made: QnnRewrite, op: Op) -> bool:
    name, (given, out) = BY_NUMBER[op.args["operation"]], io_of(op)
    if name in BINARY:
        return BINARY[name](made, op)
    found = _reals(made, op, given) if name == "FloorDiv" and is_float32(out) else None
    if found is None:
        return False
    made.computed("floor_divide", op, out, self=found[0], other=found[1])
    return True


@rule("Cast", "Convert", "Quantize", "Dequantize")
def _cast(made: QnnRewrite, op: Op) -> bool:
    (x,), out = io_of(op)
    if is_int8(x) and (is_int8(out) or is_float32(out)) and not op.kind.endswith("Cast"):
        made.emit("convert", op, out, self=x)
        return True
    if is_float32(x) and (is_int8(out) or is_int16(out)):
        given = x if op.kind.endswith("Quantize") else made.half(op, x)
        made.emit(
            "convert" if is_int8(out) else op.kind,
            op,
            out,
            **({"self": given} if is_int8(out) else {"inputs": [given]}),
        )
        return True
    if x.q is not None or out.q is not None or not non_empty(x) or x.constant:
        return False
    if is_float32(x, out):
        made.exact("clone", op, out, self=made.half(op, x))
    elif same_type(x, out):
        made.emit("clone", op, out, self=x)
    else:
        made.emit("cast", op, out, self=made.half(op, x) if is_float32(x) else x)
        if is_float32(out):
            made.halves.pop(out, None)
    return True
