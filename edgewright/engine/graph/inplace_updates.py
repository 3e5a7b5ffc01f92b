"""Outputs that are inputs with some rows written over, as a cache of keys and values is.

Such an output is made where the caller wants it: the driver sees to it that the input is there, which is no work at all
if they are the same array, and only the new rows are written. What reads the old value must have done so before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edgewright.engine.graph.nodes import Node
from edgewright.engine.lower.base import Lowering
from edgewright.engine.lower.move import Move
from edgewright.engine.lower.row_gather import RowScatter
from edgewright.ir.graph import Graph, Value


@dataclass(frozen=True)
class Update:
    """``versions`` are all the values that lie in one array, one after the other: the input first, the output last."""

    output: int
    input: int
    versions: tuple[Value, ...]


def find_updates(graph: Graph, nodes: Sequence[Node], lower: Callable[[Node], Lowering]) -> list[Update]:
    """At most one for each input."""
    found: list[Update] = []
    makers = {node.out: at for at, node in enumerate(nodes)}
    readers: dict[Value, Counter[int]] = {}  # how often each node reads a value
    for at, node in enumerate(nodes):
        for read in node.reads():
            readers.setdefault(read, Counter())[at] += 1
    inputs = {value: at for at, value in enumerate(graph.inputs)}
    for at, value in enumerate(graph.outputs):
        versions = _versions(value, nodes, makers, lower)
        source = inputs.get(versions[0])
        taken = any(update.input == source or update.versions[-1] is value for update in found)
        if source is None or taken or len(versions) < 2 or graph.inputs.count(versions[0]) > 1:
            continue
        if _in_turn(versions, graph, nodes, makers, readers, lower):
            found.append(Update(at, source, tuple(versions)))
    return found


def _versions(
    value: Value, nodes: Sequence[Node], makers: dict[Value, int], lower: Callable[[Node], Lowering]
) -> list[Value]:
    """What a value was before rows were written to it, and before that."""
    versions = [value]
    while versions[0] in makers:
        node = nodes[makers[versions[0]]]
        if not isinstance(lower(node), RowScatter) or node.out is not versions[0]:
            break
        versions.insert(0, node.op.args["self"])
    return versions


def _in_turn(
    versions: Sequence[Value], graph: Graph, nodes: Sequence[Node], makers: dict[Value, int],
    readers: dict[Value, Counter[int]], lower: Callable[[Node], Lowering],
) -> bool:  # fmt: skip
    """Whether all that read a version are done with it when the next is written, and read no more than there is."""
    for version, following in zip(versions, [*versions[1:], None], strict=True):
        written = len(nodes) if following is None else makers[following]
        if following is not None and any(v is version for v in graph.outputs):
            return False
        for at, reads in readers.get(version, Counter[int]()).items():
            lowering = lower(nodes[at])
            wanted = lowering.required_border()
            if not lowering.exact_reads or (wanted is not None and wanted[0] is version):
                return False
            late = at > written or (at == written and reads > 1)
            if following is not None and (late or isinstance(lowering, Move)):
                return False  # a view of it may be read at any time
    return True
