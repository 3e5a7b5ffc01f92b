"""TOSA 1.0 as a dialect: one table of operators with operands, shapes, types and definitions.

TOSA defines the rounding, so there is one set of numerics. Imports no torch, no vendor code.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from edgewright.backends.ethos_u.dialect import int_rules  # noqa: F401  (registers definitions)
from edgewright.backends.ethos_u.dialect.check import check_row
from edgewright.backends.ethos_u.dialect.numerics import TOSA_NUMERICS
from edgewright.backends.ethos_u.dialect.table import TOSA, TosaOp
from edgewright.ir.core.translated import TranslatedDialect
from edgewright.ir.dialect import array_of
from edgewright.ir.graph import Array, Graph, Op, Value
from edgewright.ir.int_reference import undefined
from edgewright.ir.numerics import Numerics


class TosaDialect(TranslatedDialect):
    """Integer operators are bit-exact."""

    def check_row(self, op: Op, row: TosaOp, memory: int) -> None:
        check_row(op, row, memory)

    def run_remaining(self, op: Op, arrays: Mapping[Value, Array], numerics: Numerics) -> Sequence[Array]:
        row, args = self.row(op.kind), dict[str, Any](op.args)
        if row.reference is None:
            raise undefined(op)
        args |= {name: array_of(args[name], arrays) for name in row.tensors}
        return [row.reference(**args)]

    def to_core(self, graph: Graph, numerics: Numerics) -> Graph:
        from edgewright.backends.ethos_u.dialect.to_core import to_core

        return to_core(graph, numerics)

    def count_macs(self, op: Op) -> int:
        """Of products, which are only translated together with the rescale that follows. Weights are OHWI, depthwise
        ones HWCM."""
        out, weight, left = op.outputs[0], op.args.get("weight"), op.args.get("a")
        size = 0 if out is None else math.prod(out.bound)
        if op.kind == "tosa.matmul" and isinstance(left, Value):
            return size * left.bound[-1]
        if not isinstance(weight, Value):
            return 0
        if op.kind == "tosa.transpose_conv2d":
            return math.prod(op.args["input"].bound) * math.prod(weight.bound[:3])
        return size * math.prod(weight.bound[:2] if op.kind == "tosa.depthwise_conv2d" else weight.bound[1:])


DIALECT = TosaDialect("tosa", "TOSA", TOSA, TOSA_NUMERICS)
