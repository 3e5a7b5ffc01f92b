"""Products of bytes: one tile of pixels by one panel of output channels, into 32-bit sums, stored as bytes again.

Data are unsigned bytes, weights signed ones, four of each at a time. A panel is: bias (32 bits), factors (32 bits
or more), notes of its ending, then the weights, four bytes for each channel at each step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

import numpy as np

from edgewright.engine.codegen.builder import PTR, Function, Module, Reg, lane_count, vec
from edgewright.engine.codegen.vector import CACHE_LINE, Int8Dot, Int16Dot, prefetch
from edgewright.engine.isa import ISA
from edgewright.engine.kernels.gemm import Window, emit_window_loops
from edgewright.engine.kernels.int8_store import (
    EpilogueParams,
    Int8Epilogue,
    Int8EpilogueEmitter,
    channel_order,
    join_pixels,
    load_requantizers,
    padding_factors,
    split_pixels,
)
from edgewright.ir.graph import Array


@dataclass(frozen=True)
class Int8Panel:
    """``vectors`` of sums (1, 2 or 4), whose first ``used`` bytes are stored.

    Weights of ``streams`` parts of the vectors lie one after the other: memory is read faster in several places.
    """

    vectors: int
    used: int
    streams: int = 1


def make_panels(isa: ISA, stored: int, vectors: int, pixels: int = 0) -> list[Int8Panel]:
    """Panels of so many vectors for so many stored bytes of a pixel, and a narrower one if little is left.

    For a single pixel each vector's weights are read in a place of their own.
    """
    lanes = isa.lanes
    full, rest = divmod(stored, vectors * lanes)
    last = next((v for v in (1, 2, 4) if v * lanes >= rest and v <= vectors), vectors)
    whole = Int8Panel(vectors, vectors * lanes, vectors if pixels == 1 else 1)
    return [whole] * full + ([Int8Panel(last, rest)] if rest else [])


_L1_WEIGHT_BYTES = 24 << 10  # bytes of it that weights may fill
_TWO_SIZES_PENALTY = 1.03  # as if tiles of two sizes took longer: they are twice the code to compile


@lru_cache(256)
def rank_tiles(isa: ISA, stored: int, steps: int, rows: int, columns: int, threads: int) -> tuple[tuple[int, int], ...]:
    """Vectors and pixels of tiles, those first that take the fewest cycles by a model of the ports and caches."""
    if rows * columns == 1:
        return ((4, 1),)
    most = {4: 6, 2: 14, 1: 24} if isa.registers >= 32 else {2: 4, 1: 8}
    found: dict[tuple[int, int], float] = {}
    for vectors, limit in most.items():
        if vectors > 1 and stored < vectors * isa.lanes // 2 + 1:
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
            found[vectors, small + bool(longer)] = cycles * share * -(-stored // width)
    return tuple(sorted(found, key=lambda tile: (found[tile], -tile[0], -tile[1])))


def _tile_cycles(vectors: int, pixels: int, steps: int, weights: int) -> float:
    """Of one tile. A step multiplies pixels * vectors times, its loads run beside; four vectors at a time are stored.

    Weights that do not stay in the first cache come again for every tile: the more pixels, the less that matters.
    """
    if not pixels:
        return 0.0
    rounds = max(pixels * vectors, vectors + pixels / 2, 5) * steps
    if weights > _L1_WEIGHT_BYTES:
        rounds *= 1 + 0.4 / pixels
    return rounds + -(-pixels * vectors // 4) * (24 if vectors == 4 else 40) + 12


def panel_bytes(isa: ISA, panel: Int8Panel, ending: Int8Epilogue, steps: int) -> int:
    width = panel.vectors * isa.lanes
    return width * 4 * (1 + ending.words) + ending.notes + steps * width * 4


def pack_weights(
    room: Array, isa: ISA, filters: Array, bias: Array, factors: Array, made: Sequence[Int8Panel], ending: Int8Epilogue,
    notes: EpilogueParams,
) -> None:  # fmt: skip
    """``filters`` [channels, steps * 4] of int8; bias and factors [words, channels] of 32 bits."""
    fours = np.ascontiguousarray(filters).view(np.int32)
    left, start, tail = room, 0, notes.pack()
    for panel, run in groupby(made):
        panel_count, order = len(list(run)), channel_order(isa.lanes, panel.vectors)
        width = len(order)
        front = 4 * width * (1 + ending.words)
        head = front + len(tail)
        size = head + 4 * width * fours.shape[1]
        here, left = np.split(left, [panel_count * size])
        blocks = here.reshape(panel_count, size)
        wanted = start + panel.used * np.arange(panel_count)[:, None] + order
        there, channels = wanted < len(fours), np.minimum(wanted, len(fours) - 1)
        body = fours[channels]
        body[~there] = 0
        blocks[:, : 4 * width].view(np.int32)[:] = np.where(there, bias[channels], 0)
        words = np.where(there, factors.view(np.int32)[:, channels], padding_factors(ending)[:, None, None])
        blocks[:, 4 * width : front].view(np.int32).reshape(panel_count, ending.words, width)[:] = words.swapaxes(0, 1)
        blocks[:, front:head] = tail
        parts = body.reshape(panel_count, panel.streams, -1, fours.shape[1])
        blocks[:, head:].view(np.int32).reshape(*parts.shape[:2], fours.shape[1], -1)[:] = parts.swapaxes(2, 3)
        start += panel_count * panel.used
    assert not len(left)


def emit_tile(module: Module, isa: ISA, pixels: int, panel: Int8Panel, window: Window, out_step: int, second_step: int,
              ending: Int8Epilogue, ahead: bool = False) -> Function:  # fmt: skip
    """``tile(data, weights, out, second)``. The window's depth is in steps of four bytes.

    ``ahead``: the panel that follows is brought to the second cache.
    """
    name = f"tile_{pixels}_{panel.vectors}_{panel.used}"
    if name in module.functions:
        return module.functions[name]
    f = module.function(name, [(PTR, n) for n in ("data", "weights", "out", "second")])
    sums = _multiply(f, isa, pixels, panel, window, ending, ahead)
    lanes, head = isa.lanes, panel.vectors * isa.lanes * 4
    factors = load_requantizers(f, ending, f.gep(f.arg("weights"), head), lanes, panel.vectors, 4 * lanes)
    finish = Int8EpilogueEmitter(f, ending, f.gep(f.arg("weights"), (1 + ending.words) * head))
    together = 4 // panel.vectors
    for start in range(0, pixels, together):
        chosen = [min(start + i, pixels - 1) for i in range(together)]
        four = [sums[p * panel.vectors + j] for p in chosen for j in range(panel.vectors)]
        second = _load_second(f, isa, panel, chosen, second_step) if ending.sum else None
        packed = finish.store(four, factors * together, second)
        for p, row in zip(dict.fromkeys(chosen), split_pixels(f, packed, panel.vectors), strict=False):
            f.store_first(row, panel.used, f.arg("out"), p * out_step)
    f.ret()
    return f


def _load_second(f: Function, isa: ISA, panel: Int8Panel, chosen: Sequence[int], step: int) -> Reg:
    kind = vec(panel.vectors * isa.lanes, "i8")
    loaded = {p: f.load(kind, f.arg("second"), p * step) for p in dict.fromkeys(chosen)}
    return join_pixels(f, [loaded[p] for p in chosen], panel.vectors)


def _multiply(f: Function, isa: ISA, pixels: int, panel: Int8Panel, window: Window, ending: Int8Epilogue,
              ahead: bool) -> list[Reg]:  # fmt: skip
    size, weights = 4 * isa.lanes, f.arg("weights")
    bias = [f.load(vec(isa.lanes, "i32"), weights, j * size, size) for j in range(panel.vectors)]
    begin = f.gep(weights, (1 + ending.words) * panel.vectors * size + ending.notes)
    further = panel_bytes(isa, panel, ending, window.elements) if ahead else 0
    return accumulate_tile(f, Int8Dot(f, isa), pixels, window, begin, bias, further, near=False, streams=panel.streams)


def accumulate_tile(f: Function, dots: Int8Dot | Int16Dot, pixels: int, window: Window, begin: Reg, bias: list[Reg],
             ahead: int = 0, near: bool = True, streams: int = 1) -> list[Reg]:  # fmt: skip
    """The sums of each pixel, a vector for each of ``bias``: four bytes of data by as many of the weights at a time.

    ``ahead``: the weights so many bytes farther on will be needed next; ``near``: in the first cache.
    """
    vectors, lanes = len(bias), lane_count(bias[0].type)
    size, bytes_, each = 4 * lanes, vec(4 * lanes, "i8"), vectors // streams
    places = [s * each * size * window.elements + j * size for s in range(streams) for j in range(each)]

    def step(_: Reg, carried: list[Reg]) -> list[Reg]:
        data, weights, *sums = carried
        row = [dots.weights(f.load(bytes_, weights, place, size)) for place in places]
        for offset in range(0, vectors * size if ahead else 0, CACHE_LINE):
            prefetch(f, weights, ahead + offset, near)
        for p in range(pixels):
            x = dots.data(f.bitcast(f.splat(f.load("i32", data, p * window.step, 1), lanes), bytes_))
            for j, w in enumerate(row):
                sums[p * vectors + j] = dots.add(sums[p * vectors + j], x, w)
        return [f.gep(data, 4), f.gep(weights, each * size), *sums]

    return emit_window_loops(f, window, [f.arg("data"), begin, *bias * pixels], step, window.depth)[2:]


def max_accumulator(limit: Array, bias: Array) -> int:
    """The largest that a sum can become, for weights whose sizes sum to ``limit``."""
    return int((limit.astype(np.int64) * 255 + np.abs(bias.astype(np.int64))).max(initial=0))
