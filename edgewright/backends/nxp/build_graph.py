"""A group of operators as a device graph of TFLite's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgewright.backends.nxp.lower import NeutronLowering
from edgewright.ir.aten.ops import OPS
from edgewright.ir.graph import Graph, verify
from edgewright.lowering.passes import apply
from edgewright.lowering.passes.constant_folding import fold_constants


def to_tflite(group: Graph, rows: Mapping[str, Any], target: Any = None) -> Graph:
    """The device graph, with what nobody reads left out."""
    apply(group, lambda graph: fold_constants(graph, OPS))
    device = NeutronLowering(group, rows, target).run()
    _drop_unread(device)
    verify(device)
    return device


def _drop_unread(graph: Graph) -> None:
    """A flattened image may have been made in an order that nobody asked for in the end."""
    wanted = set(graph.outputs)
    kept = []
    for op in reversed(graph.ops):
        if any(o in wanted for o in op.outputs):
            kept.append(op)
            wanted |= set(op.inputs())
    graph.ops = kept[::-1]
