"""Runs a device graph of ENN operators with numpy, under the numerics ``enn`` (see ``numbers``)."""

from __future__ import annotations

from collections.abc import Sequence

from edgewright.ir.enn.numbers import Values
from edgewright.ir.enn.table import ENN, PREFIX
from edgewright.ir.graph import Array, Graph, GraphError, Value


def execute(graph: Graph, inputs: Sequence[Array]) -> list[Array]:
    """The outputs for ``inputs``; what nobody reads any more is let go."""
    values = Values(graph, list(inputs))
    last = {id(v): i for i, op in enumerate(graph.ops) for v in op.inputs()}
    kept = {id(v) for v in graph.outputs}
    for i, op in enumerate(graph.ops):
        ENN[op.kind.removeprefix(PREFIX)].meaning(values, op)
        for out in op.outputs:
            if out is not None:
                _compare(op.kind, out, values.held[id(out)])
        for value in op.inputs():
            if last[id(value)] == i and id(value) not in kept:
                values.held.pop(id(value), None)
    return [values.stored(v) for v in graph.outputs]


def _compare(kind: str, out: Value, made: Array) -> None:
    if made.shape != out.bound or made.dtype != out.dtype:
        raise GraphError(
            f"{kind} {out.name!r}", f"must give {out.bound} of {out.dtype}", value=(made.shape, made.dtype)
        )
