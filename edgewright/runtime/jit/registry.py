"""Which row makes a kernel call an operator of a device graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgewright.runtime.tensor import TensorSlot

if TYPE_CHECKING:
    from edgewright.runtime.jit.graph_builder import Maker

Args = Mapping[str, Any]
Row = Callable[["Maker", Args, Sequence[TensorSlot]], bool]
ROWS: dict[str, Row] = {}
OTHERWISE: dict[str, list[Row]] = {}  # for what the first row of a kernel does not take
WHOLE: set[str] = set()  # kernels of which all results are made, not the first only


def taken(*keys: str) -> Callable[[Row], Row]:
    def register(row: Row) -> Row:
        ROWS.update(dict.fromkeys(keys, row))
        return row

    return register


def otherwise(*keys: str) -> Callable[[Row], Row]:
    """A row for what ``taken``'s row of the same kernels does not take."""

    def register(row: Row) -> Row:
        for key in keys:
            OTHERWISE.setdefault(key, []).append(row)
        return row

    return register
