"""From a device graph to a plan: nodes, their lowerings, layouts, memory, steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from edgewright.engine.arena import Need, allocate
from edgewright.engine.ends import given, replace_value, tensor, twin
from edgewright.engine.fuse import Fuser, Node, byte
from edgewright.engine.isa import ISA
from edgewright.engine.layout import Border, Home, Layout, dense, dense_strides, image, padded_channels
from edgewright.engine.onthefly import on_the_fly
from edgewright.engine.ops.base import Context, Lowering
from edgewright.engine.ops.byteproducts import ByteDepthwise, ByteProduct, ByteTransposed
from edgewright.engine.ops.chain import RealChain, chain_nodes
from edgewright.engine.ops.dynamic import QuantizeRows, RowProduct, row_layout
from edgewright.engine.ops.halves import Halves
from edgewright.engine.ops.images import Bilinear, Softmax
from edgewright.engine.ops.maps import ByteSum, Map, Table
from edgewright.engine.ops.matmul import MatMul
from edgewright.engine.ops.moves import Move, common_shape, frame, part_of
from edgewright.engine.ops.norms import Normalize
from edgewright.engine.ops.places import Gather, Put
from edgewright.engine.ops.planes import PlanesToPixels
from edgewright.engine.ops.pools import GlobalMean, Pooling
from edgewright.engine.ops.products import RealDepthwise, RealProduct, RealTransposed
from edgewright.engine.ops.python import Reference
from edgewright.engine.ops.reductions import Reduction
from edgewright.engine.ops.vendors import Vendor
from edgewright.engine.ops.winograd import Winograd
from edgewright.engine.ops.winograd8 import ByteWinograd
from edgewright.engine.plan import Place, Plan
from edgewright.engine.requantize import affine_of
from edgewright.engine.views import KINDS, made_there, view_of, viewed
from edgewright.ir.graph import Graph, Op, Value
from edgewright.ir.numerics import Numerics

LOWERINGS: list[type[Lowering]] = [
    RealChain,
    Winograd,
    QuantizeRows,
    RowProduct,
    RealProduct,
    RealDepthwise,
    RealTransposed,
    MatMul,
    ByteWinograd,
    ByteProduct,
    ByteDepthwise,
    ByteTransposed,
    Pooling,
    GlobalMean,
    Bilinear,
    Softmax,
    Normalize,
    Reduction,
    Gather,
    Put,
    PlanesToPixels,
    Halves,
    Move,
    Table,
    Map,
    ByteSum,
    Vendor,
    Reference,
]


def schedule(graph: Graph, isa: ISA, numerics: Numerics, threads: int, memory: int = 4 << 30) -> Plan:
    """The plan of a verified graph whose shapes are all known."""
    return _Scheduler(graph, Context(isa, numerics, threads, memory)).run()


class _Scheduler:
    def __init__(self, graph: Graph, context: Context) -> None:
        self.graph, self.context = graph, context
        self.inputs = {id(v): i for i, v in enumerate(graph.inputs)}
        self._lowered: dict[int, Lowering] = {}
        self.lowerings = [self._lower(node) for node in self._nodes()]
        self.borders: dict[int, Border] = {}
        self.rows: set[int] = set()  # what linear layers read many rows of
        self.tight: set[int] = set()  # bytes whose pixels lie without gaps
        self.aliases: dict[int, Value] = {}  # values that are another one, by another name
        self.views: dict[int, tuple[Op, Layout]] = {}  # values that are another one, seen with other strides
        self.parts: dict[int, tuple[Value, Callable[[Home], Home]]] = {}  # values in another: which, and where there
        self.temporaries: dict[int, list[int]] = {}  # offsets in the arena, by the node's number

    def run(self) -> Plan:
        self._demand_borders()
        self._check_layouts()
        self._find_views()
        self._find_aliases()
        self._find_parts()
        self._find_targets()
        self._place()
        for i, lowering in enumerate(self.lowerings):
            self.context.temporaries = self.temporaries.get(i, [])
            self._emit(lowering)
        context = self.context
        return Plan(
            steps=tuple(context.steps),
            kernels=context.kernels,
            weights=context.weights.build(),
            arena_size=self.arena,
            scratch_size=context.scratch,
            inputs=tuple(tensor(v) for v in self.graph.inputs),
            outputs=tuple(tensor(v) for v in self.graph.outputs),
            cpu=context.isa.cpu,
            features=context.isa.features,
        )

    # ------------------------------------------------------------------------------------------------------- nodes

    def _nodes(self) -> list[Node]:
        """The graph's nodes, with copies of inputs and outputs where the caller's arrays will not do."""
        nodes = Fuser(self.graph, self.context.numerics, self.context.isa.permute_bytes).run()
        nodes = chain_nodes(self.graph, nodes, self.context)
        before = [node for value in self.graph.inputs if (node := self._copy_in(value, nodes)) is not None]
        after = [self._copy_out(i, value, nodes) for i, value in enumerate(self.graph.outputs)]
        return [*before, *nodes, *(node for node in after if node is not None)]

    def _copy_in(self, value: Value, nodes: Sequence[Node]) -> Node | None:
        """Inputs are copied unless all that read them read nothing else. Signed bytes always are."""
        home = self.context.homes[id(value)] = given(value, Place("input", 0, self.inputs[id(value)]))
        readers = [node for node in nodes if any(v is value for v in node.reads())]
        if not home.raw and all(
            self._lower(node).exact_reads and not self._needs_border(node, value) for node in readers
        ):
            return None
        inside = twin(value)
        for node in readers:
            replace_value(node, value, inside)
            self._lowered.pop(id(node), None)
        return Node([Op("clone", {"self": value}, [inside])])

    def _needs_border(self, node: Node, value: Value) -> bool:
        wanted = self._lower(node).border()
        return wanted is not None and wanted[0] is value

    def _copy_out(self, index: int, value: Value, nodes: Sequence[Node]) -> Node | None:
        """An output is made in place if nothing else reads it and its maker writes nothing else."""
        home = given(value, Place("output", 0, index))
        maker = next((n for n in nodes if any(v is value for v in n.outputs)), None)
        read = any(v is value for n in nodes for v in n.reads()) or self.graph.outputs.count(value) > 1
        if maker is not None and not read and id(value) not in self.context.homes and not home.raw:
            lowering = self._lower(maker)
            if lowering.exact_writes and lowering.alias() is None:
                self.context.homes[id(value)] = home
                return None
        outside = twin(value)
        self.context.homes[id(outside)] = given(outside, Place("output", 0, index))
        return Node([Op("clone", {"self": value}, [outside])])

    def _lower(self, node: Node) -> Lowering:
        if id(node) not in self._lowered:
            self._lowered[id(node)] = self._choose(node)
        return self._lowered[id(node)]

    def _choose(self, node: Node) -> Lowering:
        if node.before or any(0 in v.bound for v in (*node.reads(), *node.outputs)):
            return Reference(node)
        return next(made for kind in LOWERINGS if (made := kind.accept(node, self.context)) is not None)

    # ----------------------------------------------------------------------------------------------------- layouts

    def _demand_borders(self) -> None:
        for lowering in self.lowerings:
            wanted = lowering.border()
            if wanted is not None:
                value, border = wanted
                self.borders[id(value)] = self.borders.get(id(value), Border()).joined(border)
        self._spread_rows()
        images = {id(low.node.out) for low in self.lowerings if isinstance(low, PlanesToPixels)}
        for lowering in self.lowerings:
            tight = lowering.tight()
            if tight is not None and id(tight) in images and self._readers(tight) == 1:
                self.tight.add(id(tight))

    def _spread_rows(self) -> None:
        """Rows of linear layers may have gaps between them if all who make and read them can do with it."""
        easy, readers = (RealProduct, Map, Move), self._readers_of()
        makers = {id(low.node.out): low for low in self.lowerings}
        for low in self.lowerings:
            if isinstance(low, RealProduct) and low.node.op.kind == "linear" and low.conv.size[1] > 1:
                value = low.node.op.args["input"]
                if all(isinstance(o, easy) for o in (*readers[id(value)], makers.get(id(value)))):
                    self.rows.add(id(value))

    def _readers(self, value: Value) -> int:
        return sum(v is value for lowering in self.lowerings for v in lowering.node.reads())

    def _check_layouts(self) -> None:
        """What needs dense tensors and does not get them is left to the reference."""
        for i, low in enumerate(self.lowerings):
            values = (*low.node.reads(), low.node.out)
            if isinstance(low, Softmax | Normalize | Reduction | Gather | Put) and not all(
                self._layout(v).dense for v in values
            ):
                self.lowerings[i] = Reference(low.node)

    def _find_views(self) -> None:
        """Permuted, cut or reshaped values that all who read them can read where they were made."""
        readers = self._readers_of()
        for low in self.lowerings:
            op, out = low.node.op, low.node.out
            if not isinstance(low, Move) or op.kind not in KINDS or out.q is not None or id(out) in self.context.homes:
                continue
            source = op.args["self"]
            found = None if source.constant else viewed(op, self._layout(source))
            if found is None or id(out) in self.borders or self._layout(out) != dense(found[0].shape, found[0].item):
                continue
            if found[0].dense and low.alias() is source and id(source) not in self.views:
                continue  # another name, no more
            given = id(self._root(source)) in self.context.homes
            if all(r.takes(out, found[0]) and (r.exact_reads or not given) for r in readers.get(id(out), ())):
                self.views[id(out)] = (op, found[0])

    def _readers_of(self) -> dict[int, list[Lowering]]:
        readers: dict[int, list[Lowering]] = {}
        for lowering in self.lowerings:
            for value in lowering.node.reads():
                readers.setdefault(id(value), []).append(lowering)
        return readers

    def _find_aliases(self) -> None:
        """Other names for values whose elements lie densely, unless either has a place or a border of its own."""
        for i, lowering in enumerate(self.lowerings):
            source, out = lowering.alias(), lowering.node.out
            if source is None or id(out) in self.views:
                continue
            free = not any(id(v) in self.context.homes or id(v) in self.views for v in (out, source))
            plain = self._layout(source).dense and self._layout(out).dense
            if free and plain and not source.constant:
                self.aliases[id(out)] = self._root(source)
            elif not (self._layout(source).dense or self._layout(out).dense or common_shape(source.bound, out.bound)):
                self.lowerings[i] = Reference(lowering.node)

    def _find_parts(self) -> None:
        """Tensors that are only made to be joined are made where they will lie."""
        makers = {id(low.node.out): low for low in self.lowerings}
        for lowering in self.lowerings:
            if not isinstance(lowering, Move) or lowering.node.op.kind != "cat":
                continue
            start, dim = 0, lowering.node.op.args["dim"]
            for value in lowering.node.op.args["tensors"]:
                maker = makers.get(id(value))
                if maker is not None and self._may_lie_inside(value, lowering.node.out, maker):
                    joined = partial(part_of, dim=dim, start=start, value=value)
                    self.parts[id(value)] = (lowering.node.out, joined)
                start += int(value.bound[dim])

    def _find_targets(self) -> None:
        """What is only made to be permuted is made where it will lie."""
        readers, makers = self._readers_of(), {id(low.node.out): low for low in self.lowerings}
        for low in self.lowerings:
            out = low.node.out
            if not isinstance(low, Move) or low.node.op.kind not in KINDS or id(out) in (*self.views, *self.aliases):
                continue
            value, layout, moves = out, self._layout(out), [low.node.op]
            while id(moves[-1].args["self"]) in (*self.views, *self.aliases) and moves[-1].kind in KINDS:
                moves.append(makers[id(moves[-1].args["self"])].node.op)
            for op in moves:
                there = (
                    None if op.outputs[0] is not out and len(readers[id(op.outputs[0])]) > 1 else made_there(op, layout)
                )
                if there is None:
                    break
                value, layout = op.args["self"], there
            else:
                self._settle_at(value, out, layout, makers, readers)

    def _settle_at(self, value: Value, out: Value, layout: Layout, makers: dict[int, Lowering],
                   readers: dict[int, list[Lowering]]) -> None:  # fmt: skip
        maker = makers.get(id(value))
        taken = (*self.context.homes, *self.borders, *self.tight, *self.parts)
        fits = maker is not None and maker.makes(layout) and id(value) not in taken and len(readers[id(value)]) == 1
        if fits and id(out) not in self.context.homes and value.q is None:
            self.parts[id(value)] = (out, lambda home: Home(value, home.place, layout, home.raw))

    def _may_lie_inside(self, value: Value, out: Value, maker: Lowering) -> bool:
        free = id(value) not in (*self.context.homes, *self.aliases, *self.borders, *self.tight)
        named = any(root is value for root in self.aliases.values()) or id(out) in self.aliases
        named = named or id(value) in self.views or any(op.args["self"] is value for op, _ in self.views.values())
        whole = maker.exact_writes or padded_channels(int(value.bound[-1])) == value.bound[-1]
        outside = id(out) in self.context.homes and self.context.homes[id(out)].raw
        return free and not named and not outside and whole and maker.any_strides and self._readers(value) == 1

    def _root(self, value: Value) -> Value:
        if id(value) in self.parts:
            return self._root(self.parts[id(value)][0])
        if id(value) in self.views:
            return self._root(self.views[id(value)][0].args["self"])
        return self._root(self.aliases[id(value)]) if id(value) in self.aliases else value

    def _layout(self, value: Value) -> Layout:
        """How a value lies inside the engine."""
        if id(value) in self.context.homes:
            return self.context.homes[id(value)].layout
        if id(value) in self.views:
            return self.views[id(value)][1]
        assert value.dtype is not None
        if on_the_fly(value):
            return row_layout(value)
        shape, item = tuple(int(n) for n in value.bound), value.dtype.itemsize
        border = self.borders.get(id(value), Border())
        last = (shape[-1] if shape else 1) * item
        if byte(value.q) and shape and id(value) not in self.tight:
            last = padded_channels(shape[-1])
        elif last % 4096 == 0 and (id(value) in self.rows or (len(shape) == 4 and shape[1] * shape[2] > 1)):
            last += 64  # else the pixels of a tile would all lie in the same lines of the first cache
        if len(shape) == 4 and (border or last != shape[-1] * item):
            return image(shape, item, last, border)
        if not shape or last == shape[-1] * item:
            return dense(shape, item)
        strides = (*dense_strides((*shape[:-1], last), 1)[:-1], item)
        return Layout(shape, item, strides, 0, int(np.prod(shape[:-1], dtype=np.int64)) * last)

    # ------------------------------------------------------------------------------------------------------ memory

    def _place(self) -> None:
        """Homes in the arena, for as long as values are needed."""
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        values: dict[int, Value] = {}
        for i, lowering in enumerate(self.lowerings):
            for value in lowering.node.outputs:
                root = self._root(value)
                if id(root) not in self.context.homes:
                    values[id(root)] = root
                    first.setdefault(id(root), i)
                    last[id(root)] = i
            for value in lowering.node.reads():
                last[id(self._root(value))] = i
        layouts = {key: self._layout(value) for key, value in values.items()}
        needs = [Need(layouts[key].size, first[key], last[key]) for key in values]
        own = [(i, size) for i, lowering in enumerate(self.lowerings) for size in lowering.temporaries(self.context)]
        offsets, self.arena = allocate([*needs, *(Need(size, i, i) for i, size in own)])
        for (i, _), offset in zip(own, offsets[len(needs) :], strict=True):
            self.temporaries.setdefault(i, []).append(offset)
        for (key, value), offset in zip(values.items(), offsets, strict=False):
            layout = layouts[key]
            self.context.homes[key] = Home(value, Place("arena", offset + layout.start), layout)

    # ------------------------------------------------------------------------------------------------------- steps

    def _settle(self, value: Value) -> None:
        """Give a value that is part of another its home, once that one has its own."""
        if id(value) in self.parts and id(value) not in self.context.homes:
            whole, inside = self.parts[id(value)]
            self._settle(whole)
            self.context.homes[id(value)] = inside(self.context.home(whole))

    def _emit(self, lowering: Lowering) -> None:
        context, out = self.context, lowering.node.out
        self._settle(out)
        context.barrier, context.label = True, lowering.node.label
        if id(out) in self.views:
            op = self.views[id(out)][0]
            context.homes[id(out)] = view_of(op, context.home(op.args["self"]))
            return
        if id(out) in self.aliases:
            root = context.homes[id(self.aliases[id(out)])]
            context.homes[id(out)] = Home(out, root.place, self._layout(out), root.raw)
            return
        home, first = context.home(out), len(context.steps)
        if home.layout.border:
            frame(context, home, 0 if out.q is None else affine_of(out.q).zero)
        lowering.emit(context)
        touched = sum(context.home(v).layout.size for v in (*lowering.node.reads(), *lowering.node.outputs))
        if len(context.steps) > first:
            context.steps[-1] = replace(context.steps[-1], bytes=touched)
