"""Layout assignment: borders, strides, which values share memory with another, and updates in place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from edgewright.engine.graph.fuse import is_dynamically_quantized
from edgewright.engine.graph.layout import (
    VIEW_KINDS,
    Border,
    Layout,
    Storage,
    dense_layout,
    dense_strides,
    image_layout,
    padded_channels,
    producer_layout,
    view_layout,
)
from edgewright.engine.graph.nodes import Node, is_quantized8
from edgewright.engine.lower.base import Lowering, LoweringContext
from edgewright.engine.lower.cache import DynamicUpdateSlice
from edgewright.engine.lower.conv import FloatConv
from edgewright.engine.lower.conv_geometry import has_uniform_rows
from edgewright.engine.lower.dynamic_gemm import quantized_row_layout
from edgewright.engine.lower.elementwise import FloatElementwise
from edgewright.engine.lower.fallback import ReferenceStep
from edgewright.engine.lower.gather import RowScatter
from edgewright.engine.lower.move import Move, PlanesToChannelsLast, common_shape, concat_slice
from edgewright.ir.graph import Graph, Op, Value

# ---------------------------------------------------------------------------------------------------- layout assignment

# Layout assignment: borders, strides, and which values share memory with another.
#
# Runs after lowerings are selected and before addresses exist, in this order:
#
# 1. Borders. A convolution or pool asks for padding around its input; the producer then writes into the interior and
# the
#    border is filled once per call. Several readers get the union of their borders.
# 2. Views. A permute, slice or reshape becomes strides into its source if all readers accept those strides.
# 3. Aliases. A reshape of a dense value is the same memory under another name.
# 4. Concatenation in place. Inputs of a concatenation are produced directly inside its result.
# 5. Permutation in place. A value that is only permuted is produced with the strides of the permuted result.
#
# A lowering whose operands end up in a layout it cannot read falls back to the reference step.


class LayoutAssignment:
    """Decides the layout of every value from what the lowerings of its producer and readers require."""

    def __init__(self, context: LoweringContext, lowerings: list[Lowering]) -> None:
        self.context, self.lowerings = context, lowerings
        self.borders: dict[Value, Border] = {}
        self.padded_rows: set[Value] = set()  # matrices whose row stride may be padded
        self.unpadded: set[Value] = set()  # int8 images without channel padding
        self.aliases: dict[Value, Value] = {}  # the same memory under another name
        self.views: dict[Value, tuple[Op, Layout]] = {}  # strided views of another value
        # Values produced inside another: which one, and their storage as a function of its storage.
        self.parts: dict[Value, tuple[Value, Callable[[Storage], Storage]]] = {}
        self.hosts: set[Value] = set()  # whose layout decided how another value is produced

    def assign(self) -> None:
        self._assign_borders()
        self._check_layouts()
        self._find_views()
        self._find_aliases()
        self._find_concat_parts()
        self._find_permuted()

    def _assign_borders(self) -> None:
        for lowering in self.lowerings:
            required = lowering.required_border()
            if required is not None:
                value, border = required
                self.borders[value] = self.borders.get(value, Border()).union(border)
        self._pad_rows()
        copies = (PlanesToChannelsLast, Move) if self.context.isa.compact else PlanesToChannelsLast
        images = {low.node.out for low in self.lowerings if isinstance(low, copies)}
        for lowering in self.lowerings:
            unpadded = lowering.prefers_unpadded()
            if unpadded is not None and unpadded in images and self._reads[unpadded] == 1:
                self.unpadded.add(unpadded)

    def _pad_rows(self) -> None:
        """Pad the rows of a linear layer's input if its producer and all its readers support row strides."""
        strided, readers = (FloatConv, FloatElementwise, Move), self._readers_of()
        producers = {low.node.out: low for low in self.lowerings}
        for low in self.lowerings:
            if isinstance(low, FloatConv) and low.node.op.kind == "core.linear" and low.conv.size[1] > 1:
                value = low.node.op.args["input"]
                if all(isinstance(o, strided) for o in (*readers.get(value, ()), producers.get(value))):
                    self.padded_rows.add(value)

    @cached_property
    def _reads(self) -> Counter[Value]:
        """How often each value is read."""
        return Counter(v for lowering in self.lowerings for v in lowering.node.reads())

    def _check_layouts(self) -> None:
        """Replace lowerings that require dense tensors and do not get them by the reference step."""
        for i, low in enumerate(self.lowerings):
            values = (*low.node.reads(), low.node.out)
            if low.requires_dense and not all(self.layout(v).dense for v in values):
                self.lowerings[i] = ReferenceStep(low.node)

    def _find_views(self) -> None:
        """Make permutes, slices and reshapes strided views where all readers accept the strides."""
        readers = self._readers_of()
        for low in self.lowerings:
            op, out = low.node.op, low.node.out
            if not isinstance(low, Move) or op.kind not in VIEW_KINDS or out in self.context.storages:
                continue
            source, read = op.args["self"], readers.get(out, ())
            view = None if source.constant or source.q != out.q else view_layout(op, self.layout(source))
            if view is None or out in self.borders or not self._free(out, view[0], read):
                continue
            storage = self.context.storages.get(self.root(source))
            in_caller = storage is not None
            if storage is not None and storage.raw:
                continue  # the caller's int8 has no offset of 128
            if view[0].dense and low.aliased_input() is source and source not in self.views and not in_caller:
                continue  # a plain alias
            if all(r.reads_layout(out, view[0]) and (r.exact_reads or not in_caller) for r in read):
                self.views[out] = (op, view[0])

    def _free(self, value: Value, layout: Layout, readers: Sequence[Lowering]) -> bool:
        """Whether a value needs no padding: int8 has channel padding unless all its readers ignore it."""
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
        """Make reshapes aliases if both sides are dense and neither has fixed storage or a border."""
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

    def _find_concat_parts(self) -> None:
        """Produce the inputs of a concatenation directly inside its result."""
        producers = {low.node.out: low for low in self.lowerings}
        for lowering in self.lowerings:
            if not isinstance(lowering, Move) or lowering.node.op.kind != "core.cat":
                continue
            start, dim = 0, lowering.node.op.args["dim"]
            for value in lowering.node.op.args["tensors"]:
                producer = producers.get(value)
                if producer is not None and self._may_store_inside(value, lowering.node.out, producer):
                    slice_of = partial(concat_slice, dim=dim, start=start, value=value)
                    self.parts[value] = (lowering.node.out, slice_of)
                start += int(value.bound[dim])

    def _find_permuted(self) -> None:
        """Produce a value that is only permuted with the strides of the permuted result."""
        readers, producers = self._readers_of(), {low.node.out: low for low in self.lowerings}
        for low in self.lowerings:
            out = low.node.out
            if not isinstance(low, Move) or low.node.op.kind not in VIEW_KINDS or out in (*self.views, *self.aliases):
                continue
            value, layout, chain = out, self.layout(out), [low.node.op]
            while chain[-1].args["self"] in (*self.views, *self.aliases) and chain[-1].kind in VIEW_KINDS:
                chain.append(producers[chain[-1].args["self"]].node.op)
            for op in chain:
                moved = op.outputs[0]
                alone = moved is out or (moved is not None and len(readers[moved]) < 2)
                storage = producer_layout(op, layout) if alone else None
                if storage is None:
                    break
                value, layout = op.args["self"], storage
            else:
                self._store_permuted(value, out, layout, producers, readers)

    def _store_permuted(self, value: Value, out: Value, layout: Layout, producers: dict[Value, Lowering],
                   readers: dict[Value, list[Lowering]]) -> None:  # fmt: skip
        producer = producers.get(value)
        fixed = (*self.context.storages, *self.borders, *self.unpadded, *self.parts)
        fits = (
            producer is not None and producer.writes_layout(layout) and value not in fixed and len(readers[value]) == 1
        )
        # A part of a concatenation has other strides than ``layout``.
        placed = out in self.context.storages or out in self.parts
        if fits and not placed and value not in self.hosts and value.q is None:
            self.parts[value] = (out, lambda storage: replace(storage, value=value, layout=layout))
            self.hosts.add(out)

    def _may_store_inside(self, value: Value, out: Value, producer: Lowering) -> bool:
        free = value not in (*self.context.storages, *self.aliases, *self.borders, *self.unpadded)
        aliased = any(root is value for root in self.aliases.values()) or out in self.aliases
        aliased = aliased or value in self.views or any(op.args["self"] is value for op, _ in self.views.values())
        exact = producer.exact_writes or padded_channels(int(value.bound[-1])) == value.bound[-1]
        raw_output = out in self.context.storages and self.context.storages[out].raw
        storage = replace(self.layout(out), shape=tuple(int(n) for n in value.bound))
        fits = producer.any_strides and (producer.node.op.kind != "core.linear" or has_uniform_rows(storage))
        return free and not aliased and not raw_output and exact and fits and self._reads[value] == 1

    def root(self, value: Value) -> Value:
        if value in self.parts:
            return self.root(self.parts[value][0])
        if value in self.views:
            return self.root(self.views[value][0].args["self"])
        return self.root(self.aliases[value]) if value in self.aliases else value

    def layout(self, value: Value) -> Layout:
        """The layout of a value inside the engine."""
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
        if is_quantized8(value.q) and shape and value not in self.unpadded:
            last = padded_channels(shape[-1])
        elif last % 4096 == 0 and (value in self.padded_rows or (len(shape) == 4 and shape[1] * shape[2] > 1)):
            last += 64  # a stride of 4096 maps the rows of a tile to the same L1 sets
        if len(shape) == 4 and (border or last != shape[-1] * item):
            return image_layout(shape, item, last, border)
        if not shape or last == shape[-1] * item:
            return dense_layout(shape, item)
        strides = (*dense_strides((*shape[:-1], last), 1)[:-1], item)
        return Layout(shape, item, strides, 0, int(np.prod(shape[:-1], dtype=np.int64)) * last)


# ------------------------------------------------------------------------------------------------------ inplace updates

# In-place updates: outputs that are an input with some rows overwritten, as a key-value cache is.
#
# Such an output is produced in the caller's output array. The driver first copies the input there, which is free if the
# caller passes the same array for both, and only the new rows are written. The pass checks the anti-dependences: every
# reader of an old version must run before the next version overwrites it.


@dataclass(frozen=True)
class Update:
    """``versions``: the successive values of one array, from the input to the output."""

    output: int
    input: int
    versions: tuple[Value, ...]


def find_updates(graph: Graph, nodes: Sequence[Node], lower: Callable[[Node], Lowering]) -> list[Update]:
    """Find the updates that are safe in place, at most one per input."""
    updates: list[Update] = []
    producers = {node.out: index for index, node in enumerate(nodes)}
    readers: dict[Value, Counter[int]] = {}  # how often each node reads a value
    for index, node in enumerate(nodes):
        for read in node.reads():
            readers.setdefault(read, Counter())[index] += 1
    inputs = {value: index for index, value in enumerate(graph.inputs)}
    for index, value in enumerate(graph.outputs):
        versions = _versions(value, nodes, producers, lower)
        source = inputs.get(versions[0])
        claimed = any(update.input == source or update.versions[-1] is value for update in updates)
        if source is None or claimed or len(versions) < 2 or graph.inputs.count(versions[0]) > 1:
            continue
        if _is_safe(versions, graph, nodes, producers, readers, lower):
            updates.append(Update(index, source, tuple(versions)))
    return updates


def _versions(
    value: Value, nodes: Sequence[Node], producers: dict[Value, int], lower: Callable[[Node], Lowering]
) -> list[Value]:
    """Follow writes of rows backwards from an output to the value they started from."""
    versions = [value]
    while versions[0] in producers:
        node = nodes[producers[versions[0]]]
        if not isinstance(lower(node), RowScatter | DynamicUpdateSlice) or node.out is not versions[0]:
            break
        versions.insert(0, node.op.args["self"])
    return versions


def _is_safe(
    versions: Sequence[Value], graph: Graph, nodes: Sequence[Node], producers: dict[Value, int],
    readers: dict[Value, Counter[int]], lower: Callable[[Node], Lowering],
) -> bool:  # fmt: skip
    """Whether every reader of a version precedes the next write, and reads nothing beyond the caller's array."""
    for version, following in zip(versions, [*versions[1:], None], strict=True):
        write_index = len(nodes) if following is None else producers[following]
        if following is not None and any(v is version for v in graph.outputs):
            return False
        for index, reads in readers.get(version, Counter[int]()).items():
            lowering = lower(nodes[index])
            border = lowering.required_border()
            if not lowering.exact_reads or (border is not None and border[0] is version):
                return False
            late = index > write_index or (index == write_index and reads > 1)
            if following is not None and (late or isinstance(lowering, Move)):
                return False  # a view may be read later
    return True
