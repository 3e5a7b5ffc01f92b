"""Convolutions and linear layers of bytes, with the sum and the table that follow them."""

from __future__ import annotations

import numpy as np

from edgewright.engine.codegen.builder import Function, Module
from edgewright.engine.graph.layout import Storage, padded_channels
from edgewright.engine.graph.nodes import Node, is_quantized8
from edgewright.engine.kernels import int8_depthwise, int8_gemm
from edgewright.engine.kernels.gemm import Window
from edgewright.engine.kernels.tile_loops import PanelGroup, emit_tile_loops
from edgewright.engine.lower.base import Lowering, LoweringContext
from edgewright.engine.lower.conv import GemmTile, loop_order, select_taps
from edgewright.engine.lower.conv_base import ConvLowering, ConvTransposeLowering, emit_depthwise_steps
from edgewright.engine.lower.conv_geometry import (
    ConvGeometry,
    GemmPart,
    conv_geometry,
    gemm_parts,
    has_uniform_pixels,
    input_window,
    linear_geometry,
    should_prefetch,
    transposed_conv_phases,
)
from edgewright.engine.lower.elementwise import int8_add_fits
from edgewright.engine.lower.int8_params import Int8ConvParams
from edgewright.engine.plan import ALIGN, Address
from edgewright.ir.graph import Array, Op, Value

_RATE = 200.0  # products per nanosecond, about
_LOOKED_AT = 6  # tiles that are measured


def _filters(op: Op) -> Array:
    """[channels, height, width, inputs]; of a depthwise one [channels, height, width, 1]."""
    data = np.asarray(op.args["weight"].data)
    if op.kind == "linear":
        return (data.T if op.args.get("transposed") else data)[:, None, None, :]
    return data.transpose(3, 1, 2, 0) if op.kind == "depthwise_conv2d" else data


def _widened(filters: Array, last: int) -> Array:
    """Zeros after the last dimension, up to ``last``."""
    if filters.shape[-1] == last:
        return filters
    wide = np.zeros((*filters.shape[:-1], last), filters.dtype)
    wide[..., : filters.shape[-1]] = filters
    return wide


def _fits(node: Node) -> bool:
    op = node.op
    x, weight, bias, out = op.args["input"], op.args["weight"], op.args.get("bias"), node.middle
    if not (is_quantized8(x.q) and is_quantized8(out.q) and weight.constant and weight.q is not None):
        return False
    q = weight.q
    if q.dtype != np.dtype(np.int8) or q.block is not None or np.any(np.asarray(q.zero_point)):
        return False
    if bias is not None and (not bias.constant or bias.dtype != np.dtype(np.int32)):
        return False
    if node.sum is not None:
        assert node.second is not None and node.second.q is not None and node.sum.outputs[0] is not None
        last = node.sum.outputs[0].q
        if "scaling" in op.args:
            return False
        return last is not None and out.q is not None and int8_add_fits(out.q, node.second.q, last)
    return True


class _Int8ConvLowering(ConvLowering):
    """A convolution of bytes, with what its sums become."""

    exact_writes = False

    def __init__(self, node: Node, conv: ConvGeometry, numbers: Int8ConvParams) -> None:
        super().__init__(node, conv)
        self.numbers = numbers


class Int8Conv(_Int8ConvLowering):
    """conv2d and linear."""

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        op = node.op
        if op.kind not in ("conv2d", "linear") or not _fits(node):
            return None
        if node.table is not None and not context.isa.permute_bytes:
            return None
        conv = linear_geometry(op) if op.kind == "linear" else conv_geometry(op)
        if (conv.groups > 1 and conv.outputs % 16) or not conv.few:
            return None
        numbers = Int8ConvParams(node, context, _filters(op))
        return cls(node, conv, numbers) if numbers.exact else None

    def prefers_unpadded(self) -> Value | None:
        """Three channels of several columns take fewer steps of four bytes than columns of four."""
        conv = self.conv
        fewer = conv.inputs == 3 and -(-3 * conv.kernel[1] // 4) < conv.kernel[1]
        return self.node.op.args["input"] if fewer and conv.groups == 1 and conv.dilation[1] == 1 else None

    def emit(self, context: LoweringContext) -> None:
        conv, isa = self.conv, context.isa
        data, out = context.home(self.node.op.args["input"]), context.home(self.node.out)
        second = None if self.node.second is None else context.home(self.node.second)
        reach = self._window(data)
        flat = (
            conv.flat
            and conv.groups == 1
            and all(has_uniform_pixels(h) for h in (data, out, *([second] if second else [])))
        )
        columns = conv.images * conv.size[0] * conv.size[1] if flat else conv.size[1]
        stored = conv.outputs if conv.groups > 1 else padded_channels(conv.outputs)
        rows = 1 if flat else conv.size[0]
        tile = self._tile(context, (reach, stored, rows, columns))
        made = int8_gemm.make_panels(isa, stored, tile.vectors, rows * columns)
        places = self._pack(context, data, made, reach.elements)
        for part in gemm_parts(conv, tile.pixels, data, out, second):
            size = sum(int8_gemm.panel_bytes(isa, p, self.numbers.ending, reach.elements) for p in made)
            by_panel, outside = loop_order(part, len(made), size, conv.outputs, context.threads)
            outside ^= tile.turned
            ahead = should_prefetch(part.grid, size, by_panel or outside)
            name = self._kernel(context, part, made, reach, by_panel, outside, ahead)
            beside = second.at(part.second) if second else out.at(0)
            units = len(made) if by_panel else part.grid.rows * part.grid.tiles
            macs = part.grid.rows * part.grid.columns * conv.outputs * conv.inputs * conv.kernel[0] * conv.kernel[1]
            slots = [data.at(part.data), places[part.group], out.at(part.out), beside]
            context.step(name, slots, units, macs / _RATE, macs, 1 if outside and not by_panel else 8)

    def _tile(self, context: LoweringContext, sizes: tuple[Window, int, int, int]) -> GemmTile:
        """The tile that takes the fewest cycles by the model; measuring may prefer one that comes soon after it."""
        reach, stored, rows, columns = sizes
        best = int8_gemm.rank_tiles(context.isa, stored, reach.elements, rows, columns, context.threads)
        tiles = [GemmTile(*sizes) for sizes in best[:_LOOKED_AT]]
        turned = [GemmTile(*best[0], True)] if rows * columns > 1 else []
        spec = (self.conv, sizes, self.numbers.ending)
        return context.tuning.pick(self.node, "tile", spec, [*tiles, *turned])

    def _window(self, data: Storage) -> Window:
        """The window in steps of four bytes."""
        plain = input_window(self.conv, data, 1)
        return Window(plain.loops, -(-plain.depth // 4), plain.step)

    def _arranged(self, data: Storage) -> Array:
        """Filters as the window goes: [channels, steps * 4]."""
        plain = input_window(self.conv, data, 1)
        filters = self.numbers.filters
        channels, high, _, inputs = filters.shape
        if len(plain.loops) == 1:  # all columns of a row, with the bytes between them
            filters = _widened(filters, data.layout.pixel).reshape(channels, high, -1)[..., : plain.depth]
        else:
            filters = filters.reshape(channels, -1, inputs)
        return _widened(filters, -(-plain.depth // 4) * 4).reshape(channels, -1)

    def _pack(
        self, context: LoweringContext, data: Storage, made: list[int8_gemm.Int8Panel], steps: int
    ) -> list[Address]:
        """For each group the place of its panels."""
        numbers, count = self.numbers, self.conv.outputs
        size = sum(int8_gemm.panel_bytes(context.isa, p, numbers.ending, steps) for p in made)

        def write(room: Array) -> None:
            filters = self._arranged(data)
            for g, own in enumerate(room.reshape(self.conv.groups, -1)):
                span = slice(g * count, (g + 1) * count)
                numbered = (filters[span], numbers.bias[span], numbers.factors[:, span])
                int8_gemm.pack_weights(own[:size], context.isa, *numbered, made, numbers.ending, numbers.notes)

        stride = -(-size // ALIGN) * ALIGN
        first = context.weights.reserve(self.conv.groups * stride, write, numbers.filters)
        return [Address("weights", first.offset + g * stride) for g in range(self.conv.groups)]

    def _kernel(self, context: LoweringContext, part: GemmPart, made: list[int8_gemm.Int8Panel], reach: Window,
                by_panel: bool, outside: bool, ahead: bool) -> str:  # fmt: skip
        def build(module: Module, name: str) -> None:
            runs = self._runs(context, module, part, made, reach, ahead)
            emit_tile_loops(module, name, part.grid, runs, by_panel, outside)

        key = (part.grid, tuple(made), reach, self.numbers.ending, by_panel, outside, ahead)
        return context.kernel("gemm8", key, build)

    def _runs(self, context: LoweringContext, module: Module, part: GemmPart, made: list[int8_gemm.Int8Panel],
              reach: Window, ahead: bool) -> list[PanelGroup]:  # fmt: skip
        runs: list[PanelGroup] = []
        offset = column = 0
        isa, ending, grid = context.isa, self.numbers.ending, part.grid
        for panel in dict.fromkeys(made):
            count, size = made.count(panel), int8_gemm.panel_bytes(isa, panel, ending, reach.elements)

            def tile(pixels: int, panel: int8_gemm.Int8Panel = panel) -> Function:
                steps = (grid.out.pixel, grid.second.pixel)
                return int8_gemm.emit_tile(
                    module, isa, pixels, panel, reach, *steps, ending, ahead and grid.late(pixels)
                )

            runs.append(PanelGroup(count, size, offset, column, panel.used, tile))
            offset, column = offset + count * size, column + count * panel.used
        return runs


class Int8ConvTranspose(ConvTransposeLowering):
    """conv_transpose2d."""

    exact_writes = False

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        op = node.op
        if op.kind != "conv_transpose2d" or not _fits(node) or list(op.args["dilation"]) != [1, 1]:
            return None
        made = transposed_conv_phases(op)
        if sum(conv.images * conv.groups for conv, *_ in made) > 1024 or (
            made[0][0].groups > 1 and made[0][0].outputs % 16
        ):
            return None
        data = np.asarray(op.args["weight"].data)
        numbers = [Int8ConvParams(node, context, select_taps(data, *taps)) for _, *taps in made]
        if not all(n.exact for n in numbers):
            return None
        return cls(node, [Int8Conv(node, conv, n) for (conv, *_), n in zip(made, numbers, strict=True)])


class Int8DepthwiseConv(_Int8ConvLowering):
    """A filter for each channel."""

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        if node.op.kind != "depthwise_conv2d" or not _fits(node):
            return None
        if node.table is not None and not context.isa.permute_bytes:
            return None
        conv = conv_geometry(node.op)
        if conv.outputs != 1 or conv.images > 1024 or conv.kernel[0] * conv.kernel[1] > 64:
            return None
        numbers = Int8ConvParams(node, context, _filters(node.op))
        return cls(node, conv, numbers) if numbers.exact else None

    def emit(self, context: LoweringContext) -> None:
        conv, isa, node, numbers = self.conv, context.isa, self.node, self.numbers
        homes = [context.home(v) for v in (node.op.args["input"], node.out, node.second or node.out)]
        data, out, second = (h.layout for h in homes)
        stored = padded_channels(conv.groups)  # not the pixel's stride: in a concatenation that covers other channels
        row = int8_depthwise.Int8DepthwiseRow(
            conv.kernel,
            conv.stride[1],
            conv.dilation[1],
            conv.size[1],
            stored,
            data.pixel,
            out.pixel,
            second.pixel,
            numbers.ending,
        )
        make = lambda module: int8_depthwise.emit_row(module, isa, row)  # noqa: E731
        filters = numbers.filters[..., 0].transpose(1, 2, 0)
        packed = int8_depthwise.pack_weights(isa, row, filters, numbers.bias, numbers.factors, numbers.notes)
        emit_depthwise_steps(context, self, "depthwise8", row, make, context.weights.add(packed), conv.macs / _RATE * 3)
