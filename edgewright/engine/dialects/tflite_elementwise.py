"""TFLite's operators on single elements, as arithmetic on vectors of integers: what ``ir/tflite`` says in numpy."""

from __future__ import annotations

from typing import Any

from edgewright.engine.codegen.ranged_int import RangedInt, RangedIntBuilder
from edgewright.engine.dialects.elementwise import TABLE_ONLY, Args, elementwise_rule, result_of
from edgewright.ir.graph import Op, Value
from edgewright.ir.tflite import elementwise as tflite
from edgewright.ir.tflite.rounding import multiplier, scale, zero

TABLE_ONLY |= {
    f"tflite.{name}" for name in ("LOGISTIC", "TANH", "EXP", "LOG", "RSQRT", "LEAKY_RELU", "ABS", "HARD_SWISH")
}


def _times(i: RangedIntBuilder, x: RangedInt, factor: Any) -> RangedInt:
    mantissa, exponent = (int(n) for n in multiplier(factor))
    return i.rescale(x, mantissa, 31 - exponent, "twice")


def _centred(i: RangedIntBuilder, op: Op, given: Args) -> Args:
    return [i.plus(x, -zero(v)) for x, v in zip(given, op.args["inputs"], strict=True)]


def _stored(i: RangedIntBuilder, made: RangedInt, out: Value, low: int = -128, high: int = 127) -> RangedInt:
    return i.clamp(i.plus(made, zero(out)), low, high)


@elementwise_rule("tflite.ADD", "tflite.SUB")
def _summed(i: RangedIntBuilder, op: Op, given: Args) -> RangedInt:
    values, out = op.args["inputs"], result_of(op)
    unit = 2 * float(max(scale(v) for v in values))
    a, b = (_times(i, i.left(x, tflite.ROOM), float(scale(v)) / unit) for x, v in
            zip(_centred(i, op, given), values, strict=True))  # fmt: skip
    both = i.add(a, b) if op.kind.endswith("ADD") else i.sub(a, b)
    return _stored(i, _times(i, both, unit / (2.0**tflite.ROOM * float(scale(out)))), out)


@elementwise_rule("tflite.MUL")
def _product(i: RangedIntBuilder, op: Op, given: Args) -> RangedInt:
    (a, b), out = op.args["inputs"], result_of(op)
    return _stored(i, _times(i, i.mul(*_centred(i, op, given)), tflite.product_factor(a, b, out)), out)


@elementwise_rule(*(f"tflite.{name}" for name in tflite.RELUS))
def _relu(i: RangedIntBuilder, op: Op, given: Args) -> RangedInt:
    (x,), out = op.args["inputs"], result_of(op)
    limits = tflite.limits(out, *tflite.RELUS[op.kind.removeprefix("tflite.")])
    return _stored(i, _times(i, _centred(i, op, given)[0], scale(x) / scale(out)), out, *limits)


@elementwise_rule("tflite.PRELU")
def _prelu(i: RangedIntBuilder, op: Op, given: Args) -> RangedInt:
    (x, slope), out = op.args["inputs"], result_of(op)
    data, slopes = _centred(i, op, given)
    below = _times(i, i.mul(data, slopes), tflite.product_factor(x, slope, out))
    above = _times(i, data, scale(x) / scale(out))
    return _stored(i, i.select(i.compare("sge", data, i.constant(0)), above, below), out)
