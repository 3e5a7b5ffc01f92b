"""TOSA 1.0 as a dialect: one table of operators with operands, shapes, types and definitions.

TOSA defines the rounding, so there is one set of numerics. Imports no torch, no vendor code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgewright.backends.ethos_u.dialect.check import check_row
from edgewright.backends.ethos_u.dialect.evaluate import evaluate
from edgewright.backends.ethos_u.dialect.numerics import TOSA_NUMERICS
from edgewright.backends.ethos_u.dialect.table import TOSA, TosaOp
from edgewright.ir.dialect import Dialect
from edgewright.ir.graph import Array, Graph, Op, Value
from edgewright.ir.numerics import Numerics


class TosaDialect(Dialect):
    """Integer operators are bit-exact."""

    def check_row(self, op: Op, row: TosaOp, memory: int) -> None:
        check_row(op, row, memory)

    def run_op(self, op: Op, arrays: Mapping[Value, Array], numerics: Numerics) -> Sequence[Array]:
        return [evaluate(op, arrays)]

    def to_core(self, graph: Graph, numerics: Numerics) -> Graph:
        from edgewright.backends.ethos_u.dialect.to_core import to_core

        return to_core(graph, numerics)


DIALECT = TosaDialect("tosa", "TOSA", TOSA, TOSA_NUMERICS)
