"""Verification of graphs: what every stage of the compiler may assume of the graph that it gets.

``verify`` runs after import, after each pass, after lowering to a device graph, after translation to core, and when a
graph is read from a file. A violation is a bug in the compiler; readers of files turn it into a ``FormatError``.
"""

from __future__ import annotations

from typing import Protocol

from edgewright.errors import FormatError
from edgewright.ir.graph import Graph, GraphError, Op, Value, nested_values


class OpChecker(Protocol):
    """What ``verify`` needs of a ``Dialect``."""

    def check_op(self, op: Op, memory: int) -> None: ...


_NO_LIMIT = 1 << 62  # bytes: memory is limited for graphs from files only


def verify(graph: Graph, dialect: OpChecker | None = None, outer: frozenset[Value] = frozenset()) -> None:
    """Raise ``GraphError`` unless every value is defined once and before its uses and, with a dialect, every operator
    has the operands, attributes, element types and shapes of its row. ``outer``: values defined outside the graph."""
    defined = set(outer) | set(nested_values(graph.inputs))

    def check_defined(value: Value, reader: str, rule: str) -> None:
        if value not in defined and value.data is None and not value.state:
            raise GraphError(reader, rule, value=value.name)

    for op in graph.ops:
        for argument in op.args.values():
            if isinstance(argument, Value):
                if argument not in defined:
                    check_defined(argument, f"{graph.name}: {op.kind}", "reads a value before it is defined")
            elif isinstance(argument, list | tuple):
                for item in argument:  # most are integers
                    if isinstance(item, Value | list | tuple):
                        for value in nested_values(item):
                            check_defined(value, f"{graph.name}: {op.kind}", "reads a value before it is defined")
        for out in op.outputs:
            if out is not None:
                if out in defined:
                    raise GraphError(f"{graph.name}: {op.kind}", "defines a value twice", value=out.name)
                defined.add(out)
        if dialect is not None:
            _verify_op(graph, op, dialect)
        for branch in op.graphs.values():
            verify(branch, dialect, frozenset(defined))
    for value in (*nested_values(graph.outputs), *(u[1] for u in graph.updates)):
        check_defined(value, graph.name, "returns a value that is never defined")


def _verify_op(graph: Graph, op: Op, dialect: OpChecker) -> None:
    try:
        dialect.check_op(op, _NO_LIMIT)
    except FormatError as error:
        where = f"{graph.name}: {op.kind}" + (f": {error.where}" if error.where else "")
        if error.value is None:
            raise GraphError(where, error.rule) from error
        raise GraphError(where, error.rule, value=error.value) from error
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise GraphError(f"{graph.name}: {op.kind}", f"must have the arguments of its row: {error!r}"[:200]) from error
