"""3x3 convolutions of stride 1 in single precision, by Winograd's way where it is faster.

Results differ from exact ones by less than 1e-5 of the largest (tested); the plain way by some 1e-6.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Reg, const
from edgewright.engine.graph.layout import Border
from edgewright.engine.graph.nodes import Node
from edgewright.engine.kernels import gemm
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
from edgewright.engine.plan import Address
from edgewright.ir.graph import Array, Value

_INSIDE = 640 << 10  # bytes of weights that stay in the second cache while tile rows go by
_NEAR = 4 << 20  # bytes of weights that are worth asking for before they are needed; more only get in each other's way
_STREAMED = 24 << 20  # bytes of weights that come from memory at every call


@dataclass(frozen=True)
class TileGrid:
    """How an image is grid."""

    m: int
    high: int  # rows of tiles
    wide: int
    band: int  # rows of tiles that are done together

    @property
    def points(self) -> int:
        return (self.m + 2) ** 2


def default_tile_grid(conv: ConvGeometry) -> TileGrid:
    """F(4x4), unless its weights would be so many that fetching them takes longer than the products it saves."""
    return tile_grid(conv, 4 if conv.inputs * conv.outputs * 36 * 4 <= _STREAMED else 2)


def tile_grid(conv: ConvGeometry, m: int) -> TileGrid:
    """Tiles of m x m."""
    high, wide = (-(-n // m) for n in conv.size)
    inside = conv.inputs * conv.outputs * (m + 2) ** 2 * 4 <= _INSIDE
    return TileGrid(m, high, wide, 1 if inside else high)


def suits_winograd(conv: ConvGeometry) -> bool:
    """3x3 at every pixel, and enough of them."""
    window = (conv.kernel, conv.stride, conv.dilation, conv.groups)
    return window == ((3, 3), (1, 1), (1, 1), 1) and min(conv.size) >= 4 and min(conv.inputs, conv.outputs) >= 16


def patch_border(x: Value, grid: TileGrid, border: Border) -> tuple[Value, Border]:
    """The border that the last patches reach into."""
    bottom = grid.high * grid.m + 2 - border.top - int(x.bound[1])
    right = grid.wide * grid.m + 2 - border.left - int(x.bound[2])
    return x, Border(border.top, max(0, bottom), border.left, max(0, right))


class WinogradConv(FloatConv):
    """conv2d."""

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        made = FloatConv.accept(node, context) if node.op.kind == "conv2d" else None
        if not isinstance(made, FloatConv) or node.op.args.get("exact"):
            return None
        conv, lanes = made.conv, context.isa.lanes
        if not suits_winograd(conv):
            return None
        if conv.inputs % lanes or conv.outputs % lanes:
            return None
        usual = default_tile_grid(conv).m
        m = context.tuning.pick(node, "way", ("winograd", conv, made.tail), (usual, 6 - usual, 0))
        return cls(node, conv, made.filters, tile_grid(conv, m)) if m else None

    def __init__(self, node: Node, conv: ConvGeometry, filters: Array, grid: TileGrid | None = None) -> None:
        super().__init__(node, conv, filters)
        self.grid = grid or default_tile_grid(conv)

    def required_border(self) -> tuple[Value, Border] | None:
        return patch_border(self.node.op.args["input"], self.grid, self.conv.border)

    def temporaries(self, context: LoweringContext) -> list[int]:
        """Bytes of the points of input and output, where all of an image is done at once."""
        if self.grid.band == 1:
            return []
        tiles = self.grid.points * self.grid.high * self.grid.wide * 4
        return [tiles * self.conv.inputs, tiles * self.conv.outputs]

    def emit(self, context: LoweringContext) -> None:
        conv, grid, node = self.conv, self.grid, self.node
        made = gemm.make_panels(context.isa, conv.outputs, max(2, grid.band * grid.wide))
        size = grid.points * gemm.packed_size(made, conv.inputs)
        weights = context.weights.reserve(
            size, lambda room: pack_weights(room, self.filters, grid.m, made), self.filters
        )
        bias = node.op.args.get("bias")
        shift = np.zeros(conv.outputs, np.float32) if bias is None else np.asarray(bias.data).reshape(-1)
        biases = context.weights.add(shift)
        work = FloatWinogradEmitter(context, self, made)
        for n in range(conv.images):
            work.emit(n, weights, biases)


class WinogradEmitter:
    """The steps of one image, whatever the elements are."""

    patches: PatchRow
    outputs: OutputTiles
    points: PointGemm
    panels: int  # of each point's weights
    panel: int  # bytes of one
    width: int  # bytes of its results
    size: int  # bytes of a point's panels
    key: Hashable  # what else products depend on
    ends: Hashable = ()  # what else outputs depend on
    rate: float  # products per nanosecond

    def __init__(self, context: LoweringContext, node: Node, conv: ConvGeometry, grid: TileGrid) -> None:
        self.context, self.conv, self.grid = context, conv, grid
        self.data, self.out = context.home(node.op.args["input"]), context.home(node.out)
        self.second = context.home(node.second) if node.second is not None else self.out

    def emit(self, image: int, weights: Address, biases: Address) -> None:
        conv, grid, context = self.conv, self.grid, self.context
        corner = -conv.border.top * self.data.layout.row - conv.border.left * self.data.layout.pixel
        data = self.data.at(corner + image * self.data.layout.image)
        out = self.out.at(image * self.out.layout.image)
        second = self.second.at(image * self.second.layout.image)
        macs = conv.macs // conv.images
        spent = macs / self.rate * (grid.points / (9 * grid.m * grid.m)) * 1.2
        if grid.band == 1:
            key = (self.patches, self.outputs, self.points, self.key, self.ends, conv.size[0], grid)
            name = context.kernel("winograd", key, self._build_rows)
            context.scratch = max(context.scratch, grid.points * (self.patches.point + self.outputs.patches.point))
            context.step(name, [data, weights, out, second, biases], grid.high, spent, macs)
            return
        points, made = (Address("arena", offset) for offset in context.temporaries)
        if image:
            context.barrier = True  # the points of the image before are done with
        name = context.kernel("patches", (self.patches, grid), self._build_patches)
        context.step(name, [data, points], grid.high, spent * 0.1)
        context.barrier = True
        name = context.kernel("points", (self.points, self.key), self._build_points)
        context.step(name, [points, weights, made], grid.points * self.panels, spent * 0.8, macs)
        context.barrier = True
        name = context.kernel("outputs", (self.outputs, self.ends, conv.size[0], grid), self._build_outputs)
        context.step(name, [made, out, second, biases], grid.high, spent * 0.1)

    # -------------------------------------------------------------------------------------------------- kernels

    def emit_input_transform(self, module: Module) -> Function:
        """A row of patches."""
        raise NotImplementedError

    def emit_output_transform(self, module: Module) -> Function:
        """A row of tiles."""
        raise NotImplementedError

    def tiles(self, module: Module) -> list[dict[int, Function]]:
        """The product's tiles by their rows: of the first panel's form, and of the last one's if that is another."""
        raise NotImplementedError

    def _all_points(self, f: Function, tiles: list[dict[int, Function]], data: Reg, weights: Reg, out: Reg, begin: Reg,
                    end: Reg) -> None:  # fmt: skip
        """Points and panels by a number each: panels of a point one after the other."""
        count = self.panels

        def one(unit: Reg) -> None:
            point, index = f.op("udiv", unit, count), f.op("urem", unit, count)
            source, target = f.gep(data, f.mul(point, self.points.data)), f.gep(out, f.mul(point, self.points.out))
            own = f.gep(f.gep(weights, f.mul(point, self.size)), f.mul(index, self.panel))
            beside = f.gep(target, f.mul(index, self.width))
            if len(tiles) == 1:
                emit_point_gemm(f, self.points, tiles[0], source, own, beside)
                return
            last = f.compare("eq", index, count - 1)
            f.if_then(last, lambda: emit_point_gemm(f, self.points, tiles[1], source, own, beside))
            other = f.compare("ne", index, count - 1)
            f.if_then(other, lambda: emit_point_gemm(f, self.points, tiles[0], source, own, beside))

        f.for_range(begin, end, one)

    def _rows_left(self, f: Function, row: Reg) -> Reg:
        left = f.op("sub", const(self.conv.size[0], I64), f.mul(row, self.grid.m))
        return f.call("llvm.umin.i64", I64, left, const(self.grid.m, I64))

    def _build_rows(self, module: Module, name: str) -> None:
        """Units are rows of tiles, each done from input to output in the thread's own memory."""
        patches, outputs = self.emit_input_transform(module), self.emit_output_transform(module)
        tiles, grid = self.tiles(module), self.grid
        f = module.kernel(name)
        data, weights, out, second, biases = (f.load_arg(PTR, i) for i in range(5))
        points = f.arg("scratch")
        made = f.gep(points, grid.points * self.patches.point)

        def row(y: Reg) -> None:
            f.call_void(patches, f.gep(data, f.mul(y, grid.m * self.patches.row)), points)
            total = const(grid.points * self.panels, I64)
            self._all_points(f, tiles, points, weights, made, const(0, I64), total)
            target = f.gep(out, f.mul(y, grid.m * self.outputs.patches.row))
            beside = f.gep(second, f.mul(y, grid.m * self.outputs.second_row))
            f.call_void(outputs, made, target, beside, biases, self._rows_left(f, y))

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
        points, weights, made = (f.load_arg(PTR, i) for i in range(3))
        self._all_points(f, tiles, points, weights, made, f.arg("begin"), f.arg("end"))
        f.ret()

    def _build_outputs(self, module: Module, name: str) -> None:
        outputs = self.emit_output_transform(module)
        f = module.kernel(name)
        made, out, second, biases = (f.load_arg(PTR, i) for i in range(4))
        step = self.grid.wide * self.conv.outputs * 4

        def row(y: Reg) -> None:
            target = f.gep(out, f.mul(y, self.grid.m * self.outputs.patches.row))
            beside = f.gep(second, f.mul(y, self.grid.m * self.outputs.second_row))
            f.call_void(outputs, f.gep(made, f.mul(y, step)), target, beside, biases, self._rows_left(f, y))

        f.for_range(f.arg("begin"), f.arg("end"), row)
        f.ret()


class FloatWinogradEmitter(WinogradEmitter):
    """In single precision."""

    rate = 50.0

    def __init__(self, context: LoweringContext, way: WinogradConv, made: list[gemm.Panel]) -> None:
        super().__init__(context, way.node, way.conv, way.grid)
        conv, grid = self.conv, self.grid
        tiles = grid.band * grid.wide
        data, out, second = self.data.layout, self.out.layout, self.second.layout
        self.patches = PatchRow(grid.m, grid.wide, conv.inputs, data.row, data.pixel, tiles * conv.inputs * 4)
        results = PatchRow(grid.m, grid.wide, conv.outputs, out.row, out.pixel, tiles * conv.outputs * 4)
        self.outputs = OutputTiles(results, conv.size[1], second.row, second.pixel, way.tail)
        largest = gemm.max_tile_pixels(context.isa, max(len(p.widths) for p in made))
        self.points = PointGemm(grid.points, tiles, largest, 4 * conv.inputs, self.patches.point, results.point)
        self.made, self.panels, self.key = made, len(made), (tuple(made), conv.inputs)
        self.panel, self.width = 4 * made[0].columns * (conv.inputs + 1), 4 * made[0].used
        self.size = gemm.packed_size(made, conv.inputs)

    def emit_input_transform(self, module: Module) -> Function:
        return emit_input_transform(module, self.context.isa.lanes, self.patches)

    def emit_output_transform(self, module: Module) -> Function:
        return emit_output_transform(module, self.context.isa.lanes, self.outputs)

    def tiles(self, module: Module) -> list[dict[int, Function]]:
        conv = self.conv
        window = gemm.Window((), conv.inputs, 4 * conv.inputs)
        ahead = self.size * self.grid.points <= _NEAR
        return [
            {size: gemm.emit_tile(module, size, panel, window, 4 * conv.outputs, 0, (), ahead=ahead)
             for size, _ in self.points.sizes}
            for panel in dict.fromkeys(self.made)
        ]  # fmt: skip
