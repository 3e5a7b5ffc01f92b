"""How tensors are stored: which values integers keep, and when two hold the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from edgewright.ir.graph import Graph, Op, QParams, Value
from edgewright.lowering.passes.constant_folding import stored
from edgewright.lowering.passes.qdq_params import is_conversion, known_parameters


def activation_limits(name: str, op: Op) -> tuple[float, float] | None:
    """The range an activation keeps values in, or None if it does more than that."""
    if name == "relu":
        return (0.0, float("inf"))
    if name == "relu6":
        return (0.0, 6.0)
    if name == "hardtanh":
        return (float(op.args["min_val"]), float(op.args["max_val"]))
    if name == "clamp":
        low, high = op.args.get("min"), op.args.get("max")
        if isinstance(low, Value) or isinstance(high, Value):
            return None
        return (-float("inf") if low is None else float(low), float("inf") if high is None else float(high))
    return None


def stored_alike(a: Value, b: Value) -> bool:
    """True if two tensors have the same integers for the same values."""
    if a.q is None or b.q is None:
        return a.dtype == b.dtype and a.q is b.q
    return (a.q.scale, a.q.zero_point, a.q.dtype) == (b.q.scale, b.q.zero_point, b.q.dtype)


def kept_by_storage(q: QParams | None, limits: tuple[float, float]) -> bool:
    """True if integers cannot hold anything beyond limits, but for half a step."""
    if q is None or not isinstance(q.scale, float) or not isinstance(q.zero_point, int):
        return False
    ends = [(n - q.zero_point) * q.scale for n in (q.qmin, q.qmax)]
    return ends[0] >= limits[0] - q.scale / 2 and ends[1] <= limits[1] + q.scale / 2


def store_constants(graph: Graph) -> None:
    """Weights that were left real, with their conversion behind them (``convert_pt2e(fold_quantize=False)``), become
    the integers they will be."""
    kept = []
    for op in graph.ops:
        q = known_parameters(op) if is_conversion(op, "quantize") and op.args["input"].constant else None
        out = op.outputs[0]
        if q is None or q.block or out is None:
            kept.append(op)
        else:
            out.data = stored(op.args["input"].data, q).astype(out.dtype)
    graph.ops = kept


def by_channel(weight: Value, port: Any) -> Value:
    """A weight with one scale for all, as one with a scale per channel."""
    q = weight.q
    if q is None or q.axis is not None or isinstance(q.scale, tuple) or isinstance(q.zero_point, tuple):
        return weight
    count = weight.bound[port.axis]
    spread = replace(q, scale=(q.scale,) * count, zero_point=(q.zero_point,) * count, axis=port.axis)
    return replace(weight, q=spread)
