"""Runs operators of other dialects in numpy as the engine compiles them: translated to core operators, and by the
definitions (``ir/int_rules.py``) of what the translation leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edgewright.ir.core.execute import Executor
from edgewright.ir.dialect import Dialect
from edgewright.ir.graph import Array, Graph, Op, Value
from edgewright.ir.int_reference import run_definition, undefined
from edgewright.ir.int_rules import is_defined
from edgewright.ir.numerics import Numerics


def run_translated(dialect: Dialect, op: Op, arrays: Mapping[Value, Array], numerics: Numerics) -> list[Array] | None:
    """The results of an operator; None if it is neither translated nor defined. Results that nobody reads are empty."""
    inputs = [v for v in dict.fromkeys(op.inputs()) if v.data is None]
    outputs = [v for v in op.outputs if v is not None]
    graph = dialect.to_core(Graph(op.kind, inputs, outputs, [op]), numerics)
    if not all(each.kind.startswith("core.") or is_defined(each.kind) for each in graph.ops):
        return None
    definitions = _Definitions(dialect.name, dialect.title, dialect.rows, numerics)
    executor = Executor(graph, numerics, find_dialect=lambda name: definitions)
    with np.errstate(all="ignore"):  # overflow is infinity, as in machine code
        results = iter(executor.run([arrays[v] for v in inputs]))
    return [np.empty(0) if out is None else next(results) for out in op.outputs]


class _Definitions(Dialect):
    """A dialect's operators by their definitions alone."""

    def check_row(self, op: Op, row: Any, memory: int) -> None:
        """They were checked before they were translated."""

    def run_op(self, op: Op, arrays: Mapping[Value, Array], numerics: Numerics) -> Sequence[Array]:
        result = run_definition(op, arrays, numerics)
        if result is None:
            raise undefined(op)
        return [result]
