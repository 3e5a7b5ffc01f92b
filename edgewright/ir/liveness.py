"""Liveness of tensors, and peak memory."""

from __future__ import annotations

from collections.abc import Callable

from edgewright.ir.graph import Graph, Op, Value


def last_uses(graph: Graph) -> dict[Op, list[Value]]:
    """Map each operator to the values whose last use it is; graph outputs stay live."""
    outputs = set(graph.outputs)
    dead: dict[Op, list[Value]] = {op: [] for op in graph.ops}
    for value, reader in {v: op for op in graph.ops for v in op.inputs()}.items():
        if value not in outputs:
            dead[reader].append(value)
    return dead


def peak_memory(graph: Graph, bytes_of: Callable[[Value], int] = lambda value: value.nbytes) -> int:
    """The maximum number of bytes that are live at once."""
    last = {v: i for i, op in enumerate(graph.ops) for v in op.inputs() if not v.constant}
    last.update({v: len(graph.ops) for v in graph.outputs})
    live = {v: bytes_of(v) for v in graph.inputs}
    peak: int = sum(live.values())
    for index, op in enumerate(graph.ops):
        live.update({v: bytes_of(v) for v in op.outputs if v is not None})
        peak = max(peak, sum(live.values()))
        live = {key: size for key, size in live.items() if last.get(key, -1) > index}
    return peak
