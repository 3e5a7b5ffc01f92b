"""Softmax and normalization of integer rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Reg, const, lane_count, vec
from edgewright.engine.codegen.requant import Affine, clamp_int, merge_even_odd, quantize_to_int32, split_even_odd
from edgewright.engine.codegen.vector import int_max, int_min, to_float32, widen_int8
from edgewright.engine.kernels.elementwise import LoopNest, emit_loop_nest
from edgewright.engine.kernels.norm_softmax import reduce_lanes, reduce_row
from edgewright.ir.fixed_point import NEWTON_START, NEWTON_STEPS, SUM_BITS
from edgewright.ir.int_rows import ATANH_SERIES, LN2, SQRT2

# --------------------------------------------------------------------------------------------------------- int8 softmax

# int8 softmax in fixed point: a table of exponentials and a Newton-Raphson reciprocal per row.

_LOW, _HIGH = -(1 << 31), (1 << 31) - 1
_OUTPUT_BITS = 8
RowBody = Callable[[Reg, int, Reg], Reg]


@dataclass(frozen=True)
class Int8SoftmaxSpec:
    """``loops`` iterate over rows of ``length`` bytes."""

    loops: LoopNest
    length: int


def emit_int8_softmax(module: Module, name: str, lanes: int, rows: Int8SoftmaxSpec) -> None:
    """Arguments: data, exponentials (256 of int32), their contributions to the sum, output."""
    f = module.kernel(name)
    data, powers, parts, out = (f.load_arg(PTR, i) for i in range(4))

    def row(now: list[Reg], at: Reg, _: int) -> None:
        source, target = (f.gep(p, f.mul(at, o.strides[-1])) for p, o in zip(now, rows.loops.operands, strict=True))

        def bytes_at(index: Reg, width: int) -> Reg:
            return widen_int8(f, f.load(vec(width, "i8"), f.gep(source, index)))

        largest = _reduce_row(f, lanes, rows.length, 0, lambda p, w, now: int_max(f, now, bytes_at(p, w)), _lane_max)

        def below(index: Reg, width: int) -> Reg:
            return f.op("sub", f.splat(largest, width), bytes_at(index, width))

        total = _reduce_row(f, lanes, rows.length, 0,
                        lambda p, w, now: f.add(now, gather_table(f, parts, below(p, w))), _lane_sum)  # fmt: skip
        inverse, bits = _reciprocal(f, total)

        def store(index: Reg, width: int, now: Reg) -> Reg:
            probabilities = _int8_probabilities(f, gather_table(f, powers, below(index, width)), inverse, bits)
            f.store(f.cast("trunc", probabilities, vec(width, "i8")), f.gep(target, index))
            return now

        _reduce_row(f, lanes, rows.length, 0, store, lambda f, x: const(0, "i32"))

    emit_loop_nest(f, 1, rows.loops, [data, out], row)


def _lane_max(f: Function, x: Reg) -> Reg:
    return reduce_lanes(f, x, lambda a, b: int_max(f, a, b))


def _lane_sum(f: Function, x: Reg) -> Reg:
    return reduce_lanes(f, x, lambda a, b: f.op("add", a, b))


def _reduce_row(
    f: Function, lanes: int, length: int, start: int, body: RowBody, join: Callable[[Function, Reg], Reg]
) -> Reg:
    """``body(index, width, value)`` over a row: vectors, reduced by ``join``, then the remaining elements."""
    vectorized = length // lanes * lanes
    value = const(start, "i32")
    if vectorized:
        wide = const(start, vec(lanes, "i32"))
        value = join(f, f.loop(vectorized, [wide], lambda i, now: [body(i, lanes, now[0])], lanes)[0])
    if length > vectorized:
        value = f.loop(length - vectorized, [value], lambda i, now: [body(f.add(i, vectorized), 1, now[0])])[0]
    return value


def gather_table(f: Function, table: Reg, at: Reg) -> Reg:
    """Gather int32 entries of a table."""
    lanes = lane_count(at.type)
    if lanes == 1:
        return f.load("i32", f.gep(table, f.mul(f.cast("zext", at, I64), 4)))
    where = f.emit(f"<{lanes} x ptr>", f"getelementptr i32, ptr {table}, {at.type} {at}")
    every, none = Reg("splat (i1 true)", f"<{lanes} x i1>"), Reg("zeroinitializer", at.type)
    return f.call(f"llvm.masked.gather.v{lanes}i32.v{lanes}p0", at.type, where, Reg("4", "i32"), every, none)


def _doubling_high_mul(f: Function, a: Reg, b: Reg | int) -> Reg:
    """gemmlowp's SaturatingRoundingDoublingHighMul on 64-bit lanes: (2ab + 2**31) >> 32, ties up."""
    return f.op("ashr", f.add(f.op("mul", a, b), 1 << 30), 31)


def _reciprocal(f: Function, total: Reg) -> tuple[Reg, Reg]:
    """The reciprocal of a row's sum, and the right shift of its products: as in ``ir/fixed_point.py``.

    The sum is normalized by its leading zeros to [1/2, 1), then ROUNDS Newton-Raphson iterations x += x * (1 - d * x)
    refine a linear first guess.
    """
    f.module.declare("declare i32 @llvm.ctlz.i32(i32, i1)")
    leading_zeros = f.cast("zext", f.emit("i32", f"call i32 @llvm.ctlz.i32(i32 {total}, i1 true)"), I64)
    scaled = f.op("shl", f.cast("zext", total, I64), leading_zeros)
    half = f.op("ashr", scaled, 1)  # the sum less 2**31, plus 2**31
    x = f.add(_doubling_high_mul(f, half, NEWTON_START[1]), NEWTON_START[0])
    for _ in range(NEWTON_STEPS):
        missing = f.op("sub", const(1 << 29, I64), _doubling_high_mul(f, half, x))
        x = f.op("add", x, clamp_int(f, f.op("shl", _doubling_high_mul(f, x, missing), 2), _LOW, _HIGH))
    result = clamp_int(f, f.op("shl", x, 1), _LOW, _HIGH)
    return result, f.op("sub", const(SUM_BITS + 31 - _OUTPUT_BITS, I64), leading_zeros)


def _int8_probabilities(f: Function, power: Reg, inverse: Reg, bits: Reg) -> Reg:
    """Exponentials times the reciprocal, in units of 1/256, at most 255."""
    parts = []
    for part in split_even_odd(f, power):
        lanes = lane_count(part.type)
        share = _doubling_high_mul(f, part, f.splat(inverse, lanes))
        half = f.op("shl", const(1, I64), f.add(bits, -1))
        parts.append(f.op("ashr", f.op("add", share, f.splat(half, lanes)), f.splat(bits, lanes)))
    merged = merge_even_odd(f, parts)
    return int_min(f, merged, const(255, merged.type))


# ------------------------------------------------------------------------------------------------------------- int rows

# Softmax and normalization of integer rows: exact integer sums, then the float operations of ``ir/int_rows.py`` in
# the same order, so that results match the reference bit by bit.

_ONE = 1023 << 52  # the bits of 1.0 in float64


@dataclass(frozen=True)
class QuantizedStorage:
    """The storage of a quantized tensor: ``moved`` is the offset the engine adds (128 for int8)."""

    bits: int
    signed: bool
    moved: int
    affine: Affine  # without the storage offset
    low: int
    high: int

    def load(self, f: Function, pointer: Reg, width: int) -> Reg:
        """Load as int32, with the storage offset."""
        stored = f.load(vec(width, f"i{self.bits}"), pointer)
        return f.cast("sext" if self.signed and not self.moved else "zext", stored, vec(width, "i32"))

    def store(self, f: Function, real: Reg, pointer: Reg) -> None:
        integers = f.add(quantize_to_int32(f, real, self.affine, self.low, self.high), self.moved)
        f.store(f.cast("trunc", integers, vec(lane_count(real.type), f"i{self.bits}")), pointer)


@dataclass(frozen=True)
class IntSoftmaxSpec:
    """``loops`` iterate over rows. ``log_unit``: for log-softmax, the logarithm of the table entry that is 1."""

    loops: LoopNest
    length: int
    in_storage: QuantizedStorage
    out_storage: QuantizedStorage
    log_unit: float | None = None


def emit_int_softmax(module: Module, name: str, lanes: int, rows: IntSoftmaxSpec) -> None:
    """Arguments: data, output, table of int32 exponentials."""
    f = module.kernel(name)
    data, out, table = (f.load_arg(PTR, i) for i in range(3))
    in_storage, out_storage = rows.in_storage, rows.out_storage

    def row(now: list[Reg], index: Reg, _: int) -> None:
        source, target = _row_pointers(f, rows.loops, now, index)

        def at(index: Reg, like: Reg) -> Reg:
            return in_storage.load(f, f.gep(source, f.mul(index, in_storage.bits // 8)), lane_count(like.type))

        largest = reduce_row(
            f,
            lanes,
            rows.length,
            const(-(1 << 31), "i32"),
            lambda i, now: int_max(f, now, at(i, now)),
            lambda f, x: reduce_lanes(f, x, lambda a, b: int_max(f, a, b)),
        )

        def below(index: Reg, like: Reg) -> Reg:
            return f.op("sub", f.splat(largest, lane_count(like.type)), at(index, like))

        total = reduce_row(f, lanes, rows.length, const(0, "i32"),
                     lambda i, now: f.add(now, gather_table(f, table, below(i, now))), _lane_sum)  # fmt: skip
        finish = _probabilities(f, table, total) if rows.log_unit is None else _log_probabilities(f, rows, total)
        _for_each(f, lanes, rows.length, lambda i, like: out_storage.store(
            f, finish(below(i, like)), f.gep(target, f.mul(i, out_storage.bits // 8))))  # fmt: skip

    emit_loop_nest(f, 1, rows.loops, [data, out], row)


def _row_pointers(f: Function, loops: LoopNest, now: list[Reg], index: Reg) -> list[Reg]:
    return [f.gep(p, f.mul(index, o.strides[-1])) for p, o in zip(now, loops.operands, strict=True)]


def _for_each(f: Function, lanes: int, length: int, body: Callable[[Reg, Reg], None]) -> None:
    def step(at: Reg, now: Reg) -> Reg:
        body(at, now)
        return now

    reduce_row(f, lanes, length, const(0, "i32"), step, lambda f, x: const(0, "i32"))


def _probabilities(f: Function, table: Reg, total: Reg) -> Callable[[Reg], Reg]:
    integers = to_float32(f, total)
    return lambda below: f.op(
        "fdiv", to_float32(f, gather_table(f, table, below)), f.splat(integers, lane_count(below.type))
    )


def _log_probabilities(f: Function, rows: IntSoftmaxSpec, total: Reg) -> Callable[[Reg], Reg]:
    assert rows.log_unit is not None
    log = f.op("fsub", _log(f, total), const(rows.log_unit, "double"))

    def log_probability(below: Reg) -> Reg:
        wide = f.cast("sitofp", below, vec(lane_count(below.type), "double"))
        distance = f.op(
            "fadd",
            f.op("fmul", wide, const(rows.in_storage.affine.scale, wide.type)),
            f.splat(log, lane_count(below.type)),
        )
        result = f.emit(distance.type, f"fneg {distance.type} {distance}")
        return f.cast("fptrunc", result, vec(lane_count(below.type), "float"))

    return log_probability


def _log(f: Function, x: Reg) -> Reg:
    """The float64 logarithm of a positive integer: n ln 2 + 2 atanh((m-1)/(m+1))."""
    bits = f.bitcast(f.cast("sitofp", x, "double"), I64)
    power = f.add(f.op("lshr", bits, 52), -1023)
    rest = f.bitcast(f.op("or", f.op("and", bits, (1 << 52) - 1), _ONE), "double")
    above = f.compare("ogt", rest, const(SQRT2, "double"))
    rest = f.select(above, f.op("fmul", rest, const(0.5, "double")), rest)
    power = f.op("add", power, f.cast("zext", above, I64))
    one = const(1.0, "double")
    part = f.op("fdiv", f.op("fsub", rest, one), f.op("fadd", rest, one))
    square, total = f.op("fmul", part, part), const(ATANH_SERIES[0], "double")
    for term in ATANH_SERIES[1:]:
        total = f.op("fadd", f.op("fmul", total, square), const(term, "double"))
    twice = f.op("fmul", part, const(2.0, "double"))
    first = f.op("fmul", f.cast("sitofp", power, "double"), const(LN2, "double"))
    return f.op("fadd", first, f.op("fmul", twice, total))


# ------------------------------------------------------------------------------------------------------------- norms


@dataclass(frozen=True)
class IntNormSpec:
    """With ``loops``, rows are strided and each element has its own weight. Without, rows are contiguous,
    ``channel_size`` elements share a weight, and rows cycle through ``groups`` lists of weights."""

    loops: LoopNest | None
    length: int
    in_storage: QuantizedStorage
    out_storage: QuantizedStorage
    epsilon: float
    center: bool
    bias: bool
    channel_size: int = 1
    groups: int = 1


def emit_int_norm(module: Module, name: str, lanes: int, norm: IntNormSpec) -> None:
    """Arguments: data, output, weight and bias in float32."""
    f = module.kernel(name)
    data, out, weights, biases = (f.load_arg(PTR, i) for i in range(4))
    items = [s.bits // 8 for s in (norm.in_storage, norm.out_storage)]

    def normalize(source: Reg, target: Reg, first: Reg | None) -> None:
        def centered(element: Reg, width: int) -> Reg:
            raw = norm.in_storage.load(f, f.gep(source, f.mul(element, items[0])), width)
            return f.add(raw, -norm.in_storage.affine.zero - norm.in_storage.moved)

        moments = _moments(f, lanes, norm, centered)
        if first is not None:
            _by_channel(f, lanes, norm, (weights, biases), first, centered, target, moments)
            return

        def store(i: Reg, like: Reg) -> None:
            pointers = [f.gep(p, f.mul(i, 4)) for p in (weights, biases)]
            factors = [f.load(vec(lane_count(like.type), "float"), p) for p in pointers]
            real = _normalize(f, centered(i, lane_count(like.type)), *moments, factors, norm.bias)
            norm.out_storage.store(f, real, f.gep(target, f.mul(i, items[1])))

        _for_each(f, lanes, norm.length, store)

    def row(index: Reg) -> None:
        first = f.mul(f.op("urem", index, norm.groups), norm.length // norm.channel_size)
        source, target = (f.gep(p, f.mul(index, norm.length * n)) for p, n in zip((data, out), items, strict=True))
        normalize(source, target, first)

    if norm.loops is not None:
        loops = norm.loops

        def normalize_row(now: list[Reg], at: Reg, _: int) -> None:
            source, target = _row_pointers(f, loops, now, at)
            normalize(source, target, None)

        emit_loop_nest(f, 1, loops, [data, out], normalize_row)
        return
    f.for_range(f.arg("begin"), f.arg("end"), row)
    f.ret()


def _moments(f: Function, lanes: int, norm: IntNormSpec, centered: Callable[[Reg, int], Reg]) -> tuple[Reg, Reg]:
    """The mean, and scale / standard deviation, as float32."""

    def wide(index: Reg, like: Reg) -> Reg:
        return f.cast("sext", centered(index, lane_count(like.type)), like.type)

    def add_square(index: Reg, now: Reg) -> Reg:
        x = wide(index, now)
        return f.op("add", now, f.op("mul", x, x))

    zero, count, half = const(0, I64), norm.length, lanes // 2 or 1
    total = (
        reduce_row(f, half, count, zero, lambda i, now: f.op("add", now, wide(i, now)), _lane_sum)
        if norm.center
        else zero
    )
    squares = reduce_row(f, half, count, zero, add_square, _lane_sum)
    numerator = f.op("sub", f.mul(squares, count), f.op("mul", total, total))
    variance = f.op("fdiv", f.cast("sitofp", numerator, "double"), const(float(count * count), "double"))
    scale = norm.in_storage.affine.scale
    biased = f.op("fadd", f.op("fmul", variance, const(scale * scale, "double")), const(norm.epsilon, "double"))
    root = f.call("llvm.sqrt.f64", "double", biased)
    factor = f.op("fdiv", const(scale, "double"), root)
    mean = f.op("fdiv", f.cast("sitofp", total, "double"), const(float(count), "double"))
    short = [f.cast("fptrunc", x, "float") for x in (mean, factor)]
    return short[0], short[1]


def _normalize(f: Function, x: Reg, mean: Reg, factor: Reg, factors: list[Reg], bias: bool) -> Reg:
    lanes = lane_count(x.type)
    real = f.op("fmul", f.op("fsub", to_float32(f, x), f.splat(mean, lanes)), f.splat(factor, lanes))
    real = f.op("fmul", real, factors[0])
    return f.op("fadd", real, factors[1]) if bias else real


def _by_channel(f: Function, lanes: int, norm: IntNormSpec, tables: tuple[Reg, Reg], first: Reg,
                centered: Callable[[Reg, int], Reg], target: Reg, moments: tuple[Reg, Reg]) -> None:  # fmt: skip
    """Normalize channel by channel of a group, each with one weight."""
    item = norm.out_storage.bits // 8

    def channel(c: Reg, _: list[Reg]) -> list[Reg]:
        at = f.mul(f.op("add", first, c), 4)
        numbers, begin = [f.load("float", f.gep(t, at)) for t in tables], f.mul(c, norm.channel_size)

        def store(i: Reg, like: Reg) -> None:
            index, width = f.op("add", begin, i), lane_count(like.type)
            factors = [f.splat(n, width) for n in numbers]
            real = _normalize(f, centered(index, width), *moments, factors, norm.bias)
            norm.out_storage.store(f, real, f.gep(target, f.mul(index, item)))

        _for_each(f, lanes, norm.channel_size, store)
        return []

    f.loop(norm.length // norm.channel_size, [], channel)
