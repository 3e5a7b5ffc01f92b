"""ENN, the graphs that Samsung's AI LiteCore reads, as a dialect. Its numerics are in ``numerics.py``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgewright.backends.samsung.dialect.check import check_row
from edgewright.backends.samsung.dialect.numerics import ENN_NUMERICS, Values
from edgewright.backends.samsung.dialect.table import ENN, EnnOp
from edgewright.ir.dialect import Dialect
from edgewright.ir.graph import Array, Graph, Op, Value
from edgewright.ir.numerics import Numerics


class EnnDialect(Dialect):
    """References read and write a table of values, in which floating point is rounded to fp16."""

    def check_row(self, op: Op, row: EnnOp, memory: int) -> None:
        check_row(op, row, memory)

    def run_op(self, op: Op, arrays: Mapping[Value, Array], numerics: Numerics) -> Sequence[Array]:
        values = Values(arrays)
        self.row(op.kind).reference(values, op)
        results: list[Any] = [None if out is None else values.arrays[out] for out in op.outputs]
        return [  # a scalar may arrive as a vector
            array.reshape(out.bound) if out is not None and array.size == 1 else array
            for out, array in zip(op.outputs, results, strict=True)
        ]

    def load_rules(self) -> None:
        from edgewright.backends.samsung.dialect import int_rules  # noqa: F401

    def to_core(self, graph: Graph, numerics: Numerics) -> Graph:
        from edgewright.backends.samsung.dialect.to_core import to_core

        return to_core(graph, numerics)


DIALECT = EnnDialect("enn", "ENN", ENN, ENN_NUMERICS)
