"""TFLite's int8 operators as a dialect, which round like the reference kernels or like LiteRT's XNNPACK delegate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgewright.backends.nxp.dialect.check import check_row
from edgewright.backends.nxp.dialect.numerics import TFLITE as TFLITE_NUMERICS
from edgewright.backends.nxp.dialect.numerics import rounds_like_xnnpack
from edgewright.backends.nxp.dialect.table import PREFIX, TFLITE, TfliteOp
from edgewright.backends.nxp.dialect.xnnpack_rounding import OVERRIDES
from edgewright.ir.dialect import Dialect, array_of
from edgewright.ir.graph import Array, Graph, Op, Value
from edgewright.ir.numerics import Numerics


class TfliteDialect(Dialect):
    """References take the operator and the arrays of its inputs."""

    def check_row(self, op: Op, row: TfliteOp, memory: int) -> None:
        check_row(op, row, memory)

    def run_op(self, op: Op, arrays: Mapping[Value, Array], numerics: Numerics) -> Sequence[Array]:
        name = op.kind.removeprefix(PREFIX)
        overrides = OVERRIDES if rounds_like_xnnpack(numerics) else {}
        reference = overrides.get(name, TFLITE[name].reference)
        return [reference(op, [array_of(v, arrays) for v in op.args["inputs"]])]

    def load_rules(self) -> None:
        from edgewright.backends.nxp.dialect import int_rules  # noqa: F401

    def to_core(self, graph: Graph, numerics: Numerics) -> Graph:
        from edgewright.backends.nxp.dialect.to_core import to_core

        return to_core(graph, numerics)


DIALECT = TfliteDialect("tflite", "TFLite", TFLITE, TFLITE_NUMERICS)
