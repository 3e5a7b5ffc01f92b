"""Partition to TFLite device graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgewright.backends.nxp.lower import NeutronLowering
from edgewright.ir.aten.ops import OPS
from edgewright.ir.graph import Graph, verify
from edgewright.lowering.passes import apply
from edgewright.lowering.passes.constant_folding import fold_constants


def to_tflite(group: Graph, rows: Mapping[str, Any], target: Any = None) -> Graph:
    """Lower a partition and eliminate dead operators."""
    apply(group, lambda graph: fold_constants(graph, OPS))
    device = NeutronLowering(group, rows, target).run()
    _eliminate_dead_ops(device)
    verify(device)
    return device


def _eliminate_dead_ops(graph: Graph) -> None:
    """Flattening may have produced an image in a dimension order that no operator uses."""
    live = set(graph.outputs)
    ops = []
    for op in reversed(graph.ops):
        if any(o in live for o in op.outputs):
            ops.append(op)
            live |= set(op.inputs())
    graph.ops = ops[::-1]
