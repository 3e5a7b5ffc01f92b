"""Int8 depthwise convolution, one row of output pixels at a time.

A dot product instruction sums four products within a 32-bit lane, but in channels-last data neighboring bytes are
different channels. So four neighboring pixels are interleaved by two levels of unpack instructions: each 32-bit lane
of such a quad holds four taps of one channel. Quads start at even columns and are shared by all windows that overlap
them; each window has its own copy of the weights, shifted to its position within the quad, with zeros elsewhere.
Tests: ``TestDepthwise`` in ``tests/engine/lower/test_conv.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Reg, const, vec
from edgewright.engine.codegen.vector import (
    ARM,
    EVEN_BYTES,
    Int8Dot,
    extend_int8_pairs,
    interleave,
    unpack_uint8_to_four,
)
from edgewright.engine.isa import ISA
from edgewright.engine.kernels.int8_gemm import (
    EpilogueParams,
    Int8Epilogue,
    Int8EpilogueEmitter,
    channel_order,
    load_requantizers,
    padding_factors,
)
from edgewright.ir.graph import Array

MAX_TAPS = 64  # of a filter: all taps are unrolled
# The last, partial tile of a longer row is a full one, moved back: it recomputes less than a tenth of the row, and
# needs no code of its own.
_MIN_TILES_TO_OVERLAP = 10


@dataclass(frozen=True)
class Int8DepthwiseRow:
    """A row of output pixels; strides in bytes."""

    kernel: tuple[int, int]
    stride: int
    dilation: int
    columns: int  # output pixels (the output's width)
    channels: int  # stored, padding included
    data_pixel_stride: int
    out_pixel_stride: int
    residual_pixel_stride: int
    epilogue: Int8Epilogue


def channel_blocks(isa: ISA, channels: int) -> list[tuple[int, list[int]]]:
    """(vector width, first channel of each block): full vectors, and a narrower or overlapping one for the rest."""
    if isa.dsp:
        return [(4, list(range(0, channels, 4)))]
    covered, blocks = channels // isa.bytes * isa.bytes, []
    if covered:
        blocks.append((isa.bytes, list(range(0, covered, isa.bytes))))
    rest = channels - covered
    if rest:
        width = next(w for w in (16, 32, 64) if w >= rest)
        if width == isa.bytes and covered:  # overlaps the one before it
            blocks[0][1].append(channels - width)
        else:
            blocks.append((width, [covered]))
    return blocks


def window_quads(row: Int8DepthwiseRow, column: int) -> list[tuple[int, int, int]]:
    """The quads of the window at ``column``: (first column, 1 if the window starts at an odd column, index)."""
    odd = column % 2 if row.dilation == 1 else 0
    starts = _quad_starts(row.kernel[1], odd, row.dilation)
    return [(column - odd + s * row.dilation, odd, i) for i, s in enumerate(starts)]


def _quad_starts(taps: int, odd: int, dilation: int) -> list[int]:
    """First taps of the quads, relative to the window. Even without dilation, so that neighbors share quads."""
    reach = taps + odd
    starts = list(range(0, max(1, reach - 3), 4))
    if starts[-1] + 4 < reach:
        last = reach - 4
        starts.append(last + last % 2 if dilation == 1 else last)
    return starts


def quad_patterns(row: Int8DepthwiseRow) -> list[tuple[int, int, tuple[int, ...]]]:
    """The distinct uses of a quad: (odd start, index, the taps of its four positions, -1 for none)."""
    patterns = []
    for odd in (0, 1) if row.stride % 2 and row.dilation == 1 else (0,):
        covered = odd
        for i, start in enumerate(_quad_starts(row.kernel[1], odd, row.dilation)):
            positions = [p if covered <= p < row.kernel[1] + odd else -1 for p in range(start, start + 4)]
            patterns.append((odd, i, tuple(p - odd if p >= 0 else -1 for p in positions)))
            covered = start + 4
    return patterns


def packed_block_bytes(isa: ISA, row: Int8DepthwiseRow, width: int) -> int:
    """Size of a channel block's packed weights in bytes."""
    taps = row.kernel[1] if isa.arch == ARM else len(quad_patterns(row)) * 4
    return packed_header_bytes(row, width) + row.kernel[0] * taps * width


def packed_header_bytes(row: Int8DepthwiseRow, width: int) -> int:
    """Size of the header: bias, requantization factors, epilogue parameters."""
    return 4 * width * (1 + row.epilogue.factor_words) + row.epilogue.param_bytes


def pack_weights(
    isa: ISA, row: Int8DepthwiseRow, filters: Array, bias: Array, factors: Array, params: EpilogueParams
) -> Array:
    """Pack ``filters`` [height, width, channels] of int8 and ``factors`` [words, channels]."""
    blocks = channel_blocks(isa, row.channels)
    total = max(starts[-1] + width for width, starts in blocks)
    padded = np.zeros((row.kernel[0], row.kernel[1] + 1, total), np.int8)  # the last column is zero, for tap -1
    padded[:, :-1, : filters.shape[2]] = filters
    spaced = padded[:, [list(taps) for *_, taps in quad_patterns(row)]] if isa.arch != ARM else padded[:, :-1]
    biases, factor_words = np.zeros(total, np.int32), np.tile(padding_factors(row.epilogue)[:, None], (1, total))
    biases[: len(bias)], factor_words[:, : factors.shape[1]] = bias, factors.view(np.int32)
    parts = []
    for width, start in ((width, start) for width, starts in blocks for start in starts):
        order = start + (np.arange(width) if isa.arch == ARM else channel_order(width // 4, 4))
        parts += [biases[order].view(np.uint8), factor_words[:, order].reshape(-1).view(np.uint8)]
        taps = spaced[..., order] if isa.arch == ARM else spaced[..., order].swapaxes(2, 3)
        parts += [params.pack()[: row.epilogue.param_bytes], np.ascontiguousarray(taps).reshape(-1).view(np.uint8)]
    return np.concatenate(parts)


def tile_pixels(isa: ISA, row: Int8DepthwiseRow) -> int:
    """Output pixels per tile (the register tile; ``channel_blocks`` sets its channels).

    A byte vector of channels widens to four int32 accumulators per pixel, and a quad of interleaved inputs takes four
    registers: 4 * 4 + 4 = 20 of 32, or 2 * 4 + 4 = 12 of 16; weights and half-interleaved pairs share the others. Not
    more pixels than the row has: the tile loop runs at least once.
    """
    if isa.arch == ARM:
        return 1
    return min(4 if isa.registers >= 32 else 2, row.columns)


def emit_row(module: Module, isa: ISA, row: Int8DepthwiseRow) -> Function:
    """Emit ``row(data0, data1, ..., out, weights, second)``, with a data pointer per kernel row."""
    names = [f"data{i}" for i in range(row.kernel[0])]
    f = module.function("row", [(PTR, n) for n in (*names, "out", "weights", "second")])
    start = [f.arg(n) for n in (*names, "out", "second")]
    weights = f.arg("weights")
    for width, starts in channel_blocks(isa, row.channels):

        def channels(index: Reg, _: list[Reg], width: int = width, starts: list[int] = starts,
                     weights: Reg = weights) -> list[Reg]:  # fmt: skip
            offset = f.add(f.mul(index, width), starts[0])
            if starts[-1] % width:
                offset = f.call("llvm.umin.i64", I64, offset, const(starts[-1], I64))
            block_weights = f.gep(weights, f.mul(index, packed_block_bytes(isa, row, width)))
            block = (_TapBlock if isa.arch == ARM else _Block)(f, isa, row, width, block_weights)
            block.emit([f.gep(p, offset) for p in start])
            return []

        f.loop(len(starts), [], channels)
        weights = f.gep(weights, len(starts) * packed_block_bytes(isa, row, width))
    f.ret()
    return f


class _Block:
    """Emits one block of channels over the row."""

    def __init__(self, f: Function, isa: ISA, row: Int8DepthwiseRow, width: int, weights: Reg) -> None:
        self.f, self.isa, self.row, self.weights = f, isa, row, weights
        self.width, self.used = width, min(width, row.channels)
        self.vector_type, self.accumulator = vec(self.width, "i8"), vec(self.width // 4, "i32")
        self.pattern_index = {(odd, i): n for n, (odd, i, _) in enumerate(quad_patterns(row))}
        self.dots = Int8Dot(f, isa)

    def emit(self, pointers: Sequence[Reg]) -> None:
        f, row = self.f, self.row
        pixels = tile_pixels(self.isa, row)
        times, rest = divmod(row.columns, pixels)
        steps = [row.stride * row.data_pixel_stride] * row.kernel[0] + [row.out_pixel_stride, row.residual_pixel_stride]

        def tile(_: Reg, now: list[Reg]) -> list[Reg]:
            self._emit_tile(now, pixels)
            return [f.gep(p, pixels * s) for p, s in zip(now, steps, strict=True)]

        after = f.loop(times, pointers, tile)
        if rest and times >= _MIN_TILES_TO_OVERLAP:
            back = rest - pixels
            self._emit_tile([f.gep(p, back * s) for p, s in zip(after, steps, strict=True)], pixels)
        elif rest:
            self._emit_tile(after, rest)

    def _emit_tile(self, pointers: Sequence[Reg], pixels: int) -> None:
        f, row, width = self.f, self.row, self.width
        *data, out, residual = pointers
        bias = [f.load(self.accumulator, self.weights, j * width, 16) for j in range(4)]
        sums = [list(bias) for _ in range(pixels)]
        for dy in range(row.kernel[0]):
            self._kernel_row(data[dy], dy, sums)
        factors = load_requantizers(f, row.epilogue, f.gep(self.weights, 4 * width), width // 4, 4, 16)
        emitter = Int8EpilogueEmitter(f, row.epilogue, f.gep(self.weights, 4 * width * (1 + row.epilogue.factor_words)))
        for p, four in enumerate(sums):
            added = None
            if row.epilogue.sum:
                added = unpack_uint8_to_four(f, f.load(self.vector_type, residual, p * row.residual_pixel_stride))
            f.store_first(emitter.store(four, factors, added), self.used, out, p * row.out_pixel_stride)

    def _kernel_row(self, data: Reg, dy: int, sums: list[list[Reg]]) -> None:
        """One row of taps for all pixels: quads from left to right, each interleaved once."""
        f, row = self.f, self.row
        uses: dict[int, list[tuple[int, int]]] = {}
        for p in range(len(sums)):
            for column, odd, i in window_quads(row, p * row.stride):
                uses.setdefault(column, []).append((p, self.pattern_index[odd, i]))
        taps = {p * row.stride + t * row.dilation for p in range(len(sums)) for t in range(row.kernel[1])}
        pairs: dict[int, tuple[Reg, Reg]] = {}
        for column in sorted(uses):
            quad = self._quad(data, column, taps, pairs)
            for j, raw in enumerate(quad):
                x = self.dots.data(raw)
                for p, n in uses[column]:
                    offset = packed_header_bytes(row, self.width) + (dy * len(self.pattern_index) + n) * 4 * self.width
                    w = self.dots.weights(f.load(self.vector_type, self.weights, offset + j * self.width, 16))
                    sums[p][j] = self.dots.add(sums[p][j], x, w)

    def _quad(self, data: Reg, column: int, taps: set[int], pairs: dict[int, tuple[Reg, Reg]]) -> list[Reg]:
        f, d = self.f, self.row.dilation
        half = vec(self.width // 2, "i16")

        def pixel(c: int) -> Reg:
            return (
                f.load(self.vector_type, data, c * self.row.data_pixel_stride, 1)
                if c in taps
                else const(0, self.vector_type)
            )

        for c in (column, column + 2 * d):
            if c not in pairs:
                pairs[c] = interleave(f, pixel(c), pixel(c + d))
        quad: list[Reg] = []
        for a, b in zip(pairs[column], pairs[column + 2 * d], strict=True):
            quad += interleave(f, f.bitcast(a, half), f.bitcast(b, half))
        return [f.bitcast(q, self.vector_type) for q in quad]


class _TapBlock(_Block):
    """A block whose taps are multiplied one by one: a vector of four channels at a time."""

    def _emit_tile(self, pointers: Sequence[Reg], pixels: int) -> None:
        f, row, width, head = self.f, self.row, self.width, packed_header_bytes(self.row, self.width)
        *data, out, residual = pointers
        vectors, lanes, kind = width // 4, 4, vec(4, "i32")
        sums = [f.load(kind, self.weights, 16 * j, 4) for j in range(vectors)]
        for dy in range(row.kernel[0]):
            for tap in range(row.kernel[1]):
                at, weight = tap * row.dilation * row.data_pixel_stride, head + (dy * row.kernel[1] + tap) * width
                for j in range(vectors):
                    x, w = f.gep(data[dy], at + 4 * j), f.gep(self.weights, weight + 4 * j)
                    sums[j] = self._multiply(sums[j], x, w)
        factors = load_requantizers(f, row.epilogue, f.gep(self.weights, 4 * width), lanes, vectors, 4)
        emitter = Int8EpilogueEmitter(f, row.epilogue, f.gep(self.weights, 4 * width * (1 + row.epilogue.factor_words)))
        repeats = 4 // vectors  # a store takes four vectors, of which those beyond the first pixel's are not used
        added = None
        if row.epilogue.sum:
            loaded = f.load(self.vector_type, residual)
            added = unpack_uint8_to_four(f, f.shuffle(loaded, loaded, [i % width for i in range(16)]))
        packed = emitter.store(sums * repeats, factors * repeats, added)
        f.store_first(f.shuffle(packed, packed, range(width)), self.used, out)

    def _multiply(self, total: Reg, x: Reg, w: Reg) -> Reg:
        """The products of four channels, added to their sums."""
        f, kind = self.f, vec(4, "i8")
        if not self.isa.dsp:
            wide = f.cast("zext", f.load(kind, x), total.type), f.cast("sext", f.load(kind, w), total.type)
            return f.add(total, f.op("mul", *wide))
        word, lanes = f.load("i32", x), list[Reg]()
        even, odd = f.op("and", word, EVEN_BYTES), f.op("and", f.op("lshr", word, 8), EVEN_BYTES)
        weights = extend_int8_pairs(f, f.load("i32", w, 0, 4))
        for half in ("llvm.arm.smlabb", "llvm.arm.smlatt"):
            for pairs, factors in zip((even, odd), weights, strict=True):
                at = len(lanes)
                lanes.append(
                    f.call(half, "i32", pairs, factors, f.emit("i32", f"extractelement {total.type} {total}, i32 {at}"))
                )
        for at, lane in enumerate(lanes):
            total = f.emit(total.type, f"insertelement {total.type} {total}, i32 {lane}, i32 {at}")
        return total
