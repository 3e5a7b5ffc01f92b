"""Lowerings of vendors' operators that the engine has none of its own for."""

from __future__ import annotations

from functools import cache

from edgewright.engine.nodes import Node
from edgewright.engine.ops.base import Context, Lowering


class Vendor(Lowering):
    """Chooses among them; they are loaded when the first is met, as most graphs have none."""

    @classmethod
    def accept(cls, node: Node, context: Context) -> Lowering | None:
        op = node.op
        if "." not in op.kind and "scaling" not in op.args:
            return None
        return next((made for kind in _lowerings() if (made := kind.accept(node, context)) is not None), None)


@cache
def _lowerings() -> list[type[Lowering]]:
    from edgewright.engine.ops.argmax import ArgMax
    from edgewright.engine.ops.conversions import EnnConversion
    from edgewright.engine.ops.folds import Folded
    from edgewright.engine.ops.lookups import Lookup
    from edgewright.engine.ops.mixes import Mixed
    from edgewright.engine.ops.pairs import WholeMatMul
    from edgewright.engine.ops.picks import Picked
    from edgewright.engine.ops.places import Laid, Taken
    from edgewright.engine.ops.rescales import QnnConversion
    from edgewright.engine.ops.softmax8 import ByteSoftmax
    from edgewright.engine.ops.sums import Sums
    from edgewright.engine.ops.wholerows import DenseNorm, WholeNorm, WholeSoftmax
    from edgewright.engine.ops.wholes import WholeMap
    from edgewright.engine.ops.words import WordDepthwise, WordProduct

    return [WordProduct, WordDepthwise, WholeMap, Lookup, QnnConversion, Folded, ByteSoftmax, WholeMatMul, Picked,
            Mixed, Taken, Laid, ArgMax, Sums, EnnConversion, WholeSoftmax, WholeNorm, DenseNorm]  # fmt: skip
