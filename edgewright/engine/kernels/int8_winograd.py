"""Winograd's F(4x4) for 3x3 windows of bytes, without any loss.

Its factors are fractions, but 576 times the result is whole: with rows of the weights' transform multiplied by 4, 6, 6,
24, 24 and 1, weights and points are integers that fit in 16 bits, and only sums may leave 32. They may: cut off to 32
bits, 576 results r still say what r is, if it lies within 26 bits. 576 is 9 * 64, 9 has an inverse among the integers
of 32 bits, and what is left, 64 r, is shifted down. So four times fewer products, of 16 bits instead of 8, give the
very sums of the plain way.
"""

from __future__ import annotations

import numpy as np

from edgewright.engine.codegen.builder import PTR, Function, Module, Reg, const, vec
from edgewright.engine.codegen.vector import Int16Dot
from edgewright.engine.isa import ISA
from edgewright.engine.kernels.gemm import Window
from edgewright.engine.kernels.int8_gemm import accumulate_tile
from edgewright.engine.kernels.int8_store import Int8Epilogue, Int8EpilogueEmitter, channel_order, load_requantizers
from edgewright.engine.kernels.winograd import OutputTiles, PatchRow, emit_output_tiles
from edgewright.ir.graph import Array

_FILTER_TRANSFORM = np.array([[1, 0, 0], [-1, -1, -1], [-1, 1, -1], [1, 2, 4], [1, -2, 4], [0, 0, 1]], np.int32)
_INVERSE_OF_9 = pow(9, -1, 1 << 32) - (1 << 32)
_SHIFT_64 = 6
MAX_ABS_OUTPUT = 1 << 25  # of a result's size


def max_abs_output(filters: Array) -> int:
    """The largest size of a result, of ``filters`` [channels, 3, 3, inputs] over bytes from 0 to 255."""
    flat = filters.reshape(len(filters), -1)
    above, below = (np.maximum(sign * flat, 0, dtype=np.int32).sum(axis=1, dtype=np.int64) for sign in (1, -1))
    return 255 * int(max(above.max(initial=0), below.max(initial=0)))


def transform_weights(filters: Array) -> Array:
    """``filters`` [channels, 3, 3, inputs] as [points, channels, inputs] of 16 bits."""
    taps = filters.transpose(1, 2, 0, 3).reshape(9, -1).astype(np.int32)
    made = np.kron(_FILTER_TRANSFORM, _FILTER_TRANSFORM) @ taps
    return made.astype(np.int16).reshape(36, filters.shape[0], filters.shape[3])


def pack_weights(room: Array, lanes: int, filters: Array, vectors: int) -> None:
    """For each point panels of so many vectors: at each step two inputs' weights for every channel."""
    channels, block = len(filters), 4 * lanes
    steps = filters.shape[3] // 2
    panels = room.view(np.int32).reshape(36, channels // (vectors * lanes), steps, vectors * lanes)
    each = block // (vectors * lanes)
    for start in range(0, channels, block):
        pairs = transform_weights(filters[start : start + block]).view(np.int32)[:, channel_order(lanes, 4)]
        first = start // (vectors * lanes)
        panels[:, first : first + each] = pairs.reshape(36, each, vectors * lanes, steps).transpose(0, 1, 3, 2)


def pack_epilogue_params(lanes: int, bias: Array, factors: Array, notes: Array) -> Array:
    """For each block of channels its bias and its factors' words, then the notes."""
    order = channel_order(lanes, 4)
    rows = np.concatenate((bias[None], factors.view(np.int32)))
    blocks = rows.reshape(len(rows), -1, 4 * lanes)[:, :, order].transpose(1, 0, 2)
    return np.concatenate((np.ascontiguousarray(blocks).view(np.uint8).reshape(-1), notes))


def emit_tile(module: Module, isa: ISA, pixels: int, vectors: int, window: Window, out_step: int) -> Function:
    """``tile(data, weights, out, second)``: sums of 32 bits."""
    name = f"tile_{pixels}_{vectors}"
    f = module.function(name, [(PTR, n) for n in ("data", "weights", "out", "second")])
    zeros = [const(0, vec(isa.lanes, "i32"))] * vectors
    panel = window.depth * vectors * 4 * isa.lanes
    sums = accumulate_tile(f, Int16Dot(f, isa), pixels, window, f.arg("weights"), zeros, ahead=panel)
    for p in range(pixels):
        for j in range(vectors):
            f.store(sums[p * vectors + j], f.arg("out"), p * out_step + 4 * isa.lanes * j, 4)
    f.ret()
    return f


def _output_transform(f: Function, x: list[Reg]) -> list[Reg]:
    """One dimension of the output transform, 24 times as large."""

    def times(a: Reg, factor: int) -> Reg:
        return f.op("mul", a, const(factor, a.type))

    def add(a: Reg, b: Reg) -> Reg:
        return f.op("add", a, b)

    total, apart = times(add(x[1], x[2]), 4), times(f.op("sub", x[1], x[2]), 4)
    far, wide = add(x[3], x[4]), f.op("sub", x[3], x[4])
    return [
        add(add(times(x[0], 6), total), far),
        add(apart, times(wide, 2)),
        add(total, times(far, 4)),
        add(add(apart, times(wide, 8)), times(x[5], 24)),
    ]


def _accumulators(f: Function, patches: PatchRow, lanes: int, now: list[Reg]) -> list[Reg]:
    """A vector of channels: its points become the tile's sums."""
    kind, vector, (points, ends), lines = vec(lanes, "i32"), 4 * lanes, now, []
    for c in range(patches.side):
        lines.append(
            _output_transform(f, [f.load(kind, points, (r * patches.side + c) * patches.point, 4) for r in range(6)])
        )
    bias = f.load(kind, ends, 0, 4)
    for r in range(4):
        for c, x in enumerate(_output_transform(f, [line[r] for line in lines])):
            whole = f.op("ashr", f.op("mul", x, const(_INVERSE_OF_9, kind)), _SHIFT_64)
            f.store(f.op("add", whole, bias), points, (r * 4 + c) * patches.point, 4)
    return [f.gep(points, vector), f.gep(ends, vector)]


def emit_output_transform(module: Module, lanes: int, outputs: OutputTiles, ending: Int8Epilogue) -> Function:
    """``outputs(points, out, second, ends, rows)``, see ``winograd.emit_tiles``; points are written over."""
    kind, patches = vec(lanes, "i32"), outputs.patches
    vector, head = 4 * lanes, 16 * lanes * (1 + ending.words)
    notes = patches.channels // (4 * lanes) * head

    def tile(f: Function, now: list[Reg], columns: int) -> list[Reg]:
        points, out, second, ends = now
        f.loop(4, [points, ends], lambda _, each: _accumulators(f, patches, lanes, each))
        factors = load_requantizers(f, ending, f.gep(ends, 4 * vector), lanes, 4, 4)
        finish = Int8EpilogueEmitter(f, ending, f.gep(f.arg("bias"), notes))

        def store(r: int) -> None:
            for c in range(columns):
                at = (r * 4 + c) * patches.point
                four = [f.load(kind, points, at + vector * j, 4) for j in range(4)]
                beside = r * outputs.second_row + c * outputs.second_pixel
                other = f.load(vec(4 * lanes, "i8"), second, beside) if ending.sum else None
                f.store(finish.store(four, factors, other), out, r * patches.row + c * patches.pixel)

        store(0)
        for r in range(1, 4):
            f.if_then(f.compare("ugt", f.arg("rows"), r), lambda r=r: store(r))  # type: ignore[misc]
        return [f.gep(points, 4 * vector), f.gep(out, vector), f.gep(second, vector), f.gep(ends, head)]

    return emit_output_tiles(module, outputs, 4 * lanes, tile)
