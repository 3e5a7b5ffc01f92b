"""Convolutions of 16-bit integers by constants of 8 or 16 bits, with a ``scaling``: sums of up to 48 bits.

Scalings are of fixed point (``ir/fixed_point_scale.py``), or factors of double precision.
"""

from __future__ import annotations

import numpy as np

from edgewright.engine.codegen.builder import Function, Module
from edgewright.engine.codegen.float_rescale import MAX_EXACT_INT
from edgewright.engine.graph.layout import Storage
from edgewright.engine.graph.nodes import Node
from edgewright.engine.kernels.gemm import Window
from edgewright.engine.kernels.int16_gemm import (
    Int16DepthwiseRow,
    Int16Epilogue,
    Int16Tile,
    emit_depthwise,
    emit_tile,
    pack_head,
)
from edgewright.engine.kernels.tile_loops import PanelGroup, emit_tile_loops
from edgewright.engine.lower.base import Lowering, LoweringContext
from edgewright.engine.lower.conv import loop_order
from edgewright.engine.lower.conv_base import ConvLowering
from edgewright.engine.lower.conv_geometry import ConvGeometry, GemmPart, conv_geometry, gemm_parts, input_window
from edgewright.ir.graph import Array, Op

_WORDS = (np.dtype(np.int16), np.dtype(np.uint16))
_RATE = 60.0  # products per nanosecond, about
_LARGEST = 1 << 15  # of the data
_MOST_TAPS = 49


class _Int16ConvParams:
    """Filters [channels, height, width, inputs], bias and factors; and whether 64 bits are enough for all of them."""

    def __init__(self, op: Op, filters: Array) -> None:
        x, bias = op.args["input"], op.args.get("bias")
        self.filters, self.scaling = filters, op.args["scaling"]
        self.real = self.scaling.rounding == "real"
        channels, whole = len(filters), filters.astype(np.int64).reshape(len(filters), -1)
        given = np.zeros(channels, np.int64) if bias is None else np.asarray(bias.data, np.int64).reshape(-1)
        self.lower = _LARGEST if x.dtype == np.dtype(np.uint16) else 0  # what data is taken lower by
        zero = 0 if x.q is None else int(np.asarray(x.q.zero_point))
        self.bias = given + (self.lower - zero) * whole.sum(axis=1)
        self.sizes = np.abs(whole).sum(axis=1)
        self.largest = int(np.abs(whole).max(initial=0))

    @property
    def exact(self) -> bool:
        scaling = self.scaling
        if not scaling.is_valid or 2 * _LARGEST * self.largest >= 1 << 31:
            return False
        reach = [_LARGEST * int(n) + abs(int(b)) for n, b in zip(self.sizes, self.bias, strict=True)]
        if self.real:
            return max(reach, default=0) < MAX_EXACT_INT
        if scaling.rounding != "single" or scaling.zero:
            return False
        multiplier, shift = self._factors()
        ends = zip(reach, multiplier.tolist(), shift.tolist(), strict=True)
        return all(r * m + (1 << s) < 1 << 63 for r, m, s in ends)

    def _factors(self) -> tuple[Array, Array]:
        """For each channel a multiplier and a shift, or a factor and nothing."""
        channels = len(self.filters)
        if self.real:
            factor = np.broadcast_to(np.asarray(self.scaling.factor, np.float64), channels)
            return np.ascontiguousarray(factor).view(np.int64), np.ones(channels, np.int64)
        given = (self.scaling.multiplier, self.scaling.shift)
        multiplier, shift = (np.broadcast_to(np.asarray(n, np.int64), channels) for n in given)
        return multiplier, shift

    @property
    def end(self) -> Int16Epilogue:
        scaling = self.scaling
        return Int16Epilogue(scaling.low, scaling.high, scaling.zero, self.real, bool(self.lower))

    def head(self, lanes: int) -> Array:
        return pack_head(lanes, len(self.filters), self.bias, *self._factors())


def _fits(node: Node, kind: str) -> bool:
    op = node.op
    if op.kind != kind or "scaling" not in op.args or len(node.ops) > 1:
        return False
    x, weight, bias = op.args["input"], op.args["weight"], op.args.get("bias")
    words = all(v.dtype in _WORDS and (v.q is None or v.q.axis is None) for v in (x, node.out))
    return words and weight.constant and weight.dtype.kind == "i" and weight.dtype.itemsize <= 2 and (
        bias is None or bias.constant)  # fmt: skip


class _Int16ConvLowering(ConvLowering):
    """A convolution of 16 bits, with what its sums become."""

    def __init__(self, node: Node, conv: ConvGeometry, numbers: _Int16ConvParams) -> None:
        super().__init__(node, conv)
        self.numbers = numbers


class Int16Conv(_Int16ConvLowering):
    """conv2d."""

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        if not _fits(node, "conv2d"):
            return None
        conv, numbers = conv_geometry(node.op), _Int16ConvParams(node.op, np.asarray(node.op.args["weight"].data))
        return cls(node, conv, numbers) if conv.groups == 1 and conv.few and numbers.exact else None

    def emit(self, context: LoweringContext) -> None:
        conv, lanes = self.conv, context.isa.lanes
        data, out = context.home(self.node.op.args["input"]), context.home(self.node.out)
        reach, packed = self._packed(data, lanes)
        place, size = context.weights.add(packed), packed.shape[1]
        for part in gemm_parts(conv, 6 if context.isa.registers >= 32 else 3, data, out, None):
            by_panel, outside = loop_order(part, len(packed), packed.nbytes, conv.outputs, context.threads)
            name = self._kernel(context, part, reach, size, by_panel, outside)
            units = len(packed) if by_panel else part.grid.rows * part.grid.tiles
            macs = part.grid.rows * part.grid.columns * conv.outputs * conv.inputs * conv.kernel[0] * conv.kernel[1]
            slots = [data.at(part.data), place, out.at(part.out), out.at(0)]
            context.step(name, slots, units, macs / _RATE, macs)

    def _packed(self, data: Storage, lanes: int) -> tuple[Window, Array]:
        """The window in runs of pairs that 32 bits can sum, and the panels: [panels, bytes]."""
        plain = input_window(self.conv, data, 2)
        largest = max(1, self.numbers.largest)
        most = max(1, ((1 << 31) - 1) // (2 * _LARGEST * largest))
        pairs = -(-plain.depth // 2)
        runs = -(-pairs // most)
        depth = -(-pairs // runs)
        loops = (*plain.loops, (runs, 4 * depth)) if runs > 1 else plain.loops
        filters = self._arranged(plain, data, 2 * depth * runs)
        channels, panels = len(filters), -(-len(filters) // lanes)
        wide = np.zeros((panels * lanes, filters.shape[1]), np.int16)
        wide[:channels] = filters
        body = wide.reshape(panels, lanes, -1, 2).swapaxes(1, 2)
        head = self.numbers.head(lanes)
        return Window(loops, depth, plain.step), np.concatenate(
            (head, np.ascontiguousarray(body).reshape(panels, -1).view(np.uint8)), axis=1
        )

    def _arranged(self, plain: Window, data: Storage, depth: int) -> Array:
        """[channels, elements] as the window goes, each run of it ``depth`` long."""
        filters = self.numbers.filters
        channels, high, _, inputs = filters.shape
        if len(plain.loops) == 1:  # all columns of a row
            spaced = np.zeros((*filters.shape[:3], data.layout.pixel // 2), filters.dtype)
            spaced[..., :inputs] = filters
            rows = spaced.reshape(channels, high, -1)[..., : plain.depth]
        else:
            rows = filters.reshape(channels, -1, inputs)
        wide = np.zeros((channels, rows.shape[1], depth), np.int16)
        wide[..., : rows.shape[2]] = rows
        return wide.reshape(channels, -1)

    def _kernel(
        self, context: LoweringContext, part: GemmPart, reach: Window, size: int, by_panel: bool, outside: bool
    ) -> str:
        grid, isa, end = part.grid, context.isa, self.numbers.end
        whole, rest = divmod(self.conv.outputs, isa.lanes)

        def run(count: int, first: int, used: int, module: Module) -> PanelGroup:
            tile = Int16Tile(reach, used, grid.out.pixel, end)

            def emit(pixels: int) -> Function:
                return emit_tile(module, isa, pixels, tile)

            return PanelGroup(count, size, first * size, 2 * first * isa.lanes, 2 * isa.lanes, emit)

        def build(module: Module, name: str) -> None:
            runs = [run(whole, 0, isa.lanes, module)] if whole else []
            runs += [run(1, whole, rest, module)] if rest else []
            emit_tile_loops(module, name, grid, runs, by_panel, outside)

        key = (grid, reach, size, self.conv.outputs, end, by_panel, outside)
        return context.kernel("words", key, build)


class Int16DepthwiseConv(_Int16ConvLowering):
    """A filter for each channel."""

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        if not _fits(node, "depthwise_conv2d"):
            return None
        conv = conv_geometry(node.op)
        numbers = _Int16ConvParams(node.op, np.asarray(node.op.args["weight"].data).transpose(3, 1, 2, 0))
        fits = conv.outputs == 1 and conv.images <= 1024 and conv.kernel[0] * conv.kernel[1] <= _MOST_TAPS
        return cls(node, conv, numbers) if fits and numbers.exact else None

    def emit(self, context: LoweringContext) -> None:
        conv, isa = self.conv, context.isa
        wide = _LARGEST * int(self.numbers.sizes.max(initial=0)) >= 1 << 31
        homes = [context.home(v) for v in (self.node.op.args["input"], self.node.out)]
        data, out = (h.layout for h in homes)
        row = Int16DepthwiseRow(conv.kernel, conv.size[1], conv.groups, conv.dilation[1] * data.pixel,
                      conv.dilation[0] * data.row, conv.stride[1] * data.pixel, out.pixel, conv.stride[0] * data.row,
                      out.row, self.numbers.end, wide)  # fmt: skip
        name = context.kernel("words_depthwise", row, lambda module, name: emit_depthwise(module, name, isa, row))
        weights = context.weights.add(self._packed(isa.lanes))
        corner = -conv.border.top * data.row - conv.border.left * data.pixel
        for n in range(conv.images):
            slots = [homes[0].at(corner + n * data.image), weights, homes[1].at(n * out.image)]
            macs = conv.macs // conv.images
            context.step(name, slots, conv.size[0], macs / _RATE * 4, macs)

    def _packed(self, lanes: int) -> Array:
        head = self.numbers.head(lanes)
        taps = self.numbers.filters.reshape(len(self.numbers.filters), -1)
        wide = np.zeros((len(head) * lanes, taps.shape[1], 2), np.int16)
        wide[: len(taps), :, 0] = taps
        body = np.ascontiguousarray(wide.reshape(len(head), lanes, -1, 2).swapaxes(1, 2))
        return np.concatenate((head, body.reshape(len(head), -1).view(np.uint8)), axis=1)
