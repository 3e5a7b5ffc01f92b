"""Dynamic quantization of activations to int8, one scale and zero point per row.

A quantized row is its bytes, followed at ``QuantizedRows.notes`` by inverse scale, zero point and scale (see
``Numerics.choose``).
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

INVERSE, ZERO, SCALE = 0, 4, 8  # byte offsets of a row's parameters
_VECTORS_AT_ONCE = 4  # independent reductions, to hide latency


@dataclass(frozen=True)
class QuantizedRows:
    """Rows of ``length`` elements, ``step`` bytes apart in the float32 input. With ``columns``, every ``columns`` rows
    are ``line`` bytes apart, like the pixels of a padded image."""

    length: int
    step: int = 0
    columns: int = 0
    line: int = 0

    @property
    def notes(self) -> int:
        """Offset of a row's parameters in bytes."""
        return -(-self.length // 16) * 16

    @property
    def pitch(self) -> int:
        """Stride between quantized rows in bytes."""
        return self.notes + 16


def emit_quantize_rows(module: Module, name: str, lanes: int, rows: QuantizedRows) -> None:
    """Work units are rows. Arguments: float32 input, quantized output, which is uint8 with an offset of 128."""
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
    """Byte offset of row ``y`` of the input."""
    if not rows.columns:
        return f.mul(y, rows.step)
    line = f.op("udiv", y, rows.columns)
    column = f.op("sub", y, f.mul(line, rows.columns))
    return f.op("add", f.mul(line, rows.line), f.mul(column, rows.step))


def _store(f: Function, lanes: int, length: int, source: Reg, target: Reg, scale: Reg, zero: Reg) -> None:
    """Quantize a row: four vectors at a time, then the remainder."""

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
    """Minimum and maximum of a row and 0, several vectors at a time."""
    lanes = next(n for n in (lanes, 8, 4, 1) if n <= min(lanes, length))
    vectors, rest = divmod(length, lanes)
    at_once = min(_VECTORS_AT_ONCE, vectors)
    kind = vec(lanes, "float")

    def update(indices: list[Reg], now: list[Reg]) -> list[Reg]:
        loaded = [f.load(kind, f.gep(source, f.mul(p, 4))) for p in indices]
        pairs = zip(now[::2], now[1::2], loaded, strict=False)
        updated = [x for low, high, new in pairs for x in (fast_min(f, low, new), fast_max(f, high, new))]
        return [*updated, *now[len(updated) :]]

    def once(i: Reg, now: list[Reg]) -> list[Reg]:
        return update([f.add(i, k * lanes) for k in range(at_once)], now)

    rounds = vectors // at_once * at_once
    extremes = f.loop(rounds * lanes, [const(0, kind)] * (2 * at_once), once, at_once * lanes)
    left = [const(k * lanes, I64) for k in range(rounds, vectors)]
    if rest:  # the last vector overlaps the one before it, which is harmless
        left.append(const(length - lanes, I64))
    for start in range(0, len(left), at_once):
        extremes = update(left[start : start + at_once], extremes)
    return tuple(_reduce(f, extremes[i::2], better) for i, better in enumerate((fast_min, fast_max)))  # type: ignore[return-value]


def _reduce(f: Function, vectors: list[Reg], better: Callable[[Function, Reg, Reg], Reg]) -> Reg:
    best = vectors[0]
    for other in vectors[1:]:
        best = better(f, best, other)
    return reduce_lanes(f, best, lambda a, b: better(f, a, b))


def _choose_qparams(f: Function, low: Reg, high: Reg) -> tuple[Reg, Reg]:
    """The inverse scale (steps per unit) and the zero point, as ``quantize_rows_int8`` in ``ir/numerics.py``."""
    flat = f.compare("oeq", low, high)
    one = const(1, "float")
    scale = f.op("fdiv", const(255, "float"), f.select(flat, one, f.op("fsub", high, low)))
    scale = f.select(flat, one, scale)
    below, above = f.op("fmul", low, scale), f.op("fmul", high, scale)
    sides = f.op("fadd", f.op("fadd", const(-128, "float"), below), f.op("fadd", const(127, "float"), above))
    first, second = f.op("fsub", const(-128, "float"), below), f.op("fsub", const(127, "float"), above)
    zero = f.select(f.compare("ogt", sides, const(0, "float")), first, second)
    return scale, f.add(round_to_int(f, clamp(f, zero, -128, 127)), 128)
