"""Lowerings of operators that only some programs have: for any type, or for places that lists name."""

from __future__ import annotations

from functools import cache

from edgewright.engine.nodes import Node
from edgewright.engine.ops.base import Context, Lowering


class General(Lowering):
    """Chooses among them; they are loaded when something is met that no other lowering takes."""

    @classmethod
    def accept(cls, node: Node, context: Context) -> Lowering | None:
        if "." in node.op.kind:
            return None
        return next((made for kind in _lowerings() if (made := kind.accept(node, context)) is not None), None)


@cache
def _lowerings() -> list[type[Lowering]]:
    from edgewright.engine.ops.argmax import ArgMax
    from edgewright.engine.ops.bands import Banded
    from edgewright.engine.ops.lines import Along
    from edgewright.engine.ops.picks import Move
    from edgewright.engine.ops.spots import Spot
    from edgewright.engine.ops.typed import Elements

    return [Elements, Move, Along, ArgMax, Spot, Banded]
