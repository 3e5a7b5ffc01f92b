"""Splits long chains of 8-bit functions, on which XNNPACK crashes.

XNNPACK replaces a chain of nodes that computes a function of one 8-bit value by a lookup table. It evaluates the chain
in a subgraph on its stack that has room for nine nodes, and frees the stack's memory if there are more (seen in the
runtime of ExecuTorch 1.5.1; ``xnn_subgraph_fuse_unary_quantized_into_lut``). A transposition that moves nothing ends a
chain: it costs a copy of the tensor on the device, and nothing here.
"""

from __future__ import annotations

import math
from dataclasses import replace

from edgewright.backends.xnnpack.nodes import NODES
from edgewright.backends.xnnpack.tables import Binary, Sloped, Unary
from edgewright.ir.graph import Graph, Op, Value

_LONGEST = 8
_OTHERS = ("softmax", "global_avg_pool2d", "bmm")  # that are written like them
_ELEMENTWISE = {node.op for node in NODES if node.table in (Unary, Sloped, Binary)}.difference(_OTHERS)


def split_chains(graph: Graph) -> None:
    """Insert transpositions so that no chain has more than ``_LONGEST`` nodes."""
    lengths: dict[Value, int] = {v: 0 for v in graph.inputs if _byte(v)}
    ops: list[Op] = []
    for op in graph.ops:
        source = _only_input(op)
        before = None if source is None else lengths.get(source)
        if source is not None and before is not None and before + _nodes(op) > _LONGEST and source.shape:
            moved = replace(source, name=f"{source.name}_split")
            ops.append(Op("permute", {"self": source, "dims": list(range(len(source.shape)))}, [moved], op.origin))
            op.args = {name: moved if value is source else value for name, value in op.args.items()}
            before = 0
        ops.append(op)
        for out in op.outputs:
            if out is not None and before is not None:
                lengths[out] = before + _nodes(op)
            elif out is not None and _byte(out):
                lengths[out] = 0
    graph.ops = ops


def _nodes(op: Op) -> int:
    """XNNPACK makes a node of its own for the limits of a sum or a product."""
    return 2 if op.kind != "clamp" and op.args.get("limits") else 1


def _byte(value: Value) -> bool:
    return value.q is not None and value.q.dtype.itemsize == 1 and value.q.dynamic is None


def _only_input(op: Op) -> Value | None:
    """The value that an element-wise operator is a function of, if there is one; numbers belong to the function."""
    inputs = {v for v in op.inputs() if not (v.constant and math.prod(v.bound) == 1)}
    return next(iter(inputs)) if op.kind in _ELEMENTWISE and len(inputs) == 1 else None
