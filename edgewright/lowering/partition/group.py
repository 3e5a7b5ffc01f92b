"""Grouping of supported operators into subgraphs without dependency cycles."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Union

from edgewright.ir.graph import Graph, Op, Value


def group_ops(graph: Graph, supported: Callable[[Op], bool], *, single: bool = False) -> list[list[Op]]:
    """Maximal groups of supported operators such that no path leaves a group and re-enters it.

    A group runs as one call, so the graph in which every group is contracted to one node must stay acyclic. Operators
    are visited in topological order. Each joins the most recent group that none of its *other* producers depends on,
    directly or not; merging is then safe, because a cycle through that group would need exactly such a producer.
    Otherwise it starts a new group. Compare ``torch.fx.passes.infra.partitioner`` and TVM's MergeCompilerRegions.
    ``single`` makes every operator its own group.
    """
    producers = {v: op for op in graph.ops for v in op.outputs if v is not None}
    units: list[set[int]] = []  # direct dependencies of each unit: a group, or a single unsupported operator
    unit_of: dict[Op, int] = {}
    members: dict[int, list[Op]] = {}
    for op in graph.ops:
        producer_units = {unit_of[producers[v]] for v in op.inputs() if v in producers}
        unit = None
        if supported(op) and not single:
            unit = next((u for u in reversed(list(members)) if not _depends_on(units, producer_units - {u}, u)), None)
        if unit is None:
            unit = len(units)
            units.append(set())
            if supported(op):
                members[unit] = []
        units[unit] |= producer_units - {unit}
        unit_of[op] = unit
        if unit in members:
            members[unit].append(op)
    return list(members.values())


def _depends_on(units: Sequence[set[int]], start: set[int], goal: int) -> bool:
    """True if any unit of ``start`` depends, directly or transitively, on ``goal``."""
    todo, visited = list(start), set(start)
    while todo:
        unit = todo.pop()
        if goal in units[unit]:
            return True
        fresh = units[unit] - visited
        visited |= fresh
        todo += fresh
    return False


def duplicate_into_groups(graph: Graph, groups: list[list[Op]], private: Collection[Op]) -> dict[Op, Op]:
    """Duplicate ``private`` operators into each group that reads their results, and once for ungrouped readers.

    Their results exist only in core graphs, so they cannot be passed between groups or to the CPU. Returns the original
    of each copy; the originals are removed from the graph and from the groups.
    """
    producers = {v: op for op in private for v in op.outputs if v is not None}
    group_of = {op: number for number, ops in enumerate(groups) for op in ops}
    copies: dict[tuple[Op, int | None], Op] = {}
    ops: list[Op] = []
    for op in graph.ops:
        if op in private:
            continue
        reader_group = group_of.get(op)
        for source in dict.fromkeys(producers[v] for v in op.inputs() if v in producers):
            if (source, reader_group) not in copies:
                copies[source, reader_group] = _copy_op(source, op)
                ops.append(copies[source, reader_group])
            _redirect_reads(op, source, copies[source, reader_group])
        ops.append(op)
    graph.ops = ops
    group_of.update({copy: reader_group for (_, reader_group), copy in copies.items() if reader_group is not None})
    for number, members in enumerate(groups):
        members[:] = [op for op in ops if group_of.get(op) == number]
    groups[:] = [members for members in groups if members]
    return {copy: source for (source, _), copy in copies.items()}


def _copy_op(op: Op, reader: Op) -> Op:
    """A copy of an operator with new results and its reader's origin."""
    return replace(op, args=dict(op.args), outputs=[v and replace(v) for v in op.outputs], origin=reader.origin)


def _redirect_reads(op: Op, source: Op, copy: Op) -> None:
    results = dict(zip(source.outputs, copy.outputs, strict=True))
    for name, arg in op.args.items():
        if isinstance(arg, list):
            op.args[name] = [results.get(v, v) if isinstance(v, Value) else v for v in arg]
        elif isinstance(arg, Value):
            op.args[name] = results.get(arg, arg)


Readers = dict[Value, set[Union[Op, Graph]]]


def readers_of(graph: Graph) -> Readers:
    """Readers of each value; the graph itself reads its outputs."""
    readers: Readers = {}
    for op in graph.ops:
        for value in op.inputs():
            readers.setdefault(value, set()).add(op)
    for value in (*graph.outputs, *(source for _, source in graph.updates)):
        readers.setdefault(value, set()).add(graph)
    return readers


def extract(graph: Graph, ops: Sequence[Op], name: str, readers: Readers | None = None) -> Graph:
    """A group as a graph: values from outside are its inputs, values read outside its outputs.

    ``readers``: those of the graph's values, if known already.
    """
    readers = readers_of(graph) if readers is None else readers
    inside = {v for op in ops for v in op.outputs if v is not None}
    inputs = dict.fromkeys(v for op in ops for v in op.inputs() if v not in inside and not v.constant)
    group = set(ops)
    results = [v for op in ops for v in op.outputs if v is not None]
    outputs = [v for v in results if not readers.get(v, set()) <= group]
    return Graph(name, list(inputs), outputs, list(ops))
