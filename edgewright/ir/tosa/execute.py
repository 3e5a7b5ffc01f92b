"""Runs a device graph of TOSA operators with numpy: the meaning of the file, bit for bit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgewright.ir.graph import Array, Graph, GraphError, Op, Value
from edgewright.ir.liveness import last_uses
from edgewright.ir.tosa.table import PREFIX, TOSA


def execute(graph: Graph, inputs: Sequence[Array]) -> list[Array]:
    """The outputs for ``inputs``; what nobody reads any more is let go."""
    held: dict[Value, Array] = dict(zip(graph.inputs, inputs, strict=True))
    for op, dead in last_uses(graph).items():
        out = op.outputs[0]
        assert out is not None
        made = run_op(op, held)
        if made.shape != out.bound:
            raise GraphError(f"{op.kind} {out.name!r}", f"must give the shape {out.bound}", value=made.shape)
        held[out] = made if made.dtype == out.dtype else made.astype(out.dtype)
        for value in dead:
            held.pop(value, None)
    return [_array(v, held) for v in graph.outputs]


def known(kind: str) -> bool:
    return kind.removeprefix(PREFIX) in TOSA


def run_op(op: Op, held: Mapping[Value, Array], numerics: str = "tosa") -> Array:
    """What an operator makes of its constants and of the values held. TOSA has one way of rounding."""
    row = TOSA[op.kind.removeprefix(PREFIX)]
    args: dict[str, Any] = dict(op.args)
    for name in row.tensors:
        given = args[name]
        args[name] = [_array(v, held) for v in given] if isinstance(given, list) else _array(given, held)
    made: Array = row.reference(**args)
    return made


def _array(value: Value, held: Mapping[Value, Array]) -> Array:
    if value.data is not None:
        return value.data
    return held[value]
