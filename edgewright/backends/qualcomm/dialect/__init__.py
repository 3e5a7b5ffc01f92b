"""QNN, the graphs that Qualcomm's AI Engine Direct compiles, as a dialect of host twins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgewright.backends.qualcomm.dialect import int_rules  # noqa: F401  (registers definitions)
from edgewright.backends.qualcomm.dialect.check import check_row, check_value
from edgewright.backends.qualcomm.dialect.evaluate import evaluate
from edgewright.backends.qualcomm.dialect.numerics import QNN as QNN_NUMERICS
from edgewright.backends.qualcomm.dialect.table import QNN, QnnOp
from edgewright.ir.core.translated import TranslatedDialect
from edgewright.ir.dialect import array_of
from edgewright.ir.dialect_checks import check_graph
from edgewright.ir.graph import Array, Graph, Op, Value
from edgewright.ir.numerics import Numerics


class QnnDialect(TranslatedDialect):
    """Tensors that have one element may be scalars or vectors: QNN has no tensors of rank 0
    (``to_core/scalars.py``)."""

    def check(self, graph: Graph, memory: int) -> None:
        check_graph(graph)
        for value in graph.values():
            check_value(value, memory)
        super().check(graph, memory)

    def check_row(self, op: Op, row: QnnOp, memory: int) -> None:
        check_row(op, row, memory)

    def run_remaining(self, op: Op, arrays: Mapping[Value, Array], numerics: Numerics) -> Sequence[Array]:
        return [evaluate(op, self.row(op.kind), [array_of(v, arrays) for v in op.args["inputs"]])]

    def to_core(self, graph: Graph, numerics: Numerics) -> Graph:
        from edgewright.backends.qualcomm.dialect.to_core import to_core

        return to_core(graph, numerics)


DIALECT = QnnDialect("qnn", "QNN", QNN, QNN_NUMERICS)
