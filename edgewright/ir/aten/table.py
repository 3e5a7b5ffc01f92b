"""The op table: every operator any backend takes, declared once.

A row says which ATen operators it stands for, how its operands are quantized, what its layout class is, what it means
in numpy and what shape that has. Partitioner, quantizer, lowering, documentation and tests all read it.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from edgewright.errors import UsageError
from edgewright.ir.graph import Op, Value
from edgewright.ir.ports import Port


class Layout(enum.Enum):
    """What an operator has to do with the order of dimensions in memory."""

    SPATIAL = "spatial"  # images in and out: channels-last inside a device
    FOLLOW = "follow"  # element by element: whatever order its inputs have
    AXES = "axes"  # names dimensions, which can be renamed with the layout
    SHAPE = "shape"  # sees the order of elements: needs the original layout


@dataclass(frozen=True)
class OpDef:
    """An operator, for everyone.

    ``aten``: the functional ATen overloads it may come from; their argument names are its own. ``when`` tells apart
    operators that ATen has one name for (``convolution``). ``ports``: one per tensor operand, and ``out``.
    """

    name: str
    aten: tuple[str, ...]
    reference: Callable[..., Any]
    shape: Callable[..., Any]
    ports: Mapping[str, Port] = field(default_factory=dict)
    layout: Layout = Layout.FOLLOW
    when: Callable[[Op], bool] | None = None

    def call(self, args: Mapping[str, Any]) -> tuple[Any, ...]:
        """All results, in order. An overload may have fewer: ``max_pool2d`` drops the places of the largest."""
        result = self.reference(**args)
        return tuple(result) if isinstance(result, tuple | list) else (result,)

    @property
    def random(self) -> bool:
        """True if the operator draws numbers: two calls with the same arguments give different results."""
        return "generator" in inspect.signature(self.reference).parameters

    def __str__(self) -> str:
        return self.name


class OpTable(Mapping[str, OpDef]):
    """Operators by name, and by the ATen operators they stand for."""

    def __init__(self) -> None:
        self._rows: dict[str, OpDef] = {}
        self._by_aten: dict[str, list[OpDef]] = {}

    def add(self, row: OpDef) -> OpDef:
        if row.name in self._rows:
            raise UsageError(f"operator {row.name!r}", "is declared already")
        self._rows[row.name] = row
        for overload in row.aten:
            self._by_aten.setdefault(overload, []).append(row)
        return row

    def of(self, op: Op) -> OpDef | None:
        """The row an imported operator belongs to, or None."""
        rows = self._by_aten.get(op.kind, ())
        return next((row for row in rows if row.when is None or row.when(op)), None)

    def __getitem__(self, name: str) -> OpDef:
        return self._rows[name]

    def __iter__(self) -> Any:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


OPS = OpTable()


def rank(op: Op, argument: str) -> int:
    """The rank of a tensor argument."""
    value = op.args[argument]
    return len(value.shape) if isinstance(value, Value) else 0
