"""What checks of host twins, whatever their operators, have in common: files may say anything."""

from __future__ import annotations

from collections.abc import Callable

from edgewright.errors import FormatError, LimitError
from edgewright.ir.core.quant_params import check_structure, check_values
from edgewright.ir.graph import Graph, Op

MAX_ITEM_SIZE = 8  # bytes of the widest element that an operator computes with
MAX_INT = 1 << 31  # of whole numbers
MAX_LENGTH = 1 << 16  # of lists and words
_BROKEN = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)


def check_graph(graph: Graph) -> None:
    """What holds of every dialect: the graph's structure, quantization parameters and constants."""
    try:
        check_structure(graph)
        check_values(graph.values())
    except FormatError as error:
        raise error.inside("host twin") from None


def check_ops(graph: Graph, check: Callable[[Op], None], within: str = "host twin.") -> None:
    """Check operator after operator; what goes wrong says at which. ``within`` names the file that the graph is of."""
    for index, op in enumerate(graph.ops):
        where = f"{within}ops[{index}] {op.kind}"
        try:
            check(op)
        except FormatError as error:
            raise error.inside(where) from None
        except _BROKEN as error:
            raise FormatError(f"must have the arguments of {op.kind}: {error!r}"[:200], where=where) from error


def check_memory(name: str, elements: int, memory: int) -> None:
    """Raise if so many elements take more than ``memory`` bytes."""
    if elements * MAX_ITEM_SIZE > memory:
        raise LimitError(f"host twin: {name}", f"may take {memory} bytes", value=elements * MAX_ITEM_SIZE)
