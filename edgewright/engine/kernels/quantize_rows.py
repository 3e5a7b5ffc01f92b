"""Rows of reals made bytes by their own range: each row carries what its bytes stand for.

A row is its bytes, then at ``Rows.notes`` one over its scale, its zero point and its scale (see ``Numerics.choose``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Reg, const, lane_count, vec
from edgewright.engine.codegen.vector import (
    clamp,
    fast_max,
    fast_min,
    int_max,
    int_min,
    pack_four_to_uint8,
    round_to_int,
)
from edgewright.engine.kernels.row_reduce import for_each_overlapping, reduce_lanes

INVERSE, ZERO, SCALE = 0, 4, 8  # where they are in the notes
_VECTORS_AT_ONCE = 4  # vectors of a row at a time: as many hide each other's latency


@dataclass(frozen=True)
class QuantizedRows:
    """``length`` elements of a row; ``step`` bytes from a row of reals to the next. With ``columns``, every so many
    rows begin ``line`` bytes after the ones before, as the pixels of an image with a border do."""

    length: int
    step: int = 0
    columns: int = 0
    line: int = 0

    @property
    def notes(self) -> int:
        """Bytes from a row's start to its notes."""
        return -(-self.length // 16) * 16

    @property
    def pitch(self) -> int:
        """Bytes from a row to the next."""
        return self.notes + 16


def emit_quantize_rows(module: Module, name: str, lanes: int, rows: QuantizedRows) -> None:
    """Units are rows. Slots: reals, bytes. Bytes are kept 128 higher, as unsigned ones."""
    f = module.kernel(name)
    data, out = f.load_arg(PTR, 0), f.load_arg(PTR, 1)

    def row(y: Reg) -> None:
        source, target = f.gep(data, _offset(f, rows, y)), f.gep(out, f.mul(y, rows.pitch))
        scale, zero = _choose_qparams(f, *_min_max(f, lanes, rows.length, source))
        notes = f.gep(target, rows.notes)
        f.store(f.op("fdiv", const(1, "float"), scale), notes, INVERSE)
        f.store(zero, notes, ZERO)
        f.store(scale, notes, SCALE)

        _store(f, lanes, rows.length, source, target, scale, zero)

    f.for_range(f.arg("begin"), f.arg("end"), row)
    f.ret()


def _offset(f: Function, rows: QuantizedRows, y: Reg) -> Reg:
    """Bytes to row ``y`` of the reals."""
    if not rows.columns:
        return f.mul(y, rows.step)
    line = f.op("udiv", y, rows.columns)
    column = f.op("sub", y, f.mul(line, rows.columns))
    return f.op("add", f.mul(line, rows.line), f.mul(column, rows.step))


def _store(f: Function, lanes: int, length: int, source: Reg, target: Reg, scale: Reg, zero: Reg) -> None:
    """Bytes of a row: four vectors at a time, then those that are left."""

    def scaled(at: Reg, wide: int) -> Reg:
        x = f.load(vec(wide, "float"), f.gep(source, f.mul(at, 4)))
        return round_to_int(f, f.op("fmul", x, f.splat(scale, wide)))

    def store(at: Reg, like: Reg) -> None:
        moved = f.op("add", scaled(at, lane_count(like.type)), f.splat(zero, lane_count(like.type)))
        bounded = int_min(f, int_max(f, moved, const(0, moved.type)), const(255, moved.type))
        f.store(f.cast("trunc", bounded, vec(lane_count(like.type), "i8")), f.gep(target, at))

    def four(i: Reg, _: list[Reg]) -> list[Reg]:
        words = f.splat(f.cast("trunc", zero, "i16"), 2 * lanes)
        packed = pack_four_to_uint8(f, [scaled(f.add(i, k * lanes), lanes) for k in range(4)], words)
        fours = f.bitcast(packed, vec(lanes, "i32"))
        order = [part * 4 + k for k in range(4) for part in range(lanes // 4)]
        f.store(f.shuffle(fours, fours, order), f.gep(target, i))
        return []

    done = length // (4 * lanes) * 4 * lanes if lanes >= 8 else 0
    if done:
        f.loop(done, [], four, 4 * lanes)
    if done < length:
        source, target = f.gep(source, 4 * done), f.gep(target, done)
        for_each_overlapping(f, lanes, length - done, store)


def _min_max(f: Function, lanes: int, length: int, source: Reg) -> tuple[Reg, Reg]:
    """The least and the largest element, or 0: several vectors at a time."""
    lanes = next(n for n in (lanes, 8, 4, 1) if n <= min(lanes, length))
    vectors, rest = divmod(length, lanes)
    together = min(_VECTORS_AT_ONCE, vectors)
    kind = vec(lanes, "float")

    def take(places: list[Reg], now: list[Reg]) -> list[Reg]:
        read = [f.load(kind, f.gep(source, f.mul(p, 4))) for p in places]
        pairs = zip(now[::2], now[1::2], read, strict=False)
        made = [x for low, high, new in pairs for x in (fast_min(f, low, new), fast_max(f, high, new))]
        return [*made, *now[len(made) :]]

    def once(i: Reg, now: list[Reg]) -> list[Reg]:
        return take([f.add(i, k * lanes) for k in range(together)], now)

    rounds = vectors // together * together
    found = f.loop(rounds * lanes, [const(0, kind)] * (2 * together), once, together * lanes)
    left = [const(k * lanes, I64) for k in range(rounds, vectors)]
    if rest:  # the last vector covers some elements again, which changes nothing
        left.append(const(length - lanes, I64))
    for start in range(0, len(left), together):
        found = take(left[start : start + together], found)
    return tuple(_reduce(f, found[i::2], better) for i, better in enumerate((fast_min, fast_max)))  # type: ignore[return-value]


def _reduce(f: Function, found: list[Reg], better: Callable[[Function, Reg, Reg], Reg]) -> Reg:
    best = found[0]
    for other in found[1:]:
        best = better(f, best, other)
    return reduce_lanes(f, best, lambda a, b: better(f, a, b))


def _choose_qparams(f: Function, low: Reg, high: Reg) -> tuple[Reg, Reg]:
    """Steps per unit, and the byte that stands for 0."""
    flat = f.compare("oeq", low, high)
    one = const(1, "float")
    scale = f.op("fdiv", const(255, "float"), f.select(flat, one, f.op("fsub", high, low)))
    scale = f.select(flat, one, scale)
    below, above = f.op("fmul", low, scale), f.op("fmul", high, scale)
    sides = f.op("fadd", f.op("fadd", const(-128, "float"), below), f.op("fadd", const(127, "float"), above))
    first, second = f.op("fsub", const(-128, "float"), below), f.op("fsub", const(127, "float"), above)
    zero = f.select(f.compare("ogt", sides, const(0, "float")), first, second)
    return scale, f.add(round_to_int(f, clamp(f, zero, -128, 127)), 128)
