"""Registration of op-table entries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from edgewright.ir.aten.table import OPS, LayoutClass, OpDef
from edgewright.ir.graph import Op
from edgewright.ir.ports import ACT, Port, Same

Function = Callable[..., Any]
SELF = Same("self")


def define_op(
    name: str,
    aten: str,
    reference: Function,
    shape: Function,
    layout: LayoutClass = LayoutClass.FOLLOW,
    when: Callable[[Op], bool] | None = None,
    /,
    **ports: Port,
) -> None:
    """Add an entry. ``aten`` is a space-separated list of overloads, without the namespace if it is ``aten``.

    Without ports, it is a function of one activation, ``self``.
    """
    overloads = tuple(o if o.count(".") > 1 else f"aten.{o}" for o in aten.split())
    OPS.add(OpDef(name, overloads, reference, shape, ports or {"self": ACT, "out": ACT}, layout, when))
