"""Dim orders of results of permute, squeeze and unsqueeze, from those of their operands."""

from __future__ import annotations

import numpy as np

from edgewright.ir.aten.ops import OPS
from edgewright.ir.graph import Op
from edgewright.lowering.passes.layout import Order


def permuted_order(op: Op, order: Order) -> Order:
    """For ``permute``, ``transpose`` and ``t``: evaluated by the op table on dimensions of distinct sizes."""
    rank = len(op.args["self"].shape)
    sizes = OPS[op.kind].call({**op.args, "self": np.zeros([2 + d for d in range(rank)])})[0].shape
    names = {size - 2: position for position, size in enumerate(sizes)}
    return tuple(names[d] for d in order)


def squeezed_order(op: Op, order: Order) -> Order:
    """For ``squeeze`` and ``unsqueeze``: size-1 dimensions disappear or appear; the others keep their order."""
    x, out = op.args["self"], op.outputs[0]
    assert out is not None
    rank = len(x.shape)
    if len(out.shape) > rank:
        dim = op.args["dim"] % (rank + 1)
        shifted = [d + (d >= dim) for d in order]
        return (*shifted[:dim], dim, *shifted[dim:])
    dim_arg = op.args.get("dim")
    dims = range(rank) if dim_arg is None else dim_arg if isinstance(dim_arg, list | tuple) else [dim_arg]
    removed = {d % rank for d in dims if x.bound[d] == 1} if rank else set()
    return tuple(d - sum(g < d for g in removed) for d in order if d not in removed)
