"""What a graph is made of, in one name: for graphs that no blob stands for."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.engine.jit.cache import cache_key
from edgewright.ir.graph import Graph, Value

_MOST = 32 << 20  # bytes of constants: plans of larger ones are not kept


def graph_digest(graph: Graph) -> str | None:
    """A digest of operators, shapes, constants and what becomes of results; None if there is too much to look at.

    Names of values do not count.
    """
    constants = {v for op in graph.ops for v in op.inputs() if v.constant}
    if sum(v.nbytes for v in constants) > _MOST:
        return None
    numbers: dict[Value, int] = {}
    parts: list[str | memoryview] = []

    def told(given: Any) -> Any:
        if isinstance(given, list | tuple):
            return [told(g) for g in given]
        if isinstance(given, np.ndarray):  # its text leaves out most of a long one
            parts.append(np.ascontiguousarray(given).reshape(-1).view(np.uint8).data)
            return ("array", str(given.dtype), given.shape)
        if not isinstance(given, Value):
            return given
        if given not in numbers:
            numbers[given] = len(numbers)
            parts.append(f"{given.dtype} {given.shape} {given.dim_order} {given.q} {given.constant}")
            if given.constant:
                parts.append(np.ascontiguousarray(given.data).reshape(-1).view(np.uint8).data)
        return ("value", numbers[given])

    parts.append(repr(told(graph.inputs)))
    for op in graph.ops:
        listed = {name: told(given) for name, given in op.args.items()}
        parts.append(f"{op.kind} {listed} {told(op.outputs)}")
    parts.append(repr(told([graph.outputs, graph.updates])))
    return cache_key(*parts)
