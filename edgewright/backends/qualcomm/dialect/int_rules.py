"""QNN's integer operators that core operators do not express: dequantize to float32, compute, and quantize.

QNN rounds add, sub and mul half up and everything else half to even; int16 sums use fixed point where QNN does
(``backends/qualcomm/dialect/int16.py``). Unquantized integers and bools use plain integer arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from edgewright.backends.qualcomm.dialect.dtypes import clamp_limits, int16_clamp_params
from edgewright.backends.qualcomm.dialect.elementwise import BINARY, UNARY, inverse_scale, is_fixed_point
from edgewright.backends.qualcomm.dialect.int16 import int16_rescale_params, int16_sum_params
from edgewright.backends.qualcomm.dialect.reduce import mean_factors
from edgewright.backends.qualcomm.dialect.shapes import OTHER_UNARY
from edgewright.backends.qualcomm.dialect.table import PREFIX
from edgewright.ir.graph import Array, Op, QParams, Value
from edgewright.ir.int_arithmetic import Float, IntArithmetic, IntRangeError, RangedInt
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

FloatFunction = Callable[[IntArithmetic, Op, list[Float]], Float]
_ARITHMETIC = {"Add": "add", "Subtract": "sub", "Multiply": "mul", "Divide": "div"}
_ROUND_HALF_UP = ("Add", "Subtract", "Multiply")
_COMPARISONS = {
    "Equal": "eq", "NotEqual": "ne", "Greater": "gt", "GreaterEqual": "ge", "Less": "lt", "LessEqual": "le",
}  # fmt: skip
_BITS = ("And", "Or", "Xor")


def _io(op: Op) -> tuple[list[Value], Value]:
    out = op.outputs[0]
    assert out is not None
    return op.args["inputs"], out


def _q(value: Value) -> QParams:
    if value.q is None or value.q.axis is not None or value.q.dtype.itemsize > 2:
        raise IntRangeError("not quantized with one scale")
    return value.q


def dequantize(i: IntArithmetic, x: RangedInt, value: Value) -> Float:
    """The float32 value of an integer."""
    q = value.q
    if q is None or q.axis is not None or (q.dtype.itemsize > 2 and np.any(np.asarray(q.zero_point))):
        raise IntRangeError("not quantized with one scale")
    return i.float_op("mul", i.to_float(i.plus(x, -int(np.asarray(q.zero_point)))), np.float32(np.asarray(q.scale)))


def quantize(i: IntArithmetic, x: Float, out: Value, up: bool = False) -> RangedInt:
    """A float32 value as an integer of ``out``, rounded half to even or half up; NaN becomes 0."""
    q = _q(out)
    zero = int(np.asarray(q.zero_point))
    scaled = i.float_op("mul", x, inverse_scale(out))
    scaled = i.float_select("ord", scaled, scaled, scaled, -zero)
    if up:
        scaled = i.float_function("floor", i.float_op("add", scaled, 0.5))
    low, high = q.qmin - zero, q.qmax - zero
    return i.plus(i.to_int(i.float_clamp(scaled, low, high), low, high), zero)


def _register(names: tuple[str, ...], function: FloatFunction, up: bool = False) -> None:
    @elementwise_rule(*(PREFIX + name for name in names))
    def rule(i: IntArithmetic, op: Op, args: Args) -> RangedInt:
        values, out = _io(op)
        floats = [dequantize(i, x, v) for x, v in zip(args, values, strict=True)]
        return quantize(i, function(i, op, floats), out, up)


def _float_binary(i: IntArithmetic, op: Op, floats: list[Float]) -> Float:
    return i.float_op(_ARITHMETIC[op.kind.partition("ElementWise")[2]], *floats)


@elementwise_rule(*(f"{PREFIX}ElementWise{name}" for name in _ROUND_HALF_UP))
def _arithmetic(i: IntArithmetic, op: Op, args: Args) -> RangedInt:
    values, out = _io(op)
    if all(v.q is None for v in (*values, out)):
        return _plain_arithmetic(i, op, args)
    if is_fixed_point(op):
        raise IntRangeError("int8 sums have their own rule")
    int16_sum = int16_sum_params(op)
    if int16_sum is not None:
        return int16_sum.apply(i, *args)
    floats = [dequantize(i, x, v) for x, v in zip(args, values, strict=True)]
    return quantize(i, _float_binary(i, op, floats), out, up=True)


def _plain_arithmetic(i: IntArithmetic, op: Op, args: Args) -> RangedInt:
    """Arithmetic on unquantized integers, wrapping in the result's type."""
    name, out = op.kind.partition("ElementWise")[2], _io(op)[1]
    return _wrap(i, {"Add": i.add, "Subtract": i.sub, "Multiply": i.mul}[name](*args), out)


def _wrap(i: IntArithmetic, result: RangedInt, out: Value) -> RangedInt:
    low, high = dtype_range(out)
    if result.low >= low and result.high <= high:
        return i.narrow(result) if out.dtype != np.dtype(np.int64) else result
    if out.dtype != np.dtype(np.int32):
        raise IntRangeError("not a 32-bit result")
    return i.wrap(result, 32)


def _float_select(predicate: str) -> FloatFunction:
    """Select the larger or smaller float."""
    return lambda i, op, floats: i.float_select(predicate, *floats, *floats)


def _register_min_max(name: str, predicate: str) -> None:
    @elementwise_rule(f"{PREFIX}ElementWise{name}")
    def rule(i: IntArithmetic, op: Op, args: Args) -> RangedInt:
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
    def rule(i: IntArithmetic, op: Op, args: Args) -> RangedInt:
        values = op.args["inputs"]
        if all(v.q is None for v in values):
            return i.compare(predicate if predicate in ("eq", "ne") else f"s{predicate}", *args)
        floats = [dequantize(i, x, v) for x, v in zip(args, values, strict=True)]
        return i.float_compare("une" if predicate == "ne" else f"o{predicate}", *floats)


for _name, _how in _COMPARISONS.items():
    _register_comparison(_name, _how)


def _as_bool(i: IntArithmetic, x: RangedInt, value: Value) -> RangedInt:
    if value.q is not None:
        raise IntRangeError("bool of a quantized tensor")
    return x if value.dtype == np.dtype(bool) else i.compare("ne", x, i.constant(0))


@elementwise_rule(*(f"{PREFIX}ElementWise{name}" for name in _BITS))
def _logic(i: IntArithmetic, op: Op, args: Args) -> RangedInt:
    a, b = (_as_bool(i, x, v) for x, v in zip(args, op.args["inputs"], strict=True))
    return i.bitwise(op.kind.partition("ElementWise")[2].lower(), a, b)


@elementwise_rule(f"{PREFIX}ElementWiseNot")
def _not(i: IntArithmetic, op: Op, args: Args) -> RangedInt:
    return i.sub(i.constant(1), _as_bool(i, args[0], op.args["inputs"][0]))


@elementwise_rule(f"{PREFIX}ElementWiseSelect")
def _select(i: IntArithmetic, op: Op, args: Args) -> RangedInt:
    values, out = _io(op)
    condition = _as_bool(i, args[0], values[0])
    if all(v.q is None for v in (*values, out)) or all(v.q == out.q for v in values[1:]):
        return i.select(condition, args[1], args[2])
    floats = [dequantize(i, x, v) for x, v in zip(args[1:], values[1:], strict=True)]
    return quantize(i, i.float_choose(condition, *floats), out)


# ------------------------------------------------------------------------------------------------------------ unary


def _prelu(i: IntArithmetic, op: Op, floats: list[Float]) -> Float:
    return i.float_select("olt", floats[0], 0, i.float_op("mul", *floats), floats[0])


def _affine(i: IntArithmetic, op: Op, floats: list[Float]) -> Float:
    """Multiply by the first constant, add the second."""
    product = i.float_op("mul", *floats[:2])
    return i.float_op("add", product, floats[2]) if len(floats) > 2 else product


_register(("Batchnorm",), _affine)


@elementwise_rule(f"{PREFIX}Relu")
def _relu(i: IntArithmetic, op: Op, args: Args) -> RangedInt:
    if op.args["inputs"][0].q is None:
        return i.largest(args[0], i.constant(0))
    return _clamp_quantized(i, op, args[0])


@elementwise_rule(f"{PREFIX}Relu6")
def _relu6(i: IntArithmetic, op: Op, args: Args) -> RangedInt:
    return _clamp_quantized(i, op, args[0])


def _clamp_quantized(i: IntArithmetic, op: Op, x: RangedInt) -> RangedInt:
    values, out = _io(op)
    int16_params = int16_clamp_params(op)
    if int16_params is not None:
        return i.clamp(int16_params[0].apply(i, x), *int16_params[1:])
    low, high = map(float, clamp_limits(op))
    low = min(low, high)  # the upper limit wins if they are not ordered
    return quantize(i, i.float_clamp(dequantize(i, x, values[0]), low, high), out)


@elementwise_rule(f"{PREFIX}ReluMinMax")
def _relu_min_max(i: IntArithmetic, op: Op, args: Args) -> RangedInt:
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
    _register((f"ElementWise{_name}",), lambda i, op, floats, name=_function: i.float_function(name, floats[0]))  # type: ignore[misc]


@elementwise_rule(f"{PREFIX}Convert", f"{PREFIX}Cast")
def _convert(i: IntArithmetic, op: Op, args: Args) -> RangedInt:
    (x,), out = _io(op)
    if x.q is None and out.q is None:
        if out.dtype == np.dtype(bool):
            return i.compare("ne", args[0], i.constant(0))
        low, high = dtype_range(out)
        if args[0].low < low or args[0].high > high:
            if out.dtype != np.dtype(np.int32):
                raise IntRangeError("result does not fit its type")
            return i.wrap(args[0], 32)
        return args[0]
    if op.kind == f"{PREFIX}Convert" or x.q == out.q:
        return _requantize(i, args[0], x, out)
    return quantize(i, dequantize(i, args[0], x), out)


def _requantize(i: IntArithmetic, stored: RangedInt, x: Value, out: Value) -> RangedInt:
    """Stored integers in the scale of ``out``; equal encodings keep them."""
    if x.q == out.q:
        return stored
    int16 = int16_rescale_params(x, out)
    return quantize(i, dequantize(i, stored, x), out) if int16 is None else int16.apply(i, stored)


@elementwise_rule(f"{PREFIX}ElementWiseAbs")
def _abs(i: IntArithmetic, op: Op, args: Args) -> RangedInt:
    (x,), out = _io(op)
    if x.q is not None:
        return quantize(i, i.float_function("abs", dequantize(i, args[0], x)), out)
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
    if is_max:
        dtype_range(x)  # raises if it is a float
        return IntReduction(x, "max", _max_min(x, out), window=sizes, stride=steps)
    if x.q is None or out.q is None:
        raise IntRangeError("float operand")
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
    for value in (x, out):
        dtype_range(value)  # raises if they are floats
    axes = reduce_axes(x, op.args["axes"], keepdims, out)
    if op.kind.endswith(("Max", "Min")):
        return IntReduction(x, op.kind[-3:].lower(), _max_min(x, out), axes, keepdims)
    count = math.prod(x.bound[a] for a in axes)
    return IntReduction(x, "sum", _mean_sum(op, x, out, count), axes, keepdims)


def _max_min(x: Value, out: Value) -> ReduceEpilogue | None:
    return None if x.q == out.q else lambda i, total, extras: _requantize(i, total, x, out)


def _mean_sum(op: Op, x: Value, out: Value, count: int) -> ReduceEpilogue | None:
    """Multiply in float32, round half to even."""
    if x.q is None and out.q is None and op.kind.endswith("ReduceSum"):
        return None
    if x.q is None or out.q is None:
        raise IntRangeError("float operand")
    zero, subtract = int(np.asarray(out.q.zero_point)), int(np.asarray(x.q.zero_point)) * count
    low, high = out.q.qmin - zero, out.q.qmax - zero

    def finish(i: IntArithmetic, total: RangedInt, extras: Args) -> RangedInt:
        floats = i.to_float(i.narrow(i.plus(total, -subtract)))
        factor = i.float_bits(extras[0]) if extras else mean_factors(op).reshape(())
        scaled = i.float_clamp(i.float_op("mul", floats, factor), low, high)
        return i.plus(i.to_int(scaled, low, high), zero)

    return finish
