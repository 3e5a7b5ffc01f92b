"""Rules for TFLite's elementwise integer operators, bit-exact with ``backends/nxp/dialect``.

ADD and SUB follow TFLite's reference: shift operands left by 20 bits, rescale both to twice the larger scale, add, and
rescale to the output; every rescale rounds twice (doubling high multiply, then rounding shift).
"""

from __future__ import annotations

from typing import Any

from edgewright.backends.nxp.dialect import elementwise as tflite
from edgewright.backends.nxp.dialect.rounding import quantize_multiplier, scale, zero_point
from edgewright.engine.codegen.ranged_int import RangedInt, RangedIntBuilder
from edgewright.engine.dialects.elementwise import TABLE_ONLY, Args, elementwise_rule, result_of
from edgewright.ir.graph import Op, Value

TABLE_ONLY |= {
    f"tflite.{name}" for name in ("LOGISTIC", "TANH", "EXP", "LOG", "RSQRT", "LEAKY_RELU", "ABS", "HARD_SWISH")
}


def _rescale(i: RangedIntBuilder, x: RangedInt, factor: Any) -> RangedInt:
    mantissa, exponent = (int(n) for n in quantize_multiplier(factor))
    return i.rescale(x, mantissa, 31 - exponent, "twice")


def _subtract_zero_points(i: RangedIntBuilder, op: Op, args: Args) -> Args:
    return [i.plus(x, -zero_point(v)) for x, v in zip(args, op.args["inputs"], strict=True)]


def _to_output(i: RangedIntBuilder, result: RangedInt, out: Value, low: int = -128, high: int = 127) -> RangedInt:
    return i.clamp(i.plus(result, zero_point(out)), low, high)


@elementwise_rule("tflite.ADD", "tflite.SUB")
def _add_sub(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    values, out = op.args["inputs"], result_of(op)
    common_scale = 2 * float(max(scale(v) for v in values))
    a, b = (_rescale(i, i.shift_left(x, tflite.LEFT_SHIFT), float(scale(v)) / common_scale) for x, v in
            zip(_subtract_zero_points(i, op, args), values, strict=True))  # fmt: skip
    total = i.add(a, b) if op.kind.endswith("ADD") else i.sub(a, b)
    return _to_output(i, _rescale(i, total, common_scale / (2.0**tflite.LEFT_SHIFT * float(scale(out)))), out)


@elementwise_rule("tflite.MUL")
def _product(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    (a, b), out = op.args["inputs"], result_of(op)
    return _to_output(i, _rescale(i, i.mul(*_subtract_zero_points(i, op, args)), tflite.product_factor(a, b, out)), out)


@elementwise_rule(*(f"tflite.{name}" for name in tflite.RELU_RANGES))
def _relu(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    (x,), out = op.args["inputs"], result_of(op)
    limits = tflite.clamp_limits(out, *tflite.RELU_RANGES[op.kind.removeprefix("tflite.")])
    return _to_output(i, _rescale(i, _subtract_zero_points(i, op, args)[0], scale(x) / scale(out)), out, *limits)


@elementwise_rule("tflite.PRELU")
def _prelu(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    (x, slope), out = op.args["inputs"], result_of(op)
    data, slopes = _subtract_zero_points(i, op, args)
    negative = _rescale(i, i.mul(data, slopes), tflite.product_factor(x, slope, out))
    positive = _rescale(i, data, scale(x) / scale(out))
    return _to_output(i, i.select(i.compare("sge", data, i.constant(0)), positive, negative), out)
