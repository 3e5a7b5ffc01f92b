"""Products of 16-bit integers, exact in 64 bits: tiles of convolutions, and depthwise ones.

Pairs of products are summed in 32 bits for as long as those suffice, then in 64. Unsigned integers are taken 32768
lower, which their bias makes up for. A panel of channels is: bias, multipliers, halves of a step, shifts (64 bits each;
or a factor of double precision in place of multipliers), then the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgewright.engine.codegen.builder import PTR, Function, Module, Reg, const, lane_count, vec
from edgewright.engine.codegen.fixed_point import clamp_int
from edgewright.engine.codegen.float_rescale import round_to_int32, to_float64
from edgewright.engine.codegen.vector import clamp, madd_int16
from edgewright.engine.isa import ISA
from edgewright.engine.kernels.gemm import Window, emit_window_loops
from edgewright.ir.graph import Array

_HEAD_WORDS = 4  # numbers of 64 bits for each channel
_SIGN_FLIP = {"i32": -0x7FFF8000, **{vec(n, "i16"): -0x8000 for n in (1, 4, 8, 16)}}


def head_bytes(lanes: int) -> int:
    return 8 * _HEAD_WORDS * lanes


def pack_head(lanes: int, channels: int, bias: Array, multiplier: Array, shift: Array) -> Array:
    """[panels, bytes]: the front of every panel; channels that are not there are shifted by one bit."""
    panels = -(-channels // lanes)
    made = np.zeros((_HEAD_WORDS, panels * lanes), np.int64)
    made[3] = 1
    for row, numbers in enumerate((bias, multiplier, np.int64(1) << (shift - 1), shift)):
        made[row, :channels] = numbers
    return made.reshape(_HEAD_WORDS, panels, lanes).swapaxes(0, 1).reshape(panels, -1).view(np.uint8)


@dataclass(frozen=True)
class Int16Epilogue:
    """``real``: by factors of double precision, not multipliers and shifts. ``unsigned``: of the data."""

    low: int
    high: int
    zero: int = 0
    real: bool = False
    unsigned: bool = False


class _Int16EpilogueEmitter:
    """From sums to stored integers: times a multiplier, shifted, or times a factor; within limits."""

    def __init__(self, f: Function, weights: Reg, lanes: int, end: Int16Epilogue) -> None:
        self.f, self.end = f, end
        kind, size = vec(lanes // 2, "i64"), 4 * lanes
        loaded = [f.load(kind, weights, n * size, 8) for n in range(2 * _HEAD_WORDS)]
        self.bias, self.multiplier, self.half, self.shift = (loaded[2 * n : 2 * n + 2] for n in range(_HEAD_WORDS))

    def widen(self, x: Reg) -> list[Reg]:
        """32-bit sums as 64 bits: the first half of the lanes, the second."""
        half = lane_count(x.type) // 2
        parts = [self.f.shuffle(x, x, range(start, start + half)) for start in (0, half)]
        return [self.f.cast("sext", p, vec(half, "i64")) for p in parts]

    def store(self, totals: Sequence[Reg], used: int, out: Reg, offset: int = 0) -> None:
        f, made = self.f, []
        for i, total in enumerate(totals):
            inside = self._by_factor(i, total) if self.end.real else self._by_shift(i, total)
            made.append(f.cast("trunc", inside, vec(lane_count(inside.type), "i16")))
        both = f.shuffle(made[0], made[1], range(2 * lane_count(made[0].type)))
        f.store_first(both, used, out, offset)

    def _by_shift(self, i: int, total: Reg) -> Reg:
        f = self.f
        moved = f.op("add", f.op("mul", total, self.multiplier[i]), self.half[i])
        return clamp_int(f, f.op("ashr", moved, self.shift[i]), self.end.low, self.end.high)

    def _by_factor(self, i: int, total: Reg) -> Reg:
        f, end, real = self.f, self.end, to_float64(self.f, total)
        scaled = f.op("fmul", real, f.bitcast(self.multiplier[i], real.type))
        return f.add(round_to_int32(f, clamp(f, scaled, end.low - end.zero, end.high - end.zero)), end.zero)

    def words(self, x: Reg) -> Reg:
        """Words as signed ones."""
        return self.f.op("xor", x, _SIGN_FLIP[x.type]) if self.end.unsigned else x


@dataclass(frozen=True)
class Int16Tile:
    """One panel of ``used`` channels. The window's depth is in pairs; ``out_step``: bytes from a pixel to the next."""

    window: Window
    used: int
    out_step: int
    end: Int16Epilogue


def emit_tile(module: Module, isa: ISA, pixels: int, tile: Int16Tile) -> Function:
    """``tile(data, weights, out, second)``."""
    name = f"tile_{pixels}_{tile.used}"
    if name in module.functions:
        return module.functions[name]
    f = module.function(name, [(PTR, n) for n in ("data", "weights", "out", "second")])
    lanes, window = isa.lanes, tile.window
    ending = _Int16EpilogueEmitter(f, f.arg("weights"), lanes, tile.end)
    begin = f.gep(f.arg("weights"), head_bytes(lanes))

    def step(_: Reg, carried: list[Reg]) -> list[Reg]:
        data, weights, *sums = carried
        w = f.load(vec(2 * lanes, "i16"), weights, 0, 4)
        for p in range(pixels):
            pair = f.splat(ending.words(f.load("i32", data, p * window.step, 1)), lanes)
            sums[p] = f.add(sums[p], madd_int16(f, f.bitcast(pair, w.type), w))
        return [f.gep(data, 4), f.gep(weights, 4 * lanes), *sums]

    def run(_: Reg, carried: list[Reg]) -> list[Reg]:
        """As many pairs as 32 bits hold."""
        data, weights, *totals = carried
        none = [const(0, vec(lanes, "i32"))] * pixels
        (*places,) = f.loop(window.depth, [data, weights, *none], step)
        wide = [part for total in places[2:] for part in ending.widen(total)]
        return [*places[:2], *(f.add(t, w) for t, w in zip(totals, wide, strict=True))]

    totals = emit_window_loops(f, window, [f.arg("data"), begin, *ending.bias * pixels], run, 1)[2:]
    for p in range(pixels):
        ending.store(totals[2 * p : 2 * p + 2], tile.used, f.arg("out"), p * tile.out_step)
    f.ret()
    return f


@dataclass(frozen=True)
class Int16DepthwiseRow:
    """A row of a depthwise convolution. Steps in bytes."""

    kernel: tuple[int, int]
    columns: int
    channels: int
    tap: int  # from a tap to the next
    line: int  # from a row of taps to the next
    data_pixel: int  # for each output pixel
    out_pixel: int
    down: int  # for each output row
    out_row: int
    end: Int16Epilogue
    wide: bool = False  # 32 bits are not enough for a window


def row_bytes(isa: ISA, row: Int16DepthwiseRow) -> int:
    """Bytes of one panel."""
    return head_bytes(isa.lanes) + 4 * isa.lanes * row.kernel[0] * row.kernel[1]


def emit_depthwise(module: Module, name: str, isa: ISA, row: Int16DepthwiseRow) -> None:
    """Units are output rows. Slots: data, weights, output."""
    f = module.kernel(name)
    data, weights, out = (f.load_arg(PTR, i) for i in range(3))
    whole, rest = divmod(row.channels, isa.lanes)

    def line(y: Reg) -> None:
        top, made = f.gep(data, f.mul(y, row.down)), f.gep(out, f.mul(y, row.out_row))

        def panel(n: Reg, used: int) -> None:
            places = [f.gep(p, f.mul(n, 2 * isa.lanes)) for p in (top, made)]
            _depthwise_panel(f, isa, row, f.gep(weights, f.mul(n, row_bytes(isa, row))), places, used)

        if whole:
            f.for_range(const(0, "i64"), const(whole, "i64"), lambda n: panel(n, isa.lanes))
        if rest:
            panel(const(whole, "i64"), rest)

    f.for_range(f.arg("begin"), f.arg("end"), line)
    f.ret()


def _depthwise_panel(f: Function, isa: ISA, row: Int16DepthwiseRow, weights: Reg, places: list[Reg], used: int) -> None:
    lanes = isa.lanes
    ending = _Int16EpilogueEmitter(f, weights, lanes, row.end)
    pairs, begin = vec(2 * lanes, "i16"), f.gep(weights, head_bytes(lanes))

    def pixel(_: Reg, now: list[Reg]) -> list[Reg]:
        total, sums = const(0, vec(lanes, "i32")), ending.bias
        for n, (y, x) in enumerate(np.ndindex(*row.kernel)):
            word = ending.words(f.load(vec(lanes, "i16"), now[0], y * row.line + x * row.tap))
            tap = f.load(pairs, begin, 4 * lanes * n, 4)  # each weight, and a zero for what stands above a word
            made = madd_int16(f, f.bitcast(f.cast("zext", word, vec(lanes, "i32")), pairs), tap)
            if row.wide:
                sums = [f.add(a, b) for a, b in zip(ending.widen(made), sums, strict=True)]
            else:
                total = f.add(total, made)
        if not row.wide:
            sums = [f.add(a, b) for a, b in zip(ending.widen(total), sums, strict=True)]
        ending.store(sums, used, now[1])
        return [f.gep(now[0], row.data_pixel), f.gep(now[1], row.out_pixel)]

    f.loop(row.columns, places, pixel)
