"""Float32 depthwise convolution, one row of output pixels at a time.

A tile of output pixels shares its input columns: each column is loaded once per kernel row and used by every window
that covers it. Channels are the vector dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgewright.engine.codegen.builder import PTR, Function, Module, Reg, vec
from edgewright.engine.codegen.epilogue import Epilogue, apply_epilogue
from edgewright.engine.codegen.vector import fma
from edgewright.engine.isa import ISA
from edgewright.ir.graph import Array


@dataclass(frozen=True)
class DepthwiseRow:
    """A row of output pixels; strides in bytes."""

    kernel: tuple[int, int]
    stride: int
    dilation: int
    columns: int  # output pixels
    channels: int
    data_pixel_stride: int
    out_pixel_stride: int
    residual_pixel_stride: int
    epilogue: Epilogue


def channel_blocks(isa: ISA, channels: int) -> list[tuple[int, int]]:
    """Vectors that cover the channels: (width, used lanes)."""
    full, rest = divmod(channels, isa.lanes)
    last = [(max(4, 1 << (rest - 1).bit_length()), rest)] if rest else []
    return [(isa.lanes, isa.lanes)] * full + last


def pack_weights(isa: ISA, filters: Array, bias: Array | None) -> Array:
    """Pack ``filters`` [taps, channels]: for each vector of channels its bias, then its taps."""
    parts, start = [], 0
    for width, used in channel_blocks(isa, filters.shape[1]):
        block = np.zeros((1 + filters.shape[0], width), np.float32)
        block[1:, :used] = filters[:, start : start + used]
        if bias is not None:
            block[0, :used] = bias[start : start + used]
        parts.append(block.reshape(-1))
        start += used
    return np.concatenate(parts)


def tile_pixels(isa: ISA, row: DepthwiseRow) -> int:
    """Pixels per tile: what the registers hold beside the taps, preferably a divisor of the row length."""
    taps = row.kernel[0] * row.kernel[1]
    weight_registers = taps if taps <= 9 and isa.registers >= 32 else row.kernel[1]
    max_pixels = max(4, min(isa.registers - weight_registers - 6, 8 if taps > 9 else 7)) if isa.registers >= 32 else 4
    divisors = [n for n in range(max_pixels, max_pixels // 2, -1) if row.columns % n == 0]
    return divisors[0] if divisors else min(max_pixels, row.columns)


def emit_row(module: Module, isa: ISA, row: DepthwiseRow) -> Function:
    """Emit ``row(data0, data1, ..., out, weights, second)``, with a data pointer per kernel row."""
    names = [f"data{i}" for i in range(row.kernel[0])]
    f = module.function("row", [(PTR, n) for n in (*names, "out", "weights", "second")])
    blocks = channel_blocks(isa, row.channels)
    start = [f.arg(n) for n in (*names, "out", "second", "weights")]
    full = sum(1 for b in blocks if b == blocks[0])
    for block, times in ((blocks[0], full), (blocks[-1], len(blocks) - full)):
        if not times:
            continue

        def channels(_: Reg, now: list[Reg], block: tuple[int, int] = block) -> list[Reg]:
            _emit_row_tiles(f, isa, row, block, now)
            size = 4 * block[0]
            taps = row.kernel[0] * row.kernel[1]
            return [*(f.gep(p, size) for p in now[:-1]), f.gep(now[-1], (1 + taps) * size)]

        start = f.loop(times, start, channels)
    f.ret()
    return f


def _emit_row_tiles(f: Function, isa: ISA, row: DepthwiseRow, block: tuple[int, int], now: list[Reg]) -> None:
    """All pixels of the row, for one vector of channels."""
    pixels = tile_pixels(isa, row)
    times, rest = divmod(row.columns, pixels)
    *data, out, second, weights = now
    steps = [row.stride * row.data_pixel_stride] * len(data) + [row.out_pixel_stride, row.residual_pixel_stride]

    def tile(_: Reg, pointers: list[Reg]) -> list[Reg]:
        _emit_tile(f, row, block, pointers, weights, pixels)
        return [f.gep(p, pixels * s) for p, s in zip(pointers, steps, strict=True)]

    pointers = f.loop(times, [*data, out, second], tile)
    if rest:
        _emit_tile(f, row, block, pointers, weights, rest)


def _emit_tile(
    f: Function, row: DepthwiseRow, block: tuple[int, int], pointers: Sequence[Reg], weights: Reg, pixels: int
) -> None:
    width, used = block
    kind, size = vec(width, "float"), 4 * width
    *data, out, second = pointers
    sums = [f.load(kind, weights, 0, 16)] * pixels
    high, wide = row.kernel
    for dy in range(high):
        loaded: dict[int, Reg] = {}
        for dx in range(wide):
            tap = f.load(kind, weights, (1 + dy * wide + dx) * size, 16)
            for p in range(pixels):
                column = p * row.stride + dx * row.dilation
                if column not in loaded:
                    loaded[column] = f.load(kind, data[dy], column * row.data_pixel_stride, 4)
                sums[p] = fma(f, loaded[column], tap, sums[p])
    for p, total in enumerate(sums):
        value = apply_epilogue(f, total, row.epilogue, lambda p=p: f.load(kind, second, p * row.residual_pixel_stride))  # type: ignore[misc]
        f.store_first(value, used, out, p * row.out_pixel_stride)


def emit_depthwise(module: Module, name: str, function: Function, height: int, in_row: int, down: int, out_row: int,
                   residual_row: int, dilation: int) -> None:  # fmt: skip
    """Work units are output rows, computed by ``function``. Arguments: data, weights, output, second operand."""
    f = module.kernel(name)
    data, weights, out, second = (f.load_arg(PTR, i) for i in range(4))

    def output_row(y: Reg) -> None:
        top = f.gep(data, f.mul(y, down * in_row))
        rows = [f.gep(top, dy * dilation * in_row) for dy in range(height)]
        f.call_void(function, *rows, f.gep(out, f.mul(y, out_row)), weights, f.gep(second, f.mul(y, residual_row)))

    f.for_range(f.arg("begin"), f.arg("end"), output_row)
    f.ret()
