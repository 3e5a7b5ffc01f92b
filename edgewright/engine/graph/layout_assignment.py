"""Where values lie: borders, strides, and which of them are others seen in another way, or made inside others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial

import numpy as np

from edgewright.engine.graph.dynamic_quantization import is_dynamically_quantized
from edgewright.engine.graph.layout import (
    Border,
    Layout,
    Storage,
    dense_layout,
    dense_strides,
    image_layout,
    padded_channels,
)
from edgewright.engine.graph.nodes import is_quantized8
from edgewright.engine.graph.views import VIEW_KINDS, producer_layout, view_layout
from edgewright.engine.lower.base import Lowering, LoweringContext
from edgewright.engine.lower.channel_planes import PlanesToChannelsLast
from edgewright.engine.lower.conv import FloatConv
from edgewright.engine.lower.conv_geometry import has_uniform_rows
from edgewright.engine.lower.dynamic_gemm import quantized_row_layout
from edgewright.engine.lower.elementwise import FloatElementwise
from edgewright.engine.lower.move import Move, common_shape, concat_slice
from edgewright.engine.lower.reference_step import ReferenceStep
from edgewright.ir.graph import Op, Value


class LayoutAssignment:
    """What the nodes' lowerings want of each other's values, decided before anything has an address."""

    def __init__(self, context: LoweringContext, lowerings: list[Lowering]) -> None:
        self.context, self.lowerings = context, lowerings
        self.borders: dict[Value, Border] = {}
        self.rows: set[Value] = set()  # what linear layers read many rows of
        self.tight: set[Value] = set()  # bytes whose pixels lie without gaps
        self.aliases: dict[Value, Value] = {}  # values that are another one, by another name
        self.views: dict[Value, tuple[Op, Layout]] = {}  # values that are another one, seen with other strides
        # Values stored inside another: which, and where there.
        self.parts: dict[Value, tuple[Value, Callable[[Storage], Storage]]] = {}

    def decide(self) -> None:
        self._demand_borders()
        self._check_layouts()
        self._find_views()
        self._find_aliases()
        self._find_parts()
        self._find_targets()

    def _demand_borders(self) -> None:
        for lowering in self.lowerings:
            wanted = lowering.required_border()
            if wanted is not None:
                value, border = wanted
                self.borders[value] = self.borders.get(value, Border()).joined(border)
        self._spread_rows()
        images = {low.node.out for low in self.lowerings if isinstance(low, PlanesToChannelsLast)}
        for lowering in self.lowerings:
            tight = lowering.prefers_unpadded()
            if tight is not None and tight in images and self._reads[tight] == 1:
                self.tight.add(tight)

    def _spread_rows(self) -> None:
        """Rows of linear layers may have gaps between them if all who make and read them can do with it."""
        easy, readers = (FloatConv, FloatElementwise, Move), self._readers_of()
        makers = {low.node.out: low for low in self.lowerings}
        for low in self.lowerings:
            if isinstance(low, FloatConv) and low.node.op.kind == "linear" and low.conv.size[1] > 1:
                value = low.node.op.args["input"]
                if all(isinstance(o, easy) for o in (*readers.get(value, ()), makers.get(value))):
                    self.rows.add(value)

    @cached_property
    def _reads(self) -> Counter[Value]:
        """How often each value is read."""
        return Counter(v for lowering in self.lowerings for v in lowering.node.reads())

    def _check_layouts(self) -> None:
        """What needs dense tensors and does not get them is left to the reference."""
        for i, low in enumerate(self.lowerings):
            values = (*low.node.reads(), low.node.out)
            if low.requires_dense and not all(self.layout(v).dense for v in values):
                self.lowerings[i] = ReferenceStep(low.node)

    def _find_views(self) -> None:
        """Permuted, cut or reshaped values that all who read them can read where they were made."""
        readers = self._readers_of()
        for low in self.lowerings:
            op, out = low.node.op, low.node.out
            if not isinstance(low, Move) or op.kind not in VIEW_KINDS or out in self.context.storages:
                continue
            source, read = op.args["self"], readers.get(out, ())
            found = None if source.constant or source.q != out.q else view_layout(op, self.layout(source))
            if found is None or out in self.borders or not self._free(out, found[0], read):
                continue
            there = self.context.storages.get(self.root(source))
            given = there is not None
            if there is not None and there.raw:
                continue  # the caller's bytes, which are others inside
            if found[0].dense and low.aliased_input() is source and source not in self.views and not given:
                continue  # another name, no more
            if all(r.reads_layout(out, found[0]) and (r.exact_reads or not given) for r in read):
                self.views[out] = (op, found[0])

    def _free(self, value: Value, layout: Layout, readers: Sequence[Lowering]) -> bool:
        """Whether nothing asks for room beside a value: bytes have it, unless all who read them say otherwise."""
        if value.q is None:
            return self.layout(value) == dense_layout(layout.shape, layout.item)
        return is_quantized8(value.q) and bool(readers) and all(r.ignores_channel_padding for r in readers)

    def _readers_of(self) -> dict[Value, list[Lowering]]:
        readers: dict[Value, list[Lowering]] = {}
        for lowering in self.lowerings:
            for value in lowering.node.reads():
                readers.setdefault(value, []).append(lowering)
        return readers

    def _find_aliases(self) -> None:
        """Other names for values whose elements lie densely, unless either has a place or a border of its own."""
        for i, lowering in enumerate(self.lowerings):
            source, out = lowering.aliased_input(), lowering.node.out
            if source is None or out in self.views:
                continue
            free = not any(v in self.context.storages or v in self.views for v in (out, source))
            plain = self.layout(source).dense and self.layout(out).dense
            shared = common_shape(source.bound, out.bound) is not None
            if free and plain and not source.constant:
                self.aliases[out] = self.root(source)
            elif not (self.layout(source).dense or self.layout(out).dense or shared):
                self.lowerings[i] = ReferenceStep(lowering.node)

    def _find_parts(self) -> None:
        """Tensors that are only made to be joined are made where they will lie."""
        makers = {low.node.out: low for low in self.lowerings}
        for lowering in self.lowerings:
            if not isinstance(lowering, Move) or lowering.node.op.kind != "cat":
                continue
            start, dim = 0, lowering.node.op.args["dim"]
            for value in lowering.node.op.args["tensors"]:
                maker = makers.get(value)
                if maker is not None and self._may_lie_inside(value, lowering.node.out, maker):
                    joined = partial(concat_slice, dim=dim, start=start, value=value)
                    self.parts[value] = (lowering.node.out, joined)
                start += int(value.bound[dim])

    def _find_targets(self) -> None:
        """What is only made to be permuted is made where it will lie."""
        readers, makers = self._readers_of(), {low.node.out: low for low in self.lowerings}
        for low in self.lowerings:
            out = low.node.out
            if not isinstance(low, Move) or low.node.op.kind not in VIEW_KINDS or out in (*self.views, *self.aliases):
                continue
            value, layout, moves = out, self.layout(out), [low.node.op]
            while moves[-1].args["self"] in (*self.views, *self.aliases) and moves[-1].kind in VIEW_KINDS:
                moves.append(makers[moves[-1].args["self"]].node.op)
            for op in moves:
                made = op.outputs[0]
                alone = made is out or (made is not None and len(readers[made]) < 2)
                there = producer_layout(op, layout) if alone else None
                if there is None:
                    break
                value, layout = op.args["self"], there
            else:
                self._settle_at(value, out, layout, makers, readers)

    def _settle_at(self, value: Value, out: Value, layout: Layout, makers: dict[Value, Lowering],
                   readers: dict[Value, list[Lowering]]) -> None:  # fmt: skip
        maker = makers.get(value)
        taken = (*self.context.storages, *self.borders, *self.tight, *self.parts)
        fits = maker is not None and maker.writes_layout(layout) and value not in taken and len(readers[value]) == 1
        if fits and out not in self.context.storages and value.q is None:
            self.parts[value] = (out, lambda home: replace(home, value=value, layout=layout))

    def _may_lie_inside(self, value: Value, out: Value, maker: Lowering) -> bool:
        free = value not in (*self.context.storages, *self.aliases, *self.borders, *self.tight)
        named = any(root is value for root in self.aliases.values()) or out in self.aliases
        named = named or value in self.views or any(op.args["self"] is value for op, _ in self.views.values())
        whole = maker.exact_writes or padded_channels(int(value.bound[-1])) == value.bound[-1]
        outside = out in self.context.storages and self.context.storages[out].raw
        there = replace(self.layout(out), shape=tuple(int(n) for n in value.bound))
        fits = maker.any_strides and (maker.node.op.kind != "linear" or has_uniform_rows(there))
        return free and not named and not outside and whole and fits and self._reads[value] == 1

    def root(self, value: Value) -> Value:
        if value in self.parts:
            return self.root(self.parts[value][0])
        if value in self.views:
            return self.root(self.views[value][0].args["self"])
        return self.root(self.aliases[value]) if value in self.aliases else value

    def layout(self, value: Value) -> Layout:
        """How a value lies inside the engine."""
        if value in self.context.storages:
            return self.context.storages[value].layout
        if value in self.views:
            return self.views[value][1]
        assert value.dtype is not None
        if is_dynamically_quantized(value):
            return quantized_row_layout(value)
        shape, item = tuple(int(n) for n in value.bound), value.dtype.itemsize
        border = self.borders.get(value, Border())
        last = (shape[-1] if shape else 1) * item
        if is_quantized8(value.q) and shape and value not in self.tight:
            last = padded_channels(shape[-1])
        elif last % 4096 == 0 and (value in self.rows or (len(shape) == 4 and shape[1] * shape[2] > 1)):
            last += 64  # else the pixels of a tile would all lie in the same lines of the first cache
        if len(shape) == 4 and (border or last != shape[-1] * item):
            return image_layout(shape, item, last, border)
        if not shape or last == shape[-1] * item:
            return dense_layout(shape, item)
        strides = (*dense_strides((*shape[:-1], last), 1)[:-1], item)
        return Layout(shape, item, strides, 0, int(np.prod(shape[:-1], dtype=np.int64)) * last)
