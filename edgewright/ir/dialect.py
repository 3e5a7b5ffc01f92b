"""Dialects: named sets of operators. A kind is a dialect's name, a dot and an operator: ``core.conv2d``.

Every dialect but core belongs to a backend, whose ``BackendInfo`` refers to it; ``backends/registry.py`` finds it by
the prefix of a kind. A dialect says which graphs are valid, what its operators compute (in numpy), and how a graph
becomes a core graph, which the engine compiles. What the translation leaves as it is runs in numpy, as a step between
compiled ones.

A dialect is a ``TableDialect`` with one ``OpRow`` per operator, or a subclass of ``Dialect`` that checks and runs
operators in its own way.
"""

from __future__ import annotations

import math
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from edgewright.errors import FormatError
from edgewright.ir.analysis import count_core_macs, last_uses
from edgewright.ir.dialect_checks import check_graph, check_memory, check_ops
from edgewright.ir.graph import Array, Graph, GraphError, Op, Value
from edgewright.ir.signatures import Signatures

if TYPE_CHECKING:
    from edgewright.ir.numerics import Numerics

Shape = tuple[int, ...]
FindDialect = Callable[[str], "Dialect | None"]  # from the prefix of a kind


class Dialect(ABC):
    """``name``: the prefix of its kinds. ``title``: its name in messages. ``rows``: its operators by name, without the
    prefix. ``numerics``: how its graphs round by default."""

    def __init__(self, name: str, title: str, rows: Mapping[str, Any], numerics: Numerics) -> None:
        self.name, self.title, self.rows, self.numerics = name, title, rows, numerics
        self.prefix = f"{name}."

    def row(self, kind: str) -> Any:
        """The row of a kind, or None."""
        return self.rows.get(kind[len(self.prefix) :]) if kind.startswith(self.prefix) else None

    def __contains__(self, kind: object) -> bool:
        return isinstance(kind, str) and self.row(kind) is not None

    # ----------------------------------------------------------------------------------------------------------- checks

    def check(self, graph: Graph, memory: int) -> None:
        """Raise ``FormatError`` unless a graph, which may come from an untrusted file, is valid and no operator needs
        more than ``memory`` bytes. References and compiled code trust what passes."""
        check_graph(graph)
        check_ops(graph, lambda op: self.check_op(op, memory))

    def check_op(self, op: Op, memory: int) -> None:
        """Raise ``FormatError`` unless operands, attributes, element types and shapes are those of the kind's row."""
        row = self.row(op.kind)
        if row is None:
            raise FormatError(f"must be an operator of {self.title}", value=op.kind)
        self.check_row(op, row, memory)

    @abstractmethod
    def check_row(self, op: Op, row: Any, memory: int) -> None:
        """Like ``check_op``, of an operator that has a row."""

    # ------------------------------------------------------------------------------------------------------- execution

    @abstractmethod
    def run_op(self, op: Op, arrays: Mapping[Value, Array], numerics: Numerics) -> Sequence[Array]:
        """The results of one operator for its constants and ``arrays``."""

    def execute(self, graph: Graph, inputs: Sequence[Array], numerics: Numerics | None = None) -> list[Array]:
        """Run a graph in numpy; intermediate arrays are freed after their last use."""
        arrays: dict[Value, Array] = dict(zip(graph.inputs, inputs, strict=True))
        for op, dead in last_uses(graph).items():
            results = self.run_op(op, arrays, numerics or self.numerics)
            for out, result in zip(op.outputs, results, strict=True):
                if out is not None:
                    arrays[out] = self.fit_result(op, out, result)
            for value in dead:
                arrays.pop(value, None)
        return [array_of(value, arrays) for value in graph.outputs]

    def fit_result(self, op: Op, out: Value, result: Array) -> Array:
        """A result in the shape and type of its value; raises if it has others."""
        if result.shape != out.bound or result.dtype != out.dtype:
            rule = f"must give {out.bound} of {out.dtype}"
            raise GraphError(f"{op.kind} {out.name!r}", rule, value=(result.shape, str(result.dtype)))
        return result

    # ----------------------------------------------------------------------------------------------------- compilation

    def load_rules(self) -> None:  # noqa: B027  (optional)
        """Register the rules by which the engine compiles operators that ``to_core`` leaves (``ir/int_rules.py``),
        by importing the modules that have them."""

    def to_core(self, graph: Graph, numerics: Numerics) -> Graph:
        """Translate a graph to core operators, as far as possible. By default nothing is."""
        return graph

    def count_macs(self, op: Op) -> int:
        """Multiply-accumulates of an operator: those of the core operators that it is translated to."""
        inputs = [v for v in dict.fromkeys(op.inputs()) if not v.constant]
        outputs = [v for v in op.outputs if v is not None]
        translated = self.to_core(Graph(op.kind, inputs, outputs, [op]), self.numerics)
        return sum(count_core_macs(core) for core in translated.ops)

    def folder(self) -> str:
        """The folder of the dialect's sources: cached plans of other versions are not reused."""
        return os.path.dirname(os.path.abspath(sys.modules[type(self).__module__].__file__ or ""))


def array_of(value: Value, arrays: Mapping[Value, Array]) -> Array:
    """A constant's data, or a computed array."""
    return arrays[value] if value.data is None else value.data


# -------------------------------------------------------------------------------------------------------------- tables


REQUIRED: Any = object()


@dataclass(frozen=True)
class Attribute:
    """What an attribute of an operator must be: a sentence after "must be", and the test. Without a default, it must
    be present."""

    rule: str
    accepts: Callable[[Any], bool]
    default: Any = REQUIRED

    def with_default(self, default: Any) -> Attribute:
        return replace(self, default=default)

    def or_absent(self, default: Any = None) -> Attribute:
        """The same attribute, which may be absent or None."""
        return Attribute(f"{self.rule}, or absent", lambda value: value is None or self.accepts(value), default)


def int_from(low: int, high: int = (1 << 31) - 1) -> Attribute:
    return Attribute(f"an integer from {low} to {high}", lambda value: type(value) is int and low <= value <= high)


def float_from(low: float, high: float) -> Attribute:
    return Attribute(
        f"a number from {low:g} to {high:g}", lambda value: type(value) in (int, float) and low <= value <= high
    )


def one_of(*choices: str) -> Attribute:
    return Attribute(f"one of {', '.join(choices)}", lambda value: value in choices)


FLAG = Attribute("true or false", lambda value: type(value) is bool)


@dataclass(frozen=True)
class OpRow:
    """An operator of a ``TableDialect``.

    ``operands``: names of the tensors, in the order of the signature; ``bias?`` may be None. ``types``: their element
    types and those of the results, in the language of ``ir/signatures.py``. ``shape``: the shapes of the results.
    ``reference``: the results for an operator and the arrays of its operands. ``attributes``: all other arguments.
    ``temporaries``: elements that the reference allocates beside the results.
    """

    name: str
    operands: tuple[str, ...]
    types: str
    shape: Callable[[Op], Sequence[Shape]]
    reference: Callable[..., Sequence[Array]]
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    temporaries: Callable[[Op], int] = lambda op: 0


class TableDialect(Dialect):
    """A dialect that its table describes completely. ``classes``: named sets of element types for signatures.
    ``package``: the package that defines it."""

    def __init__(
        self, name: str, title: str, rows: Sequence[OpRow], numerics: Numerics, package: str,
        classes: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(name, title, {row.name: row for row in rows}, numerics)
        self._operands = {row.name: [operand.removesuffix("?") for operand in row.operands] for row in rows}
        self._package = package
        self._signatures = Signatures(classes or {}, {row.name: row.types for row in rows})

    def check_row(self, op: Op, row: OpRow, memory: int) -> None:
        operands = self._operands[row.name]
        if set(op.args) != {*operands, *row.attributes}:
            rule = f"must be {', '.join((*operands, *row.attributes))}"
            raise FormatError(rule, where="arguments", value=sorted(op.args))
        for operand in operands:
            value = op.args[operand]
            if value is not None and (not isinstance(value, Value) or value.dynamic):
                raise FormatError("must be a tensor of a fixed shape", where=operand)
        for name, attribute in row.attributes.items():
            if not attribute.accepts(op.args[name]):
                raise FormatError(f"must be {attribute.rule}", where=name, value=op.args[name])
        self._signatures.check(row.name, [(operand, op.args[operand]) for operand in operands], op)
        shapes, declared = list(row.shape(op)), [out if out is None else out.bound for out in op.outputs]
        if len(shapes) != len(declared) or any(d not in (None, s) for d, s in zip(declared, shapes, strict=True)):
            raise FormatError(f"must have the shapes {shapes}", where="results", value=declared)
        elements = sum(map(math.prod, shapes)) + sum(math.prod(value.bound) for value in op.inputs())
        check_memory(op.kind, elements + row.temporaries(op), memory)

    def run_op(self, op: Op, arrays: Mapping[Value, Array], numerics: Numerics) -> Sequence[Array]:
        row: OpRow = self.row(op.kind)
        operands = [op.args[operand] for operand in self._operands[row.name]]
        return row.reference(op, *(None if value is None else array_of(value, arrays) for value in operands))

    def folder(self) -> str:
        return os.path.dirname(os.path.abspath(sys.modules[self._package].__file__ or ""))


def dialects_of(graph: Graph, find_dialect: FindDialect) -> Iterator[Dialect]:
    """The dialects besides core that a graph has operators of."""
    for name in dict.fromkeys(op.kind.partition(".")[0] for op in graph.ops if "." in op.kind):
        dialect = None if name == "core" else find_dialect(name)
        if dialect is not None:
            yield dialect
