"""ENN's operators as the engine's.

ENN's images are NCHW, the engine's channels-last: between operators that the engine has, images stay as it wants them,
and are turned where anything else reads them. What the engine has no way for stays what it is, a step of the reference.

Integers are what the reference makes of them, bit for bit. Real numbers are rounded to half precision where it rounds
them; sums before that are in the engine's order.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgewright.engine.dialects import enn_conv, enn_move, enn_reduce  # noqa: F401  (they register what they know)
from edgewright.engine.dialects.elementwise import ELEMENTWISE, TABLE_ONLY
from edgewright.engine.dialects.enn_int16 import uint16_to_int16
from edgewright.engine.dialects.enn_rewrite import EnnRewrite, is_float32, non_empty, rule
from edgewright.ir.enn.elementwise import fixed_sum
from edgewright.ir.enn.numerics import byte, half, inputs_of, result_of
from edgewright.ir.enn.table import PREFIX
from edgewright.ir.graph import Graph, Op, Value
from edgewright.ir.numerics import Numerics

_PAIRS = {
    "ELTSUM": "add", "SUB": "sub", "ELTMUL": "mul", "ELTDIV": "div", "MAXIMUM": "maximum", "MIN": "minimum",
}  # fmt: skip
_FUNCTIONS = {
    "SIGMOID": "sigmoid", "TANH": "tanh", "LOG": "log", "SQRT": "sqrt", "RSQRT": "rsqrt", "Sin": "sin", "Cos": "cos",
    "GELU": "gelu", "HARDSWISH": "hardswish",
}  # fmt: skip


def translate(graph: Graph, numerics: Numerics) -> Graph:
    made = EnnRewrite(uint16_to_int16(graph))
    for op in made.graph.ops:
        rule.apply(made, op, _elements if op.kind in ELEMENTWISE or op.kind in TABLE_ONLY else None)
    for value in made.graph.outputs:
        made.planes(value)
    return made.finish()


# --------------------------------------------------------------------------------------------------- single elements


def _elements(made: EnnRewrite, op: Op) -> bool:
    """The operator as it is, on images channels-last where one of them is there only so."""
    given, out = inputs_of(op), result_of(op)
    if not _images(made, given, out):
        return False
    made.made(op.kind, op, out, **{**op.args, "inputs": [made.image(_four(v)) for v in given]})
    return True


def _images(made: EnnRewrite, given: list[Value], out: Value) -> bool:
    if len(out.bound) != 4 or not made.any_pixels(given):
        return False
    return all(len(v.bound) == 4 or (v.constant and len(v.bound) < 4) for v in given)


def _four(value: Value) -> Value:
    """A constant with as many dimensions as an image."""
    if len(value.bound) == 4 or value.data is None:
        return value
    shape = (*(1,) * (4 - len(value.bound)), *value.bound)
    return replace(value, shape=shape, dim_order=(0, 1, 2, 3), data=value.data.reshape(shape))


@rule(*_PAIRS)
def _two(made: EnnRewrite, op: Op) -> bool:
    """Real numbers, and bytes that XNNPACK has a way for; other integers are done by themselves."""
    (a, b), out, kind = inputs_of(op), result_of(op), _PAIRS[op.kind.removeprefix(PREFIX)]
    reals = all(is_float32(v) for v in (a, b, out))
    if not non_empty(out) or (a.constant and b.constant):
        return False
    if not reals and not _bytes(kind, a, b, out):
        return _elements(made, op)
    image = _images(made, [a, b], out)
    given = [
        made.reals(op, v, image) if reals else made.either(v, image) for v in (_four(v) if image else v for v in (a, b))
    ]
    if reals:
        made.computed(kind, op, out, image, self=given[0], other=given[1])
    else:
        made.emit(kind, op, made.target(out, image), self=given[0], other=given[1])
    return True


def _bytes(kind: str, a: Value, b: Value, out: Value) -> bool:
    if kind == "mul":
        return byte(a) and byte(b) and byte(out)
    return kind in ("add", "sub") and fixed_sum(a, b, out)


@rule(*_FUNCTIONS)
def _function(made: EnnRewrite, op: Op) -> bool:
    (x,), out = inputs_of(op), result_of(op)
    if not is_float32(x) or not is_float32(out) or x.constant or not non_empty(out):
        return _elements(made, op)
    image = _images(made, [x], out)
    made.computed(_FUNCTIONS[op.kind.removeprefix(PREFIX)], op, out, image, self=made.reals(op, x, image))
    return True


def _number(value: float) -> Value:
    return Value(f"number_{value}", np.dtype(np.float32), (), (), np.asarray(value, np.float32))


@rule("HardSigmoid")
def _hard_sigmoid(made: EnnRewrite, op: Op) -> bool:
    (x,), out = inputs_of(op), result_of(op)
    if not is_float32(x) or not is_float32(out) or x.constant or not non_empty(out):
        return _elements(made, op)
    image = _images(made, [x], out)
    given = made.reals(op, x, image)
    moved = replace(given, name=f"{given.name}_moved")
    made.emit("add", op, moved, self=given, other=_number(3.0), limits=(0.0, 6.0))
    made.computed("div", op, out, image, self=moved, other=_number(6.0))
    return True


@rule("CLIP", "RELU")
def _limited(made: EnnRewrite, op: Op) -> bool:
    """Of real numbers, limits of half precision: what is between them stays what it is."""
    (x,), out = inputs_of(op), result_of(op)
    ends = (op.args["minimum"], op.args["maximum"]) if op.kind.endswith("CLIP") else (0.0, float("inf"))
    low, high = (float(n) for n in np.asarray(ends, np.float32))
    if not is_float32(x) or not is_float32(out) or x.constant or not non_empty(out) or not low <= high:
        return _elements(made, op)
    image = _images(made, [x], out)
    given = made.reals(op, x, image)
    if all(float(n) == e for n, e in zip(half(np.array(ends, np.float64)), ends, strict=True)):
        last = made.target(out, image)
        made.emit("clamp", op, last, self=given, limits=(low, high))
        made.same(last)
    else:
        made.computed("clamp", op, out, image, self=given, limits=(low, high))
    return True


@rule("QUANTIZE", "DEQUANTIZE")
def _conversion(made: EnnRewrite, op: Op) -> bool:
    """Bytes have the engine's own conversion."""
    (x,), out = inputs_of(op), result_of(op)
    if not (byte(x) and is_float32(out)) and not (is_float32(x) and byte(out)):
        return _elements(made, op)
    image = _images(made, [x], out)
    made.emit("convert", op, made.target(out, image), self=made.either(x, image))
    return True


@rule("POW")
def _power(made: EnnRewrite, op: Op) -> bool:
    (x, power), out = inputs_of(op), result_of(op)
    if not all(is_float32(v) for v in (x, power, out)) or (x.constant and power.constant) or not non_empty(out):
        return _elements(made, op)
    image = _images(made, [x, power], out)
    given = [made.reals(op, _four(v) if image else v, image) for v in (x, power)]
    made.computed("pow", op, out, image, self=given[0], exponent=given[1])
    return True
