"""Dynamically quantized activations, one scale per row, and their gemm with int8 or int4 weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Reg, const, lane_count, vec
from edgewright.engine.codegen.epilogue import Epilogue, apply_epilogue
from edgewright.engine.codegen.vector import (
    CACHE_LINE,
    WEIGHT_STREAMS,
    Int8Dot,
    clamp,
    fast_max,
    fast_min,
    fma,
    int_max,
    int_min,
    pack_four_to_uint8,
    prefetch,
    round_to_int,
    to_float32,
)
from edgewright.engine.isa import ISA
from edgewright.engine.kernels.norm_softmax import for_each_overlapping, reduce_lanes
from edgewright.ir.graph import Array

# -------------------------------------------------------------------------------------------------------- quantize rows

# Dynamic quantization of activations to int8, one scale and zero point per row.
#
# A quantized row is its bytes, followed at ``QuantizedRows.notes`` by inverse scale, zero point and scale (see
# ``Numerics.choose``).

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
        scale, zero = _choose_qparams(f, *row_min_max(f, lanes, rows.length, source))
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


def row_min_max(f: Function, lanes: int, length: int, source: Reg) -> tuple[Reg, Reg]:
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


# --------------------------------------------------------------------------------------------------------- dynamic gemm

# Gemm of dynamically quantized activations (int8, one scale per row) with int8 or int4 weights, into float32.
#
# A packed panel is: weight sums (int32) for the zero-point correction, scales and bias (float32), then the weights,
# four depth elements per column and step. int4 weights have two steps per byte, the first in the low nibble. A nibble
# is unpacked to the high half of a byte, that is to 16 times its value, which needs only a shift and a mask and no sign
# extension; the factor 16 is undone once at the end, exactly. With ``block``, every ``block`` steps of a column have a
# scale of their own, stored after their weights, in 16 bits if the low halves of all float32 scales are zero.


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


def make_panels(isa: ISA, columns: int, rows: int, blocks: bool) -> list[DynamicGemmPanel]:
    """Wide panels for a single row; otherwise narrower ones, whose taller tiles load and unpack weights less often:
    narrower still with ``blocks``, which have float32 accumulators too."""
    wide = isa.registers >= 32
    vectors = (8 if wide else 4) if rows == 1 else 4 if wide and not blocks else 2
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
        ahead: int,
    ) -> None:
        self.f, self.isa, self.count, self.panel, self.weights, self.rows = f, isa, count, panel, weights, rows
        self.ahead = ahead
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
            self.prefetch(weights, vectors * self.size)
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

    def prefetch(self, weights: Reg, size: int) -> None:
        for offset in range(0, size if self.ahead else 0, CACHE_LINE):
            prefetch(self.f, weights, self.ahead + offset, into_l1=False)

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
            self.prefetch(weights, vectors * self.size // (2 if self.weights.short else 1))
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
    ahead: int = 0,
) -> Function:
    """Emit ``tile(data, weights, out, second)``. ``ahead``: prefetch weights this many bytes ahead into L2."""
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
