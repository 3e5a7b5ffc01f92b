"""QNN's operators on single integers: these become real numbers of single precision, and those integers again, each
rounded as ``ir/qnn`` has it. Integers and truths that stand for themselves stay what they are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from edgewright.engine.codegen.builder import Reg, const, lane_count, vec
from edgewright.engine.codegen.math_float32 import FUNCTIONS
from edgewright.engine.codegen.ranged_int import IntRangeError, RangedInt, RangedIntBuilder
from edgewright.engine.codegen.vector import clamp, round_to_int, to_float32
from edgewright.engine.dialects.elementwise import ELEMENTWISE, TABLE_ONLY, Args, dtype_range, elementwise_rule
from edgewright.ir.graph import Op, QParams, Value
from edgewright.ir.qnn.binary import in_fixed_point, inverse
from edgewright.ir.qnn.dtypes import limits_of, word_limits
from edgewright.ir.qnn.elementwise import BINARY, UNARY
from edgewright.ir.qnn.int16 import MIDDLE, WordScaling, WordSum, word_scaling, word_sum
from edgewright.ir.qnn.shapes import SINGLE
from edgewright.ir.qnn.table import PREFIX

TABLE_ONLY |= {PREFIX + name for name in (*SINGLE, "Prelu", *(f"ElementWise{n}" for n in (*UNARY, *BINARY)))}
FloatFunction = Callable[[RangedIntBuilder, Op, list[Reg]], Reg]
_ARITHMETIC = {"Add": "fadd", "Subtract": "fsub", "Multiply": "fmul", "Divide": "fdiv"}
_UP = ("Add", "Subtract", "Multiply")
_COMPARED = {
    "Equal": "eq", "NotEqual": "ne", "Greater": "gt", "GreaterEqual": "ge", "Less": "lt", "LessEqual": "le",
}  # fmt: skip
_BITS = {"And": "and", "Or": "or", "Xor": "xor"}


def _ends(op: Op) -> tuple[list[Value], Value]:
    out = op.outputs[0]
    assert out is not None
    return op.args["inputs"], out


def _q(value: Value) -> QParams:
    if value.q is None or value.q.axis is not None or value.q.dtype.itemsize > 2:
        raise IntRangeError("no integers of one scale")
    return value.q


def dequantize(i: RangedIntBuilder, x: RangedInt, value: Value) -> Reg:
    """What an integer stands for."""
    q, f = value.q, i.f
    if q is None or q.axis is not None or (q.dtype.itemsize > 2 and np.any(np.asarray(q.zero_point))):
        raise IntRangeError("no integers of one scale")
    made = to_float32(f, i.plus(x, -int(np.asarray(q.zero_point))).reg)
    return f.op("fmul", made, const(float(np.float32(np.asarray(q.scale))), made.type))


def quantize(i: RangedIntBuilder, x: Reg, out: Value, up: bool = False) -> RangedInt:
    """A real number as an integer: the nearest, of two the even one, or the upper. What is no number is stored as 0."""
    f, q = i.f, _q(out)
    zero = int(np.asarray(q.zero_point))
    steps = f.op("fmul", x, const(float(inverse(out)), x.type))
    steps = f.select(f.compare("ord", steps, steps), steps, const(-zero, steps.type))
    if up:
        steps = FUNCTIONS["floor"](f, f.op("fadd", steps, const(0.5, steps.type)))
    made = round_to_int(f, clamp(f, steps, q.qmin - zero, q.qmax - zero))
    return RangedInt(f.add(made, zero), q.qmin, q.qmax)


def _mapped(names: tuple[str, ...], function: FloatFunction, up: bool = False) -> None:
    @elementwise_rule(*(PREFIX + name for name in names))
    def made(i: RangedIntBuilder, op: Op, given: Args) -> RangedInt:
        values, out = _ends(op)
        reals = [dequantize(i, x, v) for x, v in zip(given, values, strict=True)]
        return quantize(i, function(i, op, reals), out, up)


def _pair(i: RangedIntBuilder, op: Op, given: list[Reg]) -> Reg:
    return i.f.op(_ARITHMETIC[op.kind.partition("ElementWise")[2]], *given)


@elementwise_rule(*(f"{PREFIX}ElementWise{name}" for name in _UP))
def _arithmetic(i: RangedIntBuilder, op: Op, given: Args) -> RangedInt:
    values, out = _ends(op)
    if all(v.q is None for v in (*values, out)):
        return _counted(i, op, given)
    if in_fixed_point(op):
        raise IntRangeError("a sum of bytes")
    words = word_sum(op)
    if words is not None:
        return _word_sum(i, words, given)
    reals = [dequantize(i, x, v) for x, v in zip(given, values, strict=True)]
    return quantize(i, _pair(i, op, reals), out, up=True)


def _word_sum(i: RangedIntBuilder, words: WordSum, given: Args) -> RangedInt:
    a, b = (i.plus(x, -MIDDLE) for x in given)
    b = i.sub(i.constant(-1), b) if words.turned else b
    total = i.add(i.mul(a, i.constant(words.first)), i.mul(b, i.constant(words.second)))
    return _from_middle(i, i.right(i.plus(i.right(total, 1), words.added), words.shift))


def _word_scaled(i: RangedIntBuilder, words: WordScaling, x: RangedInt) -> RangedInt:
    made = i.right(i.plus(i.mul(i.plus(x, -MIDDLE), i.constant(words.gain)), 1 << 14), 15)
    return _from_middle(i, i.right(i.plus(made, words.added), 3))


def _from_middle(i: RangedIntBuilder, x: RangedInt) -> RangedInt:
    return i.plus(i.narrow(i.clamp(x, -MIDDLE, MIDDLE - 1)), MIDDLE)


def _counted(i: RangedIntBuilder, op: Op, given: Args) -> RangedInt:
    """Of integers that stand for themselves; what is beyond the result's bits is lost."""
    name, out = op.kind.partition("ElementWise")[2], _ends(op)[1]
    return _cut(i, {"Add": i.add, "Subtract": i.sub, "Multiply": i.mul}[name](*given), out)


def _cut(i: RangedIntBuilder, made: RangedInt, out: Value) -> RangedInt:
    low, high = dtype_range(out)
    if made.low >= low and made.high <= high:
        return i.narrow(made) if out.dtype != np.dtype(np.int64) else made
    if out.dtype != np.dtype(np.int32):
        raise IntRangeError("other than 32 bits")
    return RangedInt(i.f.cast("trunc", made.reg, vec(lane_count(made.reg.type), "i32")), low, high)


def _chosen(how: str) -> FloatFunction:
    """The larger or smaller one."""
    return lambda i, op, given: i.f.select(i.f.compare(how, *given), *given)


def _choice(name: str, how: str) -> None:
    @elementwise_rule(f"{PREFIX}ElementWise{name}")
    def made(i: RangedIntBuilder, op: Op, given: Args) -> RangedInt:
        values, out = _ends(op)
        if all(v.q is None for v in (*values, out)):
            return i.largest(*given) if name == "Maximum" else i.smallest(*given)
        reals = [dequantize(i, x, v) for x, v in zip(given, values, strict=True)]
        return quantize(i, _chosen(how)(i, op, reals), out)


_choice("Maximum", "oge")
_choice("Minimum", "ole")
_mapped(("ElementWiseDivide",), _pair)


def _compared(name: str, how: str) -> None:
    @elementwise_rule(f"{PREFIX}ElementWise{name}")
    def made(i: RangedIntBuilder, op: Op, given: Args) -> RangedInt:
        values = op.args["inputs"]
        if all(v.q is None for v in values):
            return i.compare(how if how in ("eq", "ne") else f"s{how}", *given)
        f, reals = i.f, [dequantize(i, x, v) for x, v in zip(given, values, strict=True)]
        truth = f.compare("une" if how == "ne" else f"o{how}", *reals)
        return RangedInt(f.cast("zext", truth, vec(lane_count(reals[0].type), "i32")), 0, 1)


for _name, _how in _COMPARED.items():
    _compared(_name, _how)


def _truth(i: RangedIntBuilder, x: RangedInt, value: Value) -> RangedInt:
    if value.q is not None:
        raise IntRangeError("truths of real numbers")
    return x if value.dtype == np.dtype(bool) else i.compare("ne", x, i.constant(0))


@elementwise_rule(*(f"{PREFIX}ElementWise{name}" for name in _BITS))
def _logic(i: RangedIntBuilder, op: Op, given: Args) -> RangedInt:
    a, b = (_truth(i, x, v) for x, v in zip(given, op.args["inputs"], strict=True))
    return RangedInt(i.f.op(_BITS[op.kind.partition("ElementWise")[2]], a.reg, b.reg), 0, 1)


@elementwise_rule(f"{PREFIX}ElementWiseNot")
def _not(i: RangedIntBuilder, op: Op, given: Args) -> RangedInt:
    return i.sub(i.constant(1), _truth(i, given[0], op.args["inputs"][0]))


@elementwise_rule(f"{PREFIX}ElementWiseSelect")
def _select(i: RangedIntBuilder, op: Op, given: Args) -> RangedInt:
    values, out = _ends(op)
    which = _truth(i, given[0], values[0])
    if all(v.q is None for v in (*values, out)) or all(v.q == out.q for v in values[1:]):
        return i.select(which, given[1], given[2])
    f, reals = i.f, [dequantize(i, x, v) for x, v in zip(given[1:], values[1:], strict=True)]
    return quantize(i, f.select(f.compare("ne", which.reg, 0), *reals), out)


# ----------------------------------------------------------------------------------------------------- one operand


def _sloped(i: RangedIntBuilder, op: Op, given: list[Reg]) -> Reg:
    below = i.f.compare("olt", given[0], const(0, given[0].type))
    return i.f.select(below, i.f.op("fmul", *given), given[0])


def _affine(i: RangedIntBuilder, op: Op, given: list[Reg]) -> Reg:
    """Times the first constant, plus the second."""
    made = i.f.op("fmul", *given[:2])
    return i.f.op("fadd", made, given[2]) if len(given) > 2 else made


_mapped(("Batchnorm",), _affine)


@elementwise_rule(f"{PREFIX}Relu")
def _relu(i: RangedIntBuilder, op: Op, given: Args) -> RangedInt:
    if op.args["inputs"][0].q is None:
        return i.largest(given[0], i.constant(0))
    return _kept_within(i, op, given[0])


@elementwise_rule(f"{PREFIX}Relu6")
def _relu6(i: RangedIntBuilder, op: Op, given: Args) -> RangedInt:
    return _kept_within(i, op, given[0])


def _kept_within(i: RangedIntBuilder, op: Op, x: RangedInt) -> RangedInt:
    values, out = _ends(op)
    words = word_limits(op)
    if words is not None:
        return i.clamp(_word_scaled(i, words[0], x), *words[1:])
    low, high = map(float, limits_of(op))
    if not low <= high:
        raise IntRangeError("limits that are not in order")
    return quantize(i, clamp(i.f, dequantize(i, x, values[0]), low, high), out)


@elementwise_rule(f"{PREFIX}ReluMinMax")
def _between(i: RangedIntBuilder, op: Op, given: Args) -> RangedInt:
    (x,), out = _ends(op)
    if x.q is not None:
        return _kept_within(i, op, given[0])
    low, high = (float(np.float32(op.args[name])) for name in ("min_value", "max_value"))
    least, most = dtype_range(out)
    if x.dtype != out.dtype or not low <= high or any(n != int(n) for n in (low, high) if abs(n) < 1 << 31):
        raise IntRangeError("limits between integers")
    return i.clamp(given[0], int(max(low, least)), int(min(high, most)))


_mapped(("Prelu",), _sloped)
for _name, _function in {"Neg": "neg", "Floor": "floor", "Ceil": "ceil", "SquareRoot": "sqrt"}.items():
    _mapped((f"ElementWise{_name}",), lambda i, op, given, made=_function: FUNCTIONS[made](i.f, given[0]))  # type: ignore[misc]


@elementwise_rule(f"{PREFIX}Convert", f"{PREFIX}Cast")
def _converted(i: RangedIntBuilder, op: Op, given: Args) -> RangedInt:
    (x,), out = _ends(op)
    if x.q is None and out.q is None:
        if out.dtype == np.dtype(bool):
            return i.compare("ne", given[0], i.constant(0))
        low, high = dtype_range(out)
        if given[0].low < low or given[0].high > high:
            if out.dtype != np.dtype(np.int32):
                raise IntRangeError("what does not fit")
            return RangedInt(i.f.cast("trunc", given[0].reg, vec(lane_count(given[0].reg.type), "i32")), low, high)
        return given[0]
    if x.q == out.q:
        return given[0]
    words = word_scaling(x, out) if op.kind == f"{PREFIX}Convert" else None
    if words is not None:
        return _word_scaled(i, words, given[0])
    return quantize(i, dequantize(i, given[0], x), out)


@elementwise_rule(f"{PREFIX}ElementWiseAbs")
def _size(i: RangedIntBuilder, op: Op, given: Args) -> RangedInt:
    (x,), out = _ends(op)
    if x.q is not None:
        return quantize(i, FUNCTIONS["abs"](i.f, dequantize(i, given[0], x)), out)
    return _cut(i, i.largest(given[0], i.sub(i.constant(0), given[0])), out)


TABLE_ONLY |= {f"{PREFIX}ElementWiseNeuron", f"{PREFIX}ElementWiseUnary"}
TABLE_ONLY -= {kind for kind in ELEMENTWISE if kind.startswith(PREFIX)}
