"""Integer convolutions and matrix products with exact accumulators."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from edgewright.engine.codegen.builder import PTR, Function, Module, Reg, const, lane_count, vec
from edgewright.engine.codegen.ranged_int import RangedIntBuilder
from edgewright.engine.codegen.requant import MAX_EXACT_INT, rescale_float, storage_offset
from edgewright.engine.graph.layout import Storage
from edgewright.engine.graph.nodes import Node
from edgewright.engine.kernels.elementwise import LoopNest, LoopOperand, emit_loop_nest, plan_loops
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
from edgewright.engine.lower.base import DescribedLowering, Lowering, LoweringContext
from edgewright.engine.lower.conv import loop_order
from edgewright.engine.lower.conv_geometry import (
    ConvGeometry,
    ConvLowering,
    GemmPart,
    conv_geometry,
    gemm_parts,
    input_window,
)
from edgewright.engine.lower.elementwise import llvm_type
from edgewright.ir.graph import Array, Op, Value
from edgewright.ir.int_arithmetic import IntRangeError, RangedInt
from edgewright.ir.int_rules import AccumulatorConv, dtype_range
from edgewright.ir.requant_scale import FixedPointScale, FloatScale

# ------------------------------------------------------------------------------------------------------------- int conv

# Convolutions with int32 accumulators as output, for windows without a specialized kernel. The input already has its
# padding. Used where something other than a requantization reads the accumulators.

_CONV_TYPES = tuple(np.dtype(n) for n in ("int8", "uint8", "int16"))
_INT32 = np.dtype(np.int32)


@dataclass(frozen=True)
class _Window:
    """Rows, columns and channels of the window with their byte strides, and the zero point to subtract."""

    counts: tuple[int, int, int]
    steps: tuple[int, int, int]
    zero: int
    signed: bool
    channels: int


class IntAccumulatorConv(DescribedLowering):
    """Convolutions with constant weights, if all sums fit in 32 bits."""

    def __init__(self, node: Node, conv: AccumulatorConv) -> None:
        super().__init__(node)
        self.conv = conv
        low, high = (n - conv.zero for n in dtype_range(conv.data))
        taps = np.abs(conv.weights).sum(axis=(0, 1) if conv.depthwise else (0, 1, 2))
        if int((taps * max(-low, high) + np.abs(conv.bias)).max()) >= 1 << 31:
            raise IntRangeError("sum exceeds 32 bits")

    @classmethod
    def accept_description(cls, node: Node, description: AccumulatorConv) -> Lowering | None:
        supported = node.out.dtype == _INT32 and description.data.dtype in _CONV_TYPES and _fits(description, node.out)
        return cls(node, description) if supported else None

    def emit(self, context: LoweringContext) -> None:
        conv, weights = self.conv, self.conv.weights
        data, out = context.storage(conv.data), context.storage(self.node.out)
        (stride_h, stride_w), (dilation_h, dilation_w) = conv.stride, conv.dilation
        layout, item = data.layout, data.layout.item
        kernel, channels = weights.shape[:2], weights.shape[-1]
        q, signed = conv.data.q, dtype_range(conv.data)[0] < 0
        offset = 0 if q is None else storage_offset(q)
        depth = 1 if conv.depthwise else weights.shape[2]
        zero = offset + conv.zero
        strides = (dilation_h * layout.row, dilation_w * layout.pixel, item)
        window = _Window((*kernel, depth), strides, zero, signed and not offset, channels)
        steps = (layout.image, stride_h * layout.row, stride_w * layout.pixel, item if conv.depthwise else 0)
        operands = [LoopOperand(llvm_type(conv.data), item, steps), LoopOperand("i32", 4, (0, 0, 0, 4)),
                    LoopOperand("i32", 4, (0, 0, 0, 4)), LoopOperand("i32", 4, out.layout.strides)]  # fmt: skip
        packed = [context.weights.add(a.astype(np.int32).view(np.uint8)) for a in (weights, conv.bias)]
        pointers = [data.at(), *packed, out.at()]
        macs = out.value.nbytes // 4 * int(np.prod(window.counts))
        for loops, offsets in plan_loops(list(out.layout.shape), operands):

            def build(module: Module, name: str, loops: LoopNest = loops) -> None:
                _build(module, name, context.isa.lanes, loops, window)

            name = context.kernel("int_conv", (loops, window), build)
            slots = [type(p)(p.buffer, p.offset + m, p.index) for p, m in zip(pointers, offsets, strict=True)]
            context.step(name, slots, loops.units, macs / 8, macs)


def _fits(conv: AccumulatorConv, out: Value) -> bool:
    """Whether every window lies inside the image and the output has the matching shape."""
    image, weights = conv.data.bound, conv.weights
    if len(image) != 4 or weights.ndim != (3 if conv.depthwise else 4) or 0 in (*image, *weights.shape):
        return False
    if weights.shape[2] != image[3] or conv.bias.shape != weights.shape[-1:]:
        return False
    sizes = []
    for n, k, s, d in zip(image[1:3], weights.shape[:2], conv.stride, conv.dilation, strict=True):
        extent = (k - 1) * d + 1
        if s < 1 or d < 1 or extent > n:
            return False
        sizes.append((n - extent) // s + 1)
    return out.bound == (image[0], *sizes, weights.shape[-1])


def _build(module: Module, name: str, lanes: int, loops: LoopNest, window: _Window) -> None:
    """Emit the kernel. Slots: data, weights, biases, output."""
    f = module.kernel(name)
    data = loops.operands[0]
    broadcast = data.strides[-1] == 0  # one input element for all output channels

    def product(pointer: Reg, weights: Reg, total: Reg, width: int) -> Reg:
        x = f.load(data.kind if broadcast else vec(width, data.kind), pointer)
        wide = f.cast("sext" if window.signed else "zext", x, "i32" if broadcast else vec(width, "i32"))
        centered = f.add(wide, -window.zero)
        return f.op("add", total, f.op("mul", f.splat(centered, width) if broadcast else centered,
                                       f.load(vec(width, "i32"), weights)))  # fmt: skip

    def over(dim: int, pointer: Reg, weights: Reg, total: Reg, width: int) -> list[Reg]:
        """Loop over a window dimension and those inside it; returns the next weights and the sum."""
        if dim == 3:
            return [f.gep(weights, 4 * window.channels), product(pointer, weights, total, width)]

        def once(_: Reg, now: list[Reg]) -> list[Reg]:
            return [f.gep(now[0], window.steps[dim]), *over(dim + 1, now[0], now[1], now[2], width)]

        return f.loop(window.counts[dim], [pointer, weights, total], once)[1:]

    def element(now: list[Reg], at: Reg, width: int) -> None:
        pointer = now[0] if broadcast else f.gep(now[0], f.mul(at, data.strides[-1]))
        weights, biases = (
            f.gep(p, f.mul(at, o.strides[-1])) for p, o in zip(now[1:3], loops.operands[1:3], strict=True)
        )
        start = f.load(vec(width, "i32"), biases)
        total = over(0, pointer, weights, start, width)[1]
        f.store(total, f.gep(now[3], f.mul(at, loops.operands[3].strides[-1])))

    emit_loop_nest(f, lanes, loops, [f.load_arg(PTR, i) for i in range(4)], element)


# ----------------------------------------------------------------------------------------------------------- int16 conv

# Int16 convolutions with int8 or int16 weights and a ``scaling``, exact in 48-bit accumulators.
#
# Integer NPUs accumulate int16 products in 48 bits. Vectors have no such type, so kernels sum pairs of products in
# 32-bit lanes for as many taps as cannot overflow, then widen to 64 bits: the window is split into runs of that length
# (``Int16Conv._pack``). ``_Int16ConvParams.exact`` proves beforehand that the final accumulator times the multiplier
# fits in 64 bits, or is below 2**52 where the scaling is a float64 factor; otherwise the node stays with the reference.
# Unsigned inputs are read 32768 lower, which the bias compensates.

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


# ----------------------------------------------------------------------------------------------------------- int matmul

# Integer matrix products of two computed operands, requantized by a ``scaling``.

_MATMUL_TYPES = tuple(np.dtype(n) for n in ("int8", "uint8", "int16", "uint16"))


class IntMatMul(Lowering):
    """int_matmul: sums of products along the rows of the first and the columns of the second operand."""

    exact_reads = True

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self.operands: list[Value] = [node.op.args["self"], node.op.args["other"]]
        self.zeros = [int(z) for z in node.op.args["zeros"]]
        self.depth = int(self.operands[0].bound[-1])
        self.text = self._validate()

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        if node.op.kind != "core.int_matmul" or len(node.ops) > 1 or not _is_per_tensor(node.op.args["scaling"]):
            return None
        values = [node.op.args["self"], node.op.args["other"], node.out]
        if any(v.dtype not in _MATMUL_TYPES or v.constant or len(v.bound) < 2 or 0 in v.bound for v in values):
            return None
        try:
            return cls(node)
        except IntRangeError:
            return None

    def _ranges(self) -> list[tuple[int, int]]:
        """The range of each operand, with its zero point subtracted."""
        return [(low - z, high - z) for (low, high), z in zip(map(dtype_range, self.operands), self.zeros, strict=True)]

    def _sum_range(self) -> tuple[int, int]:
        """The range of the accumulator."""
        products = [x * y for x in self._ranges()[0] for y in self._ranges()[1]]
        return self.depth * min(*products, 0), self.depth * max(*products, 0)

    @property
    def _fits_int16(self) -> bool:
        """Whether products of two operands fit in 32 bits."""
        return all(max(-low, high) <= 1 << 15 for low, high in self._ranges())

    @property
    def _accumulator_type(self) -> str:
        """The LLVM type of the accumulator."""
        low, high = self._sum_range()
        return "i32" if low >= -(1 << 31) and high < 1 << 31 else "i64"

    def _validate(self) -> str:
        """Emit the requantization once: raises if it overflows. The text serves as a cache key."""
        if max(self._sum_range()[1], -self._sum_range()[0]) >= MAX_EXACT_INT:
            raise IntRangeError("sum exceeds 52 bits")
        module = Module()
        f = module.function("trial", [(vec(4, self._accumulator_type), "x")])
        result = self._requantize(f, f.arg("x"))
        offsets = [self._offset(v) for v in range(2)]
        return f"{module.text()} {result} {self._accumulator_type} {self._fits_int16} {offsets}"

    def _offset(self, index: int) -> int:
        """What is subtracted from a stored operand."""
        q = self.operands[index].q
        return self.zeros[index] + (0 if q is None else storage_offset(q))

    def _requantize(self, f: Function, total: Reg) -> Reg:
        i, scaling, out = RangedIntBuilder(f, lane_count(total.type)), self.node.op.args["scaling"], self.node.out
        assert out.dtype is not None
        if isinstance(scaling, FloatScale):
            result = RangedInt(rescale_float(f, total, scaling), scaling.low, scaling.high)
        else:
            result = i.rescale(
                RangedInt(total, *self._sum_range()), scaling.multiplier[0], scaling.shift[0], scaling.rounding
            )
            result = i.clamp(i.plus(result, scaling.zero), scaling.low, scaling.high)
        return i.store(result, 8 * out.dtype.itemsize, 0 if out.q is None else storage_offset(out.q))

    def emit(self, context: LoweringContext) -> None:
        left, right, out = (context.storage(v) for v in (*self.operands, self.node.out))
        shape = list(out.layout.shape)
        steps = (left.layout.strides[-1], right.layout.strides[-2])
        operands = [
            LoopOperand(llvm_type(left.value), left.layout.item, (*_broadcast_strides(left, shape)[:-1], 0)),
            LoopOperand(llvm_type(right.value), right.layout.item, _column_strides(right, shape)),
            LoopOperand(llvm_type(out.value), out.layout.item, out.layout.strides),
        ]
        for loops, offsets in plan_loops(shape, operands):

            def build(module: Module, name: str, loops: LoopNest = loops) -> None:
                self._emit(module, name, context.isa.lanes, loops, steps)

            name = context.kernel("int_matmul", (loops, steps, self.depth, self.text), build)
            slots = [h.at(m) for h, m in zip((left, right, out), offsets, strict=True)]
            macs = math.prod(shape) * self.depth
            context.step(name, slots, loops.units, macs / 8, macs)

    def _emit(self, module: Module, name: str, lanes: int, loops: LoopNest, steps: tuple[int, int]) -> None:
        f = module.kernel(name)
        pointers = [f.load_arg(PTR, i) for i in range(3)]

        def element(now: list[Reg], at: Reg, width: int) -> None:
            row_start, column = (
                f.gep(p, f.mul(at, o.strides[-1])) for p, o in zip(now[:2], loops.operands[:2], strict=True)
            )

            def step(_: Reg, state: list[Reg]) -> list[Reg]:
                row, column_now, total = state
                a = f.splat(self._widen(f, f.load(loops.operands[0].kind, row), 0), width)
                b = self._widen(f, f.load(vec(width, loops.operands[1].kind), column_now), 1)
                if not self._fits_int16:
                    a, b = (f.cast("sext", x, total.type) for x in (a, b))
                product = f.cast("sext", f.op("mul", a, b), total.type)
                return [f.gep(row, steps[0]), f.gep(column_now, steps[1]), f.op("add", total, product)]

            zero = const(0, vec(width, self._accumulator_type))
            total = f.loop(self.depth, [row_start, column, zero], step)[2]
            f.store(self._requantize(f, total), f.gep(now[2], f.mul(at, loops.operands[2].strides[-1])))

        rows, columns = (o.strides[-1] for o in loops.operands[:2])
        emit_loop_nest(
            f, 1 if rows or not columns else lanes, loops, pointers, element
        )  # with one column, vectorize over rows

    def _widen(self, f: Function, x: Reg, index: int) -> Reg:
        value: Value = self.operands[index]
        signed = (
            value.dtype is not None and value.dtype.kind == "i" and (value.q is None or not storage_offset(value.q))
        )
        wide = f.cast("sext" if signed else "zext", x, vec(lane_count(x.type), "i32"))
        return f.add(wide, -self._offset(index))


def _is_per_tensor(scaling: FixedPointScale | FloatScale) -> bool:
    """Whether one factor applies to all channels."""
    if isinstance(scaling, FloatScale):
        return len(scaling.factor) == 1 and scaling.is_valid
    return len(scaling.multiplier) == 1


def _broadcast_strides(storage: Storage, shape: list[int]) -> tuple[int, ...]:
    """Strides of an operand at the rank of ``shape``; 0 where it is broadcast."""
    missing = len(shape) - len(storage.layout.shape)
    sizes = (1,) * missing + storage.layout.shape
    strides = (0,) * missing + storage.layout.strides
    return tuple(0 if n == 1 else s for n, s in zip(sizes, strides, strict=True))


def _column_strides(storage: Storage, shape: list[int]) -> tuple[int, ...]:
    strides = _broadcast_strides(storage, shape)
    return (*strides[:-2], 0, storage.layout.strides[-1])
