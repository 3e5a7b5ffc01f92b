"""Groups of operators that a backend runs as one, without cycles through what it does not run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Union

from edgewright.ir.graph import Graph, Op, Value


def group(graph: Graph, taken: Callable[[Op], bool], *, single: bool = False) -> list[list[Op]]:
    """Largest groups of taken operators such that no value leaves a group and comes back to it.

    Every group (and every operator that is not taken) is a unit that runs at once; an operator joins a unit unless
    one of its producers already depends on that unit. ``single`` makes a group of every operator.
    """
    makers = {v: op for op in graph.ops for v in op.outputs if v is not None}
    units: list[set[int]] = []  # for each unit, the units it depends on
    unit_of: dict[Op, int] = {}
    members: dict[int, list[Op]] = {}
    for op in graph.ops:
        before = {unit_of[makers[v]] for v in op.inputs() if v in makers}
        chosen = None
        if taken(op) and not single:
            chosen = next((u for u in reversed(list(members)) if not _reached(units, before - {u}, u)), None)
        if chosen is None:
            chosen = len(units)
            units.append(set())
            if taken(op):
                members[chosen] = []
        units[chosen] |= before - {chosen}
        unit_of[op] = chosen
        if chosen in members:
            members[chosen].append(op)
    return list(members.values())


def _reached(units: Sequence[set[int]], start: set[int], goal: int) -> bool:
    """True if any unit of ``start`` depends, directly or not, on ``goal``."""
    todo, seen = list(start), set(start)
    while todo:
        unit = todo.pop()
        if goal in units[unit]:
            return True
        fresh = units[unit] - seen
        seen |= fresh
        todo += fresh
    return False


def give_copies(graph: Graph, groups: list[list[Op]], private: Collection[Op]) -> dict[Op, Op]:
    """Give each group that reads results of ``private`` operators its own copies of these, and what is in no group one,
    too: such results exist in the device graph only, so none can be handed from one group to another, or to the CPU.

    Gives the operator behind every copy; the operators themselves are gone from the graph and from the groups.
    """
    makers = {v: op for op in private for v in op.outputs if v is not None}
    group_of = {op: number for number, ops in enumerate(groups) for op in ops}
    copies: dict[tuple[Op, int | None], Op] = {}
    ops: list[Op] = []
    for op in graph.ops:
        if op in private:
            continue
        where = group_of.get(op)
        for source in dict.fromkeys(makers[v] for v in op.inputs() if v in makers):
            if (source, where) not in copies:
                copies[source, where] = _copy(source, op)
                ops.append(copies[source, where])
            _read_instead(op, source, copies[source, where])
        ops.append(op)
    graph.ops = ops
    group_of.update({copy: where for (_, where), copy in copies.items() if where is not None})
    for number, members in enumerate(groups):
        members[:] = [op for op in ops if group_of.get(op) == number]
    groups[:] = [members for members in groups if members]
    return {copy: source for (source, _), copy in copies.items()}


def _copy(op: Op, reader: Op) -> Op:
    """The same call with results of its own; it belongs where its reader comes from."""
    return replace(op, args=dict(op.args), outputs=[v and replace(v) for v in op.outputs], origin=reader.origin)


def _read_instead(op: Op, source: Op, copy: Op) -> None:
    results = dict(zip(source.outputs, copy.outputs, strict=True))
    for name, arg in op.args.items():
        if isinstance(arg, list):
            op.args[name] = [results.get(v, v) if isinstance(v, Value) else v for v in arg]
        elif isinstance(arg, Value):
            op.args[name] = results.get(arg, arg)


Readers = dict[Value, set[Union[Op, Graph]]]


def readers_of(graph: Graph) -> Readers:
    """Who reads each value; the graph itself reads its outputs."""
    found: Readers = {}
    for op in graph.ops:
        for value in op.inputs():
            found.setdefault(value, set()).add(op)
    for value in (*graph.outputs, *(source for _, source in graph.updates)):
        found.setdefault(value, set()).add(graph)
    return found


def extract(graph: Graph, ops: Sequence[Op], name: str, readers: Readers | None = None) -> Graph:
    """A group as a graph of its own: what it reads from outside are its inputs, what is read outside its outputs.

    ``readers``: of the graph's values, if they are known already.
    """
    readers = readers_of(graph) if readers is None else readers
    inside = {v for op in ops for v in op.outputs if v is not None}
    inputs = dict.fromkeys(v for op in ops for v in op.inputs() if v not in inside and not v.constant)
    chosen = set(ops)
    made = [v for op in ops for v in op.outputs if v is not None]
    outputs = [v for v in made if not readers.get(v, set()) <= chosen]
    return Graph(name, list(inputs), outputs, list(ops))
