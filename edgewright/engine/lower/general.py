"""Lowerings of core operators that few programs contain, imported on first use."""

from __future__ import annotations

from functools import cache

from edgewright.engine.graph.nodes import Node
from edgewright.engine.lower.base import Lowering, LoweringContext


class CoreDispatch(Lowering):
    """Tries the lowerings of this group; their modules load when no common lowering accepts a node."""

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        if not node.op.kind.startswith("core."):
            return None
        return next(
            (lowering for candidate in _lowerings() if (lowering := candidate.accept(node, context)) is not None), None
        )


@cache
def _lowerings() -> list[type[Lowering]]:
    from edgewright.engine.lower.argmax import ArgMax
    from edgewright.engine.lower.element_gather import ElementGather
    from edgewright.engine.lower.int_rows import DenseIntNorm, IntNorm, IntSoftmax
    from edgewright.engine.lower.resize import SeparableResize
    from edgewright.engine.lower.scan import Scan
    from edgewright.engine.lower.static_gather import StaticGather
    from edgewright.engine.lower.typed_elementwise import TypedElementwise

    return [
        TypedElementwise, StaticGather, Scan, ArgMax, ElementGather, SeparableResize, IntSoftmax, IntNorm, DenseIntNorm,
    ]  # fmt: skip
