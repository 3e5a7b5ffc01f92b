"""Chains of convolutions whose middle is larger than the cache: done row by row."""

from __future__ import annotations

import numpy as np

from edgewright.engine.codegen.builder import Function, Module
from edgewright.engine.graph.layout import Storage
from edgewright.engine.graph.nodes import Node
from edgewright.engine.kernels import depthwise, gemm
from edgewright.engine.kernels.conv_chain import ConvChainSpec, emit_conv_chain
from edgewright.engine.kernels.tile_loops import PixelStrides, TileGrid, emit_all_tiles
from edgewright.engine.lower.base import Lowering, LoweringContext
from edgewright.engine.lower.conv import FloatConv, FloatDepthwiseConv, panel_runs
from edgewright.ir.graph import Graph, Value

_RATE = 50.0
_LARGE = 1 << 20  # bytes of the tensor between: as much as the second cache holds


def fuse_conv_chains(graph: Graph, nodes: list[Node], context: LoweringContext) -> list[Node]:
    """The nodes, with each run of three that pays made one."""
    readers: dict[Value, list[Node]] = {}
    for node in nodes:
        for value in node.reads():
            readers.setdefault(value, []).append(node)
    outputs = set(graph.outputs)

    def only_reader(value: Value) -> Node | None:
        found = readers.get(value, [])
        return found[0] if len(found) == 1 and value not in outputs else None

    gone: set[Node] = set()
    joined: dict[Node, Node] = {}  # by the last of the three
    for node in nodes:
        second = only_reader(node.out) if node not in gone else None
        third = only_reader(second.out) if second is not None else None
        if second is None or third is None or not _pays([node, second, third], context):
            continue
        parts = [node, second, third]
        gone |= set(parts)
        joined[third] = Node([op for p in parts for op in p.ops], second=third.second, parts=parts)
    return [joined.get(n, n) for n in nodes if n not in gone or n in joined]


def _pays(parts: list[Node], context: LoweringContext) -> bool:
    first, second, third = parts
    if first.op.kind != "conv2d" or second.op.kind != "depthwise_conv2d" or third.op.kind != "conv2d":
        return False
    if second.op.args["input"] is not first.out or third.op.args["input"] is not second.out:
        return False
    if any(0 in v.bound for p in parts for v in (*p.reads(), *p.outputs)):
        return False
    one, three = (FloatConv.accept(p, context) for p in (first, third))
    two = FloatDepthwiseConv.accept(second, context)
    if not isinstance(one, FloatConv) or not isinstance(two, FloatDepthwiseConv) or not isinstance(three, FloatConv):
        return False
    flat = one.conv.flat and three.conv.flat and one.conv.groups == three.conv.groups == 1
    window = two.conv.kernel[0] <= 7 and two.conv.stride[0] <= two.conv.kernel[0] and two.conv.dilation == (1, 1)
    whole = two.conv.groups % context.isa.lanes == 0 and first.second is None and second.second is None
    return flat and window and whole and first.out.nbytes // one.conv.images > _LARGE


class FloatConvChain(Lowering):
    """Three nodes in single precision."""

    def __init__(self, node: Node, expand: FloatConv, across: FloatDepthwiseConv, project: FloatConv) -> None:
        super().__init__(node)
        self.expand, self.across, self.project = expand, across, project

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        if not node.parts:
            return None
        expand, project = (FloatConv.accept(node.parts[i], context) for i in (0, 2))
        across = FloatDepthwiseConv.accept(node.parts[1], context)
        assert isinstance(expand, FloatConv) and isinstance(project, FloatConv)
        assert isinstance(across, FloatDepthwiseConv)
        return cls(node, expand, across, project)

    def emit(self, context: LoweringContext) -> None:
        data = context.home(self.expand.node.op.args["input"])
        out = context.home(self.node.out)
        second = out if self.node.second is None else context.home(self.node.second)
        chain = self._chain(data, out, second)
        panels = [gemm.make_panels(context.isa, p.conv.outputs, p.conv.size[1]) for p in (self.expand, self.project)]
        tails = [self.expand.tail, self.across.tail, self.project.tail]

        def build(module: Module, name: str) -> None:
            self._build(module, name, context, chain, panels, (data, out, second))

        key = (chain, panels, tails, data.layout.pixel, out.layout.pixel, second.layout.pixel, self.across.conv.size,
               [p.conv.inputs for p in (self.expand, self.project)])  # fmt: skip
        name = context.kernel("chain", key, build)
        context.scratch = max(context.scratch, chain.scratch)
        zeros = context.weights.add(np.zeros(chain.ring_row + 256, np.uint8))
        weights = [self.expand.pack(context, panels[0], 0), context.weights.add(self.across.pack(context)),
                   self.project.pack(context, panels[1], 0)]  # fmt: skip
        macs = sum(p.conv.macs // p.conv.images for p in (self.expand, self.across, self.project))
        for n in range(self.across.conv.images):
            places = [h.at(n * h.layout.image) for h in (data, out, second)]
            context.step(name, [*places, *weights, zeros], self.across.conv.size[0], macs / _RATE, macs, 1)

    def _chain(self, data: Storage, out: Storage, second: Storage) -> ConvChainSpec:
        conv, pixel = self.across.conv, 4 * self.across.conv.groups
        high, wide = self.expand.conv.size
        return ConvChainSpec(
            high,
            wide,
            conv.kernel[0],
            conv.stride[0],
            conv.border.top,
            conv.border.left,
            conv.border.right,
            pixel,
            data.layout.row,
            out.layout.row,
            second.layout.row,
            conv.size[1] * pixel,
        )

    def _build(
        self,
        module: Module,
        name: str,
        context: LoweringContext,
        chain: ConvChainSpec,
        panels: list[list[gemm.Panel]],
        homes: tuple[Storage, Storage, Storage],
    ) -> None:
        isa, conv = context.isa, self.across.conv
        data, out, second = (h.layout for h in homes)
        steps = (data.pixel, chain.pixel, 0), (chain.pixel, out.pixel, second.pixel)
        expand = self._product(module, context, "expand", self.expand, panels[0], steps[0], chain.wide)
        row = depthwise.DepthwiseRow(
            conv.kernel, conv.stride[1], 1, conv.size[1], conv.groups, chain.pixel, chain.pixel, 0, self.across.tail
        )
        across = depthwise.emit_row(module, isa, row)
        project = self._product(module, context, "project", self.project, panels[1], steps[1], conv.size[1])
        emit_conv_chain(module, name, isa.lanes, chain, [expand, across, project])

    @staticmethod
    def _product(module: Module, context: LoweringContext, name: str, way: FloatConv, panels: list[gemm.Panel],
                 steps: tuple[int, int, int], columns: int) -> Function:  # fmt: skip
        """One row of a pointwise convolution; ``steps`` from pixel to pixel of data, output and second operand."""
        largest = gemm.max_tile_pixels(context.isa, max(len(p.widths) for p in panels))
        grid = TileGrid(1, columns, largest, *(PixelStrides(0, s) for s in steps))
        reach = gemm.Window((), way.conv.inputs, steps[0])
        return emit_all_tiles(module, name, grid, panel_runs(module, grid, panels, reach, way.tail, name))
