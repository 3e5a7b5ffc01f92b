"""Groups of operators that a backend runs as one, without cycles through what it does not run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
