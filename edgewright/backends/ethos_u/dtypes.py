"""Support rules for element types."""

from __future__ import annotations

from typing import Any

from edgewright.backends.rules import rule
from edgewright.backends.table import OK, tensors
from edgewright.ir.graph import Op, Value

INTEGERS = ("int8", "int16", "int32")
ACTIVATIONS = ("relu", "hardtanh", "clamp", "relu6")  # clamps, which most operators fuse into their RESCALE


def on_family(target: Any, *families: str) -> bool:
    """True for TOSA export and for targets of these families."""
    return target is None or target.family in families


def plain_types(target: Any) -> tuple[str, ...]:
    """Supported unquantized types of a target."""
    return (*INTEGERS, *(("bool",) if on_family(target, "u85") else ()), *(("float32",) if target is None else ()))


def shape_only(op: Op) -> set[Value]:
    """Operands of which only the shape is read."""
    name = {"expand_as": "other", "copy": "self"}.get(op.kind)
    return {op.args[name]} if name is not None and isinstance(op.args[name], Value) else set()


@rule("unquantized tensors must be int8, int16 or int32 (or bool, on U85)")
def unquantized_types(op: Op, target: Any) -> object:
    allowed, ignored = plain_types(target), shape_only(op)
    operands = [v for v in tensors(op) if v.q is None and v not in ignored]
    bad = sorted({str(v.dtype) for v in operands if str(v.dtype) not in allowed})
    return ", ".join(bad) if bad else OK


@rule(
    "operands of data movement must be int8, int16 or int32 (or bool, on U85), of one type, and all or none quantized"
)
def movable_types(op: Op, target: Any) -> object:
    allowed, ignored = plain_types(target), shape_only(op)
    operands = [v for v in tensors(op) if v not in ignored]
    types = sorted({"quantized " * (v.q is not None) + str(v.dtype) for v in operands})
    return (
        ", ".join(types) if len(types) > 1 or any(v.q is None and str(v.dtype) not in allowed for v in operands) else OK
    )


@rule("operands and results must all be quantized")
def all_quantized(op: Op, target: Any) -> object:
    operands = tensors(op)
    if target is None and all(v.q is None and str(v.dtype) == "float32" for v in operands):
        return OK
    unquantized = sorted({f"{v.name} ({v.dtype})" for v in operands if v.q is None})
    return ", ".join(unquantized) if unquantized else OK


@rule("comparison, logic and select need a U85")
def logic_unit(op: Op, target: Any) -> object:
    return OK if on_family(target, "u85") else target.target
