"""The scheduler: turns a core graph into a plan. Match attention, fuse, select lowerings, assign layouts, allocate the
arena, emit steps, verify."""

from __future__ import annotations

from dataclasses import replace

from edgewright.engine.codegen.requant import affine_of
from edgewright.engine.graph.fuse import Fuser
from edgewright.engine.graph.graph_io import caller_storage, clone_value, replace_value, tensor_spec
from edgewright.engine.graph.layout import Storage, view_storage
from edgewright.engine.graph.layout_assignment import LayoutAssignment, find_updates
from edgewright.engine.graph.match_attention import match_attention
from edgewright.engine.graph.memory import BufferLifetime, ConstantPool, SharedWeights, allocate
from edgewright.engine.graph.nodes import Node
from edgewright.engine.graph.verify_plan import Access, verify_plan
from edgewright.engine.isa import ISA
from edgewright.engine.lower.attention import FusedAttention
from edgewright.engine.lower.base import Lowering, LoweringContext
from edgewright.engine.lower.cache import (
    CachedAttention,
    DynamicSlice,
    DynamicUpdateSlice,
    QuantizedCachedAttention,
    RowQuantization,
)
from edgewright.engine.lower.conv import Bf16Gemm, FloatConv, FloatConvTranspose, FloatDepthwiseConv
from edgewright.engine.lower.conv_chain import FloatConvChain, fuse_conv_chains
from edgewright.engine.lower.dynamic_gemm import DynamicQuantize, DynamicQuantizedGemm
from edgewright.engine.lower.dynamic_shape import DYNAMIC_SHAPE_LOWERINGS
from edgewright.engine.lower.elementwise import FloatElementwise, Int8Arithmetic, Int8Table
from edgewright.engine.lower.fallback import CoreDispatch, ForeignDispatch, ReferenceStep
from edgewright.engine.lower.gather import RowGather, RowScatter
from edgewright.engine.lower.int8_conv import Int8Conv, Int8ConvTranspose, Int8DepthwiseConv
from edgewright.engine.lower.matmul import MatMul
from edgewright.engine.lower.move import Fp16Convert, Move, PlanesToChannelsLast, emit_border_fill
from edgewright.engine.lower.norm_softmax import Normalize, Softmax
from edgewright.engine.lower.pool_resize import BilinearResize, GlobalAvgPool, Pool2d
from edgewright.engine.lower.reduce import FloatReduce
from edgewright.engine.lower.winograd import Int8WinogradConv, WinogradConv
from edgewright.engine.plan import ALIGN, Address, Plan
from edgewright.engine.tuning_params import TuningParams
from edgewright.ir.graph import Graph, Op, Origin, Value
from edgewright.ir.layer_names import layer_of
from edgewright.ir.numerics import Numerics

LOWERINGS: list[type[Lowering]] = [
    FusedAttention,
    FloatConvChain,
    WinogradConv,
    DynamicQuantize,
    DynamicQuantizedGemm,
    Bf16Gemm,
    FloatConv,
    FloatDepthwiseConv,
    FloatConvTranspose,
    MatMul,
    Int8WinogradConv,
    Int8Conv,
    Int8DepthwiseConv,
    Int8ConvTranspose,
    Pool2d,
    GlobalAvgPool,
    BilinearResize,
    Softmax,
    Normalize,
    FloatReduce,
    RowGather,
    RowScatter,
    CachedAttention,
    QuantizedCachedAttention,
    RowQuantization,
    DynamicSlice,
    DynamicUpdateSlice,
    PlanesToChannelsLast,
    Fp16Convert,
    Move,
    Int8Table,
    FloatElementwise,
    Int8Arithmetic,
    CoreDispatch,
    ForeignDispatch,
    ReferenceStep,
]


def schedule(
    graph: Graph, isa: ISA, numerics: Numerics, threads: int, memory: int = 4 << 30,
    tuning: TuningParams | None = None, shared: SharedWeights | None = None, deduplicate: bool = False,
) -> Plan:  # fmt: skip
    """Plan a validated graph of static shapes. ``shared``: packed weights that plans for other shapes reuse.
    ``deduplicate``: packed weights that are equal are stored once, which takes memory to find out."""
    pool = ConstantPool(deduplicate)
    context = LoweringContext(isa, numerics, threads, memory, tuning or TuningParams(), weights=pool, shared=shared)
    return _Scheduler(graph, context).run()


class _Scheduler(LayoutAssignment):
    def __init__(self, graph: Graph, context: LoweringContext) -> None:
        self.graph, self.context = graph, context
        self.inputs = {v: i for i, v in enumerate(graph.inputs)}
        self._lowered: dict[Node, Lowering] = {}
        super().__init__(context, [self._lower(node) for node in self._nodes()])
        self.temporaries: dict[int, list[tuple[int, int]]] = {}  # offset and size in the arena, by node index
        self.accesses: list[Access] = []

    def run(self) -> Plan:
        self.assign()
        self._allocate()
        self.context.error_slot = self.arena
        inputs = [self.context.storages[value] for value in self.graph.inputs]
        for i, lowering in enumerate(self.lowerings):
            self.context.temporaries = [offset for offset, _ in self.temporaries.get(i, [])]
            self.accesses.append(self._emit(lowering, tuple(self.temporaries.get(i, []))))
        verify_plan(self.accesses, self.arena, inputs)
        context = self.context
        return Plan(
            steps=tuple(context.steps),
            kernels=context.kernels,
            weights=context.weights.build(),
            arena_size=self.arena + (ALIGN if context.checks else 0),
            scratch_size=context.scratch,
            inputs=tuple(tensor_spec(v) for v in self.graph.inputs),
            outputs=tuple(tensor_spec(v) for v in self.graph.outputs),
            cpu=context.isa.cpu,
            features=context.isa.features,
            shared=() if context.shared is None else context.shared.arrays,
            updates=tuple((update.output, update.input) for update in self.updates),
            checks=tuple(context.checks),
        )

    # ------------------------------------------------------------------------------------------------------- nodes

    def _nodes(self) -> list[Node]:
        """Fuse the graph, and insert copies where kernels cannot use the caller's arrays directly."""
        attention = match_attention(self.graph) if self.context.shared is None else []
        nodes = Fuser(self.graph, self.context.numerics, self.context.isa.permute_bytes, attention).run()
        nodes = fuse_conv_chains(self.graph, nodes, self.context)
        self.updates = find_updates(self.graph, nodes, self._lower)
        for update in self.updates:
            address = Address("output", 0, update.output)
            self.context.storages |= {version: caller_storage(version, address) for version in update.versions}
        updated = {update.output for update in self.updates}, {update.input for update in self.updates}
        rest = [value for i, value in enumerate(self.graph.inputs) if i not in updated[1]]
        # Indexed once: a graph may have thousands of inputs, and searching all nodes for each is quadratic.
        readers: dict[Value, list[Node]] = {}
        producers: dict[Value, Node] = {}
        for node in nodes:
            for value in node.reads():
                readers.setdefault(value, []).append(node)
            for value in node.outputs:
                producers.setdefault(value, node)
        before = [self._copy_in(value, readers) for value in rest]
        after = [
            self._copy_out(i, value, producers.get(value), value in readers)
            for i, value in enumerate(self.graph.outputs)
            if i not in updated[0]
        ]
        return [node for node in (*before, *nodes, *after) if node is not None]

    def _copy_in(self, value: Value, readers_of: dict[Value, list[Node]]) -> Node | None:
        """Copy an input unless all its readers read exactly its elements. int8 is always copied, to add its offset."""
        storage = self.context.storages[value] = caller_storage(value, Address("input", 0, self.inputs[value]))
        readers = readers_of.get(value, [])
        if not storage.raw and all(
            self._lower(node).exact_reads and not self._needs_border(node, value) for node in readers
        ):
            return None
        internal = clone_value(value)
        readers_of.pop(value, None)
        for node in readers:
            replace_value(node, value, internal)
            self._lowered.pop(node, None)
        return Node([Op("core.clone", {"self": value}, [internal], self._edge("input"))])

    def _edge(self, name: str) -> Origin:
        """The origin of a copy of an input or output, in a graph whose operators have origins."""
        return Origin(node=name) if any(layer_of(op.origin) for op in self.graph.ops) else Origin()

    def _needs_border(self, node: Node, value: Value) -> bool:
        border = self._lower(node).required_border()
        return border is not None and border[0] is value

    def _copy_out(self, index: int, value: Value, producer: Node | None, has_readers: bool) -> Node | None:
        """Produce an output in place if nothing reads it and its producer writes exactly its elements; else copy."""
        storage = caller_storage(value, Address("output", 0, index))
        shared = has_readers or self.graph.outputs.count(value) > 1
        if producer is not None and not shared and value not in self.context.storages and not storage.raw:
            lowering = self._lower(producer)
            if lowering.exact_writes and lowering.aliased_input() is None:
                self.context.storages[value] = storage
                return None
        copied = clone_value(value)
        self.context.storages[copied] = caller_storage(copied, Address("output", 0, index))
        return Node([Op("core.clone", {"self": value}, [copied], self._edge("output"))])

    def _lower(self, node: Node) -> Lowering:
        if node not in self._lowered:
            self._lowered[node] = self._select(node)
        return self._lowered[node]

    def _select(self, node: Node) -> Lowering:
        if node.quantizes_input or any(0 in v.bound for v in (*node.reads(), *node.outputs)):
            return ReferenceStep(node)
        lowerings = LOWERINGS if self.context.shared is None else [*DYNAMIC_SHAPE_LOWERINGS, *LOWERINGS]
        return next(lowering for kind in lowerings if (lowering := kind.accept(node, self.context)) is not None)

    # ------------------------------------------------------------------------------------------------------ memory

    def _allocate(self) -> None:
        """Compute lifetimes and allocate arena storage for values and temporaries."""
        first: dict[Value, int] = {}
        last: dict[Value, int] = {}
        for i, lowering in enumerate(self.lowerings):
            for value in lowering.node.outputs:
                root = self.root(value)
                if root not in self.context.storages:
                    first.setdefault(root, i)
                    last[root] = i
            for value in lowering.node.reads():
                last[self.root(value)] = i
        layouts = {value: self.layout(value) for value in first}
        lifetimes = [BufferLifetime(layouts[value].size, first[value], last[value]) for value in first]
        temporaries = [
            (i, size) for i, lowering in enumerate(self.lowerings) for size in lowering.temporaries(self.context)
        ]
        offsets, self.arena = allocate([*lifetimes, *(BufferLifetime(size, i, i) for i, size in temporaries)])
        for (i, size), offset in zip(temporaries, offsets[len(lifetimes) :], strict=True):
            self.temporaries.setdefault(i, []).append((offset, size))
        for (value, layout), offset in zip(layouts.items(), offsets, strict=False):
            self.context.storages[value] = Storage(value, Address("arena", offset + layout.start), layout)

    # ------------------------------------------------------------------------------------------------------- steps

    def _resolve(self, value: Value) -> None:
        """Resolve the storage of a value that is stored inside another."""
        if value in self.parts and value not in self.context.storages:
            outer, storage_inside = self.parts[value]
            self._resolve(outer)
            self.context.storages[value] = storage_inside(self.context.storage(outer))

    def _emit(self, lowering: Lowering, temporaries: tuple[tuple[int, int], ...]) -> Access:
        """Emit a node's steps; return what they read and write."""
        context, node, out = self.context, lowering.node, lowering.node.out
        self._resolve(out)
        context.barrier, context.label, context.layer = True, node.label, node.layer
        first = len(context.steps)
        source: Value | None = None
        if out in self.views:
            op = self.views[out][0]
            source = op.args["self"]
            context.storages[out] = view_storage(op, context.storage(op.args["self"]))
        elif out in self.aliases:
            source = self.aliases[out]
            if source in self.parts:  # produced with the strides of the last of several moves
                context.storages[out] = view_storage(node.op, context.storage(node.op.args["self"]))
            else:
                context.storages[out] = replace(context.storages[source], value=out, layout=self.layout(out))
        else:
            self._emit_steps(lowering, first)
        reads = () if source is not None else tuple(context.storage(value) for value in node.reads())
        writes = tuple(context.storage(value) for value in node.outputs)
        return Access(node.label, reads, writes, temporaries, first, len(context.steps), source)

    def _emit_steps(self, lowering: Lowering, first: int) -> None:
        context, out = self.context, lowering.node.out
        storage = context.storage(out)
        if storage.layout.border:
            emit_border_fill(context, storage, 0 if out.q is None else affine_of(out.q).zero)
        lowering.emit(context)
        context.tuning.record_steps(lowering.node, first, len(context.steps))
        touched = sum(context.storage(v).layout.size for v in (*lowering.node.reads(), *lowering.node.outputs))
        if len(context.steps) > first:
            context.steps[-1] = replace(context.steps[-1], bytes=touched)
