"""TOSA 1.0 as a dialect: one table of operators with operands, shapes, types and definitions.

TOSA defines the rounding, so there is one set of numerics. Imports no torch, no vendor code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgewright.backends.ethos_u.dialect import int_rules  # noqa: F401  (registers definitions)
from edgewright.backends.ethos_u.dialect.check import check_row
from edgewright.backends.ethos_u.dialect.numerics import TOSA_NUMERICS
from edgewright.backends.ethos_u.dialect.table import TOSA, TosaOp
from edgewright.ir.core.translated import TranslatedDialect
from edgewright.ir.dialect import array_of
from edgewright.ir.graph import Array, Graph, Op, Value
from edgewright.ir.int_reference import undefined
from edgewright.ir.numerics import Numerics


class TosaDialect(TranslatedDialect):
    """Integer operators are bit-exact."""

    def check_row(self, op: Op, row: TosaOp, memory: int) -> None:
        check_row(op, row, memory)

    def run_remaining(self, op: Op, arrays: Mapping[Value, Array], numerics: Numerics) -> Sequence[Array]:
        row, args = self.row(op.kind), dict[str, Any](op.args)
        if row.reference is None:
            raise undefined(op)
        args |= {name: array_of(args[name], arrays) for name in row.tensors}
        return [row.reference(**args)]

    def to_core(self, graph: Graph, numerics: Numerics) -> Graph:
        from edgewright.backends.ethos_u.dialect.to_core import to_core

        return to_core(graph, numerics)


DIALECT = TosaDialect("tosa", "TOSA", TOSA, TOSA_NUMERICS)
