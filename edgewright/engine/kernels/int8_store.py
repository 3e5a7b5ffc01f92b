"""What integer kernels have in common: from 32-bit sums to stored bytes."""

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
    """Which parts the way from sums to bytes has; their numbers are in the notes that lie with the weights."""

    zero: bool  # a zero point that is not 0
    low: bool  # a least byte above 0
    high: bool  # a largest byte below 255
    far: bool  # products that may leave 32 bits
    sum: bool  # another tensor's bytes are added
    table: bool  # each byte is looked up at the end
    rounding: str = "even"

    @property
    def words(self) -> int:
        """Numbers of 32 bits that each channel's factor has."""
        return len(REQUANTIZERS[self.rounding].words)

    @property
    def notes(self) -> int:
        """Bytes of the notes."""
        return 64 + 256 * self.table


@dataclass(frozen=True)
class EpilogueParams:
    """``factors`` of a sum: (least, largest, first, second, rest, shift), see ``ops/maps.py``."""

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
    f: Function, ending: Int8Epilogue, place: Reg, lanes: int, vectors: int, align: int
) -> list[Requantize]:
    """The factors of so many vectors of channels: all their first words, then all their second ones."""
    rounding, size = REQUANTIZERS[ending.rounding], 4 * lanes
    made = []
    for j in range(vectors):
        places = [(kind, (w * vectors + j) * size) for w, kind in enumerate(rounding.words)]
        words = [f.load(vec(lanes, kind), place, offset, align) for kind, offset in places]
        made.append(rounding.emit(f, words, ending.far))
    return made


def padding_factors(ending: Int8Epilogue) -> Array:
    """The words of channels that are not there: nothing is shifted by less than one bit, or divided by 0."""
    return np.array(REQUANTIZERS[ending.rounding].nothing, np.int32)


class Int8EpilogueEmitter:
    """Emits the way from four vectors of sums to one of bytes."""

    def __init__(self, f: Function, ending: Int8Epilogue, notes: Reg) -> None:
        self.f, self.ending, self.notes = f, ending, notes

    def _word(self, index: int, lanes: int, kind: str = "i32") -> Reg:
        return self.f.splat(self.f.load(kind, self.notes, 4 * index, 4), lanes)

    def store(self, sums: Sequence[Reg], factors: Sequence[Requantize], second: Reg | None) -> Reg:
        f, ending = self.f, self.ending
        lanes = lane_count(sums[0].type)
        whole = [factor(total) for total, factor in zip(sums, factors, strict=True)]
        if second is not None:
            whole = self._add(whole, unpack_uint8_to_four(f, second), lanes)
        x = pack_four_to_uint8(f, whole, self._word(0, 2 * lanes, "i16") if ending.zero else None)
        if ending.low:
            x = int_max(f, x, self._word(1, 4 * lanes, "i8"), signed=False)
        if ending.high:
            x = int_min(f, x, self._word(2, 4 * lanes, "i8"), signed=False)
        return lookup_uint8(f, f.gep(self.notes, 64), x) if ending.table else x

    def _add(self, whole: Sequence[Reg], others: Sequence[Reg], lanes: int) -> list[Reg]:
        """Both in the output's steps, as the reference has it: integers, half a step rounded up."""
        f = self.f
        least, largest, first, second, rest, shift = (self._word(3 + i, lanes) for i in range(6))
        made = []
        for x, y in zip(whole, others, strict=True):
            inside = int_min(f, int_max(f, x, least), largest)
            both = f.op("add", f.op("mul", inside, first), f.op("mul", y, second))
            made.append(f.op("ashr", f.op("add", both, rest), shift))
        return made


def lookup_uint8(f: Function, table: Reg, x: Reg) -> Reg:
    """Each byte by a table of 256: two halves, each in one instruction; shorter vectors as a part of a long one."""
    if lane_count(x.type) < 64:
        own = list(range(lane_count(x.type)))
        first = f.emit("<2 x i8>", f"insertelement <2 x i8> poison, i8 {x}, i32 0") if len(own) == 1 else x
        whole = lookup_uint8(f, table, f.shuffle(first, first, [*own, *[-1] * (64 - len(own))]))
        return f.shuffle(whole, whole, own)
    quarters = [f.load(x.type, table, 64 * i, 64) for i in range(4)]
    low, high = (permute_int8(f, quarters[i], x, quarters[i + 1]) for i in (0, 2))
    return f.select(f.compare("slt", x, const(0, x.type)), high, low)


def channel_order(lanes: int, vectors: int) -> Array:
    """Which output channel each lane of a panel's vectors has, so that packing them to bytes puts channels in order."""
    places: Array = np.arange(lanes * vectors)
    vector, lane = places // lanes, places % lanes
    return np.asarray(4 * vectors * (lane // 4) + 4 * vector + lane % 4)


def split_pixels(f: Function, packed: Reg, vectors: int) -> list[Reg]:
    """The bytes of each of 4/vectors pixels."""
    if vectors == 4:
        return [packed]
    together = 4 // vectors
    kind = {2: "i64", 1: "i32"}[vectors]
    size = {2: 8, 1: 4}[vectors]
    pieces = f.bitcast(packed, vec(lane_count(packed.type) // size, kind))
    each = lane_count(pieces.type) // together
    rows = [f.shuffle(pieces, pieces, [r + together * i for i in range(each)]) for r in range(together)]
    return [f.bitcast(r, vec(each * size, "i8")) for r in rows]


def join_pixels(f: Function, rows: Sequence[Reg], vectors: int) -> Reg:
    """The inverse of ``split_pixels``."""
    if vectors == 4:
        return rows[0]
    together = 4 // vectors
    kind, size = {2: ("i64", 8), 1: ("i32", 4)}[vectors]
    each = lane_count(rows[0].type) // size
    joined = [f.bitcast(r, vec(each, kind)) for r in rows]
    while len(joined) > 1:
        wide = lane_count(joined[0].type)
        joined = [f.shuffle(a, b, range(2 * wide)) for a, b in zip(joined[::2], joined[1::2], strict=True)]
    turned = f.shuffle(joined[0], joined[0], [each * r + i for i in range(each) for r in range(together)])
    return f.bitcast(turned, vec(each * together * size, "i8"))
