"""Int16 convolution tiles and depthwise rows with exact int64 accumulators.

pmaddwd sums pairs of products in int32; the depth loop stays in int32 for as long as that cannot overflow, then widens
to int64. uint16 data have 32768 subtracted, which the bias compensates. A packed panel is: bias, multipliers, rounding
terms, shifts (64 bits each; or a float64 factor in place of the multiplier), then the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgewright.engine.codegen.builder import PTR, Function, Module, Reg, const, lane_count, vec
from edgewright.engine.codegen.requant import clamp_int, round_to_int32, to_float64
from edgewright.engine.codegen.vector import clamp, madd_int16
from edgewright.engine.isa import ISA
from edgewright.engine.kernels.gemm import Window, emit_window_loops
from edgewright.ir.graph import Array

_HEAD_WORDS = 4  # 64-bit words per channel
_SIGN_FLIP = {"i32": -0x7FFF8000, **{vec(n, "i16"): -0x8000 for n in (1, 4, 8, 16)}}


def head_bytes(lanes: int) -> int:
    return 8 * _HEAD_WORDS * lanes


def pack_head(lanes: int, channels: int, bias: Array, multiplier: Array, shift: Array) -> Array:
    """The headers of all panels: [panels, bytes]. Padding channels have a shift of 1."""
    panels = -(-channels // lanes)
    head = np.zeros((_HEAD_WORDS, panels * lanes), np.int64)
    head[3] = 1
    for row, numbers in enumerate((bias, multiplier, np.int64(1) << (shift - 1), shift)):
        head[row, :channels] = numbers
    return head.reshape(_HEAD_WORDS, panels, lanes).swapaxes(0, 1).reshape(panels, -1).view(np.uint8)


@dataclass(frozen=True)
class Int16Epilogue:
    """Requantization to int16. ``real``: by float64 factors, not multipliers and shifts. ``unsigned``: uint16 data."""

    low: int
    high: int
    zero: int = 0
    real: bool = False
    unsigned: bool = False


class _Int16EpilogueEmitter:
    """Emits the epilogue: rescale int64 accumulators by multiplier and shift, or by a factor; clamp and store."""

    def __init__(self, f: Function, weights: Reg, lanes: int, end: Int16Epilogue) -> None:
        self.f, self.end = f, end
        kind, size = vec(lanes // 2, "i64"), 4 * lanes
        loaded = [f.load(kind, weights, n * size, 8) for n in range(2 * _HEAD_WORDS)]
        self.bias, self.multiplier, self.half, self.shift = (loaded[2 * n : 2 * n + 2] for n in range(_HEAD_WORDS))

    def widen(self, x: Reg) -> list[Reg]:
        """int32 sums as int64: the low half of the lanes, then the high half."""
        half = lane_count(x.type) // 2
        parts = [self.f.shuffle(x, x, range(start, start + half)) for start in (0, half)]
        return [self.f.cast("sext", p, vec(half, "i64")) for p in parts]

    def store(self, totals: Sequence[Reg], used: int, out: Reg, offset: int = 0) -> None:
        f, parts = self.f, []
        for i, total in enumerate(totals):
            inside = self._by_factor(i, total) if self.end.real else self._by_shift(i, total)
            parts.append(f.cast("trunc", inside, vec(lane_count(inside.type), "i16")))
        both = f.shuffle(parts[0], parts[1], range(2 * lane_count(parts[0].type)))
        f.store_first(both, used, out, offset)

    def _by_shift(self, i: int, total: Reg) -> Reg:
        f = self.f
        moved = f.op("add", f.op("mul", total, self.multiplier[i]), self.half[i])
        return clamp_int(f, f.op("ashr", moved, self.shift[i]), self.end.low, self.end.high)

    def _by_factor(self, i: int, total: Reg) -> Reg:
        f, end, real = self.f, self.end, to_float64(self.f, total)
        scaled = f.op("fmul", real, f.bitcast(self.multiplier[i], real.type))
        return f.add(round_to_int32(f, clamp(f, scaled, end.low - end.zero, end.high - end.zero)), end.zero)

    def to_signed(self, x: Reg) -> Reg:
        """int16 data as they are, uint16 data with the sign bit flipped."""
        return self.f.op("xor", x, _SIGN_FLIP[x.type]) if self.end.unsigned else x


@dataclass(frozen=True)
class Int16Tile:
    """One panel of ``used`` channels. The window's depth is in pairs; ``out_step`` is the pixel stride in bytes."""

    window: Window
    used: int
    out_step: int
    end: Int16Epilogue


def emit_tile(module: Module, isa: ISA, pixels: int, tile: Int16Tile) -> Function:
    """Emit ``tile(data, weights, out, second)``."""
    name = f"tile_{pixels}_{tile.used}"
    if name in module.functions:
        return module.functions[name]
    f = module.function(name, [(PTR, n) for n in ("data", "weights", "out", "second")])
    lanes, window = isa.lanes, tile.window
    epilogue = _Int16EpilogueEmitter(f, f.arg("weights"), lanes, tile.end)
    begin = f.gep(f.arg("weights"), head_bytes(lanes))

    def step(_: Reg, carried: list[Reg]) -> list[Reg]:
        data, weights, *sums = carried
        w = f.load(vec(2 * lanes, "i16"), weights, 0, 4)
        for p in range(pixels):
            pair = f.splat(epilogue.to_signed(f.load("i32", data, p * window.step, 1)), lanes)
            sums[p] = f.add(sums[p], madd_int16(f, f.bitcast(pair, w.type), w))
        return [f.gep(data, 4), f.gep(weights, 4 * lanes), *sums]

    def run(_: Reg, carried: list[Reg]) -> list[Reg]:
        """As many pairs as int32 can accumulate, then widen."""
        data, weights, *totals = carried
        none = [const(0, vec(lanes, "i32"))] * pixels
        (*results,) = f.loop(window.depth, [data, weights, *none], step)
        wide = [part for total in results[2:] for part in epilogue.widen(total)]
        return [*results[:2], *(f.add(t, w) for t, w in zip(totals, wide, strict=True))]

    totals = emit_window_loops(f, window, [f.arg("data"), begin, *epilogue.bias * pixels], run, 1)[2:]
    for p in range(pixels):
        epilogue.store(totals[2 * p : 2 * p + 2], tile.used, f.arg("out"), p * tile.out_step)
    f.ret()
    return f


@dataclass(frozen=True)
class Int16DepthwiseRow:
    """A row of a depthwise convolution; strides in bytes."""

    kernel: tuple[int, int]
    columns: int
    channels: int
    tap: int  # between taps
    line: int  # between rows of taps
    data_pixel_stride: int  # per output pixel
    out_pixel_stride: int
    down: int  # per output row
    out_row: int
    end: Int16Epilogue
    wide: bool = False  # int32 can overflow within a window


def row_bytes(isa: ISA, row: Int16DepthwiseRow) -> int:
    """Size of a packed panel in bytes."""
    return head_bytes(isa.lanes) + 4 * isa.lanes * row.kernel[0] * row.kernel[1]


def emit_depthwise(module: Module, name: str, isa: ISA, row: Int16DepthwiseRow) -> None:
    """Work units are output rows. Arguments: data, weights, output."""
    f = module.kernel(name)
    data, weights, out = (f.load_arg(PTR, i) for i in range(3))
    full_panels, rest = divmod(row.channels, isa.lanes)

    def line(y: Reg) -> None:
        top, out_row = f.gep(data, f.mul(y, row.down)), f.gep(out, f.mul(y, row.out_row))

        def panel(n: Reg, used: int) -> None:
            pointers = [f.gep(p, f.mul(n, 2 * isa.lanes)) for p in (top, out_row)]
            _depthwise_panel(f, isa, row, f.gep(weights, f.mul(n, row_bytes(isa, row))), pointers, used)

        if full_panels:
            f.for_range(const(0, "i64"), const(full_panels, "i64"), lambda n: panel(n, isa.lanes))
        if rest:
            panel(const(full_panels, "i64"), rest)

    f.for_range(f.arg("begin"), f.arg("end"), line)
    f.ret()


def _depthwise_panel(
    f: Function, isa: ISA, row: Int16DepthwiseRow, weights: Reg, pointers: list[Reg], used: int
) -> None:
    lanes = isa.lanes
    epilogue = _Int16EpilogueEmitter(f, weights, lanes, row.end)
    pairs, begin = vec(2 * lanes, "i16"), f.gep(weights, head_bytes(lanes))

    def pixel(_: Reg, now: list[Reg]) -> list[Reg]:
        total, sums = const(0, vec(lanes, "i32")), epilogue.bias
        for n, (y, x) in enumerate(np.ndindex(*row.kernel)):
            word = epilogue.to_signed(f.load(vec(lanes, "i16"), now[0], y * row.line + x * row.tap))
            tap = f.load(pairs, begin, 4 * lanes * n, 4)  # each weight, paired with 0
            products = madd_int16(f, f.bitcast(f.cast("zext", word, vec(lanes, "i32")), pairs), tap)
            if row.wide:
                sums = [f.add(a, b) for a, b in zip(epilogue.widen(products), sums, strict=True)]
            else:
                total = f.add(total, products)
        if not row.wide:
            sums = [f.add(a, b) for a, b in zip(epilogue.widen(total), sums, strict=True)]
        epilogue.store(sums, used, now[1])
        return [f.gep(now[0], row.data_pixel_stride), f.gep(now[1], row.out_pixel_stride)]

    f.loop(row.columns, pointers, pixel)
