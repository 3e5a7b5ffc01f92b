"""How much memory a device graph's tensors need while it runs."""

from __future__ import annotations

from edgewright.ir.graph import Graph


def peak(graph: Graph) -> int:
    """Bytes of the tensors that are alive at once, at most."""
    last = {v: i for i, op in enumerate(graph.ops) for v in op.inputs() if v.data is None}
    last.update({v: len(graph.ops) for v in graph.outputs})
    held = {v: v.nbytes for v in graph.inputs}
    most: int = sum(held.values())
    for index, op in enumerate(graph.ops):
        held.update({v: v.nbytes for v in op.outputs if v is not None})
        most = max(most, sum(held.values()))
        held = {key: size for key, size in held.items() if last.get(key, -1) > index}
    return most
