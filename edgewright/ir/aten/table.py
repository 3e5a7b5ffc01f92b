"""The op table: every operator that any backend supports, declared once.

An entry has the ATen overloads it matches, the quantization of its operands, its layout class, its numpy reference and
its shape function. Partitioner, quantizer, lowering, documentation and tests all read it.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgewright.errors import UsageError
from edgewright.ir.graph import Op, Value
from edgewright.ir.ports import Port


class LayoutClass(enum.Enum):
    """How an operator depends on the order of dimensions in memory."""

    SPATIAL = "spatial"  # images in and out: channels-last on devices
    FOLLOW = "follow"  # elementwise: any order
    AXES = "axes"  # has dimension arguments, which can be remapped with the layout
    SHAPE = "shape"  # depends on the order of elements: needs the logical layout


@dataclass(frozen=True)
class OpDef:
    """An operator of the table.

    ``aten``: the functional ATen overloads it matches; it has their argument names. ``when`` distinguishes operators
    that share an ATen name (``convolution``). ``ports``: one per tensor operand, and ``out``.
    """

    name: str
    aten: tuple[str, ...]
    reference: Callable[..., Any]
    shape: Callable[..., Any]
    ports: Mapping[str, Port] = field(default_factory=dict)
    layout: LayoutClass = LayoutClass.FOLLOW
    when: Callable[[Op], bool] | None = None

    def call(self, args: Mapping[str, Any]) -> tuple[Any, ...]:
        """All results, in order. An overload may have fewer: ``max_pool2d`` drops the indices."""
        result = self.reference(**args)
        return tuple(result) if isinstance(result, tuple | list) else (result,)

    @property
    def random(self) -> bool:
        """True if the operator is not deterministic: it draws random numbers."""
        return "generator" in inspect.signature(self.reference).parameters

    def __str__(self) -> str:
        return self.name


class OpTable(Mapping[str, OpDef]):
    """Operators by name, and by the ATen overloads they match."""

    def __init__(self) -> None:
        self._entries: dict[str, OpDef] = {}
        self._by_aten: dict[str, list[OpDef]] = {}

    def add(self, entry: OpDef) -> OpDef:
        if entry.name in self._entries:
            raise UsageError(f"operator {entry.name!r}", "is declared already")
        self._entries[entry.name] = entry
        for overload in entry.aten:
            self._by_aten.setdefault(overload, []).append(entry)
        return entry

    def of(self, op: Op) -> OpDef | None:
        """The entry that matches an imported operator, or None."""
        return next((entry for entry in self.matching(op.kind) if entry.when is None or entry.when(op)), None)

    def matching(self, overload: str) -> Sequence[OpDef]:
        """The entries of an ATen overload: several if ``when`` distinguishes them by the arguments."""
        return self._by_aten.get(overload, ())

    def __getitem__(self, name: str) -> OpDef:
        return self._entries[name]

    def __iter__(self) -> Any:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


OPS = OpTable()


def rank(op: Op, argument: str) -> int:
    """The rank of a tensor argument."""
    value = op.args[argument]
    return len(value.shape) if isinstance(value, Value) else 0
