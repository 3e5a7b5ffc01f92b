"""Keeps products of a transposed value with itself as they are, which XNNPACK computes wrongly.

XNNPACK drops the transpose before the second operand of a batch matrix product, if nothing else reads its result, and
sets ``XNN_FLAG_TRANSPOSE_B`` instead. Where both operands are the same transposed value it does so for any permutation
of dimensions: the product is another one (observed with the runtime of ExecuTorch 1.5.1). The second operand therefore
becomes a copy. Two negations make one that XNNPACK does not remove, as it does an identity transpose, and that may have
several dynamic sizes, as a reshape may not.
"""

from __future__ import annotations

from dataclasses import replace

from edgewright.ir.graph import Graph, Op


def separate_operands(graph: Graph) -> None:
    """Copy the second operand of every product of a transposed value with itself."""
    transposed = {op.outputs[0] for op in graph.ops if op.kind == "core.permute"}
    ops: list[Op] = []
    for op in graph.ops:
        value = op.args.get("self")
        if op.kind == "core.bmm" and value is op.args["other"] and value in transposed:
            negated, copy = (replace(value, name=f"{value.name}_{name}") for name in ("negated", "copy"))
            ops.append(Op("core.neg", {"self": value}, [negated], op.origin))
            ops.append(Op("core.neg", {"self": negated}, [copy], op.origin))
            op.args = {**op.args, "other": copy}
        ops.append(op)
    graph.ops = ops
