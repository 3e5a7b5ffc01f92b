"""Rules for ENN's elementwise integer operators: dequantize to float32, compute, and quantize, as
``backends/samsung/dialect/numerics.py``.

Sums and products of int8 are core operators instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from edgewright.backends.samsung.dialect.elementwise import BINARY, UNARY
from edgewright.backends.samsung.dialect.numerics import inputs_of, result_of
from edgewright.backends.samsung.dialect.table import PREFIX
from edgewright.engine.codegen.builder import Reg, const, lane_count
from edgewright.engine.codegen.ranged_int import RangedIntBuilder
from edgewright.engine.codegen.requant import Affine, quantize_to_int32, rescale_float, scale_of
from edgewright.engine.codegen.vector import clamp, to_float32
from edgewright.ir.graph import Op, Value
from edgewright.ir.int_arithmetic import IntRangeError, RangedInt
from edgewright.ir.int_rules import (
    Args,
    FloatConversion,
    IntReduction,
    describes,
    elementwise_rule,
    reduce_axes,
    tabulate,
)
from edgewright.ir.numerics import Numerics
from edgewright.ir.requant_scale import mean_scale

_ARITHMETIC = {"ELTSUM": "fadd", "SUB": "fsub", "ELTMUL": "fmul", "ELTDIV": "fdiv"}
_SELECTIONS = {"MAXIMUM": "oge", "MIN": "ole"}


def affine_params(value: Value) -> Affine:
    """Scale and zero point of a tensor with one scale."""
    if value.q is None or value.q.axis is not None:
        raise IntRangeError("not quantized with one scale")
    return Affine(float(scale_of(value.q)), int(np.asarray(value.q.zero_point)))


def dequantize(i: RangedIntBuilder, x: RangedInt, value: Value) -> Reg:
    """The float32 value of an integer."""
    params = affine_params(value)
    centered = to_float32(i.f, i.narrow(i.plus(x, -params.zero)).data)
    return i.f.op("fmul", centered, const(params.scale, centered.type))


def quantize(i: RangedIntBuilder, x: Reg, out: Value) -> RangedInt:
    """A float32 value as an integer of ``out``; NaN becomes 0."""
    params, q = affine_params(out), out.q
    assert q is not None
    return RangedInt(quantize_to_int32(i.f, x, params, q.qmin, q.qmax), q.qmin, q.qmax)


def _register(function: Callable[[RangedIntBuilder, Op, list[Reg]], Reg], names: tuple[str, ...]) -> None:
    @elementwise_rule(*(PREFIX + name for name in names), fuses=False)
    def rule(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
        floats = [dequantize(i, x, v) for x, v in zip(args, inputs_of(op), strict=True)]
        return quantize(i, function(i, op, floats), result_of(op))


def _arithmetic(i: RangedIntBuilder, op: Op, floats: list[Reg]) -> Reg:
    return i.f.op(_ARITHMETIC[op.kind.removeprefix(PREFIX)], *floats)


def _select(i: RangedIntBuilder, op: Op, floats: list[Reg]) -> Reg:
    return i.f.select(i.f.compare(_SELECTIONS[op.kind.removeprefix(PREFIX)], *floats), *floats)


def _clip(i: RangedIntBuilder, op: Op, floats: list[Reg]) -> Reg:
    low, high = (float(np.float32(op.args[name])) for name in ("minimum", "maximum"))
    if not low <= high:
        raise IntRangeError("limits are not ordered")
    return clamp(i.f, floats[0], low, high)


_register(_arithmetic, tuple(_ARITHMETIC))
_register(_select, tuple(_SELECTIONS))
_register(_clip, ("CLIP",))
_register(lambda i, op, floats: clamp(i.f, floats[0], 0.0, float("inf")), ("RELU",))
_register(lambda i, op, floats: i.f.emit(floats[0].type, _sqrt_call(i, floats[0])), ("SQRT",))


def _sqrt_call(i: RangedIntBuilder, x: Reg) -> str:
    name = f"llvm.sqrt.{f'v{lane_count(x.type)}' if lane_count(x.type) > 1 else ''}f32"
    i.f.module.declare(f"declare {x.type} @{name}({x.type})")
    return f"call {x.type} @{name}({x.type} {x})"


tabulate(*(PREFIX + name for name in (*UNARY, *BINARY, "CLIP")))


@describes(f"{PREFIX}QUANTIZE", f"{PREFIX}DEQUANTIZE")
def _conversion(op: Op, numerics: Numerics) -> FloatConversion:
    (x,), out = inputs_of(op), result_of(op)
    if op.kind.endswith("DEQUANTIZE"):
        affine_params(x)
        return FloatConversion(x, dequantize=lambda i, stored: dequantize(i, stored, x))
    affine_params(out)
    return FloatConversion(x, quantize=lambda i, number: quantize(i, number, out))


@describes(f"{PREFIX}REDUCEMEAN", f"{PREFIX}REDUCESUM")
def _mean_sum(op: Op, numerics: Numerics) -> IntReduction:
    x, out, keepdims = inputs_of(op)[0], result_of(op), bool(op.args["keep_dims"])
    axes = reduce_axes(x, op.args["axis"], keepdims, out)
    if out.q is None or x.q is None:
        raise IntRangeError("float operand")
    elements = math.prod(x.bound[a] for a in axes)
    scaling = mean_scale(x, out, elements if op.kind.endswith("MEAN") else 1)
    if not scaling.is_valid:
        raise IntRangeError("invalid scale")

    def finish(i: RangedIntBuilder, total: RangedInt, extras: Args) -> RangedInt:
        centered = i.plus(total, -affine_params(x).zero * elements)
        return RangedInt(rescale_float(i.f, centered.data, scaling), scaling.low, scaling.high)

    return IntReduction(x, "sum", finish, axes, keepdims)
