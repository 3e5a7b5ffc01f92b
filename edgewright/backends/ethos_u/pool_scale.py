"""Means that are pooled in 8 bits keep their input's scale, where nobody would notice a finer one.

A pool rounds to its input's steps. Storing the result in finer ones is one more operation that adds nothing, if only
convolutions and products read it: they take any scale.
"""

from __future__ import annotations

from typing import Any

from edgewright.backends.ethos_u.pool import pools_in_two_steps
from edgewright.backends.table import over
from edgewright.ir.graph import Graph, Op, Value

_NAMES = ("view", "reshape", "flatten", "squeeze", "unsqueeze", "dropout", "clone")  # the same integers, reshaped
_PRODUCTS = ("linear", "conv1d", "conv2d")


def coarsen_means(graph: Graph, target: Any) -> None:
    """Let means of images be stored as their input is, if all that read them are products."""
    readers: dict[Value, list[Op]] = {}
    for op in graph.ops:
        for value in op.inputs():
            readers.setdefault(value, []).append(op)
    returned = set(graph.outputs)
    for op in graph.ops:
        x, out = op.args.get("self"), op.outputs[0]
        if not isinstance(x, Value) or out is None or "limits" in op.args or not _of_images(op):
            continue
        chain = _chain(out, readers, returned)
        if chain is not None and pools_in_two_steps(x, out, x.bound[-2:], target):
            for value in chain:
                value.q = x.q


def _of_images(op: Op) -> bool:
    if op.kind == "adaptive_avg_pool2d":
        return list(op.args["output_size"]) == [1, 1]
    return op.kind == "mean" and len(op.args["self"].shape) == 4 and over(op) == [2, 3]


def _chain(value: Value, readers: dict[Value, list[Op]], returned: set[Value]) -> list[Value] | None:
    """A value and its other shapes, if nothing but products reads any of them."""
    if value in returned:
        return None
    found = [value]
    for op in readers.get(value, []):
        if op.kind in _PRODUCTS and op.args["input"] is value:
            continue
        out = op.outputs[0] if op.kind in _NAMES else None
        more = _chain(out, readers, returned) if out is not None and out.q == value.q else None
        if more is None:
            return None
        found += more
    return found
