"""Int16 convolutions with int8 or int16 weights and a ``scaling``, exact in 48-bit accumulators.

Integer NPUs accumulate int16 products in 48 bits. Vectors have no such type, so kernels sum pairs of products in 32-bit
lanes for as many taps as cannot overflow, then widen to 64 bits: the window is split into runs of that length
(``Int16Conv._pack``). ``_Int16ConvParams.exact`` proves beforehand that the final accumulator times the multiplier fits
in 64 bits, or is below 2**52 where the scaling is a float64 factor; otherwise the node stays with the reference.
Unsigned inputs are read 32768 lower, which the bias compensates.
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

_INT16_TYPES = (np.dtype(np.int16), np.dtype(np.uint16))
_RATE = 60.0  # approximate multiply-adds per nanosecond on one core
_MAX_INPUT = 1 << 15  # magnitude of an input element
_MAX_TAPS = 49


class _Int16ConvParams:
    """Filters [output channels, height, width, input channels], bias and rescale factors of an int16 convolution."""

    def __init__(self, op: Op, filters: Array) -> None:
        x, bias = op.args["input"], op.args.get("bias")
        self.filters, self.scaling = filters, op.args["scaling"]
        self.float_scale = self.scaling.rounding == "real"
        channels, flat = len(filters), filters.astype(np.int64).reshape(len(filters), -1)
        plain_bias = np.zeros(channels, np.int64) if bias is None else np.asarray(bias.data, np.int64).reshape(-1)
        self.input_offset = _MAX_INPUT if x.dtype == np.dtype(np.uint16) else 0  # subtracted from unsigned inputs
        zero_point = 0 if x.q is None else int(np.asarray(x.q.zero_point))
        self.bias = plain_bias + (self.input_offset - zero_point) * flat.sum(axis=1)
        self.filter_norms = np.abs(flat).sum(axis=1)
        self.max_weight = int(np.abs(flat).max(initial=0))

    @property
    def exact(self) -> bool:
        """Whether no intermediate result overflows."""
        scaling = self.scaling
        if not scaling.is_valid or 2 * _MAX_INPUT * self.max_weight >= 1 << 31:
            return False
        bounds = [_MAX_INPUT * int(n) + abs(int(b)) for n, b in zip(self.filter_norms, self.bias, strict=True)]
        if self.float_scale:
            return max(bounds, default=0) < MAX_EXACT_INT
        if scaling.rounding != "single" or scaling.zero:
            return False
        multiplier, shift = self._factors()
        ends = zip(bounds, multiplier.tolist(), shift.tolist(), strict=True)
        return all(r * m + (1 << s) < 1 << 63 for r, m, s in ends)

    def _factors(self) -> tuple[Array, Array]:
        """Multiplier and shift per channel; for float64 factors their bits, and a dummy shift."""
        channels = len(self.filters)
        if self.float_scale:
            factor = np.broadcast_to(np.asarray(self.scaling.factor, np.float64), channels)
            return np.ascontiguousarray(factor).view(np.int64), np.ones(channels, np.int64)
        fixed_point = (self.scaling.multiplier, self.scaling.shift)
        multiplier, shift = (np.broadcast_to(np.asarray(n, np.int64), channels) for n in fixed_point)
        return multiplier, shift

    @property
    def requant(self) -> Int16Epilogue:
        scaling = self.scaling
        return Int16Epilogue(scaling.low, scaling.high, scaling.zero, self.float_scale, bool(self.input_offset))

    def head(self, lanes: int) -> Array:
        return pack_head(lanes, len(self.filters), self.bias, *self._factors())


def _is_int16_conv(node: Node, kind: str) -> bool:
    op = node.op
    if op.kind != kind or "scaling" not in op.args or len(node.ops) > 1:
        return False
    x, weight, bias = op.args["input"], op.args["weight"], op.args.get("bias")
    int16_activations = all(v.dtype in _INT16_TYPES and (v.q is None or v.q.axis is None) for v in (x, node.out))
    return int16_activations and weight.constant and weight.dtype.kind == "i" and weight.dtype.itemsize <= 2 and (
        bias is None or bias.constant)  # fmt: skip


class _Int16ConvLowering(ConvLowering):
    """An int16 convolution with its requantization parameters."""

    def __init__(self, node: Node, conv: ConvGeometry, params: _Int16ConvParams) -> None:
        super().__init__(node, conv)
        self.params = params


class Int16Conv(_Int16ConvLowering):
    """conv2d as GEMM over pairs of input channels."""

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        if not _is_int16_conv(node, "core.conv2d"):
            return None
        conv, params = conv_geometry(node.op), _Int16ConvParams(node.op, np.asarray(node.op.args["weight"].data))
        return cls(node, conv, params) if conv.groups == 1 and conv.few_steps and params.exact else None

    def emit(self, context: LoweringContext) -> None:
        conv, lanes = self.conv, context.isa.lanes
        data, out = context.storage(self.node.op.args["input"]), context.storage(self.node.out)
        window, packed = self._pack(data, lanes)
        weights, size = context.weights.add(packed), packed.shape[1]
        for part in gemm_parts(conv, 6 if context.isa.registers >= 32 else 3, data, out, None):
            by_panel, outside = loop_order(part, len(packed), packed.nbytes, conv.outputs, context.threads)
            name = self._kernel(context, part, window, size, by_panel, outside)
            units = len(packed) if by_panel else part.grid.rows * part.grid.tiles
            macs = part.grid.rows * part.grid.columns * conv.outputs * conv.inputs * conv.kernel[0] * conv.kernel[1]
            slots = [data.at(part.data), weights, out.at(part.out), out.at(0)]
            context.step(name, slots, units, macs / _RATE, macs)

    def _pack(self, data: Storage, lanes: int) -> tuple[Window, Array]:
        """Split the window into runs of pairs that 32 bits can sum, and pack the panels: [panels, bytes]."""
        plain = input_window(self.conv, data, 2)
        max_weight = max(1, self.params.max_weight)
        max_pairs = max(1, ((1 << 31) - 1) // (2 * _MAX_INPUT * max_weight))
        pairs = -(-plain.depth // 2)
        runs = -(-pairs // max_pairs)
        depth = -(-pairs // runs)
        loops = (*plain.loops, (runs, 4 * depth)) if runs > 1 else plain.loops
        filters = self._window_order(plain, data, 2 * depth * runs)
        channels, panels = len(filters), -(-len(filters) // lanes)
        padded = np.zeros((panels * lanes, filters.shape[1]), np.int16)
        padded[:channels] = filters
        body = padded.reshape(panels, lanes, -1, 2).swapaxes(1, 2)
        head = self.params.head(lanes)
        return Window(loops, depth, plain.step), np.concatenate(
            (head, np.ascontiguousarray(body).reshape(panels, -1).view(np.uint8)), axis=1
        )

    def _window_order(self, plain: Window, data: Storage, depth: int) -> Array:
        """Filters in the order the window visits inputs, [output channels, elements], each run padded to ``depth``."""
        filters = self.params.filters
        channels, high, _, inputs = filters.shape
        if len(plain.loops) == 1:  # kernel rows are contiguous runs
            with_padding = np.zeros((*filters.shape[:3], data.layout.pixel // 2), filters.dtype)
            with_padding[..., :inputs] = filters
            rows = with_padding.reshape(channels, high, -1)[..., : plain.depth]
        else:
            rows = filters.reshape(channels, -1, inputs)
        padded = np.zeros((channels, rows.shape[1], depth), np.int16)
        padded[..., : rows.shape[2]] = rows
        return padded.reshape(channels, -1)

    def _kernel(
        self, context: LoweringContext, part: GemmPart, window: Window, size: int, by_panel: bool, panels_outer: bool
    ) -> str:
        grid, isa, requant = part.grid, context.isa, self.params.requant
        full_panels, last_width = divmod(self.conv.outputs, isa.lanes)

        def run(count: int, first: int, used: int, module: Module) -> PanelGroup:
            tile = Int16Tile(window, used, grid.out.pixel, requant)

            def emit(pixels: int) -> Function:
                return emit_tile(module, isa, pixels, tile)

            return PanelGroup(count, size, first * size, 2 * first * isa.lanes, 2 * isa.lanes, emit)

        def build(module: Module, name: str) -> None:
            runs = [run(full_panels, 0, isa.lanes, module)] if full_panels else []
            runs += [run(1, full_panels, last_width, module)] if last_width else []
            emit_tile_loops(module, name, grid, runs, by_panel, panels_outer)

        key = (grid, window, size, self.conv.outputs, requant, by_panel, panels_outer)
        return context.kernel("conv_int16", key, build)


class Int16DepthwiseConv(_Int16ConvLowering):
    """depthwise_conv2d: one filter per channel."""

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        if not _is_int16_conv(node, "core.depthwise_conv2d"):
            return None
        conv = conv_geometry(node.op)
        params = _Int16ConvParams(node.op, np.asarray(node.op.args["weight"].data).transpose(3, 1, 2, 0))
        supported = conv.outputs == 1 and conv.images <= 1024 and conv.kernel[0] * conv.kernel[1] <= _MAX_TAPS
        return cls(node, conv, params) if supported and params.exact else None

    def emit(self, context: LoweringContext) -> None:
        conv, isa = self.conv, context.isa
        wide = _MAX_INPUT * int(self.params.filter_norms.max(initial=0)) >= 1 << 31
        storages = [context.storage(v) for v in (self.node.op.args["input"], self.node.out)]
        data, out = (h.layout for h in storages)
        row = Int16DepthwiseRow(conv.kernel, conv.size[1], conv.groups, conv.dilation[1] * data.pixel,
                      conv.dilation[0] * data.row, conv.stride[1] * data.pixel, out.pixel, conv.stride[0] * data.row,
                      out.row, self.params.requant, wide)  # fmt: skip
        name = context.kernel("depthwise_int16", row, lambda module, name: emit_depthwise(module, name, isa, row))
        weights = context.weights.add(self._pack(isa.lanes))
        corner = -conv.border.top * data.row - conv.border.left * data.pixel
        for n in range(conv.images):
            slots = [storages[0].at(corner + n * data.image), weights, storages[1].at(n * out.image)]
            macs = conv.macs // conv.images
            context.step(name, slots, conv.size[0], macs / _RATE * 4, macs)

    def _pack(self, lanes: int) -> Array:
        head = self.params.head(lanes)
        taps = self.params.filters.reshape(len(self.params.filters), -1)
        padded = np.zeros((len(head) * lanes, taps.shape[1], 2), np.int16)
        padded[: len(taps), :, 0] = taps
        body = np.ascontiguousarray(padded.reshape(len(head), lanes, -1, 2).swapaxes(1, 2))
        return np.concatenate((head, body.reshape(len(head), -1).view(np.uint8)), axis=1)
