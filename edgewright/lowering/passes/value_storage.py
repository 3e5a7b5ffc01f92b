"""Storage of quantized values: representable ranges, equal encodings, and constant conversion."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from edgewright.ir.graph import Graph, Op, QParams, Value
from edgewright.lowering.passes.constant_folding import quantize_array
from edgewright.lowering.passes.qdq_params import is_conversion, static_qparams


def _clamp_limits(op: Op) -> tuple[float, float] | None:
    low, high = op.args.get("min"), op.args.get("max")
    if isinstance(low, Value) or isinstance(high, Value):
        return None
    return (-float("inf") if low is None else float(low), float("inf") if high is None else float(high))


_LIMITS: dict[str, Callable[[Op], tuple[float, float] | None]] = {
    "relu": lambda op: (0.0, float("inf")),
    "relu6": lambda op: (0.0, 6.0),
    "hardtanh": lambda op: (float(op.args["min_val"]), float(op.args["max_val"])),
    "clamp": _clamp_limits,
}
CLAMPS = tuple(_LIMITS)  # activations that only clamp: other operators can fuse them


def activation_limits(name: str, op: Op) -> tuple[float, float] | None:
    """The range that an activation clamps to, or None if it does more than clamp."""
    return _LIMITS[name](op) if name in _LIMITS else None


def same_encoding(a: Value, b: Value) -> bool:
    """True if two tensors encode the same values as the same integers."""
    if a.q is None or b.q is None:
        return a.dtype == b.dtype and a.q is b.q
    return (a.q.scale, a.q.zero_point, a.q.dtype) == (b.q.scale, b.q.zero_point, b.q.dtype)


def clamp_is_redundant(q: QParams | None, limits: tuple[float, float]) -> bool:
    """True if the representable range is within ``limits``, up to half a step: the clamp is redundant."""
    represented = representable_range(q)
    if q is None or represented is None:
        return False
    half_step = (represented[1] - represented[0]) / (q.qmax - q.qmin) / 2
    return represented[0] >= limits[0] - half_step and represented[1] <= limits[1] + half_step


def representable_range(q: QParams | None) -> tuple[float, float] | None:
    """The smallest and the largest value of a per-tensor quantized type; None for others."""
    if q is None or not isinstance(q.scale, float) or not isinstance(q.zero_point, int):
        return None
    return (q.qmin - q.zero_point) * q.scale, (q.qmax - q.zero_point) * q.scale


def quantize_constants(graph: Graph) -> None:
    """Quantize float weights that are followed by a quantize node (``convert_pt2e(fold_quantize=False)``)."""
    remaining = []
    for op in graph.ops:
        q = static_qparams(op) if is_conversion(op, "quantize") and op.args["input"].constant else None
        out = op.outputs[0]
        if q is None or q.block or out is None:
            remaining.append(op)
        else:
            out.data = quantize_array(op.args["input"].data, q).astype(out.dtype)
    graph.ops = remaining


def to_per_channel(weight: Value, port: Any) -> Value:
    """A per-tensor quantized weight as a per-channel one."""
    q = weight.q
    if q is None or q.axis is not None or isinstance(q.scale, tuple) or isinstance(q.zero_point, tuple):
        return weight
    count = weight.bound[port.axis]
    per_channel = replace(q, scale=(q.scale,) * count, zero_point=(q.zero_point,) * count, axis=port.axis)
    return replace(weight, q=per_channel)
