"""What checks of host twins, whatever their operators, have in common: files may say anything."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from edgewright.errors import FormatError, LimitError
from edgewright.ir.graph import Graph, Op, Value

ITEM = 8  # bytes of the widest element that an operator computes with
LARGEST = 1 << 31  # of whole numbers
LONGEST = 1 << 16  # of lists and words
_SMALL, _LARGE = 1e-30, 1e30  # scales whose products and quotients are numbers
_BROKEN = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)


def check_ops(graph: Graph, check: Callable[[Op], None]) -> None:
    """Check operator after operator; what goes wrong says at which."""
    for index, op in enumerate(graph.ops):
        where = f"host twin.ops[{index}]"
        try:
            check(op)
        except FormatError as error:
            raise error.inside(where) from None
        except _BROKEN as error:
            raise FormatError(f"must have the arguments of {op.kind}: {error!r}"[:200], where=where) from error


def check_scales(value: Value) -> None:
    """Raise unless scales are numbers to multiply with and divide by."""
    scales = np.asarray([] if value.q is None else value.q.scale, np.float64)
    if not scales.size or not np.all(np.isfinite(scales)) or scales.min() <= _SMALL or scales.max() > _LARGE:
        raise FormatError("must have positive scales", where=value.name)


def afford(name: str, elements: int, memory: int) -> None:
    """Raise if so many elements take more than ``memory`` bytes."""
    if elements * ITEM > memory:
        raise LimitError(f"host twin: {name}", f"may take {memory} bytes", value=elements * ITEM)
