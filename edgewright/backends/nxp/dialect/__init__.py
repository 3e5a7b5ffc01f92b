"""TFLite's int8 operators as a dialect, which round like the reference kernels or like LiteRT's XNNPACK delegate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgewright.backends.nxp.dialect import int_rules  # noqa: F401  (registers definitions)
from edgewright.backends.nxp.dialect.check import check_row
from edgewright.backends.nxp.dialect.elementwise import leaky_relu_xnnpack
from edgewright.backends.nxp.dialect.numerics import TFLITE as TFLITE_NUMERICS
from edgewright.backends.nxp.dialect.numerics import rounds_like_xnnpack
from edgewright.backends.nxp.dialect.table import PREFIX, TFLITE, TfliteOp
from edgewright.ir.core.translated import TranslatedDialect
from edgewright.ir.dialect import array_of
from edgewright.ir.graph import Array, Graph, Op, Value
from edgewright.ir.int_reference import undefined
from edgewright.ir.numerics import Numerics


class TfliteDialect(TranslatedDialect):
    """Operators are bit-exact."""

    def check_row(self, op: Op, row: TfliteOp, memory: int) -> None:
        check_row(op, row, memory)

    def run_remaining(self, op: Op, arrays: Mapping[Value, Array], numerics: Numerics) -> Sequence[Array]:
        name = op.kind.removeprefix(PREFIX)
        reference = TFLITE[name].reference
        if name == "LEAKY_RELU" and rounds_like_xnnpack(numerics):
            reference = leaky_relu_xnnpack
        if reference is None:
            raise undefined(op)
        return [reference(op, [array_of(v, arrays) for v in op.args["inputs"]])]

    def to_core(self, graph: Graph, numerics: Numerics) -> Graph:
        from edgewright.backends.nxp.dialect.to_core import to_core

        return to_core(graph, numerics)


DIALECT = TfliteDialect("tflite", "TFLite", TFLITE, TFLITE_NUMERICS)
