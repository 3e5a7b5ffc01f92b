"""TOSA 1.0 as a dialect: one table of operators with operands, shapes, types and reference. TOSA defines the rounding, so
there is one set of numerics. Imports no torch, no vendor code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgewright.backends.ethos_u.dialect.check import check_row
from edgewright.backends.ethos_u.dialect.table import PREFIX, TOSA, TosaOp
from edgewright.ir.dialect import Dialect, array_of
from edgewright.ir.graph import Array, Graph, Op, Value
from edgewright.ir.numerics import TOSA as TOSA_NUMERICS
from edgewright.ir.numerics import Numerics


class TosaDialect(Dialect):
    """References take arguments by name and are bit-exact."""

    def check_row(self, op: Op, row: TosaOp, memory: int) -> None:
        check_row(op, row, memory)

    def run_op(self, op: Op, arrays: Mapping[Value, Array], numerics: Numerics) -> Sequence[Array]:
        row, args, out = TOSA[op.kind.removeprefix(PREFIX)], dict[str, Any](op.args), op.outputs[0]
        for name in row.tensors:
            value = args[name]
            args[name] = [array_of(v, arrays) for v in value] if isinstance(value, list) else array_of(value, arrays)
        result = row.reference(**args)
        return [result if out is None or result.dtype == out.dtype else result.astype(out.dtype)]

    def load_rules(self) -> None:
        from edgewright.backends.ethos_u.dialect import int_rules  # noqa: F401

    def to_core(self, graph: Graph, numerics: Numerics) -> Graph:
        from edgewright.backends.ethos_u.dialect.to_core import translate

        return translate(graph, numerics)


DIALECT = TosaDialect("tosa", "TOSA", TOSA, TOSA_NUMERICS)
