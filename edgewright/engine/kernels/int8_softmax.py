"""int8 softmax in fixed point: a table of exponentials and a Newton-Raphson reciprocal per row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Reg, const, lane_count, vec
from edgewright.engine.codegen.fixed_point import clamp_int, merge_even_odd, split_even_odd
from edgewright.engine.codegen.vector import int_max, int_min, widen_int8
from edgewright.engine.kernels.elementwise import LoopNest, emit_loop_nest
from edgewright.engine.kernels.row_reduce import reduce_lanes
from edgewright.ir.fixed_point import NEWTON_START, NEWTON_STEPS, SUM_BITS

_LOW, _HIGH = -(1 << 31), (1 << 31) - 1
_OUTPUT_BITS = 8
RowBody = Callable[[Reg, int, Reg], Reg]


@dataclass(frozen=True)
class Int8SoftmaxSpec:
    """``loops`` iterate over rows of ``length`` bytes."""

    loops: LoopNest
    length: int


def emit_softmax(module: Module, name: str, lanes: int, rows: Int8SoftmaxSpec) -> None:
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
            probabilities = _probabilities(f, gather_table(f, powers, below(index, width)), inverse, bits)
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


def _probabilities(f: Function, power: Reg, inverse: Reg, bits: Reg) -> Reg:
    """Exponentials times the reciprocal, in units of 1/256, at most 255."""
    parts = []
    for part in split_even_odd(f, power):
        lanes = lane_count(part.type)
        share = _doubling_high_mul(f, part, f.splat(inverse, lanes))
        half = f.op("shl", const(1, I64), f.add(bits, -1))
        parts.append(f.op("ashr", f.op("add", share, f.splat(half, lanes)), f.splat(bits, lanes)))
    merged = merge_even_odd(f, parts)
    return int_min(f, merged, const(255, merged.type))
