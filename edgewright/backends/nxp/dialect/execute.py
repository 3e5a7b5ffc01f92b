"""Reference interpreter of TFLite graphs, in numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgewright.backends.nxp.dialect.table import PREFIX, TFLITE, Reference
from edgewright.backends.nxp.dialect.xnnpack_rounding import OVERRIDES
from edgewright.errors import UsageError
from edgewright.ir.analysis import last_uses
from edgewright.ir.graph import Array, Graph, GraphError, Op, Value

NUMERICS: dict[str, Mapping[str, Reference]] = {"tflite": {}, "xnnpack": OVERRIDES}


def execute(graph: Graph, inputs: Sequence[Array], numerics: str = "tflite") -> list[Array]:
    """Run a graph; intermediate values are freed after their last use.

    ``numerics``: rounding of the reference kernels (``tflite``) or of LiteRT's XNNPACK delegate (``xnnpack``).
    """
    overrides(numerics)
    values: dict[Value, Array] = dict(zip(graph.inputs, inputs, strict=True))
    for op, dead in last_uses(graph).items():
        out = op.outputs[0]
        assert out is not None
        result = run_op(op, values, numerics)
        if result.shape != out.bound or result.dtype != out.dtype:
            expected = f"must give {out.bound} of {out.dtype}"
            raise GraphError(f"{op.kind} {out.name!r}", expected, value=(result.shape, str(result.dtype)))
        values[out] = result
        for value in dead:
            values.pop(value, None)
    return [v.data if v.data is not None else values[v] for v in graph.outputs]


def run_op(op: Op, values: Mapping[Value, Array], numerics: str = "tflite") -> Array:
    """Evaluate one operator on its constants and ``values``."""
    inputs = [v.data if v.data is not None else values[v] for v in op.args["inputs"]]
    name = op.kind.removeprefix(PREFIX)
    return overrides(numerics).get(name, TFLITE[name].reference)(op, inputs)


def overrides(numerics: str) -> Mapping[str, Reference]:
    """References that these numerics replace."""
    if numerics not in NUMERICS:
        raise UsageError("numerics", f"must be {' or '.join(NUMERICS)}", value=numerics)
    return NUMERICS[numerics]


def has_op(kind: str) -> bool:
    return kind.removeprefix(PREFIX) in TFLITE
