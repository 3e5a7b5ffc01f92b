"""Which elements an Ethos-U has: rules on the types of tensors that are not quantized."""

from __future__ import annotations

from typing import Any

from edgewright.backends.rules import rule
from edgewright.backends.table import OK, tensors
from edgewright.ir.graph import Op, Value

INTEGERS = ("int8", "int16", "int32")
ACTIVATIONS = ("relu", "hardtanh", "clamp", "relu6")  # limits, which most operators do with their rescaling


def on(target: Any, *families: str) -> bool:
    """True for TOSA alone, and on these."""
    return target is None or target.family in families


def plain_types(target: Any) -> tuple[str, ...]:
    """Types of elements that are not quantized, for a target."""
    return (*INTEGERS, *(("bool",) if on(target, "u85") else ()), *(("float32",) if target is None else ()))


def shape_only(op: Op) -> set[Value]:
    """Operands of which only the shape counts."""
    name = {"expand_as": "other", "copy": "self"}.get(op.kind)
    return {op.args[name]} if name is not None and isinstance(op.args[name], Value) else set()


@rule("elements that are not quantized must be int8, int16 or int32 (or bool, on U85)")
def plain(op: Op, target: Any) -> object:
    allowed, beside = plain_types(target), shape_only(op)
    held = [v for v in tensors(op) if v.q is None and v not in beside]
    bad = sorted({str(v.dtype) for v in held if str(v.dtype) not in allowed})
    return ", ".join(bad) if bad else OK


@rule("what is moved must be int8, int16 or int32 (or bool, on U85), and of one type, all of it quantized or none")
def movable(op: Op, target: Any) -> object:
    allowed, beside = plain_types(target), shape_only(op)
    held = [v for v in tensors(op) if v not in beside]
    found = sorted({"quantized " * (v.q is not None) + str(v.dtype) for v in held})
    return ", ".join(found) if len(found) > 1 or any(v.q is None and str(v.dtype) not in allowed for v in held) else OK


@rule("operands and results must all be quantized")
def all_quantized(op: Op, target: Any) -> object:
    held = tensors(op)
    if target is None and all(v.q is None and str(v.dtype) == "float32" for v in held):
        return OK
    loose = sorted({f"{v.name} ({v.dtype})" for v in held if v.q is None})
    return ", ".join(loose) if loose else OK


@rule("comparison, logic and choice by element need a U85")
def logic_unit(op: Op, target: Any) -> object:
    return OK if on(target, "u85") else target.target
