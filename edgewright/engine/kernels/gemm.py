"""Float32 gemm micro-kernel with packed weights: one tile of pixels by one panel of output channels.

A tile of P pixels by V vectors of channels keeps all P * V accumulators in registers. Each step of the depth loop loads
V weight vectors and broadcasts P activations, so P + V loads feed P * V fused multiply-adds; the tile is made as large
as the register file allows. Weights are packed ahead of time in the order of the depth loop (bias first), so that a
panel is one sequential stream that the hardware prefetcher follows, whatever the layout of the model's weights.
Activations are not packed: the convolution window (``Window``) is a loop nest that reads them in place. See Goto and
van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (2008), for panels and packing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from edgewright.engine.codegen.builder import PTR, Function, Module, Reg, vec
from edgewright.engine.codegen.epilogue import Epilogue, apply_epilogue
from edgewright.engine.codegen.vector import CACHE_LINE, WEIGHT_STREAMS, fma, fma_bf16_pairs, prefetch
from edgewright.engine.isa import ISA
from edgewright.ir.graph import Array


@dataclass(frozen=True)
class Panel:
    """Output channels computed together: vectors of these widths, of which the first ``used`` columns are stored.

    The columns are split into ``streams`` parts with weights stored one after the other: concurrent read streams get
    more memory bandwidth than one.
    """

    widths: tuple[int, ...]
    used: int
    streams: int = 1

    @property
    def columns(self) -> int:
        return sum(self.widths)

    def vector_offsets(self, elements: int) -> list[int]:
        """Byte offsets of an element's vectors, relative to the first one."""
        vectors = len(self.widths) // self.streams
        starts = [4 * sum(self.widths[:i]) for i in range(vectors)]
        return [s * 4 * self.columns // self.streams * elements + at for s in range(self.streams) for at in starts]


@dataclass(frozen=True)
class Window:
    """The input window of a pixel: ``depth`` contiguous elements at each point of a loop nest over the input.

    ``loops`` are (trip count, stride in bytes), outermost first; ``step`` is the stride between pixels.
    """

    loops: tuple[tuple[int, int], ...]
    depth: int
    step: int

    @property
    def elements(self) -> int:
        return self.depth * int(np.prod([times for times, _ in self.loops], dtype=np.int64))


def max_tile_pixels(isa: ISA, vectors: int) -> int:
    """Maximum pixels per tile: accumulators, a row of weights and one broadcast must fit in the registers."""
    if isa.registers >= 32:
        return {1: 28, 2: 14}.get(vectors, max(1, (isa.registers - vectors - 1) // vectors))
    return {1: 12}.get(vectors, max(1, (isa.registers - vectors - 1) // vectors))


def default_panel_vectors(isa: ISA, channels: int, pixels: int) -> int:
    """Vectors per panel where no tuning result overrides it."""
    lanes = isa.lanes
    if pixels == 1:
        return 8
    if isa.registers >= 32:
        if channels <= lanes:
            return 1
        if pixels <= 6:
            return 4
        if channels % (3 * lanes) == 0 and channels % (2 * lanes):
            return 3
    return 2


def make_panels(isa: ISA, channels: int, pixels: int, vectors: int = 0) -> list[Panel]:
    """Split ``channels`` into panels of ``vectors`` vectors, and a narrower one for the remainder."""
    lanes = isa.lanes
    vectors = vectors or default_panel_vectors(isa, channels, pixels)
    full, rest = divmod(channels, vectors * lanes)
    result = [
        Panel(
            (lanes,) * vectors, vectors * lanes, WEIGHT_STREAMS if pixels == 1 and vectors % WEIGHT_STREAMS == 0 else 1
        )
    ] * full
    if rest:
        full_vectors, partial = divmod(rest, lanes)
        last = (max(4, 1 << (partial - 1).bit_length()),) if partial else ()
        result.append(Panel((lanes,) * full_vectors + last, rest))
    return result


def packed_size(panels: Sequence[Panel], elements: int) -> int:
    """Size of all packed panels in bytes."""
    return 4 * (elements + 1) * sum(p.columns for p in panels)


def pack_weights(buffer: Array, filters: Array, bias: Array | None, panels: Sequence[Panel]) -> None:
    """Pack ``filters`` [channels, window elements]: per panel its bias, then for each stream one row per element."""
    elements = filters.shape[1]
    remaining, start = buffer.view(np.float32), 0
    for panel, run in groupby(panels):
        count = len(list(run))
        packed, remaining = np.split(remaining, [count * (elements + 1) * panel.columns])
        blocks, columns_per_stream = packed.reshape(count, -1), panel.used // panel.streams
        span = slice(start, start + count * panel.used)
        body = blocks[:, panel.columns :].reshape(count, panel.streams, elements, -1)
        body[..., :columns_per_stream] = (
            filters[span].reshape(count, panel.streams, columns_per_stream, elements).swapaxes(2, 3)
        )
        if bias is not None:
            blocks[:, : panel.used] = bias[span].reshape(count, panel.used)
        start = span.stop
    assert start == len(filters) and not len(remaining)


def emit_tile(
    module: Module, pixels: int, panel: Panel, window: Window, out_step: int, second_step: int, epilogue: Epilogue,
    prefix: str = "", ahead: bool = False, pairs: bool = False,
) -> Function:  # fmt: skip
    """Emit ``tile(data, weights, out, second)``; ``prefix`` distinguishes the gemms of one module.

    ``ahead``: prefetch the next panel. ``pairs``: elements are pairs of bf16.
    """
    product = fma_bf16_pairs if pairs else fma
    shape = "_".join(map(str, (*panel.widths, panel.used)))
    name = f"{prefix}tile_{pixels}_{shape}"
    if name in module.functions:
        return module.functions[name]
    # Alone, it has all registers.
    f = module.function(name, [(PTR, n) for n in ("data", "weights", "out", "second")], inline=False)
    offsets = [4 * sum(panel.widths[:i]) for i in range(len(panel.widths))]
    types = [vec(width, "float") for width in panel.widths]
    bias = [f.load(t, f.arg("weights"), o, 16) for t, o in zip(types, offsets, strict=True)]
    start = [f.arg("data"), f.gep(f.arg("weights"), 4 * panel.columns)]
    offsets_in_step, step_bytes = panel.vector_offsets(window.elements), 4 * panel.columns // panel.streams

    def multiply(_: Reg, carried: list[Reg]) -> list[Reg]:
        data, weights, *sums = carried
        row = [f.load(t, weights, o, 16) for t, o in zip(types, offsets_in_step, strict=True)]
        for offset in range(0, 4 * panel.columns if ahead else 0, CACHE_LINE):
            prefetch(f, weights, 4 * panel.columns * (window.elements + 1) + offset)
        for p in range(pixels):
            x = f.load("float", data, p * window.step, 4)
            for j, w in enumerate(row):
                sums[p * len(row) + j] = product(f, f.splat(x, panel.widths[j]), w, sums[p * len(row) + j])
        return [f.gep(data, 4), f.gep(weights, step_bytes), *sums]

    sums = emit_window_loops(f, window, [*start, *bias * pixels], multiply, window.depth)[2:]
    for p in range(pixels):
        _store_pixel(f, panel, sums[p * len(types) : (p + 1) * len(types)], p * out_step, p * second_step, epilogue)
    f.ret()
    return f


def _store_pixel(f: Function, panel: Panel, sums: list[Reg], out: int, second: int, epilogue: Epilogue) -> None:
    """Store one pixel's channels of the panel, ``out`` and ``second`` bytes into the tile."""
    column = 0
    for total, width in zip(sums, panel.widths, strict=True):
        load = lambda kind=total.type, at=second + 4 * column: f.load(kind, f.arg("second"), at)  # noqa: E731
        used = min(panel.used - column, width)
        f.store_first(apply_epilogue(f, total, epilogue, load), used, f.arg("out"), out + 4 * column)
        column += width


def emit_window_loops(f: Function, window: Window, start: list[Reg], body: object, times: int) -> list[Reg]:
    """Emit the window's loop nest around the innermost loop.

    Loop-carried values: the data pointer, which each loop advances by its stride, then values that ``body`` advances.
    """

    def level(depth: int, carried: list[Reg]) -> list[Reg]:
        if depth == len(window.loops):
            return f.loop(times, carried, body)  # type: ignore[arg-type]
        count, step = window.loops[depth]
        if count == 1:
            return level(depth + 1, carried)

        def once(_: Reg, now: list[Reg]) -> list[Reg]:
            after = level(depth + 1, now)
            return [f.gep(now[0], step), *after[1:]]

        return f.loop(count, carried, once)

    return level(0, start)
