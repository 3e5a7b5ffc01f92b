"""3x3 convolutions of stride 1 in single precision, by Winograd's way where it is faster.

Results differ from exact ones by less than 1e-5 of the largest (tested); the plain way by some 1e-6.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgewright.engine.codegen import I64, PTR, Function, Module, Reg, number
from edgewright.engine.fuse import Node
from edgewright.engine.kernels import gemm
from edgewright.engine.kernels.winograd import (
    Outputs,
    Patches,
    Points,
    emit_outputs,
    emit_patches,
    emit_point,
    pack,
)
from edgewright.engine.layout import Border
from edgewright.engine.ops.base import Context, Lowering
from edgewright.engine.ops.geometry import Convolution
from edgewright.engine.ops.products import RealProduct
from edgewright.engine.plan import Place
from edgewright.ir.graph import Array, Value

_RATE = 50.0  # products per nanosecond, about
_INSIDE = 640 << 10  # bytes of weights that stay in the second cache while tile rows go by
_STREAMED = 24 << 20  # bytes of weights that come from memory at every call


@dataclass(frozen=True)
class Sizes:
    """How an image is cut."""

    m: int
    high: int  # rows of tiles
    wide: int
    band: int  # rows of tiles that are done together

    @property
    def points(self) -> int:
        return (self.m + 2) ** 2


def sizes(conv: Convolution) -> Sizes:
    """F(4x4), unless its weights would be so many that fetching them takes longer than the products it saves."""
    m = 4 if conv.inputs * conv.outputs * 36 * 4 <= _STREAMED else 2
    high, wide = (-(-n // m) for n in conv.size)
    inside = conv.inputs * conv.outputs * (m + 2) ** 2 * 4 <= _INSIDE
    return Sizes(m, high, wide, 1 if inside else high)


class Winograd(RealProduct):
    """conv2d."""

    @classmethod
    def accept(cls, node: Node, context: Context) -> Lowering | None:
        made = RealProduct.accept(node, context) if node.op.kind == "conv2d" else None
        if not isinstance(made, RealProduct):
            return None
        conv, lanes = made.conv, context.isa.lanes
        window = (conv.kernel, conv.stride, conv.dilation, conv.groups)
        if window != ((3, 3), (1, 1), (1, 1), 1) or min(conv.size) < 4 or min(conv.inputs, conv.outputs) < 16:
            return None
        if conv.inputs % lanes or conv.outputs % lanes:
            return None
        return cls(node, conv, made.filters, sizes(conv))

    def __init__(self, node: Node, conv: Convolution, filters: Array, cut: Sizes | None = None) -> None:
        super().__init__(node, conv, filters)
        self.cut = cut or sizes(conv)

    def border(self) -> tuple[Value, Border] | None:
        """As far as the last patches reach."""
        x, cut, border = self.node.op.args["input"], self.cut, self.conv.border
        bottom = cut.high * cut.m + 2 - border.top - x.bound[1]
        right = cut.wide * cut.m + 2 - border.left - x.bound[2]
        return x, Border(border.top, max(0, bottom), border.left, max(0, right))

    def temporaries(self, context: Context) -> list[int]:
        """Bytes of the points of input and output, where all of an image is done at once."""
        if self.cut.band == 1:
            return []
        tiles = self.cut.points * self.cut.high * self.cut.wide * 4
        return [tiles * self.conv.inputs, tiles * self.conv.outputs]

    def emit(self, context: Context) -> None:
        conv, cut, node = self.conv, self.cut, self.node
        lanes, threads = context.isa.lanes, cut.band * cut.wide
        made = gemm.panels(context.isa, conv.outputs, max(2, threads))
        size = cut.points * gemm.packed_size(made, conv.inputs)
        weights = context.weights.reserve(size, lambda room: pack(room, self.filters, cut.m, made), self.filters)
        bias = node.op.args.get("bias")
        shift = np.zeros(conv.outputs, np.float32) if bias is None else np.asarray(bias.data).reshape(-1)
        biases = context.weights.add(shift)
        work = _Work(context, self, made, lanes)
        for n in range(conv.images):
            work.emit(n, weights, biases)


class _Work:
    """The steps of one image."""

    def __init__(self, context: Context, way: Winograd, made: list[gemm.Panel], lanes: int) -> None:
        self.context, self.way, self.made, self.lanes = context, way, made, lanes
        conv, cut, node = way.conv, way.cut, way.node
        self.data, self.out = context.home(node.op.args["input"]), context.home(node.out)
        self.second = context.home(node.second) if node.second is not None else self.out
        tiles = cut.band * cut.wide
        data, out, second = self.data.layout, self.out.layout, self.second.layout
        self.patches = Patches(cut.m, cut.wide, conv.inputs, data.row, data.pixel, tiles * conv.inputs * 4)
        results = Patches(cut.m, cut.wide, conv.outputs, out.row, out.pixel, tiles * conv.outputs * 4)
        self.outputs = Outputs(results, conv.size[1], second.row, second.pixel, way.tail)
        columns = sum(p.columns for p in made)
        largest = gemm.most_pixels(context.isa, max(len(p.widths) for p in made))
        self.size = 4 * columns * (conv.inputs + 1)  # bytes of a point's panels
        self.points = Points(
            cut.points, tiles, largest, conv.inputs, len(made), 0, 0, self.patches.point, results.point
        )
        self.rows = conv.size[0]

    def emit(self, image: int, weights: Place, biases: Place) -> None:
        conv, cut, context = self.way.conv, self.way.cut, self.context
        corner = -conv.border.top * self.data.layout.row - conv.border.left * self.data.layout.pixel
        data = self.data.at(corner + image * self.data.layout.image)
        out = self.out.at(image * self.out.layout.image)
        second = self.second.at(image * self.second.layout.image)
        macs = conv.macs // conv.images
        spent = macs / _RATE * (cut.points / (9 * cut.m * cut.m)) * 1.2
        if cut.band == 1:
            key = (self.patches, self.outputs, self.points, tuple(self.made), self.rows, cut)
            name = context.kernel("winograd", key, self._build_rows)
            context.scratch = max(context.scratch, cut.points * (self.patches.point + self.outputs.patches.point))
            context.step(name, [data, weights, out, second, biases], cut.high, spent, macs)
            return
        points, made = (Place("arena", offset) for offset in context.temporaries)
        if image:
            context.barrier = True  # the points of the image before are done with
        name = context.kernel("patches", (self.patches, cut), self._build_patches)
        context.step(name, [data, points], cut.high, spent * 0.1)
        context.barrier = True
        name = context.kernel("points", (self.points, tuple(self.made)), self._build_points)
        context.step(name, [points, weights, made], cut.points * len(self.made), spent * 0.8, macs)
        context.barrier = True
        name = context.kernel("outputs", (self.outputs, self.rows, cut), self._build_outputs)
        context.step(name, [made, out, second, biases], cut.high, spent * 0.1)

    # -------------------------------------------------------------------------------------------------- kernels

    def _tiles(self, module: Module) -> dict[gemm.Panel, dict[int, Function]]:
        """The product's tiles, for each form of panel and number of rows."""
        conv = self.way.conv
        window = gemm.Window((), conv.inputs, 4 * conv.inputs)
        return {
            panel: {size: gemm.emit_tile(module, size, panel, window, 4 * conv.outputs, 0, ())
                    for size, _ in self.points.sizes}
            for panel in dict.fromkeys(self.made)
        }  # fmt: skip

    def _all_points(self, f: Function, tiles: dict[gemm.Panel, dict[int, Function]], data: Reg, weights: Reg, out: Reg,
                    begin: Reg, end: Reg) -> None:  # fmt: skip
        """Points and panels by a number each: panels of a point one after the other."""
        count = len(self.made)

        def one(unit: Reg) -> None:
            point, index = f.op("udiv", unit, count), f.op("urem", unit, count)
            source, target = f.at(data, f.mul(point, self.points.data)), f.at(out, f.mul(point, self.points.out))
            first = self.made[0]
            size = 4 * first.columns * (self.points.inputs + 1)
            own = f.at(f.at(weights, f.mul(point, self.size)), f.mul(index, size))
            beside = f.at(target, f.mul(index, 4 * first.used))
            if self.made[-1] == first:
                emit_point(f, self.points, tiles[first], source, own, beside)
                return
            last = f.compare("eq", index, count - 1)
            f.when(last, lambda: emit_point(f, self.points, tiles[self.made[-1]], source, own, beside))
            other = f.compare("ne", index, count - 1)
            f.when(other, lambda: emit_point(f, self.points, tiles[first], source, own, beside))

        f.span(begin, end, one)

    def _rows_left(self, f: Function, row: Reg) -> Reg:
        left = f.op("sub", number(self.rows, I64), f.mul(row, self.way.cut.m))
        return f.call("llvm.umin.i64", I64, left, number(self.way.cut.m, I64))

    def _build_rows(self, module: Module, name: str) -> None:
        """Units are rows of tiles, each done from input to output in the thread's own memory."""
        patches, outputs = (
            emit_patches(module, self.lanes, self.patches),
            emit_outputs(module, self.lanes, self.outputs),
        )
        tiles, cut = self._tiles(module), self.way.cut
        f = module.kernel(name)
        data, weights, out, second, biases = (f.slot(PTR, i) for i in range(5))
        points = f.arg("scratch")
        made = f.at(points, cut.points * self.patches.point)

        def row(y: Reg) -> None:
            f.run(patches, f.at(data, f.mul(y, cut.m * self.patches.row)), points)
            total = number(cut.points * len(self.made), I64)
            self._all_points(f, tiles, points, weights, made, number(0, I64), total)
            target = f.at(out, f.mul(y, cut.m * self.outputs.patches.row))
            beside = f.at(second, f.mul(y, cut.m * self.outputs.second_row))
            f.run(outputs, made, target, beside, biases, self._rows_left(f, y))

        f.span(f.arg("begin"), f.arg("end"), row)
        f.give()

    def _build_patches(self, module: Module, name: str) -> None:
        patches = emit_patches(module, self.lanes, self.patches)
        f = module.kernel(name)
        data, points = f.slot(PTR, 0), f.slot(PTR, 1)
        step = self.way.cut.wide * self.way.conv.inputs * 4

        def row(y: Reg) -> None:
            f.run(patches, f.at(data, f.mul(y, self.way.cut.m * self.patches.row)), f.at(points, f.mul(y, step)))

        f.span(f.arg("begin"), f.arg("end"), row)
        f.give()

    def _build_points(self, module: Module, name: str) -> None:
        tiles = self._tiles(module)
        f = module.kernel(name)
        points, weights, made = (f.slot(PTR, i) for i in range(3))
        self._all_points(f, tiles, points, weights, made, f.arg("begin"), f.arg("end"))
        f.give()

    def _build_outputs(self, module: Module, name: str) -> None:
        outputs = emit_outputs(module, self.lanes, self.outputs)
        f = module.kernel(name)
        made, out, second, biases = (f.slot(PTR, i) for i in range(4))
        cut = self.way.cut
        step = cut.wide * self.way.conv.outputs * 4

        def row(y: Reg) -> None:
            target = f.at(out, f.mul(y, cut.m * self.outputs.patches.row))
            beside = f.at(second, f.mul(y, cut.m * self.outputs.second_row))
            f.run(outputs, f.at(made, f.mul(y, step)), target, beside, biases, self._rows_left(f, y))

        f.span(f.arg("begin"), f.arg("end"), row)
        f.give()
