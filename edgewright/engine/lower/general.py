"""Lowerings of operators that only some programs have: for any type, or for places that lists name."""

from __future__ import annotations

from functools import cache

from edgewright.engine.graph.nodes import Node
from edgewright.engine.lower.base import Context, Lowering


class General(Lowering):
    """Chooses among them; they are loaded when something is met that no other lowering takes."""

    @classmethod
    def accept(cls, node: Node, context: Context) -> Lowering | None:
        if "." in node.op.kind:
            return None
        return next((made for kind in _lowerings() if (made := kind.accept(node, context)) is not None), None)


@cache
def _lowerings() -> list[type[Lowering]]:
    from edgewright.engine.lower.argmax import ArgMax
    from edgewright.engine.lower.element_gather import Spot
    from edgewright.engine.lower.scan import Along
    from edgewright.engine.lower.separable_resize import Banded
    from edgewright.engine.lower.static_gather import Move
    from edgewright.engine.lower.typed_elementwise import Elements

    return [Elements, Move, Along, ArgMax, Spot, Banded]
