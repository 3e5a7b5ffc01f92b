"""In-place updates: outputs that are an input with some rows overwritten, as a key-value cache is.

Such an output is produced in the caller's output array. The driver first copies the input there, which is free if the
caller passes the same array for both, and only the new rows are written. The pass checks the anti-dependences: every
reader of an old version must run before the next version overwrites it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edgewright.engine.graph.nodes import Node
from edgewright.engine.lower.base import Lowering
from edgewright.engine.lower.gather import RowScatter
from edgewright.engine.lower.move import Move
from edgewright.ir.graph import Graph, Value


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
    """Follow row scatters backwards from an output to the value they started from."""
    versions = [value]
    while versions[0] in producers:
        node = nodes[producers[versions[0]]]
        if not isinstance(lower(node), RowScatter) or node.out is not versions[0]:
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
