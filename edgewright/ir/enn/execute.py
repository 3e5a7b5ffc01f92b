"""Runs a device graph of ENN operators with numpy, under the numerics ``enn`` (see ``numbers``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgewright.ir.enn.numbers import Values
from edgewright.ir.enn.table import ENN, PREFIX
from edgewright.ir.graph import Array, Graph, GraphError, Op, Value


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


def known(kind: str) -> bool:
    return kind.removeprefix(PREFIX) in ENN


def run_op(op: Op, held: Mapping[int, Array], numerics: str = "enn") -> Array:
    """What an operator of one result makes of its constants and of the values held, by identity."""
    values = Values(Graph("step", [], [], [op]), [])
    values.held.update(held)
    ENN[op.kind.removeprefix(PREFIX)].meaning(values, op)
    made, out = values.held[id(op.outputs[0])], op.outputs[0]
    return made.reshape(out.bound) if out is not None and made.size == 1 else made  # a number alone comes as a row


def _compare(kind: str, out: Value, made: Array) -> None:
    if made.shape != out.bound or made.dtype != out.dtype:
        raise GraphError(
            f"{kind} {out.name!r}", f"must give {out.bound} of {out.dtype}", value=(made.shape, made.dtype)
        )
