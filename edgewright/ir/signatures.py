"""Type signatures of operators: the element types of operands and results, and constraints between them.

Every dialect has a table of signatures (``ir/<dialect>/signatures.py``). A row is text: operands, an arrow, results;
alternatives are separated by a bar::

    "conv2d":   "i8 i8# i32# -> i32 | f32 f32 f32 -> f32"
    "concat":   "T* -> T"
    "reshape":  "B= -> B="

A type is an element type (``i8``; ``qi8`` quantized per tensor, ``ci8`` per channel, ``bi8`` blockwise, ``di8``
dynamically) or a class of them that the dialect declares. A class in capitals is a type variable: all operands and
results with that name have the same element type. Suffixes: ``=`` equal quantization parameters within the variable,
``#`` constant, ``!`` not constant, ``~`` zero point 0, ``?`` optional, ``*`` variadic.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from edgewright.errors import FormatError
from edgewright.ir.dtypes import DType
from edgewright.ir.graph import Op, Value

_WORD = re.compile(r"^([A-Za-z]\w*)([=#!~?*]*)$")
_QUANTIZED = {"q": "quantized", "c": "quantized by channel", "b": "quantized in blocks", "d": "quantized at run time"}
_SHORT = {"float": "f", "bfloat": "bf", "int": "i", "uint": "u", "complex": "complex"}
Operands = Sequence[tuple[str, "Value | None"]]
Code = Callable[[Value], str]


def _short(name: str) -> str:
    kind, bits = re.match(r"([a-z]+)(\d*)", name).groups()  # type: ignore[union-attr]
    return f"{_SHORT[kind]}{bits}" if kind in _SHORT and bits else name


_CODES: dict[DType, str] = {}


def element_code(value: Value) -> str:
    """The element type of a value, without quantization."""
    dtype = value.dtype
    if dtype is None:
        return value.kind
    return _CODES.get(dtype) or _CODES.setdefault(dtype, _short(str(dtype)))


def type_code(value: Value) -> str:
    """The type of a value as signatures write it.

    >>> import numpy as np
    >>> type_code(Value("x", np.dtype(np.float32)))
    'f32'
    """
    code, q = element_code(value), value.q
    if q is None:
        return code
    return f"{'d' if q.dynamic else 'b' if q.block else 'q' if q.axis is None else 'c'}{code}"


def describe_type(code: str) -> str:
    """A type of signatures as text for error messages.

    >>> describe_type("qi8"), describe_type("bf16")
    ('int8 (quantized)', 'bfloat16')
    """
    kind = re.match(r"([qcbd]??)(bf|f|i|u)(\d+)$", code)
    if kind is None:
        return code
    prefix, element, bits = kind.groups()
    name = f"{ {short: name for name, short in _SHORT.items()}[element] }{bits}"
    return f"{name} ({_QUANTIZED[prefix]})" if prefix else name


class OperandPattern(NamedTuple):
    """One operand or result of a signature."""

    allowed: frozenset[str]
    variable: str  # empty: none
    same_params: bool
    constant: bool | None  # None: either
    symmetric: bool
    optional: bool
    variadic: bool


class Mismatch(NamedTuple):
    """A violation of a signature: the operand's position and the reason. The message is built only if no alternative
    matches."""

    position: int
    operand: str
    reason: str
    slot: OperandPattern | None = None
    value: Value | None = None
    first: Value | None = None  # the value that bound the type variable
    counts: tuple[int, int] = (0, 0)  # expected and actual


@dataclass(frozen=True)
class Alternative:
    operands: tuple[OperandPattern, ...]
    results: tuple[OperandPattern, ...]

    def mismatch(self, operands: Operands, results: Operands, code: Code) -> Mismatch | None:
        """The first operand or result that does not fit; None if all do."""
        bindings: dict[str, Value] = {}
        wrong = _walk(self.operands, ("operands", 0, operands), bindings, code)
        return wrong or _walk(self.results, ("results", len(operands), results), bindings, code)


def _walk(
    slots: Sequence[OperandPattern], side: tuple[str, int, Operands], bindings: dict[str, Value], code: Code
) -> Mismatch | None:
    group, position, operands = side
    at = 0
    for slot in slots:
        while at < len(operands):
            name, value = operands[at]
            if value is not None:
                reason = _misfit(slot, value, bindings, code)
                if reason:
                    return Mismatch(position + at, name, reason, slot, value, bindings.get(slot.variable))
            elif not slot.optional:
                return Mismatch(position + at, name, "absent")
            at += 1
            if not slot.variadic:
                break
        else:
            if not slot.optional and not slot.variadic:
                return Mismatch(position + at, group, "few", counts=(len(slots), len(operands)))
    return Mismatch(position + at, group, "many", counts=(len(slots), len(operands))) if at < len(operands) else None


def _misfit(slot: OperandPattern, value: Value, bindings: dict[str, Value], code: Code) -> str:
    """Why a value does not match a pattern; empty if it does."""
    type_ = code(value)
    if type_ not in slot.allowed:
        return "type"
    if slot.constant is not None and slot.constant is (value.data is None):
        return "constant"
    if slot.symmetric and value.q is not None and _any(value.q.zero_point):
        return "zero"
    if slot.variable:
        first = bindings.setdefault(slot.variable, value)
        if first is not value:
            if code(first) != type_:
                return "other"
            if slot.same_params and first.q != value.q:
                return "parameters"
    return ""


def _any(zero: int | tuple[int, ...]) -> bool:
    return any(zero) if isinstance(zero, tuple) else bool(zero)


@dataclass(frozen=True)
class Signatures:
    """The signatures of a dialect. ``classes``: named sets of element types. ``code``: maps a value to its type;
    ``element_code`` for dialects in which quantization is not part of the type."""

    classes: Mapping[str, str]
    rows: Mapping[str, str]
    code: Code = type_code

    @cached_property
    def _parsed(self) -> dict[str, tuple[Alternative, ...]]:
        return {kind: parse_types(self.classes, text) for kinds, text in self.rows.items() for kind in kinds.split()}

    def __contains__(self, kind: str) -> bool:
        return kind in self._parsed

    def __iter__(self) -> Iterator[str]:
        return iter(self._parsed)

    def check(self, kind: str, operands: Operands, op: Op) -> None:
        """Raise ``FormatError`` unless an operator's element types are those of one of its alternatives."""
        check_types(self._parsed[kind], operands, op, self.code)


def parse_types(classes: Mapping[str, str], text: str) -> tuple[Alternative, ...]:
    """The alternatives of a signature. ``classes``: named sets of element types."""

    def slot(word: str) -> OperandPattern:
        match = _WORD.match(word)
        assert match is not None, word
        name, marks = match.groups()
        allowed = frozenset(classes[name].split()) if name in classes else frozenset((name,))
        constant = True if "#" in marks else False if "!" in marks else None
        variable = name if name.isupper() else ""
        return OperandPattern(allowed, variable, "=" in marks, constant, "~" in marks, "?" in marks, "*" in marks)

    sides = (part.partition("->") for part in text.split("|"))
    return tuple(Alternative(tuple(map(slot, a.split())), tuple(map(slot, b.split()))) for a, _, b in sides)


def check_types(alternatives: Sequence[Alternative], operands: Operands, op: Op, code: Code = type_code) -> None:
    """Raise ``FormatError`` unless the element types of operands and results are those of an alternative."""
    results = [("result" if i == 0 else f"result {i}", v) for i, v in enumerate(op.outputs)]
    mismatches = []
    for alternative in alternatives:
        mismatch = alternative.mismatch(operands, results, code)
        if mismatch is None:
            return
        mismatches.append(mismatch)
    raise _error(mismatches, code)


def _error(mismatches: list[Mismatch], code: Code) -> FormatError:
    """Report the alternatives that matched furthest; the types they allow are listed together."""
    furthest = max(mismatch.position for mismatch in mismatches)
    last = [mismatch for mismatch in mismatches if mismatch.position == furthest]
    plain = next((mismatch for mismatch in last if mismatch.reason != "type"), None)
    if plain is not None:
        rule, value = _message(plain, code)
        return FormatError(rule, where=plain.operand, value=value)
    allowed = sorted({word for mismatch in last if mismatch.slot is not None for word in mismatch.slot.allowed})
    rule = f"must be {' or '.join(describe_type(word) for word in allowed)}"
    assert last[0].value is not None
    return FormatError(rule, where=last[0].operand, value=describe_type(code(last[0].value)))


def _message(wrong: Mismatch, code: Code) -> tuple[str, str]:
    """The violated rule, and the actual value."""
    value, first, (expected, actual) = wrong.value, wrong.first, wrong.counts
    if wrong.reason in ("few", "many"):
        return f"must be {'at most ' * (wrong.reason == 'many')}{expected}", str(actual)
    if value is None or wrong.slot is None:
        return "must be a tensor", "nothing"
    if wrong.reason == "constant":
        words = ("a computed value", "a constant")
        return f"must be {words[bool(wrong.slot.constant)]}", words[not wrong.slot.constant]
    if wrong.reason == "zero" or first is None:
        return "must have a zero point of 0", "" if value.q is None else str(value.q.zero_point)[:60]
    if wrong.reason == "other":
        return f"must be stored as {first.name!r} is, {describe_type(code(first))}", describe_type(code(value))
    parameters = "none" if value.q is None else f"{value.q.scale}, {value.q.zero_point}"[:80]
    return f"must have the scale and zero point of {first.name!r}", parameters
