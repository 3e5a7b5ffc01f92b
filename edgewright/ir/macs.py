"""Multiply-accumulate counts, the weights of coverage."""

from __future__ import annotations

import math

from edgewright.ir.graph import Op, Value


def count_macs(op: Op) -> int:
    """Multiply-accumulates of an operator at its largest shapes; 0 for anything but products."""
    out, weight = (op.outputs[0] if op.outputs else None), op.args.get("weight")
    if out is None:
        return 0
    size = math.prod(out.bound)
    if op.kind.startswith("conv") and isinstance(weight, Value):
        if op.args.get("transposed"):
            image: Value = op.args["input"]
            return math.prod(image.bound) * math.prod(weight.bound[1:])
        return size * math.prod(weight.bound[1:])
    if op.kind == "linear" and isinstance(weight, Value):
        return size * weight.bound[-1]
    if op.kind in ("mm", "bmm", "addmm", "matmul"):
        left = op.args.get("mat1", op.args.get("self"))
        return size * (left.bound[-1] if isinstance(left, Value) and left.bound else 1)
    return 0
