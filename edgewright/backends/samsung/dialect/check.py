"""Verifier of ENN graphs loaded from files. References trust their arguments, so shapes are checked before anything is
allocated."""

from __future__ import annotations

import math
from typing import Any

from edgewright.backends.samsung.dialect.conv import LIMITS
from edgewright.backends.samsung.dialect.table import FLAG, INT, INTS, OPTIONAL, REAL, REALS, TEXT, EnnOp, check_types
from edgewright.errors import FormatError
from edgewright.ir.dialect_checks import MAX_INT, MAX_LENGTH, check_memory
from edgewright.ir.graph import Op, Value

ELEMENTS = ("float32", "float16", "int8", "uint8", "int16", "uint16", "int32", "int64")


def check_row(op: Op, row: EnnOp, memory: int) -> None:
    """Raise unless an operator has valid types and shapes and fits in ``memory`` bytes."""
    inputs = op.args["inputs"]
    minimum, maximum = row.operands
    if not isinstance(inputs, list) or not minimum <= len(inputs) <= (maximum or MAX_LENGTH):
        raise FormatError(f"must have {minimum} operands", where="inputs")
    outputs = [o for o in op.outputs if o is not None]
    if any(not isinstance(v, Value) for v in inputs) or (row.results or len(outputs)) != len(op.outputs) or not outputs:
        raise FormatError("must have tensors for operands and results", value=op.kind)
    for value in (*inputs, *outputs):
        _check_value(value)
    for name in row.params:
        _check_param(name, op.args[name], row.kind(name))
    _check_others(op, row)
    check_types(op, row.name)
    _check_shapes(op, row, memory)


def _check_value(value: Value) -> None:
    if value.dynamic or str(value.dtype) not in ELEMENTS:
        raise FormatError("must be of a fixed shape and a type of ENN", where=value.name, value=value.dtype)


def _check_param(name: str, value: Any, kind: str) -> None:
    if kind in (INTS, REALS):
        if not isinstance(value, list) or len(value) > MAX_LENGTH:
            raise FormatError("must be a list", where=name)
        for item in value:
            _check_param(name, item, INT if kind == INTS else REAL)
        return
    is_int = type(value) is int and -MAX_INT < value < MAX_INT
    valid = {
        INT: is_int,
        REAL: is_int or (type(value) is float and not math.isnan(value)),
        FLAG: type(value) is bool,
        TEXT: type(value) is str and len(value) < MAX_LENGTH,
    }
    if not valid[kind]:
        raise FormatError(f"must be of kind {kind}", where=name, value=value)


def _check_others(op: Op, row: EnnOp) -> None:
    for name in op.args:
        if name == "inputs" or name in row.params:
            continue
        if name not in OPTIONAL:
            raise FormatError("is no parameter of the operator", where=name)
        _check_param(name, op.args[name], row.kind(name))
    if op.args.get("activation", "RELU") not in LIMITS:
        raise FormatError(f"must be one of {', '.join(LIMITS)}", where="activation", value=op.args["activation"])


def _check_shapes(op: Op, row: EnnOp, memory: int) -> None:
    expected = row.shape(op)
    declared = [None if o is None else o.bound for o in op.outputs]
    if len(expected) != len(declared) or any(f is not None and f != w for f, w in zip(declared, expected, strict=True)):
        raise FormatError(f"must give {expected}"[:200], value=declared)
    size = sum(math.prod(s) for s in expected) + sum(math.prod(v.bound) for v in op.args["inputs"])
    if row.name.endswith("CONV2D"):
        size += sum(math.prod(s) for s in expected) * math.prod(op.args["inputs"][1].bound[2:])
    if "explicit_padding" in op.args and row.name != "PAD":
        top, left, bottom, right = op.args["explicit_padding"]
        n, c, h, w = op.args["inputs"][0].bound
        size += n * c * (h + top + bottom) * (w + left + right)
    check_memory(op.kind, size, memory)
