"""Int8 convolutions and linear layers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from edgewright.engine.codegen.builder import Function, Module
from edgewright.engine.codegen.requant import affine_of, clamp_limits, scale_of, storage_offset
from edgewright.engine.graph.layout import Storage, padded_channels
from edgewright.engine.graph.nodes import Node, is_quantized8
from edgewright.engine.kernels import int8_depthwise, int8_gemm, int8_gemm_dsp
from edgewright.engine.kernels.gemm import Window
from edgewright.engine.kernels.int8_gemm import EpilogueParams, Int8Epilogue
from edgewright.engine.kernels.tile_loops import PanelGroup, emit_tile_loops
from edgewright.engine.lower.base import Lowering, LoweringContext
from edgewright.engine.lower.conv import GemmTile, loop_order, select_taps
from edgewright.engine.lower.conv_geometry import (
    ConvGeometry,
    ConvLowering,
    ConvTransposeLowering,
    GemmPart,
    conv_geometry,
    emit_depthwise_steps,
    gemm_parts,
    has_uniform_pixels,
    input_window,
    linear_geometry,
    should_prefetch,
    transposed_conv_phases,
)
from edgewright.engine.lower.elementwise import int8_add_fits
from edgewright.engine.plan import ALIGN, Address
from edgewright.ir.graph import Array, Op, QParams, Value
from edgewright.ir.numerics import Numerics

if TYPE_CHECKING:
    from edgewright.ir.requant_scale import FixedPointScale

# ---------------------------------------------------------------------------------------------------------- int8 params

# Requantization parameters of int8 convolutions: corrected bias, multipliers, and output clamping.

_INT32 = 1 << 31  # exclusive bound of accumulators
_HALF_INT32 = 1 << 30


class Int8ConvParams:
    """Integer parameters of an int8 convolution: filters, bias with the zero point folded in, and requantization.

    Multipliers are float32, rounding half to even, unless the operator carries a ``scaling``:
    a fixed-point rescale with a vendor's rounding (``ir/requant_scale.py``).
    """

    def __init__(self, node: Node, context: LoweringContext, filters: Array) -> None:
        op = node.op
        x, out = op.args["input"], node.middle
        assert x.q is not None and out.q is not None
        self.node, self.context = node, context
        self.filters = filters
        channels = len(self.filters)
        bias = op.args.get("bias")
        plain_bias = np.zeros(channels, np.int64) if bias is None else np.asarray(bias.data, np.int64).reshape(-1)
        zero_point = affine_of(x.q).zero
        corrected = plain_bias - zero_point * self._sum_per_channel(self.filters) if zero_point else plain_bias
        self.bias = ((corrected + _INT32) % (2 * _INT32) - _INT32).astype(np.int32)
        self.scaling: FixedPointScale | None = op.args.get("scaling")
        self.factors, self.gain = self._factors(channels)
        self.max_accumulator = self._accumulator_bound(plain_bias)
        self.requant, self.epilogue_params = self._requantization()

    def _factors(self, channels: int) -> tuple[Array, float]:
        """Multipliers as 32-bit words, [words, channels], and the largest as a float."""
        x, weight, out = self.node.op.args["input"], self.node.op.args["weight"], self.node.middle
        if self.scaling is not None:
            words = self.scaling.packed()
            return np.broadcast_to(words, (len(words), channels)), self.scaling.max_factor
        assert x.q is not None and out.q is not None
        scale = np.asarray(weight.q.scale, np.float32).reshape(-1)
        factors = np.broadcast_to(scale_of(x.q) * scale / scale_of(out.q), channels).astype(np.float32)
        return factors[None], float(factors.max(initial=0))

    def _sum_per_channel(self, filters: Array) -> Array:
        """The sum of each output channel's filter."""
        return np.asarray(filters.reshape(len(filters), -1).sum(axis=1, dtype=np.int64))

    def _accumulator_bound(self, bias: Array) -> int:
        """An upper bound of the accumulators' magnitude; computed exactly only if a rough bound is too large."""
        channels = len(self.filters)
        rough = int8_gemm.max_accumulator(
            np.array([128 * self.filters[:1].size]), np.abs(bias).max(initial=0, keepdims=True)
        )
        if not channels or rough * max(1.0, self.gain) < _HALF_INT32:
            return rough if channels else 0
        magnitudes = np.abs(self.filters).view(np.uint8)  # abs(-128) overflows to -128, which reads as 128 unsigned
        return int8_gemm.max_accumulator(self._sum_per_channel(magnitudes), bias)

    @property
    def exact(self) -> bool:
        """Whether accumulators fit in 32 bits, with a spare bit where rounding adds to them."""
        if self.scaling is None:
            return self.max_accumulator < _INT32
        limit = _HALF_INT32 if self.scaling.rounding == "twice" else _INT32
        return self.scaling.is_valid and self.max_accumulator < limit

    def _requantization(self) -> tuple[Int8Epilogue, EpilogueParams]:
        node, numerics = self.node, self.context.numerics
        conv_q, out_q = node.middle.q, node.sum.outputs[0].q if node.sum and node.sum.outputs[0] else node.middle.q
        assert conv_q is not None and out_q is not None
        limits = (node.sum or node.op).args.get("limits")
        low, high = clamp_limits(numerics, out_q, limits)
        if self.scaling is not None:
            low, high = (n + storage_offset(out_q) for n in (self.scaling.low, self.scaling.high))
        factors = self._residual_factors(conv_q, out_q) if node.sum else ()
        rounding = "even" if self.scaling is None else self.scaling.rounding
        large = self.max_accumulator * self.gain >= _HALF_INT32 or (
            self.scaling is not None and self.scaling.may_exceed_int32
        )
        zero_point = affine_of(out_q).zero if self.scaling is None else self.scaling.zero + storage_offset(out_q)
        requant = Int8Epilogue(
            zero_point != 0, low > 0, high < 255, large, bool(node.sum), node.table is not None, rounding,
            self.context.isa.compact,
        )  # fmt: skip
        return requant, EpilogueParams(zero_point, low, high, factors, node.table)

    def _residual_factors(self, conv_q: QParams, out_q: QParams) -> tuple[int, ...]:
        """Clamp limits of the convolution, and the factors of the fused residual add."""
        node, op = self.node, self.node.sum
        assert op is not None and node.residual is not None and node.residual.q is not None
        second_q, zero = node.residual.q, affine_of(conv_q).zero
        low, high = clamp_limits(self.context.numerics, conv_q, node.op.args.get("limits"))
        conv_is_left = op.args["other"] is node.residual
        a, b = (conv_q, second_q) if conv_is_left else (second_q, conv_q)
        left, right, shift = self.context.numerics.sum_factors((a, b), out_q)
        right = -right if op.kind == "core.sub" else right
        conv_factor, second_factor = (left, right) if conv_is_left else (right, left)
        offset = (1 << shift - 1) - affine_of(second_q).zero * second_factor
        return low - zero, high - zero, conv_factor, second_factor, offset, shift


# ------------------------------------------------------------------------------------------------------------ int8 conv

# Int8 convolutions and linear layers, with fused residual add and lookup table.
#
# conv2d and linear run as implicit GEMM on 4-byte dot products (``kernels/int8_gemm.py``), depthwise convolutions row
# by row (``kernels/int8_depthwise.py``). Activations are stored as uint8, weights as int8.

_RATE = 200.0  # approximate multiply-adds per nanosecond on one core
_TUNED_TILES = 6  # candidates that measuring compares


def _filters(op: Op) -> Array:
    """Filters as [output channels, height, width, input channels], or [channels, height, width, 1] if depthwise."""
    data = np.asarray(op.args["weight"].data)
    if op.kind == "core.linear":
        return (data.T if op.args.get("transposed") else data)[:, None, None, :]
    return data.transpose(3, 1, 2, 0) if op.kind == "core.depthwise_conv2d" else data


def _pad_last_dim(filters: Array, last: int) -> Array:
    """Pad the last dimension with zeros to ``last`` elements."""
    if filters.shape[-1] == last:
        return filters
    padded = np.zeros((*filters.shape[:-1], last), filters.dtype)
    padded[..., : filters.shape[-1]] = filters
    return padded


def _is_int8_conv(node: Node, numerics: Numerics) -> bool:
    """Whether activations are int8 or uint8 and weights are constant, symmetric int8."""
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
        assert node.residual is not None and node.residual.q is not None and node.sum.outputs[0] is not None
        last = node.sum.outputs[0].q
        if "scaling" in op.args:
            return False
        return last is not None and out.q is not None and int8_add_fits(numerics, out.q, node.residual.q, last)
    return True


class _Int8ConvLowering(ConvLowering):
    """An int8 convolution with its requantization parameters."""

    exact_writes = False

    def __init__(self, node: Node, conv: ConvGeometry, params: Int8ConvParams) -> None:
        super().__init__(node, conv)
        self.params = params


class Int8Conv(_Int8ConvLowering):
    """conv2d and linear as int8 GEMM."""

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        op = node.op
        if op.kind not in ("core.conv2d", "core.linear") or not _is_int8_conv(node, context.numerics):
            return None
        if node.table is not None and not context.isa.permute_bytes:
            return None
        conv = linear_geometry(op) if op.kind == "core.linear" else conv_geometry(op)
        if not conv.few_steps:
            return None
        params = Int8ConvParams(node, context, _filters(op))
        return cls(node, conv, params) if params.exact else None

    def prefers_unpadded(self) -> Value | None:
        """With three channels, a dense kernel row takes fewer steps than one of padded pixels; with one or two, too,
        where each step costs instructions."""
        conv, isa = self.conv, self.params.context.isa
        dense, padded = (-(-channels * conv.kernel[1] // isa.dot_bytes) for channels in (conv.inputs, 4))
        saves_steps = conv.inputs in ((1, 2, 3) if isa.compact else (3,)) and dense < padded
        return self.node.op.args["input"] if saves_steps and conv.groups == 1 and conv.dilation[1] == 1 else None

    def emit(self, context: LoweringContext) -> None:
        conv, isa = self.conv, context.isa
        data, out = context.storage(self.node.op.args["input"]), context.storage(self.node.out)
        second = None if self.node.residual is None else context.storage(self.node.residual)
        window = self._window(data)
        single_gemm = (
            conv.is_gemm
            and conv.groups == 1
            and all(has_uniform_pixels(h) for h in (data, out, *([second] if second else [])))
        )
        columns = conv.images * conv.size[0] * conv.size[1] if single_gemm else conv.size[1]
        pixel_bytes = conv.outputs if conv.groups > 1 else padded_channels(conv.outputs)
        rows = 1 if single_gemm else conv.size[0]
        tile = self._choose_tile(context, (window, pixel_bytes, rows, columns))
        panels = int8_gemm.make_panels(isa, pixel_bytes, tile.vectors, rows * columns)
        group_weights = self._pack(context, data, panels, window.elements)
        for part in gemm_parts(conv, tile.pixels, data, out, second):
            weight_bytes = sum(int8_gemm.panel_bytes(isa, p, self.params.requant, window.elements) for p in panels)
            by_panel, panels_outer = loop_order(part, len(panels), weight_bytes, conv.outputs, context.threads)
            panels_outer ^= tile.swap_loops
            prefetch = should_prefetch(part.grid, weight_bytes, by_panel or panels_outer)
            name = self._kernel(context, part, panels, window, by_panel, panels_outer, prefetch)
            residual = second.at(part.residual) if second else out.at(0)
            units = len(panels) if by_panel else part.grid.rows * part.grid.tiles
            macs = part.grid.rows * part.grid.columns * conv.outputs * conv.inputs * conv.kernel[0] * conv.kernel[1]
            slots = [data.at(part.data), group_weights[part.group], out.at(part.out), residual]
            context.step(name, slots, units, macs / _RATE, macs, 1 if panels_outer and not by_panel else 8)

    def _choose_tile(self, context: LoweringContext, sizes: tuple[Window, int, int, int]) -> GemmTile:
        """Choose the GEMM tile: the cost model in ``kernels/int8_gemm.py`` ranks candidates, measuring may pick
        another.
        """
        window, stored, rows, columns = sizes
        best = int8_gemm.rank_tiles(context.isa, stored, window.elements, rows, columns, context.threads)
        tiles = [GemmTile(*sizes) for sizes in best[:_TUNED_TILES]]
        swapped = [GemmTile(*best[0], True)] if rows * columns > 1 else []
        spec = (self.conv, sizes, self.params.requant)
        return context.tuning.pick(self.node, "tile", spec, [*tiles, *swapped])

    def _window(self, data: Storage) -> Window:
        """The window in steps of one dot product each."""
        plain = input_window(self.conv, data, 1)
        return Window(plain.loops, -(-plain.depth // self.params.context.isa.dot_bytes), plain.step)

    def _window_order(self, data: Storage) -> Array:
        """Filters in the order the window visits inputs: [output channels, steps * dot_bytes]."""
        plain = input_window(self.conv, data, 1)
        filters = self.params.filters
        channels, high, _, inputs = filters.shape
        if len(plain.loops) == 1:  # kernel rows are contiguous runs, including padded channels
            filters = _pad_last_dim(filters, data.layout.pixel).reshape(channels, high, -1)[..., : plain.depth]
        else:
            filters = filters.reshape(channels, -1, inputs)
        step = self.params.context.isa.dot_bytes
        return _pad_last_dim(filters, -(-plain.depth // step) * step).reshape(channels, -1)

    def _pack(
        self, context: LoweringContext, data: Storage, panels: list[int8_gemm.Int8Panel], steps: int
    ) -> list[Address]:
        """Pack the weights; returns the location of each group's panels."""
        params, count = self.params, self.conv.outputs
        group_bytes = sum(int8_gemm.panel_bytes(context.isa, p, params.requant, steps) for p in panels)

        def write(buffer: Array) -> None:
            filters = self._window_order(data)
            for g, target in enumerate(buffer.reshape(self.conv.groups, -1)):
                span = slice(g * count, (g + 1) * count)
                operands = (filters[span], params.bias[span], params.factors[:, span])
                int8_gemm.pack_weights(
                    target[:group_bytes], context.isa, *operands, panels, params.requant, params.epilogue_params
                )

        stride = -(-group_bytes // ALIGN) * ALIGN
        first = context.weights.reserve(self.conv.groups * stride, write, params.filters)
        return [Address("weights", first.offset + g * stride) for g in range(self.conv.groups)]

    def _kernel(self, context: LoweringContext, part: GemmPart, panels: list[int8_gemm.Int8Panel], window: Window,
                by_panel: bool, panels_outer: bool, prefetch: bool) -> str:  # fmt: skip
        def build(module: Module, name: str) -> None:
            runs = self._runs(context, module, part, panels, window, prefetch)
            emit_tile_loops(module, name, part.grid, runs, by_panel, panels_outer)

        key = (part.grid, tuple(panels), window, self.params.requant, by_panel, panels_outer, prefetch)
        return context.kernel("gemm_int8", key, build)

    def _runs(self, context: LoweringContext, module: Module, part: GemmPart, panels: list[int8_gemm.Int8Panel],
              window: Window, prefetch: bool) -> list[PanelGroup]:  # fmt: skip
        runs: list[PanelGroup] = []
        offset = column = 0
        isa, requant, grid = context.isa, self.params.requant, part.grid
        for panel in dict.fromkeys(panels):
            count, panel_size = panels.count(panel), int8_gemm.panel_bytes(isa, panel, requant, window.elements)

            def tile(pixels: int, panel: int8_gemm.Int8Panel = panel) -> Function:
                steps = (grid.out.pixel, grid.residual.pixel)
                if isa.dsp:
                    return int8_gemm_dsp.emit_tile(module, isa, pixels, panel, window, *steps, requant)
                return int8_gemm.emit_tile(
                    module, isa, pixels, panel, window, *steps, requant, prefetch and grid.late(pixels)
                )

            runs.append(PanelGroup(count, panel_size, offset, column, panel.used, tile))
            offset, column = offset + count * panel_size, column + count * panel.used
        return runs


class Int8ConvTranspose(ConvTransposeLowering):
    """conv_transpose2d, one int8 GEMM per phase."""

    exact_writes = False

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        op = node.op
        if (
            op.kind != "core.conv_transpose2d"
            or not _is_int8_conv(node, context.numerics)
            or list(op.args["dilation"]) != [1, 1]
        ):
            return None
        phases = transposed_conv_phases(op)
        if sum(conv.images * conv.groups for conv, *_ in phases) > 1024:
            return None
        data = np.asarray(op.args["weight"].data)
        params = [Int8ConvParams(node, context, select_taps(data, *taps)) for _, *taps in phases]
        if not all(n.exact for n in params):
            return None
        return cls(node, [Int8Conv(node, conv, n) for (conv, *_), n in zip(phases, params, strict=True)])


class Int8DepthwiseConv(_Int8ConvLowering):
    """depthwise_conv2d: one filter per channel.

    Tile size: there is no cost model and nothing to tune. ``int8_depthwise.tile_pixels`` sets the output pixels per
    tile: 4 with 32 vector registers, 2 with 16, at most the row length. Each pixel of a tile needs four 32-bit
    accumulator vectors (one per quarter of a byte vector), so four pixels take 16 registers and leave the rest for the
    interleaved inputs, weights and multipliers. ``int8_depthwise.channel_blocks`` sets the channels per tile: one byte
    vector (64 channels with AVX-512, 32 with AVX2, 16 with NEON), then a narrower or overlapping block for the
    remainder. There is one step per image, parallel over output rows. Larger filters than ``MAX_TAPS`` and channel
    multipliers (``conv.outputs`` filters per channel) have other lowerings.
    """

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        if node.op.kind != "core.depthwise_conv2d" or not _is_int8_conv(node, context.numerics):
            return None
        if node.table is not None and not context.isa.permute_bytes:
            return None
        conv = conv_geometry(node.op)
        if conv.outputs != 1 or conv.images > 1024 or math.prod(conv.kernel) > int8_depthwise.MAX_TAPS:
            return None
        params = Int8ConvParams(node, context, _filters(node.op))
        return cls(node, conv, params) if params.exact else None

    def emit(self, context: LoweringContext) -> None:
        conv, isa, node, params = self.conv, context.isa, self.node, self.params
        storages = [context.storage(v) for v in (node.op.args["input"], node.out, node.residual or node.out)]
        data, out, second = (s.layout for s in storages)
        channels = padded_channels(conv.groups)  # not the pixel stride, which covers other tensors in a concatenation
        row = int8_depthwise.Int8DepthwiseRow(
            conv.kernel,
            conv.stride[1],
            conv.dilation[1],
            conv.size[1],
            channels,
            data.pixel,
            out.pixel,
            second.pixel,
            params.requant,
        )
        emit_row = lambda module: int8_depthwise.emit_row(module, isa, row)  # noqa: E731
        filters = params.filters[..., 0].transpose(1, 2, 0)
        nanoseconds = conv.macs / _RATE * 3  # depthwise reaches about a third of the GEMM's rate
        weights = context.weights.add(
            int8_depthwise.pack_weights(isa, row, filters, params.bias, params.factors, params.epilogue_params)
        )
        emit_depthwise_steps(context, self, "depthwise_int8", row, emit_row, weights, nanoseconds)
