"""Registration of op-table entries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from edgewright.ir.aten.table import OPS, OpClass, OpDef
from edgewright.ir.graph import Op
from edgewright.ir.ports import ACT, Port, Same

Function = Callable[..., Any]
SELF = Same("self")


def define_op(
    name: str,
    aten: str,
    reference: Function,
    shape: Function,
    op_class: OpClass = OpClass.ELEMENTWISE,
    when: Callable[[Op], bool] | None = None,
    composite: bool = False,
    idempotent: bool = False,
    /,
    **ports: Port,
) -> None:
    """Add an entry. ``aten`` is a space-separated list of overloads, without the namespace if it is ``aten``.

    Without ports, it is a function of one activation, ``self``.
    """
    overloads = tuple(o if o.count(".") > 1 else f"aten.{o}" for o in aten.split())
    ports = ports or {"self": ACT, "out": ACT}
    OPS.add(OpDef(name, overloads, reference, shape, ports, op_class, when, composite, idempotent))


def define_composite(
    name: str,
    aten: str,
    reference: Function,
    shape: Function,
    op_class: OpClass = OpClass.ELEMENTWISE,
    when: Callable[[Op], bool] | None = None,
    /,
    **ports: Port,
) -> None:
    """Add an entry that the frontend decomposes, unless a backend has it."""
    define_op(name, aten, reference, shape, op_class, when, True, **ports)


def define_idempotent(name: str, aten: str, reference: Function, shape: Function, /, **ports: Port) -> None:
    """Add an elementwise entry that is its operand if both operands are one tensor."""
    define_op(name, aten, reference, shape, OpClass.ELEMENTWISE, None, False, True, **ports)
