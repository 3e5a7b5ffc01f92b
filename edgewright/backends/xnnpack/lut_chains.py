"""Splits long chains of 8-bit elementwise operators, on which XNNPACK crashes.

A chain of elementwise nodes that depends on one 8-bit value has only 256 possible inputs, so XNNPACK replaces it by a
256-entry lookup table (``xnn_subgraph_fuse_unary_quantized_into_lut`` in ``src/subgraph.c``). To fill the table it
evaluates the chain in a temporary subgraph with a node array on the stack that has room for nine nodes; a longer chain
makes it free that stack memory (observed with the runtime of ExecuTorch 1.5.1). An identity transpose ends a chain: it
costs one copy of the tensor on the device, and nothing on the host, where it is removed.
"""

from __future__ import annotations

import math
from dataclasses import replace

from edgewright.backends.xnnpack.nodes import NODES
from edgewright.backends.xnnpack.tables import Binary, Unary, UnaryWithParam
from edgewright.ir.graph import Graph, Op, Value

_MAX_CHAIN = 8
_NOT_ELEMENTWISE = ("core.softmax", "core.global_avg_pool2d", "core.bmm")  # same node tables, but not elementwise
_ELEMENTWISE = {node.kind for node in NODES if node.table in (Unary, UnaryWithParam, Binary)}.difference(
    _NOT_ELEMENTWISE
)


def split_chains(graph: Graph) -> None:
    """Insert identity transposes so that no chain has more than ``_MAX_CHAIN`` nodes."""
    lengths: dict[Value, int] = {v: 0 for v in graph.inputs if _is_8bit(v)}
    ops: list[Op] = []
    for op in graph.ops:
        source = _single_input(op)
        length = None if source is None else lengths.get(source)
        if source is not None and length is not None and length + _node_count(op) > _MAX_CHAIN and source.shape:
            copy = replace(source, name=f"{source.name}_split")
            ops.append(Op("core.permute", {"self": source, "dims": list(range(len(source.shape)))}, [copy], op.origin))
            op.args = {name: copy if value is source else value for name, value in op.args.items()}
            length = 0
        ops.append(op)
        for out in op.outputs:
            if out is not None and length is not None:
                lengths[out] = length + _node_count(op)
            elif out is not None and _is_8bit(out):
                lengths[out] = 0
    graph.ops = ops


def _node_count(op: Op) -> int:
    """XNNPACK adds a separate clamp node for the output limits of a sum or a product."""
    return 2 if op.kind != "core.clamp" and op.args.get("limits") else 1


def _is_8bit(value: Value) -> bool:
    return value.q is not None and value.q.dtype.itemsize == 1 and value.q.dynamic is None


def _single_input(op: Op) -> Value | None:
    """The one value that an elementwise operator depends on, or None; scalar constants do not count."""
    inputs = {v for v in op.inputs() if not (v.constant and math.prod(v.bound) == 1)}
    return next(iter(inputs)) if op.kind in _ELEMENTWISE and len(inputs) == 1 else None
