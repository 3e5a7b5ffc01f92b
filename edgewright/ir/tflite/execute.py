"""Runs a device graph of TFLite operators with numpy: the meaning of the file, bit for bit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgewright.errors import UsageError
from edgewright.ir.graph import Array, Graph, GraphError, Op, Value
from edgewright.ir.liveness import last_uses
from edgewright.ir.tflite.table import PREFIX, TFLITE, Reference
from edgewright.ir.tflite.xnnpack_rounding import OVERRIDES

NUMERICS: dict[str, Mapping[str, Reference]] = {"tflite": {}, "xnnpack": OVERRIDES}


def execute(graph: Graph, inputs: Sequence[Array], numerics: str = "tflite") -> list[Array]:
    """The outputs for ``inputs``; what nobody reads any more is let go.

    ``numerics``: ``tflite``, as the reference kernels round, or ``xnnpack``.
    """
    named(numerics)
    held: dict[Value, Array] = dict(zip(graph.inputs, inputs, strict=True))
    for op, dead in last_uses(graph).items():
        out = op.outputs[0]
        assert out is not None
        made = run_op(op, held, numerics)
        if made.shape != out.bound or made.dtype != out.dtype:
            wanted = f"must give {out.bound} of {out.dtype}"
            raise GraphError(f"{op.kind} {out.name!r}", wanted, value=(made.shape, str(made.dtype)))
        held[out] = made
        for value in dead:
            held.pop(value, None)
    return [v.data if v.data is not None else held[v] for v in graph.outputs]


def run_op(op: Op, held: Mapping[Value, Array], numerics: str = "tflite") -> Array:
    """What an operator makes of its constants and of the values held."""
    given = [v.data if v.data is not None else held[v] for v in op.args["inputs"]]
    name = op.kind.removeprefix(PREFIX)
    return named(numerics).get(name, TFLITE[name].reference)(op, given)


def named(numerics: str) -> Mapping[str, Reference]:
    """The operators that round in their own way under these numerics."""
    if numerics not in NUMERICS:
        raise UsageError("numerics", f"must be {' or '.join(NUMERICS)}", value=numerics)
    return NUMERICS[numerics]


def known(kind: str) -> bool:
    return kind.removeprefix(PREFIX) in TFLITE
