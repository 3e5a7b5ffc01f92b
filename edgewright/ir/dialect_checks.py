"""Checks common to all dialects of host twins, which come from untrusted files."""

from __future__ import annotations

from collections.abc import Callable

from edgewright.errors import FormatError, LimitError
from edgewright.ir.core.quant_params import check_structure, check_values
from edgewright.ir.graph import Graph, Op

MAX_ITEM_SIZE = 8  # bytes of the widest element type that operators compute with
MAX_INT = 1 << 31  # exclusive bound of integer arguments
MAX_LENGTH = 1 << 16  # of lists and strings
_ARGUMENT_ERRORS = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)


def check_graph(graph: Graph) -> None:
    """Check graph structure, quantization parameters and constants, which are the same in every dialect."""
    try:
        check_structure(graph)
        check_values(graph.values())
    except FormatError as error:
        raise error.inside("host twin") from None


def check_ops(graph: Graph, check: Callable[[Op], None], within: str = "host twin.") -> None:
    """Apply ``check`` to every operator; errors name its index and kind. ``within``: prefix of the location."""
    for index, op in enumerate(graph.ops):
        where = f"{within}ops[{index}] {op.kind}"
        try:
            check(op)
        except FormatError as error:
            raise error.inside(where) from None
        except _ARGUMENT_ERRORS as error:
            raise FormatError(f"must have the arguments of {op.kind}: {error!r}"[:200], where=where) from error


def check_memory(name: str, elements: int, memory: int) -> None:
    """Raise if ``elements`` elements exceed ``memory`` bytes."""
    if elements * MAX_ITEM_SIZE > memory:
        raise LimitError(f"host twin: {name}", f"may take {memory} bytes", value=elements * MAX_ITEM_SIZE)
