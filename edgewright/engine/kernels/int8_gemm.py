"""Int8 gemm micro-kernel, and the epilogue of all int8 kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

import numpy as np

from edgewright.engine.codegen.builder import PTR, Function, Module, Reg, const, lane_count, vec
from edgewright.engine.codegen.requant import REQUANTIZERS, Requantize
from edgewright.engine.codegen.vector import (
    CACHE_LINE,
    Int8Dot,
    Int16Dot,
    dot16,
    int_max,
    int_min,
    pack_four_to_uint8,
    permute_int8,
    prefetch,
    unpack_uint8_to_four,
)
from edgewright.engine.isa import ISA
from edgewright.engine.kernels.gemm import Window, emit_window_loops
from edgewright.ir.graph import Array

# ----------------------------------------------------------------------------------------------------------- int8 store

# Epilogue of the int8 kernels: requantize int32 accumulators, add a residual, clamp, look up and store as uint8.


@dataclass(frozen=True)
class Int8Epilogue:
    """Which steps the epilogue has. Their constants are stored with the weights, so that layers can share code."""

    zero: bool  # a nonzero zero point
    low: bool  # a lower clamp above 0
    high: bool  # an upper clamp below 255
    may_overflow: bool  # rescaled accumulators may overflow int32
    sum: bool  # a residual add with a second tensor
    table: bool  # a lookup table, for activations
    rounding: str = "even"
    compact: bool = False  # constants of the steps that it lacks are left out

    @property
    def factor_words(self) -> int:
        """32-bit words per channel of a requantization factor."""
        return len(REQUANTIZERS[self.rounding].factor_words)

    @property
    def param_bytes(self) -> int:
        """Size of the parameters in bytes."""
        return 16 if self.compact and not self.table and not self.sum else 64 + 256 * self.table


@dataclass(frozen=True)
class EpilogueParams:
    """The constants of an epilogue. ``factors`` of the residual add: (low, high, first, second, rest, shift)."""

    zero: int
    low: int
    high: int
    factors: tuple[int, ...] = ()
    table: Array | None = None

    def pack(self) -> Array:
        words = np.zeros(16, np.int32)
        words[:3] = self.zero, self.low, self.high
        words[3 : 3 + len(self.factors)] = self.factors
        packed: Array = words.view(np.uint8)
        return packed if self.table is None else np.concatenate((packed, self.table))


def load_requantizers(
    f: Function, epilogue: Int8Epilogue, pointer: Reg, lanes: int, vectors: int, align: int
) -> list[Requantize]:
    """Requantizers of ``vectors`` vectors of channels; factors are stored word by word."""
    rounding, size = REQUANTIZERS[epilogue.rounding], 4 * lanes
    requantizers = []
    for j in range(vectors):
        offsets = [(kind, (w * vectors + j) * size) for w, kind in enumerate(rounding.factor_words)]
        words = [f.load(vec(lanes, kind), pointer, offset, align) for kind, offset in offsets]
        requantizers.append(rounding.emit(f, words, epilogue.may_overflow))
    return requantizers


def padding_factors(epilogue: Int8Epilogue) -> Array:
    """Factors of padding channels; a shift is at least 1, so that the rounding term is defined."""
    return np.array(REQUANTIZERS[epilogue.rounding].nothing, np.int32)


class Int8EpilogueEmitter:
    """Emits the epilogue of four accumulator vectors, which become one vector of uint8."""

    def __init__(self, f: Function, epilogue: Int8Epilogue, params: Reg) -> None:
        self.f, self.epilogue, self.params = f, epilogue, params

    def _param(self, index: int, lanes: int, kind: str = "i32") -> Reg:
        return self.f.splat(self.f.load(kind, self.params, 4 * index, 4), lanes)

    def store(self, sums: Sequence[Reg], factors: Sequence[Requantize], second: Sequence[Reg] | None = None) -> Reg:
        f, epilogue = self.f, self.epilogue
        lanes = lane_count(sums[0].type)
        scaled = [factor(total) for total, factor in zip(sums, factors, strict=True)]
        if second is not None:
            scaled = self._add(scaled, second, lanes)
        x = pack_four_to_uint8(f, scaled, self._param(0, 2 * lanes, "i16") if epilogue.zero else None)
        if epilogue.low:
            x = int_max(f, x, self._param(1, 4 * lanes, "i8"), signed=False)
        if epilogue.high:
            x = int_min(f, x, self._param(2, 4 * lanes, "i8"), signed=False)
        return lookup_uint8(f, f.gep(self.params, 64), x) if epilogue.table else x

    def _add(self, scaled: Sequence[Reg], others: Sequence[Reg], lanes: int) -> list[Reg]:
        """The residual add in fixed point, rounded like the reference: ties up."""
        f = self.f
        minimum, maximum, first, second, rounding, shift = (self._param(3 + i, lanes) for i in range(6))
        sums = []
        for x, y in zip(scaled, others, strict=True):
            clamped = int_min(f, int_max(f, x, minimum), maximum)
            weighted_sum = f.op("add", f.op("mul", clamped, first), f.op("mul", y, second))
            sums.append(f.op("ashr", f.op("add", weighted_sum, rounding), shift))
        return sums


def lookup_uint8(f: Function, table: Reg, x: Reg) -> Reg:
    """A 256-entry table lookup per byte: two vpermi2b over 128 entries each, selected by the top bit.

    Shorter vectors are padded to 64 bytes.
    """
    if lane_count(x.type) < 64:
        lanes = list(range(lane_count(x.type)))
        first = f.emit("<2 x i8>", f"insertelement <2 x i8> poison, i8 {x}, i32 0") if len(lanes) == 1 else x
        padded = lookup_uint8(f, table, f.shuffle(first, first, [*lanes, *[-1] * (64 - len(lanes))]))
        return f.shuffle(padded, padded, lanes)
    quarters = [f.load(x.type, table, 64 * i, 64) for i in range(4)]
    low, high = (permute_int8(f, quarters[i], x, quarters[i + 1]) for i in (0, 2))
    return f.select(f.compare("slt", x, const(0, x.type)), high, low)


def channel_order(lanes: int, vectors: int) -> Array:
    """The output channel of each lane of a panel, such that ``pack_four_to_uint8`` yields channels in order.

    x86's pack instructions work within 128-bit blocks and interleave their operands. Permuting the channels of the
    packed weights ahead of time cancels that, instead of a shuffle after every store.
    """
    index: Array = np.arange(lanes * vectors)
    vector, lane = index // lanes, index % lanes
    return np.asarray(4 * vectors * (lane // 4) + 4 * vector + lane % 4)


def split_pixels(f: Function, packed: Reg, vectors: int) -> list[Reg]:
    """Split a packed vector into the bytes of its 4 / vectors pixels."""
    if vectors == 4:
        return [packed]
    pixels = 4 // vectors
    kind = {2: "i64", 1: "i32"}[vectors]
    size = {2: 8, 1: 4}[vectors]
    pieces = f.bitcast(packed, vec(lane_count(packed.type) // size, kind))
    pieces_per_pixel = lane_count(pieces.type) // pixels
    rows = [f.shuffle(pieces, pieces, [r + pixels * i for i in range(pieces_per_pixel)]) for r in range(pixels)]
    return [f.bitcast(r, vec(pieces_per_pixel * size, "i8")) for r in rows]


def join_pixels(f: Function, rows: Sequence[Reg], vectors: int) -> Reg:
    """The inverse of ``split_pixels``."""
    if vectors == 4:
        return rows[0]
    pixels = 4 // vectors
    kind, size = {2: ("i64", 8), 1: ("i32", 4)}[vectors]
    pieces_per_pixel = lane_count(rows[0].type) // size
    merged = [f.bitcast(r, vec(pieces_per_pixel, kind)) for r in rows]
    while len(merged) > 1:
        wide = lane_count(merged[0].type)
        merged = [f.shuffle(a, b, range(2 * wide)) for a, b in zip(merged[::2], merged[1::2], strict=True)]
    interleaved = f.shuffle(
        merged[0], merged[0], [pieces_per_pixel * r + i for i in range(pieces_per_pixel) for r in range(pixels)]
    )
    return f.bitcast(interleaved, vec(pieces_per_pixel * pixels * size, "i8"))


# ------------------------------------------------------------------------------------------------------------ int8 gemm

# Int8 gemm micro-kernel: one tile of pixels by one panel of output channels, int32 accumulators, requantized to int8.
#
# Activations are uint8 and weights int8, four of each per dot product (see ``vector.Int8Dot``), so the depth loop
# broadcasts four consecutive bytes of a pixel and weights are packed four depth elements per channel. Zero points cost
# nothing in the loop: with symmetric weights, sum((x - zx) * w) = sum(x * w) - zx * sum(w), and the second term is
# constant and folded into the int32 bias (gemmlowp, "doc/quantization.md"; Jacob et al. 2018, section 2.3).
#
# Helium has no dot product per lane, but one of 16 bytes accumulated in a scalar (``vector.dot16``), of operands of the
# same sign: 16 depth elements per step, the sign bit of data inverted, and the 128 that this subtracts in the bias.
#
# A packed panel is: bias (int32), requantization factors (one or two 32-bit words), epilogue parameters, weights.


@dataclass(frozen=True)
class Int8Panel:
    """``vectors`` (1, 2 or 4) of accumulators per pixel, whose first ``used`` bytes are stored.

    The channels are split into ``streams`` parts with weights stored one after the other, see ``gemm.Panel``.
    """

    vectors: int
    used: int
    streams: int = 1


def make_panels(isa: ISA, pixel_bytes: int, vectors: int, pixels: int = 0) -> list[Int8Panel]:
    """Panels of ``vectors`` vectors for the ``pixel_bytes`` of a pixel, and a narrower one for the remainder.

    For a single pixel every vector's weights are a stream of their own; for several pixels with Arm's DSP extension,
    each half of a vector's (``int8_gemm_dsp``).
    """
    lanes = isa.lanes
    if isa.dsp:
        streams = 1 if pixels == 1 else 2
        return [Int8Panel(1, min(lanes, pixel_bytes - start), streams) for start in range(0, pixel_bytes, lanes)]
    full, rest = divmod(pixel_bytes, vectors * lanes)
    last = next((v for v in (1, 2, 4) if v * lanes >= rest and v <= vectors), vectors)
    full_panel = Int8Panel(vectors, vectors * lanes, vectors if pixels == 1 else 1)
    return [full_panel] * full + ([Int8Panel(last, rest)] if rest else [])


_L1_WEIGHT_BYTES = 24 << 10  # the share of L1 that weights may fill
_TWO_SIZES_PENALTY = 1.03  # two tile sizes compile twice the code


@lru_cache(256)
def rank_tiles(
    isa: ISA, pixel_bytes: int, steps: int, rows: int, columns: int, threads: int
) -> tuple[tuple[int, int], ...]:
    """Candidate tiles (vectors, pixels), fastest first by a cost model of execution ports and caches."""
    if isa.arch == "arm":  # accumulators of all pixels and channels are general-purpose registers
        return ((1, 2),) if isa.dsp and rows * columns > 1 else ((1, 1),)
    if rows * columns == 1:
        return ((4, 1),)
    max_pixels = {4: 6, 2: 14, 1: 24} if isa.registers >= 32 else {2: 4, 1: 8}
    cycles_of: dict[tuple[int, int], float] = {}
    for vectors, limit in max_pixels.items():
        if vectors > 1 and pixel_bytes < vectors * isa.lanes // 2 + 1:
            continue
        width = vectors * isa.lanes
        for largest in range(limit, limit // 3, -1):
            tiles = -(-columns // largest)
            small, longer = divmod(columns, tiles)
            share = -(-rows * tiles // threads) * threads / (rows * tiles)
            sizes = ((small + 1, longer), (small, tiles - longer))
            cycles = sum(
                tile_count * _tile_cycles(vectors, size, steps, 4 * width * steps) for size, tile_count in sizes
            )
            cycles *= _TWO_SIZES_PENALTY if longer else 1.0
            cycles_of[vectors, small + bool(longer)] = cycles * share * -(-pixel_bytes // width)
    return tuple(sorted(cycles_of, key=lambda tile: (cycles_of[tile], -tile[0], -tile[1])))


def _tile_cycles(vectors: int, pixels: int, steps: int, weights: int) -> float:
    """Estimated cycles of one tile: dot products or loads, whichever port is busier, plus the epilogue.

    Weights beyond L1 are reloaded for every tile, which more pixels amortize.
    """
    if not pixels:
        return 0.0
    rounds = max(pixels * vectors, vectors + pixels / 2, 5) * steps
    if weights > _L1_WEIGHT_BYTES:
        rounds *= 1 + 0.4 / pixels
    return rounds + -(-pixels * vectors // 4) * (24 if vectors == 4 else 40) + 12


def panel_bytes(isa: ISA, panel: Int8Panel, epilogue: Int8Epilogue, steps: int) -> int:
    width = panel.vectors * isa.lanes
    return width * 4 * (1 + epilogue.factor_words) + epilogue.param_bytes + steps * width * isa.dot_bytes


def pack_weights(
    buffer: Array,
    isa: ISA,
    filters: Array,
    bias: Array,
    factors: Array,
    panels: Sequence[Int8Panel],
    epilogue: Int8Epilogue,
    params: EpilogueParams,
) -> None:
    """Pack ``filters`` [channels, steps * dot_bytes] of int8, ``bias`` [channels] and ``factors`` [words, channels]."""
    fours = np.ascontiguousarray(filters).reshape(len(filters), -1, isa.dot_bytes)  # channels, steps, depth
    if isa.helium:
        bias = bias + (128 * filters.sum(1, dtype=np.int64)).astype(np.int32)
    remaining, start, packed_params = buffer, 0, params.pack()[: epilogue.param_bytes]
    for panel, run in groupby(panels):
        panel_count, order = len(list(run)), channel_order(isa.lanes, panel.vectors)
        width = len(order)
        front = 4 * width * (1 + epilogue.factor_words)
        head = front + len(packed_params)
        size = head + width * fours[0].size
        packed, remaining = np.split(remaining, [panel_count * size])
        blocks = packed.reshape(panel_count, size)
        wanted_channels = start + panel.used * np.arange(panel_count)[:, None] + order
        valid, channels = wanted_channels < len(fours), np.minimum(wanted_channels, len(fours) - 1)
        body = fours[channels]
        body[~valid] = 0
        blocks[:, : 4 * width].view(np.int32)[:] = np.where(valid, bias[channels], 0)
        words = np.where(valid, factors.view(np.int32)[:, channels], padding_factors(epilogue)[:, None, None])
        blocks[:, 4 * width : front].view(np.int32).reshape(panel_count, epilogue.factor_words, width)[:] = (
            words.swapaxes(0, 1)
        )
        blocks[:, front:head] = packed_params
        parts = body.view(np.uint8).reshape(panel_count, panel.streams, -1, *fours.shape[1:]).swapaxes(2, 3)
        blocks[:, head:].reshape(parts.shape)[:] = parts
        start += panel_count * panel.used
    assert not len(remaining)


def emit_tile(module: Module, isa: ISA, pixels: int, panel: Int8Panel, window: Window, out_step: int, second_step: int,
              epilogue: Int8Epilogue, ahead: bool = False) -> Function:  # fmt: skip
    """Emit ``tile(data, weights, out, second)``. The window's depth is in steps of four bytes.

    ``ahead``: prefetch the next panel into L2.
    """
    name = f"tile_{pixels}_{panel.vectors}_{panel.used}"
    if name in module.functions:
        return module.functions[name]
    f = module.function(name, [(PTR, n) for n in ("data", "weights", "out", "second")])
    sums = _multiply(f, isa, pixels, panel, window, epilogue, ahead)
    lanes, head = isa.lanes, panel.vectors * isa.lanes * 4
    factors = load_requantizers(f, epilogue, f.gep(f.arg("weights"), head), lanes, panel.vectors, 4 * lanes)
    emitter = Int8EpilogueEmitter(f, epilogue, f.gep(f.arg("weights"), (1 + epilogue.factor_words) * head))
    pixels_per_store = 4 // panel.vectors
    for start in range(0, pixels, pixels_per_store):
        pixel_indices = [min(start + i, pixels - 1) for i in range(pixels_per_store)]
        four = [sums[p * panel.vectors + j] for p in pixel_indices for j in range(panel.vectors)]
        second = _load_second(f, isa, panel, pixel_indices, second_step) if epilogue.sum else None
        added = None if second is None else unpack_uint8_to_four(f, second)
        packed = emitter.store(four, factors * pixels_per_store, added)
        for p, row in zip(dict.fromkeys(pixel_indices), split_pixels(f, packed, panel.vectors), strict=False):
            f.store_first(row, panel.used, f.arg("out"), p * out_step)
    f.ret()
    return f


def _load_second(f: Function, isa: ISA, panel: Int8Panel, pixel_indices: Sequence[int], step: int) -> Reg:
    kind = vec(panel.vectors * isa.lanes, "i8")
    loaded = {p: f.load(kind, f.arg("second"), p * step) for p in dict.fromkeys(pixel_indices)}
    return join_pixels(f, [loaded[p] for p in pixel_indices], panel.vectors)


def _multiply(f: Function, isa: ISA, pixels: int, panel: Int8Panel, window: Window, epilogue: Int8Epilogue,
              ahead: bool) -> list[Reg]:  # fmt: skip
    size, weights = 4 * isa.lanes, f.arg("weights")
    bias = [f.load(vec(isa.lanes, "i32"), weights, j * size, size) for j in range(panel.vectors)]
    begin = f.gep(weights, (1 + epilogue.factor_words) * panel.vectors * size + epilogue.param_bytes)
    if isa.helium:
        return _accumulate_scalars(f, pixels, window, begin, bias)
    prefetch_distance = panel_bytes(isa, panel, epilogue, window.elements) if ahead else 0
    return accumulate_tile(
        f, Int8Dot(f, isa), pixels, window, begin, bias, prefetch_distance, into_l1=False, streams=panel.streams
    )


def _accumulate_scalars(f: Function, pixels: int, window: Window, begin: Reg, bias: list[Reg]) -> list[Reg]:
    """The depth loop with Helium: a scalar accumulator of every pixel and channel."""
    lanes, bytes_ = lane_count(bias[0].type), vec(16, "i8")
    channels = lanes * len(bias)
    first = [f.emit("i32", f"extractelement {b.type} {b}, i32 {lane}") for b in bias for lane in range(lanes)]

    def step(_: Reg, carried: list[Reg]) -> list[Reg]:
        data, weights, *sums = carried
        for p in range(pixels):
            x = f.op("xor", f.load(bytes_, data, p * window.step, 1), -128)
            for channel in range(channels):
                w = f.load(bytes_, weights, 16 * channel, 4)
                sums[p * channels + channel] = dot16(f, x, w, sums[p * channels + channel])
        return [f.gep(data, 16), f.gep(weights, 16 * channels), *sums]

    sums = emit_window_loops(f, window, [f.arg("data"), begin, *first * pixels], step, window.depth)[2:]
    vectors = []
    for start in range(0, len(sums), lanes):
        vectors.append(join_lanes(f, sums[start : start + lanes], bias[0].type))
    return vectors


def join_lanes(f: Function, lanes: Sequence[Reg], kind: str) -> Reg:
    vector = Reg("poison", kind)
    for lane, value in enumerate(lanes):
        vector = f.emit(kind, f"insertelement {kind} {vector}, {value.type} {value}, i32 {lane}")
    return vector


def accumulate_tile(
    f: Function,
    dots: Int8Dot | Int16Dot,
    pixels: int,
    window: Window,
    begin: Reg,
    bias: list[Reg],
    ahead: int = 0,
    into_l1: bool = True,
    streams: int = 1,
) -> list[Reg]:
    """The depth loop: accumulators of every pixel, one vector for each of ``bias``.

    ``ahead``: distance in bytes of a weight prefetch; ``into_l1``, or else into L2.
    """
    vectors, lanes = len(bias), lane_count(bias[0].type)
    size, bytes_, vectors_per_stream = 4 * lanes, vec(4 * lanes, "i8"), vectors // streams
    offsets = [
        s * vectors_per_stream * size * window.elements + j * size
        for s in range(streams)
        for j in range(vectors_per_stream)
    ]

    unrolled = next(n for n in (4, 2, 1) if window.depth % n == 0) if f.module.dsp else 1

    def steps(index: Reg, carried: list[Reg]) -> list[Reg]:
        for _ in range(unrolled):
            carried = step(index, carried)
        return carried

    def step(_: Reg, carried: list[Reg]) -> list[Reg]:
        data, weights, *sums = carried
        row = [dots.weights(f.load(bytes_, weights, weight_offset, size)) for weight_offset in offsets]
        for offset in range(0, vectors * size if ahead else 0, CACHE_LINE):
            prefetch(f, weights, ahead + offset, into_l1)
        for p in range(pixels):
            x = dots.data(f.bitcast(f.splat(f.load("i32", data, p * window.step, 1), lanes), bytes_))
            for j, w in enumerate(row):
                sums[p * vectors + j] = dots.add(sums[p * vectors + j], x, w)
        return [f.gep(data, 4), f.gep(weights, vectors_per_stream * size), *sums]

    return emit_window_loops(f, window, [f.arg("data"), begin, *bias * pixels], steps, window.depth // unrolled)[2:]


def max_accumulator(limit: Array, bias: Array) -> int:
    """The largest magnitude of an accumulator, for weights whose absolute values sum to ``limit``."""
    return int((limit.astype(np.int64) * 255 + np.abs(bias.astype(np.int64))).max(initial=0))
