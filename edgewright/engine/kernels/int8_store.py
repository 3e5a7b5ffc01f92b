"""Epilogue of the int8 kernels: requantize int32 accumulators, add a residual, clamp, look up and store as uint8."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgewright.engine.codegen.builder import Function, Reg, const, lane_count, vec
from edgewright.engine.codegen.requant import REQUANTIZERS, Requantize
from edgewright.engine.codegen.vector import int_max, int_min, pack_four_to_uint8, permute_int8, unpack_uint8_to_four
from edgewright.ir.graph import Array


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

    @property
    def factor_words(self) -> int:
        """32-bit words per channel of a requantization factor."""
        return len(REQUANTIZERS[self.rounding].factor_words)

    @property
    def param_bytes(self) -> int:
        """Size of the parameters in bytes."""
        return 64 + 256 * self.table


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

    def store(self, sums: Sequence[Reg], factors: Sequence[Requantize], second: Reg | None) -> Reg:
        f, epilogue = self.f, self.epilogue
        lanes = lane_count(sums[0].type)
        scaled = [factor(total) for total, factor in zip(sums, factors, strict=True)]
        if second is not None:
            scaled = self._add(scaled, unpack_uint8_to_four(f, second), lanes)
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
