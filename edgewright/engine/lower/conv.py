"""Convolutions and linear layers in single precision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgewright.engine.codegen.builder import Function, Module
from edgewright.engine.codegen.epilogue import Epilogue
from edgewright.engine.graph.layout import Layout, Storage
from edgewright.engine.graph.nodes import Node, fused_clamp, is_float32
from edgewright.engine.isa import ISA
from edgewright.engine.kernels import depthwise, gemm
from edgewright.engine.kernels.tile_loops import PanelGroup, TileGrid, emit_tile_loops
from edgewright.engine.lower.base import Lowering, LoweringContext
from edgewright.engine.lower.conv_base import ConvLowering, ConvTransposeLowering, emit_depthwise_steps
from edgewright.engine.lower.conv_geometry import (
    ConvGeometry,
    GemmPart,
    conv_geometry,
    gemm_parts,
    has_uniform_rows,
    input_window,
    linear_geometry,
    transposed_conv_phases,
)
from edgewright.engine.plan import Address
from edgewright.ir.graph import Array, Value

_RATE = 50.0  # products per nanosecond, about


def loop_order(part: GemmPart, panels: int, weight_bytes: int, channels: int, threads: int) -> tuple[bool, bool]:
    """(units are panels, panels are the outer loop): the larger side is walked once, if threads share it evenly."""
    pixels = part.grid.rows * part.grid.columns
    tiles = part.grid.rows * part.grid.tiles
    by_panel = channels > pixels and thread_utilization(panels, threads) >= 0.97 * thread_utilization(tiles, threads)
    return by_panel, weight_bytes > 128 << 10


@dataclass(frozen=True)
class GemmTile:
    """How a product is cut: vectors of a panel, pixels of a tile, and whether loops go the other way than by rule."""

    vectors: int
    pixels: int
    turned: bool = False

    def __str__(self) -> str:
        return f"{self.vectors} x {self.pixels}" + (", loops turned" if self.turned else "")


def thread_utilization(units: int, threads: int) -> float:
    """How much of the threads' time is used."""
    return units / (threads * -(-units // threads))


def candidate_tiles(isa: ISA, channels: int, pixels: int) -> list[GemmTile]:
    """The rule's, and others that may be faster."""
    usual = gemm.default_panel_vectors(isa, channels, pixels)
    others = (2, 4, 8) if pixels == 1 else (1, 2, 3, 4) if isa.registers >= 32 else (1, 2, 3)
    wide = [usual, *(v for v in others if v != usual and (v - 1) * isa.lanes < channels)]
    made = [GemmTile(v, gemm.max_tile_pixels(isa, min(v, -(-channels // isa.lanes)))) for v in wide]
    return [*made, GemmTile(made[0].vectors, made[0].pixels, True)] if pixels > 1 else made


def is_float_conv(node: Node) -> bool:
    """Everything in single precision, weights and bias constant."""
    x, weight, bias = (node.op.args.get(n) for n in ("input", "weight", "bias"))
    assert x is not None and weight is not None
    fits = is_float32(x) and is_float32(node.out) and weight.constant and is_float32(weight)
    return fits and (bias is None or (bias.constant and is_float32(bias)))


class FloatConv(ConvLowering):
    """conv2d and linear: ``filters`` [channels, height, width, inputs]."""

    pairs: ClassVar[bool] = False  # elements are pairs of 16 bits

    def __init__(self, node: Node, conv: ConvGeometry, filters: Array) -> None:
        super().__init__(node, conv)
        self.filters = filters
        self.tail: Epilogue = fused_clamp(node.op) + node.tail

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        op = node.op
        if op.kind not in ("conv2d", "linear") or len(node.middle.bound) == 0 or not is_float_conv(node):
            return None
        data = np.asarray(op.args["weight"].data)
        if op.kind == "conv2d":
            conv = conv_geometry(op)
            return cls(node, conv, data) if conv.few else None
        turned = data.T if op.args.get("transposed") else data
        return cls(node, linear_geometry(op), turned[:, None, None, :])

    def reads_layout(self, value: Value, layout: Layout) -> bool:
        """Rows of a linear layer may have gaps between them, all alike."""
        return layout.dense or (self.node.op.kind == "linear" and layout.straight and has_uniform_rows(layout))

    def emit(self, context: LoweringContext) -> None:
        conv, isa = self.conv, context.isa
        data, out = self.source(context), context.home(self.node.out)
        second = None if self.node.second is None else context.home(self.node.second)
        pixels = conv.size[0] * conv.size[1] * (conv.images if conv.flat else 1)
        reach = input_window(conv, data, 4)
        tile = context.tuning.pick(
            self.node, "tile", (conv, reach, self.tail), candidate_tiles(isa, conv.outputs, pixels)
        )
        made = gemm.make_panels(isa, conv.outputs, pixels, tile.vectors)
        places = [self.pack(context, made, g) for g in range(conv.groups)]
        for part in gemm_parts(conv, tile.pixels, data, out, second):
            size = sum(p.columns for p in made) * (reach.elements + 1) * 4
            by_panel, outside = loop_order(part, len(made), size, conv.outputs, context.threads)
            outside ^= tile.turned
            name = self._kernel(context, part, made, reach, by_panel, outside)
            beside = second.at(part.second) if second else out.at(0)
            units = len(made) if by_panel else part.grid.rows * part.grid.tiles
            macs = part.grid.rows * part.grid.columns * reach.elements * conv.outputs * (2 if self.pairs else 1)
            slots = [data.at(part.data), places[part.group], out.at(part.out), beside]
            context.step(name, slots, units, macs / _RATE, macs, 1 if outside and not by_panel else 8)

    def source(self, context: LoweringContext) -> Storage:
        """What is multiplied."""
        return context.home(self.node.op.args["input"])

    def pack(self, context: LoweringContext, made: list[gemm.Panel], group: int) -> Address:
        conv, bias = self.conv, self.node.op.args.get("bias")
        span = slice(group * conv.outputs, (group + 1) * conv.outputs)
        filters = self.filters[span].reshape(conv.outputs, -1)
        row = None if bias is None else np.asarray(bias.data).reshape(-1)[span]
        size = gemm.packed_size(made, filters.shape[1])
        return context.weights.reserve(size, lambda room: gemm.pack_weights(room, filters, row, made), filters)

    def _kernel(self, context: LoweringContext, part: GemmPart, made: list[gemm.Panel], reach: gemm.Window,
                by_panel: bool, outside: bool) -> str:  # fmt: skip
        grid, tail = part.grid, self.tail

        def build(module: Module, name: str) -> None:
            emit_tile_loops(module, name, grid, self._runs(module, part, made, reach), by_panel, outside)

        key = (grid, tuple(made), reach, tail, by_panel, outside)
        return context.kernel("gemm_pairs" if self.pairs else "gemm", key, build)

    def _runs(self, module: Module, part: GemmPart, made: list[gemm.Panel], reach: gemm.Window) -> list[PanelGroup]:
        return panel_runs(module, part.grid, made, reach, self.tail, pairs=self.pairs)


def panel_runs(module: Module, grid: TileGrid, made: list[gemm.Panel], reach: gemm.Window, tail: Epilogue,
                 prefix: str = "", pairs: bool = False) -> list[PanelGroup]:  # fmt: skip
    """The panels of a product, and what makes the function for their tiles."""
    runs: list[PanelGroup] = []
    offset = column = 0
    for panel in dict.fromkeys(made):
        count, size = made.count(panel), 4 * panel.columns * (reach.elements + 1)

        def tile(pixels: int, panel: gemm.Panel = panel) -> Function:
            steps = (grid.out.pixel, grid.second.pixel)
            return gemm.emit_tile(module, pixels, panel, reach, *steps, tail, prefix, pairs=pairs)

        runs.append(PanelGroup(count, size, offset, 4 * column, 4 * panel.used, tile))
        offset, column = offset + count * size, column + count * panel.used
    return runs


class FloatConvTranspose(ConvTransposeLowering):
    """conv_transpose2d."""

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        op = node.op
        if op.kind != "conv_transpose2d" or not is_float_conv(node) or list(op.args["dilation"]) != [1, 1]:
            return None
        made = transposed_conv_phases(op)
        if sum(conv.images * conv.groups for conv, *_ in made) > 1024:
            return None
        data = np.asarray(op.args["weight"].data)
        return cls(node, [FloatConv(node, conv, select_taps(data, *taps)) for conv, *taps in made])


def select_taps(filters: Array, rows: list[int], columns: list[int]) -> Array:
    """Some rows and columns of filters; zeros for -1."""
    padded = np.pad(filters, ((0, 0), (0, 1), (0, 1), (0, 0)))
    return padded[:, rows][:, :, columns]


class FloatDepthwiseConv(ConvLowering):
    """A filter for each channel."""

    def __init__(self, node: Node, conv: ConvGeometry) -> None:
        super().__init__(node, conv)
        self.tail: Epilogue = fused_clamp(node.op) + node.tail

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        op = node.op
        if op.kind != "depthwise_conv2d":
            return None
        if not is_float_conv(node):
            return None
        conv = conv_geometry(op)
        fits = conv.outputs == 1 and conv.images <= 1024 and conv.kernel[0] * conv.kernel[1] <= 64
        return cls(node, conv) if fits else None

    def emit(self, context: LoweringContext) -> None:
        conv, op, isa = self.conv, self.node.op, context.isa
        data, out = context.home(op.args["input"]).layout, context.home(self.node.out).layout
        second = out if self.node.second is None else context.home(self.node.second).layout
        row = depthwise.DepthwiseRow(
            conv.kernel,
            conv.stride[1],
            conv.dilation[1],
            conv.size[1],
            conv.groups,
            data.pixel,
            out.pixel,
            second.pixel,
            self.tail,
        )
        make = lambda module: depthwise.emit_row(module, isa, row)  # noqa: E731
        weights = context.weights.add(self.pack(context))
        emit_depthwise_steps(context, self, "depthwise", row, make, weights, conv.macs / _RATE * 1.5)

    def pack(self, context: LoweringContext) -> Array:
        bias = self.node.op.args.get("bias")
        filters = np.asarray(self.node.op.args["weight"].data).reshape(-1, self.conv.groups)
        return depthwise.pack_weights(context.isa, filters, None if bias is None else np.asarray(bias.data).reshape(-1))
