"""Structural digest of a graph: the plan cache key of graphs that were not read from a blob."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.engine.jit.cache import cache_key
from edgewright.ir.graph import Graph, Value
from edgewright.ir.layer_names import layer_of

_MAX_CONSTANTS = 32 << 20  # bytes: hashing more costs too much


def graph_digest(graph: Graph) -> str | None:
    """Digest operators with their layers, shapes, constants, outputs and updates; None if the constants are too large.

    Value names do not contribute: values are numbered in order of first appearance.
    """
    constants = {v for op in graph.ops for v in op.inputs() if v.constant}
    if sum(v.nbytes for v in constants) > _MAX_CONSTANTS:
        return None
    numbers: dict[Value, int] = {}
    parts: list[str | memoryview] = []

    def encode(argument: Any) -> Any:
        if isinstance(argument, list | tuple):
            return [encode(g) for g in argument]
        if isinstance(argument, np.ndarray):  # repr() abbreviates long arrays
            parts.append(np.ascontiguousarray(argument).reshape(-1).view(np.uint8).data)
            return ("array", str(argument.dtype), argument.shape)
        if not isinstance(argument, Value):
            return argument
        if argument not in numbers:
            numbers[argument] = len(numbers)
            parts.append(f"{argument.dtype} {argument.shape} {argument.dim_order} {argument.q} {argument.constant}")
            if argument.constant:
                parts.append(np.ascontiguousarray(argument.data).reshape(-1).view(np.uint8).data)
        return ("value", numbers[argument])

    parts.append(repr(encode(graph.inputs)))
    for op in graph.ops:
        args = {name: encode(argument) for name, argument in op.args.items()}
        parts.append(f"{op.kind} {args} {encode(op.outputs)} {layer_of(op.origin)}")  # steps are named after layers
    parts.append(repr(encode([graph.outputs, graph.updates])))
    return cache_key(*parts)
