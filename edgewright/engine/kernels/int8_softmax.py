"""TFLite's softmax of bytes, in fixed point: tables of exponentials, and an inverse for each row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Reg, const, lane_count, vec
from edgewright.engine.codegen.fixed_point import clamp_int, merge_even_odd, split_even_odd
from edgewright.engine.codegen.vector import int_max, int_min, widen_int8
from edgewright.engine.kernels.elementwise import LoopNest, emit_loop_nest
from edgewright.engine.kernels.row_reduce import reduce_lanes
from edgewright.ir.tflite.fixed_point_math import FIRST, ROUNDS, SUM_BITS

_LOW, _HIGH = -(1 << 31), (1 << 31) - 1
_OUTPUT_BITS = 8  # bits of a result
RowBody = Callable[[Reg, int, Reg], Reg]


@dataclass(frozen=True)
class Int8SoftmaxSpec:
    """``loops`` are over rows, each of ``length`` bytes."""

    loops: LoopNest
    length: int


def emit_softmax(module: Module, name: str, lanes: int, rows: Int8SoftmaxSpec) -> None:
    """Slots: data, exponentials (256 of 32 bits), what each adds to a sum, output."""
    f = module.kernel(name)
    data, powers, parts, out = (f.load_arg(PTR, i) for i in range(4))

    def row(now: list[Reg], at: Reg, _: int) -> None:
        source, target = (f.gep(p, f.mul(at, o.strides[-1])) for p, o in zip(now, rows.loops.operands, strict=True))

        def bytes_at(place: Reg, width: int) -> Reg:
            return widen_int8(f, f.load(vec(width, "i8"), f.gep(source, place)))

        largest = _reduce_row(f, lanes, rows.length, 0, lambda p, w, now: int_max(f, now, bytes_at(p, w)), _lane_max)

        def below(place: Reg, width: int) -> Reg:
            return f.op("sub", f.splat(largest, width), bytes_at(place, width))

        total = _reduce_row(f, lanes, rows.length, 0,
                        lambda p, w, now: f.add(now, gather_table(f, parts, below(p, w))), _lane_sum)  # fmt: skip
        inverse, bits = _reciprocal(f, total)

        def store(place: Reg, width: int, now: Reg) -> Reg:
            made = _probabilities(f, gather_table(f, powers, below(place, width)), inverse, bits)
            f.store(f.cast("trunc", made, vec(width, "i8")), f.gep(target, place))
            return now

        _reduce_row(f, lanes, rows.length, 0, store, lambda f, x: const(0, "i32"))

    emit_loop_nest(f, 1, rows.loops, [data, out], row)


def _lane_max(f: Function, x: Reg) -> Reg:
    return reduce_lanes(f, x, lambda a, b: int_max(f, a, b))


def _lane_sum(f: Function, x: Reg) -> Reg:
    return reduce_lanes(f, x, lambda a, b: f.op("add", a, b))


def _reduce_row(
    f: Function, lanes: int, length: int, start: int, each: RowBody, join: Callable[[Function, Reg], Reg]
) -> Reg:
    """``each(place, width, value)`` along a row: vectors, made one number by ``join``, then what is left one by one."""
    whole = length // lanes * lanes
    value = const(start, "i32")
    if whole:
        wide = const(start, vec(lanes, "i32"))
        value = join(f, f.loop(whole, [wide], lambda i, now: [each(i, lanes, now[0])], lanes)[0])
    if length > whole:
        value = f.loop(length - whole, [value], lambda i, now: [each(f.add(i, whole), 1, now[0])])[0]
    return value


def gather_table(f: Function, table: Reg, at: Reg) -> Reg:
    """Words of 32 bits of a table."""
    lanes = lane_count(at.type)
    if lanes == 1:
        return f.load("i32", f.gep(table, f.mul(f.cast("zext", at, I64), 4)))
    where = f.emit(f"<{lanes} x ptr>", f"getelementptr i32, ptr {table}, {at.type} {at}")
    every, none = Reg("splat (i1 true)", f"<{lanes} x i1>"), Reg("zeroinitializer", at.type)
    return f.call(f"llvm.masked.gather.v{lanes}i32.v{lanes}p0", at.type, where, Reg("4", "i32"), every, none)


def _doubling_high_mul(f: Function, a: Reg, b: Reg | int) -> Reg:
    """The upper half of twice a product, of 64 bits each; halves go up."""
    return f.op("ashr", f.add(f.op("mul", a, b), 1 << 30), 31)


def _reciprocal(f: Function, total: Reg) -> tuple[Reg, Reg]:
    """One over a row's sum, and how far its products are shifted: as ``ir/tflite/fixed_point_math.py`` has it."""
    f.module.declare("declare i32 @llvm.ctlz.i32(i32, i1)")
    room = f.cast("zext", f.emit("i32", f"call i32 @llvm.ctlz.i32(i32 {total}, i1 true)"), I64)
    scaled = f.op("shl", f.cast("zext", total, I64), room)
    half = f.op("ashr", scaled, 1)  # the sum less 2**31, plus 2**31
    x = f.add(_doubling_high_mul(f, half, FIRST[1]), FIRST[0])
    for _ in range(ROUNDS):
        missing = f.op("sub", const(1 << 29, I64), _doubling_high_mul(f, half, x))
        x = f.op("add", x, clamp_int(f, f.op("shl", _doubling_high_mul(f, x, missing), 2), _LOW, _HIGH))
    made = clamp_int(f, f.op("shl", x, 1), _LOW, _HIGH)
    return made, f.op("sub", const(SUM_BITS + 31 - _OUTPUT_BITS, I64), room)


def _probabilities(f: Function, power: Reg, inverse: Reg, bits: Reg) -> Reg:
    """Products of exponentials and the inverse, in steps of 1/256, at most 255 of them."""
    made = []
    for part in split_even_odd(f, power):
        lanes = lane_count(part.type)
        share = _doubling_high_mul(f, part, f.splat(inverse, lanes))
        half = f.op("shl", const(1, I64), f.add(bits, -1))
        made.append(f.op("ashr", f.op("add", share, f.splat(half, lanes)), f.splat(bits, lanes)))
    whole = merge_even_odd(f, made)
    return int_min(f, whole, const(255, whole.type))
