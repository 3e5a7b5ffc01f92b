"""The table of the core dialect: one row per operator, declared once.

A row has an operator's operands and attributes, their element types, the shape of the result, a bound on the memory
that the reference needs, and the reference itself, in numpy. Rows are in files by family (``conv``, ``gemm``,
``elementwise``, ``reduce``, ``move``, ``gather``, ``cache``, ``quantized_cache``, ``pool_resize``,
``norm_softmax``), beside their shape rules and references.

``verify``, the executor, the engine's shape inference, the checks of graphs from files, docs/core-dialect.md and the
property tests read this table and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np

from edgewright.errors import FormatError, UsageError
from edgewright.ir.core.evaluation import EvaluationContext, Implementation
from edgewright.ir.dialect import REQUIRED, Attribute
from edgewright.ir.graph import SEQUENCES, Array, Op, Value
from edgewright.ir.signatures import Alternative, check_types, parse_types

Shape = tuple[int, ...]
ShapeOf = Callable[[Value], Sequence[int]]
ShapeRule = Callable[[Op, ShapeOf], Sequence[int]]
SizeBound = Callable[[Op, ShapeOf], int]

MAX_INT = 1 << 32
TYPE_CLASSES = {
    "F": "f32 f16 bf16",
    "float": "f32 f16 bf16",
    "Q": "qi8 qu8",
    "quant8": "qi8 qu8",
    "I": "i8 u8 i16 u16 i32 u32 i64",
    "N": "f32 f16 bf16 i8 u8 i16 u16 i32 u32 i64 bool",
    "number": "f32 f16 bf16 i8 u8 i16 u16 i32 u32 i64 bool",
    "M": "f32 f16 bf16 i8 u8 i16 u16 i32 u32 i64 bool qi8 qu8 qi16 qu16 qi32",
    **{f"stored_{kind}": f"{kind} q{kind}" for kind in ("u8", "i16", "u16")},
    "index": "i32 i64",
    "mask": "bool u8",
    "weight": "qi8 ci8",
    "rows": "qi8 ci8 bi8",
    "bias": "qi32 ci32 i32",
    "quantized": "qi8 qu8 qi16 qu16",
    "int16": "i16 qi16 qu16",
    "scaled": "i16 qi8 qu8 qi16 qu16",
    "int_weight": "i8 i16 qi8 qi16 ci8 ci16",
}


class Operand(NamedTuple):
    """A tensor operand. ``variadic``: a list of tensors; of an optional one, items may be None."""

    name: str
    optional: bool
    variadic: bool


@dataclass(frozen=True)
class CoreOp:
    """A row. ``types`` are in the language of ``ir/signatures.py``. ``compiled``: the element types of the first
    operand for which the engine generates code; empty: all that ``types`` allows."""

    name: str
    summary: str
    operands: tuple[Operand, ...]
    attributes: Mapping[str, Attribute]
    types: str
    shape: ShapeRule
    reference: Implementation
    size: SizeBound | None = None
    compiled: str = ""

    @cached_property
    def alternatives(self) -> tuple[Alternative, ...]:
        return _parse(self.types)

    @cached_property
    def arguments(self) -> frozenset[str]:
        """The names of operands and attributes."""
        return frozenset((*(operand.name for operand in self.operands), *self.attributes))

    def max_elements(self, op: Op, shape_of: ShapeOf) -> int:
        """An upper bound on the elements of the result and of the reference's largest intermediate."""
        return math.prod(self.shape(op, shape_of)) if self.size is None else self.size(op, shape_of)


@cache
def _parse(types: str) -> tuple[Alternative, ...]:
    return parse_types(TYPE_CLASSES, types)


CORE_OPS: dict[str, CoreOp] = {}  # by name


def define(
    names: str,
    summary: str,
    operands: str,
    types: str,
    shape: ShapeRule,
    reference: Implementation,
    attributes: Mapping[str, Attribute] | None = None,
    size: SizeBound | None = None,
    compiled: str = "",
) -> None:
    """Add a row for each name. ``operands``: names, with ``?`` if optional and ``*`` for a list of tensors."""
    parsed = tuple(Operand(word.rstrip("?*"), "?" in word, "*" in word) for word in operands.split())
    for name in names.split():
        if name in CORE_OPS:
            raise UsageError(f"core operator {name!r}", "is declared already")
        CORE_OPS[name] = CoreOp(name, summary, parsed, attributes or {}, types, shape, reference, size, compiled)


def define_aten(
    names: str,
    summary: str,
    operands: str,
    types: str,
    attributes: Mapping[str, Attribute] | None = None,
    size: SizeBound | None = None,
    compiled: str = "",
    stored: bool = False,
) -> None:
    """Add rows of operators that mean what the operators of the op table with their names mean, on real numbers or,
    with ``stored``, on the elements as they are stored."""
    reference = aten_on_stored if stored else _aten_on_reals
    define(names, summary, operands, types, aten_shape, reference, attributes, size, compiled)


def _aten_on_reals(ex: EvaluationContext, op: Op) -> Array:
    from edgewright.ir.aten.ops import OPS

    results = OPS[op.name].call({n: ex.map_values(ex.real, a) for n, a in op.args.items() if n not in _CORE_ARGS})
    return ex.store(op, np.asarray(results[0]))


def aten_on_stored(ex: EvaluationContext, op: Op) -> Array:
    """The op table's reference on stored elements."""
    from edgewright.ir.aten.ops import OPS

    results = OPS[op.name].call({n: ex.map_values(ex.raw, a) for n, a in op.args.items() if n not in _CORE_ARGS})
    return np.asarray(results[0])


def aten_shape(op: Op, shape_of: ShapeOf) -> Shape:
    """The shape of the result, by the op table's shape function."""
    from edgewright.ir.aten.ops import OPS

    def zeros(argument: Any) -> Any:
        """Values as zeros broadcast to their shape, which take no memory."""
        if isinstance(argument, Value):
            return np.broadcast_to(np.zeros((), argument.dtype), tuple(shape_of(argument)))
        return [zeros(a) for a in argument] if isinstance(argument, SEQUENCES) else argument

    shapes = OPS[op.name].shape(**{n: zeros(a) for n, a in op.args.items() if n not in _CORE_ARGS})
    first = shapes[0] if isinstance(shapes, list) else shapes
    return tuple(int(n) for n in first)


# ---------------------------------------------------------------------------------------------------------- attributes


def integers(low: int, count: int | None = None) -> Attribute:
    def accepts(value: Any) -> bool:
        if not isinstance(value, SEQUENCES) or (count is not None and len(value) != count):
            return False
        for n in value:  # noqa: SIM110  (all() takes twice as long)
            if type(n) is not int or not low <= n < MAX_INT:
                return False
        return True

    return Attribute(f"{'' if count is None else f'{count} '}integers from {low}", accepts)


def integer(low: int) -> Attribute:
    return Attribute(f"an integer from {low}", lambda value: type(value) is int and low <= value < MAX_INT)


def _is_real(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _is_limits(value: Any) -> bool:
    """Limits may be out of order; the upper one wins."""
    is_pair = isinstance(value, SEQUENCES) and len(value) == 2
    return is_pair and all(type(n) in (int, float) and not math.isnan(n) for n in value)


REAL = Attribute("a finite number", _is_real)
NUMBER = Attribute("a number, infinity or NaN", lambda value: type(value) in (int, float))
POSITIVES = Attribute("two positive numbers", lambda v: len(v) == 2 and all(_is_real(n) and n > 0 for n in v))
DIM = integer(-64)
DIMS = integers(-64)
LIMITS = {"limits": Attribute("two numbers", _is_limits).or_absent()}
_CORE_ARGS = ("limits", "outside")  # what the op table's functions do not have


# -------------------------------------------------------------------------------------------------------------- checks


def declared_shape(value: Value) -> Shape:
    return value.bound


def check_op(op: Op, row: CoreOp) -> list[tuple[str, Value | None]]:
    """The tensors that an operator reads, by name; ``FormatError`` unless operands, attributes and element types are
    those of the row."""
    _check_arguments(op, row)
    if len(op.outputs) != 1 or op.outputs[0] is None:
        raise FormatError("must be one", where="results", value=len(op.outputs))
    for name, attribute in row.attributes.items():
        value = op.args.get(name, attribute.default)
        if not (value is attribute.default and value is not REQUIRED) and not attribute.accepts(value):
            raise FormatError(f"must be {attribute.rule}", where=name, value="nothing" if value is REQUIRED else value)
    operands: list[tuple[str, Value | None]] = []
    for operand in row.operands:
        argument = op.args.get(operand.name)
        if operand.variadic:
            operands += [(f"{operand.name}[{i}]", value) for i, value in enumerate(argument or ())]
        else:
            operands.append((operand.name, argument))
    check_types(row.alternatives, operands, op)
    return operands


def _check_arguments(op: Op, row: CoreOp) -> None:
    if not row.arguments.issuperset(op.args):
        raise FormatError(f"is no argument of {op.name}", where=min(set(op.args) - row.arguments))
    for name, optional, variadic in row.operands:
        argument = op.args.get(name)
        if isinstance(argument, Value) or (argument is None and optional):
            continue
        tensors = argument if variadic and isinstance(argument, SEQUENCES) else [argument]
        if not tensors or any(not (isinstance(v, Value) or (optional and v is None)) for v in tensors):
            raise FormatError("must be a tensor", where=name, value=type(argument).__name__)


def infer_shape(op: Op, row: CoreOp, shape_of: ShapeOf = declared_shape) -> Shape:
    """The shape of the result; ``FormatError`` if the shapes of the operands or the attributes do not fit."""
    try:
        return tuple(map(int, row.shape(op, shape_of)))
    except (ValueError, LookupError, TypeError, ArithmeticError) as error:
        raise FormatError(f"{error}"[:200], where="shapes", value=_shapes(op, shape_of)) from error


def check_shape(op: Op, row: CoreOp) -> None:
    """Raise ``FormatError`` unless the result has the shape that the row's rule infers from the operands."""
    out, inferred = op.outputs[0], infer_shape(op, row)
    if out is None or inferred != out.bound:
        raise FormatError(f"must have shape {list(inferred)}", where="result", value=None if out is None else out.bound)


def _shapes(op: Op, shape_of: ShapeOf) -> str:
    return ", ".join(f"{list(shape_of(v))}" for v in op.inputs())[:120]


def require(condition: bool, rule: str) -> None:
    """For shape rules."""
    if not condition:
        raise ValueError(rule)


def first_operand(op: Op, shape_of: ShapeOf) -> Shape:
    """The shape rule of operators whose result has the shape of their first operand."""
    return tuple(shape_of(next(op.inputs())))


def broadcast(op: Op, shape_of: ShapeOf) -> Shape:
    """The shape rule of operators whose operands are broadcast."""
    return np.broadcast_shapes(*(tuple(shape_of(v)) for v in op.inputs()))
