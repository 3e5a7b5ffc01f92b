"""3x3 convolutions of stride 1 by Winograd's minimal filtering algorithm, in float32 and in int8."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Reg, const
from edgewright.engine.graph.layout import Border
from edgewright.engine.graph.nodes import Node
from edgewright.engine.kernels import gemm, int8_winograd
from edgewright.engine.kernels.gemm import Window
from edgewright.engine.kernels.winograd import (
    OutputTiles,
    PatchRow,
    PointGemm,
    emit_input_transform,
    emit_output_transform,
    emit_point_gemm,
    pack_weights,
)
from edgewright.engine.lower.base import Lowering, LoweringContext
from edgewright.engine.lower.conv import FloatConv
from edgewright.engine.lower.conv_geometry import ConvGeometry
from edgewright.engine.lower.int8_conv import Int8Conv, Int8ConvParams
from edgewright.engine.plan import Address
from edgewright.ir.graph import Array, Value

# ------------------------------------------------------------------------------------------------------------- winograd

# Float32 3x3 convolutions of stride 1 by Winograd's minimal filtering algorithm.
#
# Reference: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (2015). F(m x m, 3 x 3) transforms each
# (m + 2) x (m + 2) input patch to as many points, multiplies pointwise over channels (one GEMM per point, over all
# tiles of a band), and transforms back to m x m outputs. m = 4 needs 36 multiplications per 16 outputs instead of 144.
#
# Selection: ``suits_winograd`` requires a dense 3x3 window and at least 16 channels, ``WinogradConv.accept`` full
# vectors of channels. ``default_tile_grid`` picks m = 4, or m = 2 where the larger transformed weights would be
# streamed from memory at every call. Measuring may choose the other m or direct convolution. An operator with ``exact``
# set never uses it: results differ from exact ones by less than 1e-5 of the largest (tested), direct convolution by
# about 1e-6.

_L2_WEIGHTS = 640 << 10  # bytes of weights that stay in L2 while tile rows stream through
_PREFETCH_WEIGHTS = 4 << 20  # bytes of weights up to which prefetching helps; beyond, lines evict each other
_STREAMED_WEIGHTS = 24 << 20  # bytes of weights from which every call fetches them from memory


@dataclass(frozen=True)
class WinogradGrid:
    """How the output image is divided into tiles of m x m pixels."""

    m: int
    high: int  # rows of tiles
    wide: int
    band: int  # tile rows per GEMM

    @property
    def points(self) -> int:
        """Points of a transformed tile."""
        return (self.m + 2) ** 2


def default_tile_grid(conv: ConvGeometry) -> WinogradGrid:
    """F(4x4), or F(2x2) if fetching the larger weights costs more than the multiplications it saves."""
    return tile_grid(conv, 4 if conv.inputs * conv.outputs * 36 * 4 <= _STREAMED_WEIGHTS else 2)


def tile_grid(conv: ConvGeometry, m: int) -> WinogradGrid:
    """Divide the output into tiles of m x m."""
    high, wide = (-(-n // m) for n in conv.size)
    fits_l2 = conv.inputs * conv.outputs * (m + 2) ** 2 * 4 <= _L2_WEIGHTS
    return WinogradGrid(m, high, wide, 1 if fits_l2 else high)


def suits_winograd(conv: ConvGeometry) -> bool:
    """Whether the window is a dense 3x3 of stride 1, with enough pixels and channels."""
    window = (conv.kernel, conv.stride, conv.dilation, conv.groups)
    return window == ((3, 3), (1, 1), (1, 1), 1) and min(conv.size) >= 4 and min(conv.inputs, conv.outputs) >= 16


def patch_border(x: Value, grid: WinogradGrid, border: Border) -> tuple[Value, Border]:
    """The border that the last input patches extend into."""
    bottom = grid.high * grid.m + 2 - border.top - int(x.bound[1])
    right = grid.wide * grid.m + 2 - border.left - int(x.bound[2])
    return x, Border(border.top, max(0, bottom), border.left, max(0, right))


class WinogradConv(FloatConv):
    """conv2d with a 3x3 window."""

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        if node.op.kind != "core.conv2d" or context.isa.compact:
            return None
        direct = FloatConv.accept(node, context)
        if not isinstance(direct, FloatConv) or node.op.args.get("exact"):
            return None
        conv, lanes = direct.conv, context.isa.lanes
        if not suits_winograd(conv):
            return None
        if conv.inputs % lanes or conv.outputs % lanes:
            return None
        default_m = default_tile_grid(conv).m
        m = context.tuning.pick(node, "algorithm", ("winograd", conv, direct.epilogue), (default_m, 6 - default_m, 0))
        return cls(node, conv, direct.filters, tile_grid(conv, m)) if m else None

    def __init__(self, node: Node, conv: ConvGeometry, filters: Array, grid: WinogradGrid | None = None) -> None:
        super().__init__(node, conv, filters)
        self.grid = grid or default_tile_grid(conv)

    def required_border(self) -> tuple[Value, Border] | None:
        return patch_border(self.node.op.args["input"], self.grid, self.conv.border)

    def temporaries(self, context: LoweringContext) -> list[int]:
        """Buffers for the input and output points of an image, unless tile rows are processed one at a time."""
        if self.grid.band == 1:
            return []
        tiles = self.grid.points * self.grid.high * self.grid.wide * 4
        return [tiles * self.conv.inputs, tiles * self.conv.outputs]

    def emit(self, context: LoweringContext) -> None:
        conv, grid, node = self.conv, self.grid, self.node
        panels = gemm.make_panels(context.isa, conv.outputs, max(2, grid.band * grid.wide))
        weight_bytes = grid.points * gemm.packed_size(panels, conv.inputs)
        weights = context.weights.reserve(
            weight_bytes, lambda room: pack_weights(room, self.filters, grid.m, panels), self.filters
        )
        bias = node.op.args.get("bias")
        bias_data = np.zeros(conv.outputs, np.float32) if bias is None else np.asarray(bias.data).reshape(-1)
        biases = context.weights.add(bias_data)
        emitter = FloatWinogradEmitter(context, self, panels)
        for n in range(conv.images):
            emitter.emit(n, weights, biases)


class WinogradEmitter:
    """Emits the steps of one image, independent of the element type.

    If the weights stay in L2 (``band == 1``) one kernel takes each tile row from input to output in thread scratch.
    Else three steps with barriers process the entire image: input transform, one GEMM per point and panel, output
    transform.
    """

    patches: PatchRow
    outputs: OutputTiles
    points: PointGemm
    panels: int  # weight panels per point
    panel: int  # bytes of a panel
    width: int  # bytes of a panel's results
    size: int  # bytes of a point's weights
    key: Hashable  # further cache key of the GEMM
    output_key: Hashable = ()  # further cache key of the output transform
    rate: float  # approximate multiply-adds per nanosecond

    def __init__(self, context: LoweringContext, node: Node, conv: ConvGeometry, grid: WinogradGrid) -> None:
        self.context, self.conv, self.grid = context, conv, grid
        self.data, self.out = context.storage(node.op.args["input"]), context.storage(node.out)
        self.residual = context.storage(node.residual) if node.residual is not None else self.out

    def emit(self, image: int, weights: Address, biases: Address) -> None:
        conv, grid, context = self.conv, self.grid, self.context
        corner = -conv.border.top * self.data.layout.row - conv.border.left * self.data.layout.pixel
        data = self.data.at(corner + image * self.data.layout.image)
        out = self.out.at(image * self.out.layout.image)
        second = self.residual.at(image * self.residual.layout.image)
        macs = conv.macs // conv.images
        nanoseconds = macs / self.rate * (grid.points / (9 * grid.m * grid.m)) * 1.2
        if grid.band == 1:
            key = (self.patches, self.outputs, self.points, self.key, self.output_key, conv.size[0], grid)
            name = context.kernel("winograd", key, self._build_rows)
            context.scratch = max(context.scratch, grid.points * (self.patches.point + self.outputs.patches.point))
            context.step(name, [data, weights, out, second, biases], grid.high, nanoseconds, macs)
            return
        points, products = (Address("arena", offset) for offset in context.temporaries)
        if image:
            context.barrier = True  # the previous image's points are consumed
        name = context.kernel("winograd_input", (self.patches, grid), self._build_patches)
        context.step(name, [data, points], grid.high, nanoseconds * 0.1)
        context.barrier = True
        name = context.kernel("winograd_gemm", (self.points, self.key), self._build_points)
        context.step(name, [points, weights, products], grid.points * self.panels, nanoseconds * 0.8, macs)
        context.barrier = True
        name = context.kernel(
            "winograd_output", (self.outputs, self.output_key, conv.size[0], grid), self._build_outputs
        )
        context.step(name, [products, out, second, biases], grid.high, nanoseconds * 0.1)

    # -------------------------------------------------------------------------------------------------- kernels

    def emit_input_transform(self, module: Module) -> Function:
        """Emit the input transform of a row of patches."""
        raise NotImplementedError

    def emit_output_transform(self, module: Module) -> Function:
        """Emit the output transform of a row of tiles."""
        raise NotImplementedError

    def tiles(self, module: Module) -> list[dict[int, Function]]:
        """Tile functions of the GEMM by row count, for the first panel's width and for the last one's if it differs."""
        raise NotImplementedError

    def _all_points(self, f: Function, tiles: list[dict[int, Function]], data: Reg, weights: Reg, out: Reg, begin: Reg,
                    end: Reg) -> None:  # fmt: skip
        """Multiply the units from ``begin`` to ``end``; a unit is a point and a panel, panels innermost."""
        panel_count = self.panels

        def emit_panel(unit: Reg) -> None:
            point, index = f.op("udiv", unit, panel_count), f.op("urem", unit, panel_count)
            source, target = f.gep(data, f.mul(point, self.points.data)), f.gep(out, f.mul(point, self.points.out))
            panel = f.gep(f.gep(weights, f.mul(point, self.size)), f.mul(index, self.panel))
            columns = f.gep(target, f.mul(index, self.width))
            if len(tiles) == 1:
                emit_point_gemm(f, self.points, tiles[0], source, panel, columns)
                return
            last = f.compare("eq", index, panel_count - 1)
            f.if_then(last, lambda: emit_point_gemm(f, self.points, tiles[1], source, panel, columns))
            other = f.compare("ne", index, panel_count - 1)
            f.if_then(other, lambda: emit_point_gemm(f, self.points, tiles[0], source, panel, columns))

        f.for_range(begin, end, emit_panel)

    def _rows_left(self, f: Function, row: Reg) -> Reg:
        left = f.op("sub", const(self.conv.size[0], I64), f.mul(row, self.grid.m))
        return f.call("llvm.umin.i64", I64, left, const(self.grid.m, I64))

    def _build_rows(self, module: Module, name: str) -> None:
        """Units are tile rows, each taken from input to output in the thread's scratch memory."""
        patches, outputs = self.emit_input_transform(module), self.emit_output_transform(module)
        tiles, grid = self.tiles(module), self.grid
        f = module.kernel(name)
        data, weights, out, second, biases = (f.load_arg(PTR, i) for i in range(5))
        points = f.arg("scratch")
        products = f.gep(points, grid.points * self.patches.point)

        def row(y: Reg) -> None:
            f.call_void(patches, f.gep(data, f.mul(y, grid.m * self.patches.row)), points)
            total = const(grid.points * self.panels, I64)
            self._all_points(f, tiles, points, weights, products, const(0, I64), total)
            target = f.gep(out, f.mul(y, grid.m * self.outputs.patches.row))
            residual = f.gep(second, f.mul(y, grid.m * self.outputs.residual_row))
            f.call_void(outputs, products, target, residual, biases, self._rows_left(f, y))

        f.for_range(f.arg("begin"), f.arg("end"), row)
        f.ret()

    def _build_patches(self, module: Module, name: str) -> None:
        patches = self.emit_input_transform(module)
        f = module.kernel(name)
        data, points = f.load_arg(PTR, 0), f.load_arg(PTR, 1)
        step = self.grid.wide * self.conv.inputs * self.patches.item

        def row(y: Reg) -> None:
            f.call_void(patches, f.gep(data, f.mul(y, self.grid.m * self.patches.row)), f.gep(points, f.mul(y, step)))

        f.for_range(f.arg("begin"), f.arg("end"), row)
        f.ret()

    def _build_points(self, module: Module, name: str) -> None:
        tiles = self.tiles(module)
        f = module.kernel(name)
        points, weights, products = (f.load_arg(PTR, i) for i in range(3))
        self._all_points(f, tiles, points, weights, products, f.arg("begin"), f.arg("end"))
        f.ret()

    def _build_outputs(self, module: Module, name: str) -> None:
        outputs = self.emit_output_transform(module)
        f = module.kernel(name)
        products, out, second, biases = (f.load_arg(PTR, i) for i in range(4))
        step = self.grid.wide * self.conv.outputs * 4

        def row(y: Reg) -> None:
            target = f.gep(out, f.mul(y, self.grid.m * self.outputs.patches.row))
            residual = f.gep(second, f.mul(y, self.grid.m * self.outputs.residual_row))
            f.call_void(outputs, f.gep(products, f.mul(y, step)), target, residual, biases, self._rows_left(f, y))

        f.for_range(f.arg("begin"), f.arg("end"), row)
        f.ret()


class FloatWinogradEmitter(WinogradEmitter):
    """Emits float32 steps."""

    rate = 50.0

    def __init__(self, context: LoweringContext, lowering: WinogradConv, panel_list: list[gemm.Panel]) -> None:
        super().__init__(context, lowering.node, lowering.conv, lowering.grid)
        conv, grid = self.conv, self.grid
        tiles = grid.band * grid.wide
        data, out, second = self.data.layout, self.out.layout, self.residual.layout
        self.patches = PatchRow(grid.m, grid.wide, conv.inputs, data.row, data.pixel, tiles * conv.inputs * 4)
        results = PatchRow(grid.m, grid.wide, conv.outputs, out.row, out.pixel, tiles * conv.outputs * 4)
        self.outputs = OutputTiles(results, conv.size[1], second.row, second.pixel, lowering.epilogue)
        largest = gemm.max_tile_pixels(context.isa, max(len(p.widths) for p in panel_list))
        self.points = PointGemm(grid.points, tiles, largest, 4 * conv.inputs, self.patches.point, results.point)
        self.panel_list, self.panels, self.key = panel_list, len(panel_list), (tuple(panel_list), conv.inputs)
        self.panel, self.width = 4 * panel_list[0].columns * (conv.inputs + 1), 4 * panel_list[0].used
        self.size = gemm.packed_size(panel_list, conv.inputs)

    def emit_input_transform(self, module: Module) -> Function:
        return emit_input_transform(module, self.context.isa.lanes, self.patches)

    def emit_output_transform(self, module: Module) -> Function:
        return emit_output_transform(module, self.context.isa.lanes, self.outputs)

    def tiles(self, module: Module) -> list[dict[int, Function]]:
        conv = self.conv
        window = gemm.Window((), conv.inputs, 4 * conv.inputs)
        ahead = self.size * self.grid.points <= _PREFETCH_WEIGHTS
        return [
            {size: gemm.emit_tile(module, size, panel, window, 4 * conv.outputs, 0, (), ahead=ahead)
             for size, _ in self.points.sizes}
            for panel in dict.fromkeys(self.panel_list)
        ]  # fmt: skip


# -------------------------------------------------------------------------------------------------------- int8 winograd

# Int8 3x3 convolutions of stride 1 by Winograd F(4x4, 3x3), bit-exact with the direct algorithm.
#
# The transforms are scaled to integers and the accumulators wrap modulo 2**32; ``kernels/int8_winograd.py`` explains
# why the result is still exact. ``Int8WinogradConv.accept`` decides when it pays.

# bytes of weights that stay in L2 while tile rows stream through
_MAX_WEIGHTS = 8 << 20  # bytes of weights from which fetching costs more than the saved multiplications
_MAX_WASTE = 1.4  # computed outputs per used output, at most


def int8_tile_grid(conv: ConvGeometry) -> WinogradGrid:
    """Tiles of 4x4 outputs; a band is one tile row if the transformed weights (36 points of int16) fit in L2."""
    high, wide = (-(-n // 4) for n in conv.size)
    return WinogradGrid(4, high, wide, 1 if conv.inputs * conv.outputs * 72 <= _L2_WEIGHTS else high)


class Int8WinogradConv(Int8Conv):
    """conv2d with a 3x3 window, by default unless edge tiles waste too much work or the weights are too large."""

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        if node.op.kind != "core.conv2d" or context.isa.compact:
            return None
        direct = Int8Conv.accept(node, context)
        if not isinstance(direct, Int8Conv) or not suits_winograd(direct.conv):
            return None
        conv, lanes, grid = direct.conv, context.isa.lanes, int8_tile_grid(direct.conv)
        if conv.inputs % (2 * lanes) or conv.outputs % (4 * lanes) or conv.inputs < 64:
            return None
        if int8_winograd.max_abs_output(direct.params.filters) >= int8_winograd.MAX_ABS_OUTPUT:
            return None
        wasteful = grid.high * grid.wide * 16 > _MAX_WASTE * conv.size[0] * conv.size[1]
        by_default = not wasteful and conv.inputs * conv.outputs * 72 <= _MAX_WEIGHTS
        spec = ("winograd", conv, direct.params.requant)
        return (
            cls(node, conv, direct.params, grid)
            if context.tuning.pick(node, "algorithm", spec, (by_default, not by_default))
            else None
        )

    def __init__(
        self, node: Node, conv: ConvGeometry, params: Int8ConvParams, grid: WinogradGrid | None = None
    ) -> None:
        super().__init__(node, conv, params)
        self.grid = grid or int8_tile_grid(conv)

    def required_border(self) -> tuple[Value, Border] | None:
        return patch_border(self.node.op.args["input"], self.grid, self.conv.border)

    def prefers_unpadded(self) -> Value | None:
        return None

    def temporaries(self, context: LoweringContext) -> list[int]:
        if self.grid.band == 1:
            return []
        tiles = self.grid.points * self.grid.high * self.grid.wide
        return [tiles * self.conv.inputs * 2, tiles * self.conv.outputs * 4]

    def emit(self, context: LoweringContext) -> None:
        params, lanes = self.params, context.isa.lanes
        emitter = Int8WinogradEmitter(context, self)
        weight_bytes = 72 * self.conv.inputs * self.conv.outputs
        weights = context.weights.reserve(
            weight_bytes,
            lambda room: int8_winograd.pack_weights(room, lanes, params.filters, emitter.vectors),
            params.filters,
        )
        epilogue = int8_winograd.pack_epilogue_params(
            lanes, params.bias, np.ascontiguousarray(params.factors), params.epilogue_params.pack()
        )
        epilogue_place = context.weights.add(epilogue)
        for n in range(self.conv.images):
            emitter.emit(n, weights, epilogue_place)


class Int8WinogradEmitter(WinogradEmitter):
    """Emits the steps of one image with int16 points and int32 accumulators."""

    rate = 100.0

    def __init__(self, context: LoweringContext, lowering: Int8WinogradConv) -> None:
        super().__init__(context, lowering.node, lowering.conv, lowering.grid)
        conv, grid, lanes = self.conv, self.grid, context.isa.lanes
        tiles = grid.band * grid.wide
        data, out, second = self.data.layout, self.out.layout, self.residual.layout
        self.patches = PatchRow(4, grid.wide, conv.inputs, data.row, data.pixel, tiles * conv.inputs * 2, 2)
        results = PatchRow(4, grid.wide, conv.outputs, out.row, out.pixel, tiles * conv.outputs * 4)
        self.outputs = OutputTiles(results, conv.size[1], second.row, second.pixel)
        self.vectors, largest = (2, 14) if context.isa.registers >= 32 else (2, 4)
        self.points = PointGemm(36, tiles, largest, 2 * conv.inputs, self.patches.point, results.point)
        columns = self.vectors * lanes
        self.panels, self.panel = conv.outputs // columns, 2 * conv.inputs * columns
        self.width, self.size = 4 * columns, 2 * conv.inputs * conv.outputs
        self.key, self.output_key = ("bytes", self.vectors, conv.inputs), lowering.params.requant
        self.requant = lowering.params.requant

    def emit_input_transform(self, module: Module) -> Function:
        return emit_input_transform(module, 2 * self.context.isa.lanes, self.patches)

    def emit_output_transform(self, module: Module) -> Function:
        return int8_winograd.emit_output_transform(module, self.context.isa.lanes, self.outputs, self.requant)

    def tiles(self, module: Module) -> list[dict[int, Function]]:
        window = Window((), self.conv.inputs // 2, 2 * self.conv.inputs)
        out = 4 * self.conv.outputs
        isa, sizes = self.context.isa, self.points.sizes
        return [{size: int8_winograd.emit_tile(module, isa, size, self.vectors, window, out) for size, _ in sizes}]
