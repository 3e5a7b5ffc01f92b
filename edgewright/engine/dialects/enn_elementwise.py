"""ENN's operators on single elements: integers become real numbers of single precision, and those integers again, with
each rounding that ``ir/enn/numerics.py`` has. Sums and products of bytes are the engine's own."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from edgewright.engine.codegen.builder import Reg, const, lane_count
from edgewright.engine.codegen.float_rescale import rescale_float
from edgewright.engine.codegen.ranged_int import IntRangeError, RangedInt, RangedIntBuilder
from edgewright.engine.codegen.requant import Affine, quantize_to_int32, scale_of
from edgewright.engine.codegen.vector import clamp, to_float32
from edgewright.engine.dialects.elementwise import TABLE_ONLY, Args, elementwise_rule
from edgewright.engine.dialects.reduce import int_reduction, reduce_epilogue
from edgewright.ir.enn.elementwise import BINARY, UNARY
from edgewright.ir.enn.numerics import inputs_of, result_of
from edgewright.ir.enn.table import PREFIX
from edgewright.ir.float_scale import mean_scale
from edgewright.ir.graph import Op, Value

TABLE_ONLY |= {PREFIX + name for name in (*UNARY, *BINARY, "CLIP")}
_ARITHMETIC = {"ELTSUM": "fadd", "SUB": "fsub", "ELTMUL": "fmul", "ELTDIV": "fdiv"}
_CHOSEN = {"MAXIMUM": "oge", "MIN": "ole"}


def affine_params(value: Value) -> Affine:
    """How a tensor's integers, as they are in the graph, stand for real numbers."""
    if value.q is None or value.q.axis is not None:
        raise IntRangeError("no integers of one scale")
    return Affine(float(scale_of(value.q)), int(np.asarray(value.q.zero_point)))


def dequantize(i: RangedIntBuilder, x: RangedInt, value: Value) -> Reg:
    """What an integer stands for, in single precision."""
    given = affine_params(value)
    centred = to_float32(i.f, i.narrow(i.plus(x, -given.zero)).reg)
    return i.f.op("fmul", centred, const(given.scale, centred.type))


def quantize(i: RangedIntBuilder, x: Reg, out: Value) -> RangedInt:
    """A number of single precision as an integer; what is no number is 0."""
    made, q = affine_params(out), out.q
    assert q is not None
    return RangedInt(quantize_to_int32(i.f, x, made, q.qmin, q.qmax), q.qmin, q.qmax)


def _mapped(function: Callable[[RangedIntBuilder, Op, list[Reg]], Reg], names: tuple[str, ...]) -> None:
    @elementwise_rule(*(PREFIX + name for name in names))
    def made(i: RangedIntBuilder, op: Op, given: Args) -> RangedInt:
        reals = [dequantize(i, x, v) for x, v in zip(given, inputs_of(op), strict=True)]
        return quantize(i, function(i, op, reals), result_of(op))


def _arithmetic(i: RangedIntBuilder, op: Op, given: list[Reg]) -> Reg:
    return i.f.op(_ARITHMETIC[op.kind.removeprefix(PREFIX)], *given)


def _chosen(i: RangedIntBuilder, op: Op, given: list[Reg]) -> Reg:
    return i.f.select(i.f.compare(_CHOSEN[op.kind.removeprefix(PREFIX)], *given), *given)


def _clip(i: RangedIntBuilder, op: Op, given: list[Reg]) -> Reg:
    low, high = (float(np.float32(op.args[name])) for name in ("minimum", "maximum"))
    if not low <= high:
        raise IntRangeError("limits that are not in order")
    return clamp(i.f, given[0], low, high)


_mapped(_arithmetic, tuple(_ARITHMETIC))
_mapped(_chosen, tuple(_CHOSEN))
_mapped(_clip, ("CLIP",))
_mapped(lambda i, op, given: clamp(i.f, given[0], 0.0, float("inf")), ("RELU",))
_mapped(lambda i, op, given: i.f.emit(given[0].type, _root(i, given[0])), ("SQRT",))


def _root(i: RangedIntBuilder, x: Reg) -> str:
    name = f"llvm.sqrt.{f'v{lane_count(x.type)}' if lane_count(x.type) > 1 else ''}f32"
    i.f.module.declare(f"declare {x.type} @{name}({x.type})")
    return f"call {x.type} @{name}({x.type} {x})"


@reduce_epilogue(f"{PREFIX}REDUCEMEAN", f"{PREFIX}REDUCESUM")
def _mean(i: RangedIntBuilder, op: Op, total: RangedInt, extras: list[Reg]) -> RangedInt:
    x, out, elements = inputs_of(op)[0], result_of(op), int_reduction(op).count
    if out.q is None or x.q is None:
        raise IntRangeError("real numbers")
    scaling = mean_scale(x, out, elements if op.kind.endswith("MEAN") else 1)
    if not scaling.is_valid:
        raise IntRangeError("no factor")
    centred = i.plus(total, -affine_params(x).zero * elements)
    return RangedInt(rescale_float(i.f, centred.reg, scaling), scaling.low, scaling.high)
