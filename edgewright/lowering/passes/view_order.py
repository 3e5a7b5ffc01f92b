"""Operators that only give dimensions other names: in which order a result is held, if its operand is held in one."""

from __future__ import annotations

import numpy as np

from edgewright.ir.aten.ops import OPS
from edgewright.ir.graph import Op
from edgewright.lowering.passes.layout import Order


def permuted(op: Op, order: Order) -> Order:
    """Of ``permute``, ``transpose`` and ``t``: the op table is asked where dimensions of different sizes go."""
    rank = len(op.args["self"].shape)
    sizes = OPS[op.kind].call({**op.args, "self": np.zeros([2 + d for d in range(rank)])})[0].shape
    names = {size - 2: place for place, size in enumerate(sizes)}
    return tuple(names[d] for d in order)


def squeezed(op: Op, order: Order) -> Order:
    """Of ``squeeze`` and ``unsqueeze``: sizes of 1 go, or come, and the others stay in the order they are in."""
    x, out = op.args["self"], op.outputs[0]
    assert out is not None
    rank = len(x.shape)
    if len(out.shape) > rank:
        dim = op.args["dim"] % (rank + 1)
        raised = [d + (d >= dim) for d in order]
        return (*raised[:dim], dim, *raised[dim:])
    given = op.args.get("dim")
    listed = range(rank) if given is None else given if isinstance(given, list | tuple) else [given]
    gone = {d % rank for d in listed if x.bound[d] == 1} if rank else set()
    return tuple(d - sum(g < d for g in gone) for d in order if d not in gone)
