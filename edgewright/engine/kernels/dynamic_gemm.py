"""Gemm of dynamically quantized activations (int8, one scale per row) with int8 or int4 weights, into float32.

A packed panel is: weight sums (int32) for the zero-point correction, scales and bias (float32), then the weights, four
depth elements per column and step. int4 weights have two steps per byte, the first in the low nibble. A nibble is
unpacked to the high half of a byte, that is to 16 times its value, which needs only a shift and a mask and no sign
extension; the factor 16 is undone once at the end, exactly. With ``block``, every ``block`` steps of a column have a
scale of their own, stored after their weights, in 16 bits if the low halves of all float32 scales are zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgewright.engine.codegen.builder import PTR, Function, Module, Reg, const, vec
from edgewright.engine.codegen.epilogue import Epilogue, apply_epilogue
from edgewright.engine.codegen.vector import CACHE_LINE, WEIGHT_STREAMS, Int8Dot, fma, prefetch, to_float32
from edgewright.engine.isa import ISA
from edgewright.engine.kernels.quantize_rows import INVERSE, SCALE, ZERO, QuantizedRows
from edgewright.ir.graph import Array


@dataclass(frozen=True)
class DynamicGemmWeights:
    """``steps`` of four elements; ``block`` steps share a scale, or all of them if 0."""

    four: bool  # int4
    steps: int
    block: int = 0
    short: bool = False  # 16-bit block scales

    @property
    def times(self) -> int:
        """Trip count of the innermost loop: int4 weights take two steps per iteration."""
        return (self.block or self.steps) // (2 if self.four else 1)

    @property
    def blocks(self) -> int:
        return self.steps // self.block if self.block else 1

    def size(self, columns: int) -> int:
        """Size of a packed panel in bytes."""
        scales = self.blocks * (2 if self.short else 4) if self.block else 0
        return columns * (12 + self.steps * (2 if self.four else 4) + scales)


@dataclass(frozen=True)
class DynamicGemmPanel:
    """A panel of columns; weights are split into ``streams``, see ``gemm.Panel``."""

    vectors: int
    used: int  # columns to store
    streams: int = 1

    @property
    def vectors_per_stream(self) -> int:
        """Vectors per stream."""
        return self.vectors // self.streams


def make_panels(isa: ISA, columns: int, rows: int) -> list[DynamicGemmPanel]:
    """Wide panels for a single row; otherwise narrower ones, whose taller tiles load and unpack weights less often."""
    wide = isa.registers >= 32
    vectors = (8 if wide else 4) if rows == 1 else 4 if wide else 2
    full, rest = divmod(columns, vectors * isa.lanes)
    panels = [DynamicGemmPanel(vectors, vectors * isa.lanes, WEIGHT_STREAMS if rows == 1 else 1)] * full
    return panels + ([DynamicGemmPanel(-(-rest // isa.lanes), rest)] if rest else [])


def max_tile_rows(isa: ISA, weights: DynamicGemmWeights, vectors: int) -> int:
    """Maximum rows per tile: int32 accumulators, and float32 ones with block scales, must fit in the registers."""
    if isa.registers < 32:
        return max(1, (4 if vectors > 1 else 6) // (2 if weights.block else 1))
    if weights.block:
        return max(1, 12 // vectors)
    return max(1, 24 // vectors)


def pack_weights(buffer: Array, isa: ISA, filters: Array, scales: Array, bias: Array, weights: DynamicGemmWeights,
         panels: Sequence[DynamicGemmPanel]) -> None:  # fmt: skip
    """Pack ``filters`` [columns, 4 * steps] of int8 and ``scales`` [columns, blocks]."""
    start = 0
    for panel in panels:
        width = panel.vectors * isa.lanes
        packed, buffer = np.split(buffer, [weights.size(width)])
        filters_padded = np.zeros((width, filters.shape[1]), np.int8)
        filters_padded[: panel.used] = filters[start : start + panel.used]
        factors = np.zeros((width, scales.shape[1]), np.float32)
        factors[: panel.used] = scales[start : start + panel.used]
        bias_padded = np.zeros(width, np.float32)
        bias_padded[: panel.used] = bias[start : start + panel.used]
        head = packed[: 12 * width].view(np.float32).reshape(3, width)
        _pack_head(head, filters_padded, factors, bias_padded, weights)
        bodies, columns, scaled = (np.split(a, panel.streams) for a in (packed[12 * width :], filters_padded, factors))
        for body, filter_, scale in zip(bodies, columns, scaled, strict=True):
            _pack_body(body, filter_, scale, weights)
        start += panel.used


def _pack_head(head: Array, rows: Array, factors: Array, bias: Array, weights: DynamicGemmWeights) -> None:
    """The header of a panel. With block scales the weight sum is float32: sums of blocks, weighted by their scales."""
    if weights.block:
        sums = rows.reshape(len(rows), weights.blocks, -1).sum(2, dtype=np.int64)
        head[0] = (sums * factors.astype(np.float64)).sum(1)
        head[1] = 1
    else:
        head[0].view(np.int32)[:] = rows.sum(1, dtype=np.int64) * (16 if weights.four else 1)
        head[1] = factors[:, 0]
    head[2] = bias


def _pack_body(body: Array, columns: Array, factors: Array, weights: DynamicGemmWeights) -> None:
    width = len(columns)
    fours = columns.reshape(width, weights.steps, 4).transpose(1, 0, 2)  # [steps, columns, 4]
    if weights.four:
        low, high = (fours[i::2].view(np.uint8) & 15 for i in (0, 1))
        fours = (low | high << 4).view(np.int8)
    blocks = fours.reshape(weights.blocks, -1)
    rows = body.reshape(weights.blocks, -1)
    rows[:, : blocks.shape[1]] = blocks.view(np.uint8)
    if weights.block:
        scaled = block_scale_bits(factors, weights.four).T
        kind = np.uint16 if weights.short else np.uint32
        rows[:, blocks.shape[1] :].view(kind)[:] = scaled >> (16 if weights.short else 0)


def block_scale_bits(factors: Array, four: bool) -> Array:
    """The bit patterns of block scales, with int4's factor 16 divided out."""
    return np.ascontiguousarray(factors / np.float32(16 if four else 1)).view(np.uint32)


class _Tile:
    """Emits the micro-kernel of ``count`` rows by a panel."""

    def __init__(
        self,
        f: Function,
        isa: ISA,
        count: int,
        panel: DynamicGemmPanel,
        weights: DynamicGemmWeights,
        rows: QuantizedRows,
        ahead: bool,
    ) -> None:
        self.f, self.isa, self.count, self.panel, self.weights, self.rows = f, isa, count, panel, weights, rows
        self.prefetch_distance = weights.size(panel.vectors * isa.lanes) if ahead else 0  # prefetch distance
        self.size = 4 * isa.lanes  # bytes of a vector
        self.int_vector, self.float_vector = vec(isa.lanes, "i32"), vec(isa.lanes, "float")
        self.dots = Int8Dot(f, isa)

    def multiply(self, data: Reg, weights: Reg, sums: list[Reg]) -> list[Reg]:
        """The depth loop over steps that share a scale; returns the advanced pointers, then the sums."""
        f, vectors = self.f, self.panel.vectors

        def step(_: Reg, now: list[Reg]) -> list[Reg]:
            data, weights, *totals = now
            loaded = [
                f.load(vec(self.size, "i8"), weights, self.vector_offset(j, self.size), 4) for j in range(vectors)
            ]
            for offset in range(0, vectors * self.size if self.prefetch_distance else 0, CACHE_LINE):
                prefetch(f, weights, self.prefetch_distance + offset, into_l1=False)
            for part, row in enumerate(self._unpack(loaded)):
                for p in range(self.count):
                    x = f.load("i32", data, p * self.rows.pitch + 4 * part)
                    x4 = self.dots.data(f.bitcast(f.splat(x, self.isa.lanes), vec(self.size, "i8")))
                    for j, w in enumerate(row):
                        at = p * vectors + j
                        totals[at] = self.dots.add(totals[at], x4, w)
            return [
                f.gep(data, 8 if self.weights.four else 4),
                f.gep(weights, self.panel.vectors_per_stream * self.size),
                *totals,
            ]

        return f.loop(self.weights.times, [data, weights, *sums], step)

    def vector_offset(self, vector: int, size: int) -> int:
        """The offset of a vector's ``size`` bytes from those of the first stream."""
        stream, rest = divmod(vector, self.panel.vectors_per_stream)
        columns = self.panel.vectors_per_stream * self.isa.lanes
        return stream * (self.weights.size(columns) - 12 * columns) + rest * size

    def _unpack(self, loaded: list[Reg]) -> list[list[tuple[Reg, ...]]]:
        """The weights of each step of an iteration, unpacked."""
        if not self.weights.four:
            return [[self.dots.weights(w) for w in loaded]]
        f, int16 = self.f, vec(self.size // 2, "i16")
        high = const(-16, vec(self.size, "i8"))
        first = [f.op("and", f.bitcast(f.op("shl", f.bitcast(w, int16), 4), w.type), high) for w in loaded]
        second = [f.op("and", w, high) for w in loaded]
        return [[self.dots.weights(w) for w in part] for part in (first, second)]

    def row_param(self, row: int, kind: str, offset: int) -> Reg:
        """A quantization parameter of a row, broadcast."""
        at = row * self.rows.pitch + self.rows.notes + offset
        return self.f.splat(self.f.load(kind, self.f.arg("data"), at), self.isa.lanes)

    def head(self, line: int, vector: int, kind: str) -> Reg:
        at = (line * self.panel.vectors + vector) * self.size
        return self.f.load(vec(self.isa.lanes, kind), self.f.arg("weights"), at, 4)

    def scale(self, scales: Reg, vector: int) -> Reg:
        """The block scales of a vector of columns."""
        if not self.weights.short:
            return self.f.load(self.float_vector, scales, self.vector_offset(vector, self.size), 4)
        int16 = self.f.load(vec(self.isa.lanes, "i16"), scales, self.vector_offset(vector, self.size // 2), 2)
        return self.f.bitcast(self.f.op("shl", self.f.cast("zext", int16, self.int_vector), 16), self.float_vector)

    def exact(self, begin: Reg) -> list[Reg]:
        """One scale per column: sums stay integers to the end, and results equal the reference bit by bit."""
        f, vectors = self.f, self.panel.vectors
        sums = self.multiply(f.arg("data"), begin, [const(0, self.int_vector)] * (self.count * vectors))[2:]
        results = []
        for p in range(self.count):
            zero, inverse = self.row_param(p, "i32", ZERO), self.row_param(p, "float", INVERSE)
            for j in range(vectors):
                total = f.op("sub", sums[p * vectors + j], f.op("mul", self.head(0, j, "i32"), zero))
                total = f.op("ashr", total, 4) if self.weights.four else total
                results.append(f.op("fmul", f.op("fmul", to_float32(f, total), inverse), self.head(1, j, "float")))
        return results

    def multiply_blocks(self, begin: Reg) -> list[Reg]:
        """Block scales: sums of a block are int32, sums over blocks float32."""
        f, vectors = self.f, self.panel.vectors
        count = self.count * vectors

        def block(_: Reg, now: list[Reg]) -> list[Reg]:
            data, weights, *totals = now
            data, weights, *sums = self.multiply(data, weights, [const(0, self.int_vector)] * count)
            for j in range(vectors):
                scale = self.scale(weights, j)
                for at in range(j, count, vectors):
                    totals[at] = fma(f, to_float32(f, sums[at]), scale, totals[at])
            return [
                data,
                f.gep(weights, self.panel.vectors_per_stream * self.size // (2 if self.weights.short else 1)),
                *totals,
            ]

        start = [f.arg("data"), begin, *[const(0, self.float_vector)] * count]
        sums = f.loop(self.weights.blocks, start, block)[2:]
        results = []
        for p in range(self.count):
            zero, scale = to_float32(f, self.row_param(p, "i32", ZERO)), self.row_param(p, "float", SCALE)
            for j in range(vectors):
                correction = f.op("fmul", zero, self.head(0, j, "float"))
                results.append(f.op("fdiv", f.op("fsub", sums[p * vectors + j], correction), scale))
        return results


def emit_tile(
    module: Module,
    isa: ISA,
    count: int,
    panel: DynamicGemmPanel,
    weights: DynamicGemmWeights,
    rows: QuantizedRows,
    out_step: int,
    second_step: int,
    epilogue: Epilogue,
    ahead: bool = False,
) -> Function:
    """Emit ``tile(data, weights, out, second)``. ``ahead``: prefetch the next panel into L2."""
    name = f"tile_{count}_{panel.vectors}_{panel.used}"
    if name in module.functions:
        return module.functions[name]
    f = module.function(name, [(PTR, n) for n in ("data", "weights", "out", "second")])
    tile = _Tile(f, isa, count, panel, weights, rows, ahead)
    begin = f.gep(f.arg("weights"), 3 * panel.vectors * tile.size)
    results = tile.multiply_blocks(begin) if weights.block else tile.exact(begin)
    for p in range(count):
        for j in range(panel.vectors):
            column = j * isa.lanes
            load = lambda at=p * second_step + 4 * column: f.load(tile.float_vector, f.arg("second"), at)  # noqa: E731
            x = apply_epilogue(
                f, f.op("fadd", results[p * panel.vectors + j], tile.head(2, j, "float")), epilogue, load
            )
            f.store_first(x, min(isa.lanes, panel.used - column), f.arg("out"), p * out_step + 4 * column)
    f.ret()
    return f
