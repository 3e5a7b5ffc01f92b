"""Float32 convolutions and linear layers: implicit GEMM over packed weight panels, in float32 or with operands
rounded to bf16.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from edgewright.engine.codegen.builder import Function, Module, Reg
from edgewright.engine.codegen.epilogue import Epilogue
from edgewright.engine.graph.layout import Layout, Storage, dense_layout
from edgewright.engine.graph.nodes import Node, fused_clamp, is_float32
from edgewright.engine.isa import ISA
from edgewright.engine.kernels import depthwise, gemm
from edgewright.engine.kernels.tile_loops import PanelGroup, TileGrid, emit_tile_loops
from edgewright.engine.lower.base import Lowering, LoweringContext
from edgewright.engine.lower.conv_geometry import (
    ConvGeometry,
    ConvLowering,
    ConvTransposeLowering,
    GemmPart,
    conv_geometry,
    emit_depthwise_steps,
    gemm_parts,
    has_uniform_rows,
    input_window,
    linear_geometry,
    transposed_conv_phases,
)
from edgewright.engine.lower.elementwise import emit_elementwise
from edgewright.engine.lower.move import round_to_bf16
from edgewright.engine.plan import Address
from edgewright.ir.dtypes import bfloat16
from edgewright.ir.graph import Array, Value

# ----------------------------------------------------------------------------------------------------------------- conv

# Float32 convolutions and linear layers, as implicit GEMM over packed weight panels.

_RATE = 50.0  # approximate multiply-adds per nanosecond on one core


def loop_order(part: GemmPart, panels: int, weight_bytes: int, channels: int, threads: int) -> tuple[bool, bool]:
    """Choose the loop nest of a GEMM: (parallelize over panels, iterate panels in the outer loop).

    Parallelizing over panels reads each weight once, which pays when there are more channels than pixels and enough
    panels to balance the threads. Otherwise units are pixel tiles; panels become the outer loop within a unit once the
    weights exceed 128 KiB, so that one panel stays in L1 while it meets all of a thread's tiles.
    """
    pixels = part.grid.rows * part.grid.columns
    tiles = part.grid.rows * part.grid.tiles
    by_panel = channels > pixels and thread_utilization(panels, threads) >= 0.97 * thread_utilization(tiles, threads)
    return by_panel, weight_bytes > 128 << 10


@dataclass(frozen=True)
class GemmTile:
    """Register tile of a GEMM: vectors per panel, pixels per tile, and whether to swap the default loop order."""

    vectors: int
    pixels: int
    swap_loops: bool = False

    def __str__(self) -> str:
        return f"{self.vectors} x {self.pixels}" + (", loops swapped" if self.swap_loops else "")


def thread_utilization(units: int, threads: int) -> float:
    """The fraction of the threads' time that is used if ``units`` equal units are split among them."""
    return units / (threads * -(-units // threads))


def candidate_tiles(isa: ISA, channels: int, pixels: int) -> list[GemmTile]:
    """The default tile first, then alternatives that measuring (``edgewright tune``) may prefer."""
    default_vectors = gemm.default_panel_vectors(isa, channels, pixels)
    alternatives = (2, 4, 8) if pixels == 1 else (1, 2, 3, 4) if isa.registers >= 32 else (1, 2, 3)
    widths = [default_vectors, *(v for v in alternatives if v != default_vectors and (v - 1) * isa.lanes < channels)]
    tiles = [GemmTile(v, gemm.max_tile_pixels(isa, min(v, -(-channels // isa.lanes)))) for v in widths]
    return [*tiles, GemmTile(tiles[0].vectors, tiles[0].pixels, True)] if pixels > 1 else tiles


def is_float_conv(node: Node) -> bool:
    """Whether input, output, weights and bias are float32, with constant weights and bias."""
    x, weight, bias = (node.op.args.get(n) for n in ("input", "weight", "bias"))
    assert x is not None and weight is not None
    float_operands = is_float32(x) and is_float32(node.out) and weight.constant and is_float32(weight)
    return float_operands and (bias is None or (bias.constant and is_float32(bias)))


class FloatConv(ConvLowering):
    """conv2d and linear. ``filters``: [output channels, height, width, input channels]."""

    pairs: ClassVar[bool] = False  # elements are bf16 pairs, see ``Bf16Gemm``

    def __init__(self, node: Node, conv: ConvGeometry, filters: Array) -> None:
        super().__init__(node, conv)
        self.filters = filters
        self.epilogue: Epilogue = fused_clamp(node.op) + node.epilogue

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        op = node.op
        if op.kind not in ("core.conv2d", "core.linear") or len(node.middle.bound) == 0 or not is_float_conv(node):
            return None
        data = np.asarray(op.args["weight"].data)
        if op.kind == "core.conv2d":
            conv = conv_geometry(op)
            return cls(node, conv, data) if conv.few_steps else None
        weight = data.T if op.args.get("transposed") else data
        return cls(node, linear_geometry(op), weight[:, None, None, :])

    def reads_layout(self, value: Value, layout: Layout) -> bool:
        """The rows of a linear layer may be strided, if the stride is uniform."""
        return layout.dense or (self.node.op.kind == "core.linear" and layout.straight and has_uniform_rows(layout))

    def emit(self, context: LoweringContext) -> None:
        conv, isa = self.conv, context.isa
        data, out = self.source(context), context.storage(self.node.out)
        second = None if self.node.residual is None else context.storage(self.node.residual)
        pixels = conv.size[0] * conv.size[1] * (conv.images if conv.is_gemm else 1)
        window = input_window(conv, data, 4)
        tile = context.tuning.pick(
            self.node, "tile", (conv, window, self.epilogue), candidate_tiles(isa, conv.outputs, pixels)
        )
        panels = gemm.make_panels(isa, conv.outputs, pixels, tile.vectors)
        group_weights = [self.pack(context, panels, g) for g in range(conv.groups)]
        for part in gemm_parts(conv, tile.pixels, data, out, second):
            weight_bytes = sum(p.columns for p in panels) * (window.elements + 1) * 4
            by_panel, panels_outer = loop_order(part, len(panels), weight_bytes, conv.outputs, context.threads)
            panels_outer ^= tile.swap_loops
            name = self._kernel(context, part, panels, window, by_panel, panels_outer)
            residual = second.at(part.residual) if second else out.at(0)
            units = len(panels) if by_panel else part.grid.rows * part.grid.tiles
            macs = part.grid.rows * part.grid.columns * window.elements * conv.outputs * (2 if self.pairs else 1)
            slots = [data.at(part.data), group_weights[part.group], out.at(part.out), residual]
            context.step(name, slots, units, macs / _RATE, macs, 1 if panels_outer and not by_panel else 8)

    def source(self, context: LoweringContext) -> Storage:
        """The GEMM's left operand; subclasses convert it first."""
        return context.storage(self.node.op.args["input"])

    def pack(self, context: LoweringContext, panels: list[gemm.Panel], group: int) -> Address:
        conv, bias = self.conv, self.node.op.args.get("bias")
        span = slice(group * conv.outputs, (group + 1) * conv.outputs)
        filters = self.filters[span].reshape(conv.outputs, -1)
        row = None if bias is None else np.asarray(bias.data).reshape(-1)[span]
        weight_bytes = gemm.packed_size(panels, filters.shape[1])
        return context.weights.reserve(
            weight_bytes, lambda room: gemm.pack_weights(room, filters, row, panels), filters
        )

    def _kernel(self, context: LoweringContext, part: GemmPart, panels: list[gemm.Panel], window: gemm.Window,
                by_panel: bool, panels_outer: bool) -> str:  # fmt: skip
        grid, epilogue = part.grid, self.epilogue

        def build(module: Module, name: str) -> None:
            emit_tile_loops(module, name, grid, self._runs(module, part, panels, window), by_panel, panels_outer)

        key = (grid, tuple(panels), window, epilogue, by_panel, panels_outer)
        return context.kernel("gemm_bf16" if self.pairs else "gemm", key, build)

    def _runs(self, module: Module, part: GemmPart, panels: list[gemm.Panel], window: gemm.Window) -> list[PanelGroup]:
        return panel_runs(module, part.grid, panels, window, self.epilogue, pairs=self.pairs)


def panel_runs(module: Module, grid: TileGrid, panels: list[gemm.Panel], window: gemm.Window, epilogue: Epilogue,
                 prefix: str = "", pairs: bool = False) -> list[PanelGroup]:  # fmt: skip
    """Group equal panels into runs, each with the emitter of its tile function."""
    runs: list[PanelGroup] = []
    offset = column = 0
    for panel in dict.fromkeys(panels):
        count, size = panels.count(panel), 4 * panel.columns * (window.elements + 1)

        def tile(pixels: int, panel: gemm.Panel = panel) -> Function:
            steps = (grid.out.pixel, grid.residual.pixel)
            return gemm.emit_tile(module, pixels, panel, window, *steps, epilogue, prefix, pairs=pairs)

        runs.append(PanelGroup(count, size, offset, 4 * column, 4 * panel.used, tile))
        offset, column = offset + count * size, column + count * panel.used
    return runs


class FloatConvTranspose(ConvTransposeLowering):
    """conv_transpose2d, one GEMM per phase."""

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        op = node.op
        if op.kind != "core.conv_transpose2d" or not is_float_conv(node) or list(op.args["dilation"]) != [1, 1]:
            return None
        phases = transposed_conv_phases(op)
        if sum(conv.images * conv.groups for conv, *_ in phases) > 1024:
            return None
        data = np.asarray(op.args["weight"].data)
        return cls(node, [FloatConv(node, conv, select_taps(data, *taps)) for conv, *taps in phases])


def select_taps(filters: Array, rows: list[int], columns: list[int]) -> Array:
    """Select rows and columns of the filters; index -1 selects zeros."""
    padded = np.pad(filters, ((0, 0), (0, 1), (0, 1), (0, 0)))
    return padded[:, rows][:, :, columns]


class FloatDepthwiseConv(ConvLowering):
    """depthwise_conv2d: one filter per channel, vectorized over channels."""

    def __init__(self, node: Node, conv: ConvGeometry) -> None:
        super().__init__(node, conv)
        self.epilogue: Epilogue = fused_clamp(node.op) + node.epilogue

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        op = node.op
        if op.kind != "core.depthwise_conv2d":
            return None
        if not is_float_conv(node):
            return None
        conv = conv_geometry(op)
        supported = conv.outputs == 1 and conv.images <= 1024 and conv.kernel[0] * conv.kernel[1] <= 64
        return cls(node, conv) if supported else None

    def emit(self, context: LoweringContext) -> None:
        conv, op, isa = self.conv, self.node.op, context.isa
        data, out = context.storage(op.args["input"]).layout, context.storage(self.node.out).layout
        second = out if self.node.residual is None else context.storage(self.node.residual).layout
        row = depthwise.DepthwiseRow(
            conv.kernel,
            conv.stride[1],
            conv.dilation[1],
            conv.size[1],
            conv.groups,
            data.pixel,
            out.pixel,
            second.pixel,
            self.epilogue,
        )
        emit_row = lambda module: depthwise.emit_row(module, isa, row)  # noqa: E731
        weights = context.weights.add(self.pack(context))
        emit_depthwise_steps(context, self, "depthwise", row, emit_row, weights, conv.macs / _RATE * 1.5)

    def pack(self, context: LoweringContext) -> Array:
        bias = self.node.op.args.get("bias")
        filters = np.asarray(self.node.op.args["weight"].data).reshape(-1, self.conv.groups)
        return depthwise.pack_weights(context.isa, filters, None if bias is None else np.asarray(bias.data).reshape(-1))


# ------------------------------------------------------------------------------------------------------------ bf16 gemm

# Float32 linear layers and pointwise convolutions with operands rounded to bf16.
#
# Enabled by ``EDGEWRIGHT_BF16`` on CPUs with bf16 dot products, which multiply two pairs per lane; accumulators stay
# float32. A pair of bf16 elements is as large as a float32 one, so only the inner product differs from ``FloatConv``.

_MIN_DEPTH = 16  # input channels from which rounding the input pays


class Bf16Gemm(FloatConv):
    """linear and pointwise conv2d on bf16 pairs."""

    pairs = True

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        float_conv = FloatConv.accept(node, context) if context.isa.bf16 else None
        if not isinstance(float_conv, FloatConv):
            return None
        conv = float_conv.conv
        if not conv.is_gemm or conv.groups > 1 or conv.inputs % 2 or conv.inputs < _MIN_DEPTH:
            return None
        return cls(node, replace(conv, inputs=conv.inputs // 2), _bf16_pairs(float_conv.filters))

    def temporaries(self, context: LoweringContext) -> list[int]:
        return [dense_layout(self.node.op.args["input"].bound, 2).size]

    def source(self, context: LoweringContext) -> Storage:
        """The input rounded to bf16 in the arena, viewed as pairs."""
        data = context.storage(self.node.op.args["input"])
        address, shape = Address("arena", context.temporaries[0]), data.layout.shape
        rounded = Value("rounded", np.dtype(np.int16), shape, tuple(range(len(shape))))

        def body(f: Function, regs: list[Reg]) -> Reg:
            return round_to_bf16(f, regs[0])

        emit_elementwise(context, "bf16_round", [data], Storage(rounded, address, dense_layout(shape, 2)), (), body)
        context.barrier = True
        return Storage(rounded, address, dense_layout((*shape[:-1], shape[-1] // 2), 4))


def _bf16_pairs(filters: Array) -> Array:
    """Filters as [..., elements / 2], each element the bits of a bf16 pair."""
    return np.ascontiguousarray(filters.astype(bfloat16)).view(np.float32)
