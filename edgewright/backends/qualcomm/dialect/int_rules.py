"""Rules for QNN's elementwise integer operators: dequantize to float32, compute, and quantize, each rounded as in
``backends/qualcomm/dialect``.

QNN rounds add, sub and mul half up and everything else half to even; int16 sums use fixed point where QNN does
(``backends/qualcomm/dialect/int16.py``). Unquantized integers and bools use plain integer arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from edgewright.backends.qualcomm.dialect.dtypes import clamp_limits, int16_clamp_params
from edgewright.backends.qualcomm.dialect.elementwise import BINARY, UNARY, inverse_scale, is_fixed_point
from edgewright.backends.qualcomm.dialect.int16 import (
    MIDPOINT,
    Int16Rescale,
    Int16Sum,
    int16_rescale_params,
    int16_sum_params,
)
from edgewright.backends.qualcomm.dialect.reduce import mean_factors
from edgewright.backends.qualcomm.dialect.shapes import OTHER_UNARY
from edgewright.backends.qualcomm.dialect.table import PREFIX
from edgewright.engine.codegen.builder import Reg, const, lane_count, vec
from edgewright.engine.codegen.math_float32 import FUNCTIONS
from edgewright.engine.codegen.ranged_int import RangedIntBuilder
from edgewright.engine.codegen.vector import clamp, round_to_int, to_float32
from edgewright.ir.graph import Array, Op, QParams, Value
from edgewright.ir.int_arithmetic import IntRangeError, RangedInt
from edgewright.ir.int_rules import (
    Args,
    FloatConversion,
    IntReduction,
    ReduceEpilogue,
    describes,
    dtype_range,
    elementwise_rule,
    reduce_axes,
    tabulate,
)
from edgewright.ir.numerics import Numerics

FloatFunction = Callable[[RangedIntBuilder, Op, list[Reg]], Reg]
_ARITHMETIC = {"Add": "fadd", "Subtract": "fsub", "Multiply": "fmul", "Divide": "fdiv"}
_ROUND_HALF_UP = ("Add", "Subtract", "Multiply")
_COMPARISONS = {
    "Equal": "eq", "NotEqual": "ne", "Greater": "gt", "GreaterEqual": "ge", "Less": "lt", "LessEqual": "le",
}  # fmt: skip
_BITS = {"And": "and", "Or": "or", "Xor": "xor"}


def _io(op: Op) -> tuple[list[Value], Value]:
    out = op.outputs[0]
    assert out is not None
    return op.args["inputs"], out


def _q(value: Value) -> QParams:
    if value.q is None or value.q.axis is not None or value.q.dtype.itemsize > 2:
        raise IntRangeError("not quantized with one scale")
    return value.q


def dequantize(i: RangedIntBuilder, x: RangedInt, value: Value) -> Reg:
    """The float32 value of an integer."""
    q, f = value.q, i.f
    if q is None or q.axis is not None or (q.dtype.itemsize > 2 and np.any(np.asarray(q.zero_point))):
        raise IntRangeError("not quantized with one scale")
    centered = to_float32(f, i.plus(x, -int(np.asarray(q.zero_point))).data)
    return f.op("fmul", centered, const(float(np.float32(np.asarray(q.scale))), centered.type))


def quantize(i: RangedIntBuilder, x: Reg, out: Value, up: bool = False) -> RangedInt:
    """A float32 value as an integer of ``out``, rounded half to even or half up; NaN becomes 0."""
    f, q = i.f, _q(out)
    zero = int(np.asarray(q.zero_point))
    scaled = f.op("fmul", x, const(float(inverse_scale(out)), x.type))
    scaled = f.select(f.compare("ord", scaled, scaled), scaled, const(-zero, scaled.type))
    if up:
        scaled = FUNCTIONS["floor"](f, f.op("fadd", scaled, const(0.5, scaled.type)))
    rounded = round_to_int(f, clamp(f, scaled, q.qmin - zero, q.qmax - zero))
    return RangedInt(f.add(rounded, zero), q.qmin, q.qmax)


def _register(names: tuple[str, ...], function: FloatFunction, up: bool = False) -> None:
    @elementwise_rule(*(PREFIX + name for name in names))
    def rule(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
        values, out = _io(op)
        floats = [dequantize(i, x, v) for x, v in zip(args, values, strict=True)]
        return quantize(i, function(i, op, floats), out, up)


def _float_binary(i: RangedIntBuilder, op: Op, floats: list[Reg]) -> Reg:
    return i.f.op(_ARITHMETIC[op.kind.partition("ElementWise")[2]], *floats)


@elementwise_rule(*(f"{PREFIX}ElementWise{name}" for name in _ROUND_HALF_UP))
def _arithmetic(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    values, out = _io(op)
    if all(v.q is None for v in (*values, out)):
        return _plain_arithmetic(i, op, args)
    if is_fixed_point(op):
        raise IntRangeError("int8 sums have their own rule")
    int16_sum = int16_sum_params(op)
    if int16_sum is not None:
        return _int16_sum(i, int16_sum, args)
    floats = [dequantize(i, x, v) for x, v in zip(args, values, strict=True)]
    return quantize(i, _float_binary(i, op, floats), out, up=True)


def _int16_sum(i: RangedIntBuilder, params: Int16Sum, args: Args) -> RangedInt:
    a, b = (i.plus(x, -MIDPOINT) for x in args)
    b = i.sub(i.constant(-1), b) if params.complement else b
    total = i.add(i.mul(a, i.constant(params.a_factor)), i.mul(b, i.constant(params.b_factor)))
    return _clamp_uint16(i, i.shift_right(i.plus(i.shift_right(total, 1), params.offset), params.shift))


def _int16_rescale(i: RangedIntBuilder, params: Int16Rescale, x: RangedInt) -> RangedInt:
    scaled = i.shift_right(i.plus(i.mul(i.plus(x, -MIDPOINT), i.constant(params.gain)), 1 << 14), 15)
    return _clamp_uint16(i, i.shift_right(i.plus(scaled, params.offset), 3))


def _clamp_uint16(i: RangedIntBuilder, x: RangedInt) -> RangedInt:
    return i.plus(i.narrow(i.clamp(x, -MIDPOINT, MIDPOINT - 1)), MIDPOINT)


def _plain_arithmetic(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    """Arithmetic on unquantized integers, wrapping in the result's type."""
    name, out = op.kind.partition("ElementWise")[2], _io(op)[1]
    return _wrap(i, {"Add": i.add, "Subtract": i.sub, "Multiply": i.mul}[name](*args), out)


def _wrap(i: RangedIntBuilder, result: RangedInt, out: Value) -> RangedInt:
    low, high = dtype_range(out)
    if result.low >= low and result.high <= high:
        return i.narrow(result) if out.dtype != np.dtype(np.int64) else result
    if out.dtype != np.dtype(np.int32):
        raise IntRangeError("not a 32-bit result")
    return RangedInt(i.f.cast("trunc", result.data, vec(lane_count(result.data.type), "i32")), low, high)


def _float_select(predicate: str) -> FloatFunction:
    """Select the larger or smaller float."""
    return lambda i, op, floats: i.f.select(i.f.compare(predicate, *floats), *floats)


def _register_min_max(name: str, predicate: str) -> None:
    @elementwise_rule(f"{PREFIX}ElementWise{name}")
    def rule(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
        values, out = _io(op)
        if all(v.q is None for v in (*values, out)):
            return i.largest(*args) if name == "Maximum" else i.smallest(*args)
        floats = [dequantize(i, x, v) for x, v in zip(args, values, strict=True)]
        return quantize(i, _float_select(predicate)(i, op, floats), out)


_register_min_max("Maximum", "oge")
_register_min_max("Minimum", "ole")
_register(("ElementWiseDivide",), _float_binary)


def _register_comparison(name: str, predicate: str) -> None:
    @elementwise_rule(f"{PREFIX}ElementWise{name}")
    def rule(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
        values = op.args["inputs"]
        if all(v.q is None for v in values):
            return i.compare(predicate if predicate in ("eq", "ne") else f"s{predicate}", *args)
        f, floats = i.f, [dequantize(i, x, v) for x, v in zip(args, values, strict=True)]
        outcome = f.compare("une" if predicate == "ne" else f"o{predicate}", *floats)
        return RangedInt(f.cast("zext", outcome, vec(lane_count(floats[0].type), "i32")), 0, 1)


for _name, _how in _COMPARISONS.items():
    _register_comparison(_name, _how)


def _as_bool(i: RangedIntBuilder, x: RangedInt, value: Value) -> RangedInt:
    if value.q is not None:
        raise IntRangeError("bool of a quantized tensor")
    return x if value.dtype == np.dtype(bool) else i.compare("ne", x, i.constant(0))


@elementwise_rule(*(f"{PREFIX}ElementWise{name}" for name in _BITS))
def _logic(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    a, b = (_as_bool(i, x, v) for x, v in zip(args, op.args["inputs"], strict=True))
    return RangedInt(i.f.op(_BITS[op.kind.partition("ElementWise")[2]], a.data, b.data), 0, 1)


@elementwise_rule(f"{PREFIX}ElementWiseNot")
def _not(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    return i.sub(i.constant(1), _as_bool(i, args[0], op.args["inputs"][0]))


@elementwise_rule(f"{PREFIX}ElementWiseSelect")
def _select(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    values, out = _io(op)
    condition = _as_bool(i, args[0], values[0])
    if all(v.q is None for v in (*values, out)) or all(v.q == out.q for v in values[1:]):
        return i.select(condition, args[1], args[2])
    f, floats = i.f, [dequantize(i, x, v) for x, v in zip(args[1:], values[1:], strict=True)]
    return quantize(i, f.select(f.compare("ne", condition.data, 0), *floats), out)


# ------------------------------------------------------------------------------------------------------------ unary


def _prelu(i: RangedIntBuilder, op: Op, floats: list[Reg]) -> Reg:
    negative = i.f.compare("olt", floats[0], const(0, floats[0].type))
    return i.f.select(negative, i.f.op("fmul", *floats), floats[0])


def _affine(i: RangedIntBuilder, op: Op, floats: list[Reg]) -> Reg:
    """Multiply by the first constant, add the second."""
    product = i.f.op("fmul", *floats[:2])
    return i.f.op("fadd", product, floats[2]) if len(floats) > 2 else product


_register(("Batchnorm",), _affine)


@elementwise_rule(f"{PREFIX}Relu")
def _relu(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    if op.args["inputs"][0].q is None:
        return i.largest(args[0], i.constant(0))
    return _clamp_quantized(i, op, args[0])


@elementwise_rule(f"{PREFIX}Relu6")
def _relu6(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    return _clamp_quantized(i, op, args[0])


def _clamp_quantized(i: RangedIntBuilder, op: Op, x: RangedInt) -> RangedInt:
    values, out = _io(op)
    int16_params = int16_clamp_params(op)
    if int16_params is not None:
        return i.clamp(_int16_rescale(i, int16_params[0], x), *int16_params[1:])
    low, high = map(float, clamp_limits(op))
    if not low <= high:
        raise IntRangeError("limits are not ordered")
    return quantize(i, clamp(i.f, dequantize(i, x, values[0]), low, high), out)


@elementwise_rule(f"{PREFIX}ReluMinMax")
def _relu_min_max(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    (x,), out = _io(op)
    if x.q is not None:
        return _clamp_quantized(i, op, args[0])
    low, high = (float(np.float32(op.args[name])) for name in ("min_value", "max_value"))
    dtype_min, dtype_max = dtype_range(out)
    if x.dtype != out.dtype or not low <= high or any(n != int(n) for n in (low, high) if abs(n) < 1 << 31):
        raise IntRangeError("limits are not integers")
    return i.clamp(args[0], int(max(low, dtype_min)), int(min(high, dtype_max)))


_register(("Prelu",), _prelu)
for _name, _function in {"Neg": "neg", "Floor": "floor", "Ceil": "ceil", "SquareRoot": "sqrt"}.items():
    _register((f"ElementWise{_name}",), lambda i, op, floats, name=_function: FUNCTIONS[name](i.f, floats[0]))  # type: ignore[misc]


@elementwise_rule(f"{PREFIX}Convert", f"{PREFIX}Cast")
def _convert(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    (x,), out = _io(op)
    if x.q is None and out.q is None:
        if out.dtype == np.dtype(bool):
            return i.compare("ne", args[0], i.constant(0))
        low, high = dtype_range(out)
        if args[0].low < low or args[0].high > high:
            if out.dtype != np.dtype(np.int32):
                raise IntRangeError("result does not fit its type")
            return RangedInt(i.f.cast("trunc", args[0].data, vec(lane_count(args[0].data.type), "i32")), low, high)
        return args[0]
    if x.q == out.q:
        return args[0]
    int16_params = int16_rescale_params(x, out) if op.kind == f"{PREFIX}Convert" else None
    if int16_params is not None:
        return _int16_rescale(i, int16_params, args[0])
    return quantize(i, dequantize(i, args[0], x), out)


@elementwise_rule(f"{PREFIX}ElementWiseAbs")
def _abs(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    (x,), out = _io(op)
    if x.q is not None:
        return quantize(i, FUNCTIONS["abs"](i.f, dequantize(i, args[0], x)), out)
    return _wrap(i, i.largest(args[0], i.sub(i.constant(0), args[0])), out)


_TABLES = (*(f"ElementWise{n}" for n in (*UNARY, *BINARY, "Neuron", "Unary")), *OTHER_UNARY, "Prelu")
tabulate(*(PREFIX + name for name in _TABLES))


@describes(*(PREFIX + name for name in ("Quantize", "Dequantize", "Convert", "Cast")))
def _conversion(op: Op, numerics: Numerics) -> FloatConversion:
    """A conversion between float32 and integers of at most 16 bits with one scale."""
    (x,), out = _io(op)
    if out.q is None:
        _q(x)
        return FloatConversion(x, dequantize=lambda i, stored: dequantize(i, stored, x))
    _q(out)
    return FloatConversion(x, quantize=lambda i, number: quantize(i, number, out))


# ----------------------------------------------------------------------------------------------- reductions and pools


@describes(*(PREFIX + name for name in ("PoolAvg2d", "PoolAvg3d", "PoolMax2d")))
def _pool(op: Op, numerics: Numerics) -> IntReduction:
    """Windows of a pool; padding counts as zero, so only sums may include it."""
    (x,), out = _io(op)
    sizes, steps = (tuple(int(n) for n in op.args[name]) for name in ("filter_size", "stride"))
    pads: list[int] = []
    for n, m, k, s, (before, after) in zip(x.bound[1:-1], out.bound[1:-1], sizes, steps, op.args["pad_amount"],
                                           strict=True):  # fmt: skip
        pads += [int(before), max(int(after) if before else 0, (m - 1) * s + k - n - int(before), 0)]
    is_max = op.kind.endswith("PoolMax2d")
    if any(pads) and (is_max or len(sizes) != 2):
        raise IntRangeError("windows beyond the image")
    if x.q is None or out.q is None:
        raise IntRangeError("float operand")
    if is_max:
        return IntReduction(x, "max", _max_min(x, out), window=sizes, stride=steps)
    factors, zero = mean_factors(op), int(np.asarray(x.q.zero_point))
    padding = (pads[0], pads[1], pads[2], pads[3]) if len(sizes) == 2 else (0, 0, 0, 0)
    extras = () if factors.size == 1 else (_factor_bits(factors),)
    finish = _mean_sum(op, x, out, math.prod(sizes))
    return IntReduction(x, "sum", finish, (), True, sizes, steps, padding, zero, extras)


def _factor_bits(factors: Array) -> Value:
    """Float factors as an int32 constant."""
    bits = np.ascontiguousarray(factors).view(np.int32)
    return Value("factors", bits.dtype, bits.shape, tuple(range(bits.ndim)), bits)


@describes(*(PREFIX + name for name in ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin")))
def _reduction(op: Op, numerics: Numerics) -> IntReduction:
    (x,), out = _io(op)
    keepdims = bool(op.args["keep_dims"])
    axes = reduce_axes(x, op.args["axes"], keepdims, out)
    if op.kind.endswith(("Max", "Min")):
        return IntReduction(x, op.kind[-3:].lower(), _max_min(x, out), axes, keepdims)
    count = math.prod(x.bound[a] for a in axes)
    return IntReduction(x, "sum", _mean_sum(op, x, out, count), axes, keepdims)


def _max_min(x: Value, out: Value) -> ReduceEpilogue:
    return lambda i, total, extras: total if x.q == out.q else quantize(i, dequantize(i, total, x), out)


def _mean_sum(op: Op, x: Value, out: Value, count: int) -> ReduceEpilogue:
    """Multiply in float32, round half to even."""
    if x.q is None and out.q is None and op.kind.endswith("ReduceSum"):
        return lambda i, total, extras: total
    if x.q is None or out.q is None:
        raise IntRangeError("float operand")
    q, zero, subtract = out.q, int(np.asarray(out.q.zero_point)), int(np.asarray(x.q.zero_point)) * count

    def finish(i: RangedIntBuilder, total: RangedInt, extras: Args) -> RangedInt:
        f, floats = i.f, to_float32(i.f, i.narrow(i.plus(total, -subtract)).data)
        one = extras[0].data if extras else None
        factor = const(float(mean_factors(op).reshape(())), floats.type) if one is None else f.bitcast(one, floats.type)
        clamped = clamp(f, f.op("fmul", floats, factor), q.qmin - zero, q.qmax - zero)
        return RangedInt(f.add(round_to_int(f, clamped), zero), q.qmin, q.qmax)

    return finish
