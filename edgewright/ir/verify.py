"""Verification of graphs: what every stage of the compiler may assume of the graph that it gets.

``verify`` runs after import, after each pass, after lowering to a device graph, after translation to core, and when a
graph is read from a file. A violation is a bug in the compiler; readers of files turn it into a ``FormatError``.
"""

from __future__ import annotations

from typing import Protocol

from edgewright.errors import FormatError
from edgewright.ir.graph import SEQUENCES, Graph, GraphError, Op, Value, nested_values


class OpChecker(Protocol):
    """What ``verify`` needs of a ``Dialect``."""

    def check_op(self, op: Op, memory: int) -> None: ...


_INVALID = (FormatError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
_NO_LIMIT = 1 << 62  # bytes: memory is limited for graphs from files only


def verify(graph: Graph, dialect: OpChecker | None = None, outer: frozenset[Value] = frozenset()) -> None:
    """Raise ``GraphError`` unless every value is defined once and before its uses and, with a dialect, every operator
    has the operands, attributes, element types and shapes of its row. ``outer``: values defined outside the graph."""
    defined = set(outer).union(nested_values(graph.inputs))
    for op in graph.ops:
        for argument in op.args.values():
            if isinstance(argument, Value):
                if argument not in defined and argument.data is None and not argument.state:
                    raise _undefined(graph, op, argument)
            elif isinstance(argument, SEQUENCES):
                for item in argument:
                    if type(item) is not int:  # most are
                        for value in nested_values(item):
                            if value not in defined and value.data is None and not value.state:
                                raise _undefined(graph, op, value)
        for out in op.outputs:
            if out is not None:
                if out in defined:
                    raise GraphError(f"{graph.name}: {op.kind}", "defines a value twice", value=out.name)
                defined.add(out)
        if dialect is not None:
            try:
                dialect.check_op(op, _NO_LIMIT)
            except _INVALID as error:
                raise _violation(graph, op, error) from error
        for branch in op.graphs.values():
            verify(branch, dialect, frozenset(defined))
    for value in (*nested_values(graph.outputs), *(u[1] for u in graph.updates)):
        if value not in defined and value.data is None and not value.state:
            raise GraphError(graph.name, "returns a value that is never defined", value=value.name)


def _undefined(graph: Graph, op: Op, value: Value) -> GraphError:
    return GraphError(f"{graph.name}: {op.kind}", "reads a value before it is defined", value=value.name)


def _violation(graph: Graph, op: Op, error: Exception) -> GraphError:
    where = f"{graph.name}: {op.kind}"
    if not isinstance(error, FormatError):
        return GraphError(where, f"must have the arguments of its row: {error!r}"[:200])
    where += f": {error.where}" if error.where else ""
    return GraphError(where, error.rule) if error.value is None else GraphError(where, error.rule, value=error.value)
