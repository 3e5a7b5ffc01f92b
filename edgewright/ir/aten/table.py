"""The op table: every operator that any backend supports, declared once.

An entry has the ATen overloads it matches, its numpy reference, its shape function, the class of computation that it
is, and the quantization of its operands. Frontend, quantizer, partitioner, lowering, the runtime's kernels,
documentation and tests all read it.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgewright.errors import UsageError
from edgewright.ir.graph import Op, Value
from edgewright.ir.ports import Act, Index, Port


class OpClass(enum.Enum):
    """What an operator does with the elements of its operands: TVM's ``OpPatternKind``, with data movement divided."""

    ELEMENTWISE = "elementwise"  # an element of the result is computed from those at its position
    PRODUCT = "product"  # sums of products: convolutions, matrix products
    RESHAPE = "reshape"  # the same elements in the same order
    TRANSPOSE = "transpose"  # the same elements, dimensions permuted
    BROADCAST = "broadcast"  # elements repeated along dimensions of size 1
    SLICE = "slice"  # a range of the elements along a dimension, or several
    JOIN = "join"  # the elements of several operands
    GATHER = "gather"  # elements from any other positions
    CREATION = "creation"  # reads no elements
    CAST = "cast"
    OTHER = "other"


_MOVEMENT = frozenset(
    {OpClass.RESHAPE, OpClass.TRANSPOSE, OpClass.BROADCAST, OpClass.SLICE, OpClass.JOIN, OpClass.GATHER}
)


@dataclass(frozen=True)
class OpDef:
    """An operator of the table.

    ``aten``: the functional ATen overloads it matches; it has their argument names. ``when`` distinguishes operators
    that share an ATen name (``convolution``). ``composite``: the frontend decomposes it, unless a backend has it.
    ``ports``: one per tensor operand, and ``out``. ``idempotent``: of a tensor and itself, it is that tensor, if
    it keeps the type.
    """

    name: str
    aten: tuple[str, ...]
    reference: Callable[..., Any]
    shape: Callable[..., Any]
    ports: Mapping[str, Port] = field(default_factory=dict)
    op_class: OpClass = OpClass.ELEMENTWISE
    when: Callable[[Op], bool] | None = None
    composite: bool = False
    idempotent: bool = False

    def call(self, args: Mapping[str, Any]) -> tuple[Any, ...]:
        """All results, in order. An overload may have fewer: ``max_pool2d`` drops the indices."""
        result = self.reference(**args)
        return tuple(result) if isinstance(result, tuple | list) else (result,)

    @property
    def arguments(self) -> Mapping[str, inspect.Parameter]:
        return inspect.signature(self.reference).parameters

    @property
    def random(self) -> bool:
        """True if the operator is not deterministic: it draws random numbers."""
        return "generator" in self.arguments

    @property
    def is_function(self) -> bool:
        """True of a function of one real number, applied to each element of ``self``."""
        ports = {name: type(port) for name, port in self.ports.items()}
        is_unary = self.op_class is OpClass.ELEMENTWISE and ports.keys() == {"self", "out"}
        return is_unary and ports["self"] is Act and ports["out"] is not Index

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
        for entry in self._by_aten.get(op.kind, ()):
            if entry.when is None or entry.when(op):
                return entry
        return None

    def matching(self, overload: str) -> Sequence[OpDef]:
        """The entries of an ATen overload: several if ``when`` distinguishes them by the arguments."""
        return self._by_aten.get(overload, ())

    def classes(self, overload: object) -> set[OpClass]:
        """The classes of the entries of an overload, by its name or as torch's object; empty if it has no entry."""
        return {entry.op_class for entry in self.matching(str(overload))}

    def moves_data(self, overload: object) -> bool:
        """True if every element of the result of an overload is an element of an operand, unchanged."""
        return bool(self.classes(overload) & _MOVEMENT)

    def passes_on(self, overload: object) -> bool:
        """True if every element of the result is one of the first operand, unchanged or cast."""
        return bool(self.classes(overload) & (_MOVEMENT - {OpClass.JOIN} | {OpClass.CAST}))

    def __getitem__(self, name: str) -> OpDef:
        return self._entries[name]

    def row(self, name: str) -> OpDef | None:
        """The entry of a name, or None."""
        return self._entries.get(name)

    def __iter__(self) -> Any:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


OPS = OpTable()


def rank(op: Op, argument: str) -> int:
    """The rank of a tensor argument."""
    value = op.args[argument]
    return len(value.shape) if isinstance(value, Value) else 0
