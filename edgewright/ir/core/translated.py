"""Dialects whose operators run in numpy as the engine compiles them: translated to core operators, and by the
definitions (``ir/int_rules.py``) of what the translation leaves.

So an operator is written once. That suffices where tests compare the dialect with the vendor's own software, which
judges the translation, and the engine with numpy, which judges the machine code: core operators and definitions have
references that share nothing with it. Operators are translated one by one, so that what a translation fuses is compared
with the same operators one after another.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edgewright.ir.core.execute import Executor
from edgewright.ir.dialect import Dialect
from edgewright.ir.graph import Array, Graph, Op, Value
from edgewright.ir.int_reference import run_definition, undefined
from edgewright.ir.numerics import Numerics


class TranslatedDialect(Dialect):
    """A dialect without references of what it translates or defines."""

    @abstractmethod
    def to_core(self, graph: Graph, numerics: Numerics) -> Graph: ...

    def run_remaining(self, op: Op, arrays: Mapping[Value, Array], numerics: Numerics) -> Sequence[Array]:
        """The results of an operator that is neither translated nor defined for its operands."""
        raise undefined(op)

    def run_op(self, op: Op, arrays: Mapping[Value, Array], numerics: Numerics) -> Sequence[Array]:
        """Results that nobody reads are empty."""
        inputs = [v for v in dict.fromkeys(op.inputs()) if v.data is None]
        outputs = [v for v in op.outputs if v is not None]
        graph = self.to_core(Graph(op.kind, inputs, outputs, [op]), numerics)
        remaining = _Remaining(self)
        executor = Executor(graph, numerics, find_dialect=lambda name: remaining)
        with np.errstate(all="ignore"):  # overflow is infinity, as in machine code
            results = iter(executor.run([arrays[v] for v in inputs]))
        return [np.empty(0) if out is None else next(results) for out in op.outputs]


class _Remaining(Dialect):
    """The operators that a translation leaves."""

    def __init__(self, dialect: TranslatedDialect) -> None:
        super().__init__(dialect.name, dialect.title, dialect.rows, dialect.numerics)
        self.dialect = dialect

    def check_row(self, op: Op, row: Any, memory: int) -> None:
        """They were checked before they were translated."""

    def run_op(self, op: Op, arrays: Mapping[Value, Array], numerics: Numerics) -> Sequence[Array]:
        result = run_definition(op, arrays, numerics)
        return self.dialect.run_remaining(op, arrays, numerics) if result is None else [result]
