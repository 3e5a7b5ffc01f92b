"""Fusion of pointwise, depthwise and pointwise convolutions (inverted residual blocks) in float32.

The expanded tensor of a MobileNetV2-style block (Sandler et al., 2018, section 5) often exceeds L2. The chain computes
it row by row: each thread keeps the last ``kernel`` expanded rows in a ring buffer in its scratch memory, runs the
depthwise filter over them, and projects the row at once, so the expanded tensor never reaches main memory. Threads own
bands of output rows; the first rows of a band are computed twice, which is why only large tensors profit.
"""

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

_RATE = 50.0  # approximate multiply-adds per nanosecond on one core
_MIN_EXPANDED = 1 << 20  # bytes of the expanded tensor per image, about the size of L2


def fuse_conv_chains(graph: Graph, nodes: list[Node], context: LoweringContext) -> list[Node]:
    """Replace each profitable run of three convolutions with one fused node."""
    readers: dict[Value, list[Node]] = {}
    for node in nodes:
        for value in node.reads():
            readers.setdefault(value, []).append(node)
    outputs = set(graph.outputs)

    def only_reader(value: Value) -> Node | None:
        nodes_reading = readers.get(value, [])
        return nodes_reading[0] if len(nodes_reading) == 1 and value not in outputs else None

    fused: set[Node] = set()
    chains: dict[Node, Node] = {}  # keyed by the last node of the run
    for node in nodes:
        second = only_reader(node.out) if node not in fused else None
        third = only_reader(second.out) if second is not None else None
        if second is None or third is None or not _is_profitable([node, second, third], context):
            continue
        parts = [node, second, third]
        fused |= set(parts)
        chains[third] = Node([op for p in parts for op in p.ops], residual=third.residual, parts=parts)
    return [chains.get(n, n) for n in nodes if n not in fused or n in chains]


def _is_profitable(parts: list[Node], context: LoweringContext) -> bool:
    first, second, third = parts
    if first.op.kind != "core.conv2d" or second.op.kind != "core.depthwise_conv2d" or third.op.kind != "core.conv2d":
        return False
    if second.op.args["input"] is not first.out or third.op.args["input"] is not second.out:
        return False
    if any(0 in v.bound for p in parts for v in (*p.reads(), *p.outputs)):
        return False
    expand, project = (FloatConv.accept(p, context) for p in (first, third))
    depthwise_conv = FloatDepthwiseConv.accept(second, context)
    if not isinstance(expand, FloatConv) or not isinstance(project, FloatConv):
        return False
    if not isinstance(depthwise_conv, FloatDepthwiseConv):
        return False
    middle = depthwise_conv.conv
    plain_gemms = expand.conv.is_gemm and project.conv.is_gemm and expand.conv.groups == project.conv.groups == 1
    small_window = middle.kernel[0] <= 7 and middle.stride[0] <= middle.kernel[0] and middle.dilation == (1, 1)
    full_vectors = middle.groups % context.isa.lanes == 0
    no_residual = first.residual is None and second.residual is None
    large = first.out.nbytes // expand.conv.images > _MIN_EXPANDED
    return plain_gemms and small_window and full_vectors and no_residual and large


class FloatConvChain(Lowering):
    """An expand, depthwise and project convolution as one kernel."""

    def __init__(self, node: Node, expand: FloatConv, depthwise: FloatDepthwiseConv, project: FloatConv) -> None:
        super().__init__(node)
        self.expand, self.depthwise, self.project = expand, depthwise, project

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        if not node.parts:
            return None
        expand, project = (FloatConv.accept(node.parts[i], context) for i in (0, 2))
        depthwise = FloatDepthwiseConv.accept(node.parts[1], context)
        assert isinstance(expand, FloatConv) and isinstance(project, FloatConv)
        assert isinstance(depthwise, FloatDepthwiseConv)
        return cls(node, expand, depthwise, project)

    def emit(self, context: LoweringContext) -> None:
        data = context.storage(self.expand.node.op.args["input"])
        out = context.storage(self.node.out)
        second = out if self.node.residual is None else context.storage(self.node.residual)
        chain = self._chain(data, out, second)
        panels = [gemm.make_panels(context.isa, p.conv.outputs, p.conv.size[1]) for p in (self.expand, self.project)]
        epilogues = [self.expand.epilogue, self.depthwise.epilogue, self.project.epilogue]

        def build(module: Module, name: str) -> None:
            self._build(module, name, context, chain, panels, (data, out, second))

        key = (chain, panels, epilogues, data.layout.pixel, out.layout.pixel, second.layout.pixel,
               self.depthwise.conv.size, [p.conv.inputs for p in (self.expand, self.project)])  # fmt: skip
        name = context.kernel("chain", key, build)
        context.scratch = max(context.scratch, chain.scratch)
        zeros = context.weights.add(np.zeros(chain.ring_row + 256, np.uint8))
        weights = [self.expand.pack(context, panels[0], 0), context.weights.add(self.depthwise.pack(context)),
                   self.project.pack(context, panels[1], 0)]  # fmt: skip
        macs = sum(p.conv.macs // p.conv.images for p in (self.expand, self.depthwise, self.project))
        for n in range(self.depthwise.conv.images):
            operands = [h.at(n * h.layout.image) for h in (data, out, second)]
            context.step(name, [*operands, *weights, zeros], self.depthwise.conv.size[0], macs / _RATE, macs, 1)

    def _chain(self, data: Storage, out: Storage, second: Storage) -> ConvChainSpec:
        conv, pixel = self.depthwise.conv, 4 * self.depthwise.conv.groups
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
        storages: tuple[Storage, Storage, Storage],
    ) -> None:
        isa, conv = context.isa, self.depthwise.conv
        data, out, second = (h.layout for h in storages)
        steps = (data.pixel, chain.pixel, 0), (chain.pixel, out.pixel, second.pixel)
        expand_row = self._pointwise_row(module, context, "expand", self.expand, panels[0], steps[0], chain.wide)
        row = depthwise.DepthwiseRow(
            conv.kernel,
            conv.stride[1],
            1,
            conv.size[1],
            conv.groups,
            chain.pixel,
            chain.pixel,
            0,
            self.depthwise.epilogue,
        )
        depthwise_row = depthwise.emit_row(module, isa, row)
        project_row = self._pointwise_row(module, context, "project", self.project, panels[1], steps[1], conv.size[1])
        emit_conv_chain(module, name, isa.lanes, chain, [expand_row, depthwise_row, project_row])

    @staticmethod
    def _pointwise_row(module: Module, context: LoweringContext, name: str, lowering: FloatConv,
                       panels: list[gemm.Panel], steps: tuple[int, int, int], columns: int) -> Function:  # fmt: skip
        """Emit one row of a pointwise convolution; ``steps``: pixel strides of input, output and residual."""
        largest = gemm.max_tile_pixels(context.isa, max(len(p.widths) for p in panels))
        grid = TileGrid(1, columns, largest, *(PixelStrides(0, s) for s in steps))
        window = gemm.Window((), lowering.conv.inputs, steps[0])
        return emit_all_tiles(module, name, grid, panel_runs(module, grid, panels, window, lowering.epilogue, name))
