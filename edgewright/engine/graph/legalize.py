"""Operators that have no kernel, in the words of others that do. What is made is the same, bit for bit, but for reals
that are not finite.

- Several filters for each channel: each channel is repeated as often.
- A transposed convolution whose filters have gaps: the gaps are filled with zeros.
- Groups of few channels of bytes: filters over all channels, zeros outside their own group.
- Images that are quantized by their own range as they come: integers held as reals, multiplied as such.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.engine.graph.dynamic_quantization import is_dynamically_quantized, supports_dynamic_rows
from edgewright.ir.core.dynamic_conv import is_core_pointwise_gemm
from edgewright.ir.graph import Array, Graph, Op, Value

_F32 = np.dtype(np.float32)
_LARGEST = 1 << 24  # bytes of filters over all channels


def legalize(graph: Graph) -> Graph:
    """The graph itself, if nothing of it needs other words."""
    words = _Words(graph)
    found = [words.rewritten(op) for op in graph.ops]
    if all(ops is None for ops in found):
        return graph
    made = [o for op, ops in zip(graph.ops, found, strict=True) for o in ([op] if ops is None else ops)]
    read = {v for op in made for v in op.inputs()} | set(graph.outputs)
    idle = [op for op in made if op.kind == "convert" and not any(v in read for v in op.outputs)]
    return Graph(graph.name, graph.inputs, graph.outputs, [op for op in made if op not in idle])


class _Words:
    def __init__(self, graph: Graph) -> None:
        self.makers = {v: op for op in graph.ops for v in op.outputs if v is not None}

    def rewritten(self, op: Op) -> list[Op] | None:
        """The operators that take its place, or None."""
        weight = op.args.get("weight")
        if op.kind not in ("conv2d", "depthwise_conv2d", "conv_transpose2d") or not isinstance(weight, Value):
            return None
        if weight.data is None or "scaling" in op.args:
            return None
        return _multiplied(op) or _filled(op) or _joined(op) or self._measured(op)

    def _measured(self, op: Op) -> list[Op] | None:
        x, weight, out = op.args["input"], op.args["weight"], op.outputs[0]
        maker, q = self.makers.get(x), weight.q
        if (
            op.kind != "conv2d"
            or not is_dynamically_quantized(x)
            or supports_dynamic_rows(op)
            or maker is None
            or out is None
            or q is None
        ):
            return None
        plain = q.block is None and q.dtype == np.dtype(np.int8) and out.q is None and out.dtype == _F32
        real = maker.args["self"]
        if (
            maker.kind != "convert"
            or not plain
            or real.q is not None
            or real.dtype != _F32
            or is_core_pointwise_gemm(op)
        ):
            return None
        return _Reals().convolution(op, real, -(x.q.axis or -1), out)


def _multiplied(op: Op) -> list[Op] | None:
    x, groups = op.args["input"], int(op.args["groups"])
    if op.kind != "depthwise_conv2d" or op.args["weight"].bound[3] <= groups or len(x.bound) != 4:
        return None
    times = op.args["weight"].bound[3] // groups
    shapes = [(*x.bound, 1), (*x.bound, times), (*x.bound[:3], groups * times)]
    values = [replace(x, shape=s, dim_order=tuple(range(len(s)))) for s in shapes]
    made = [
        Op("view", {"self": x, "size": list(shapes[0])}, [values[0]]),
        Op("expand", {"self": values[0], "size": list(shapes[1]), "implicit": False}, [values[1]]),
        Op("view", {"self": values[1], "size": list(shapes[2])}, [values[2]]),
    ]
    args = {**op.args, "input": values[2], "groups": groups * times}
    return [*made, Op(op.kind, args, list(op.outputs), op.origin)]


def _with_weight(op: Op, data: Array, **changed: Any) -> list[Op]:
    weight = replace(op.args["weight"], shape=data.shape, data=data)
    return [Op(op.kind, {**op.args, "weight": weight, **changed}, list(op.outputs), op.origin)]


def _centred(weight: Value) -> bool:
    """Whether a stored 0 is a 0."""
    return weight.q is None or (weight.q.block is None and not np.any(weight.q.zero_point))


def _filled(op: Op) -> list[Op] | None:
    dilation, data = [int(d) for d in op.args["dilation"]], np.asarray(op.args["weight"].data)
    if op.kind != "conv_transpose2d" or dilation == [1, 1] or not _centred(op.args["weight"]):
        return None
    sizes = [d * (k - 1) + 1 for d, k in zip(dilation, data.shape[1:3], strict=True)]
    if data.nbytes // max(1, data.shape[1] * data.shape[2]) * sizes[0] * sizes[1] > _LARGEST:
        return None
    wide = np.zeros((data.shape[0], *sizes, data.shape[3]), data.dtype)
    wide[:, :: dilation[0], :: dilation[1]] = data
    (made,) = _with_weight(op, wide, dilation=[1, 1])
    return _joined(made) or [made]


def _joined(op: Op) -> list[Op] | None:
    groups, data = int(op.args["groups"]), np.asarray(op.args["weight"].data)
    x = op.args["input"]
    narrow = op.kind in ("conv2d", "conv_transpose2d") and groups > 1 and data.shape[0] // groups % 16 != 0
    if (
        not narrow
        or data.dtype != np.dtype(np.int8)
        or x.q is None
        or is_dynamically_quantized(x)
        or not _centred(op.args["weight"])
    ):
        return None
    if data.nbytes * groups > _LARGEST:
        return None
    each, inputs = data.shape[0] // groups, data.shape[3]
    wide = np.zeros((*data.shape[:3], inputs * groups), data.dtype)
    for g in range(groups):
        wide[g * each : (g + 1) * each, :, :, g * inputs : (g + 1) * inputs] = data[g * each : (g + 1) * each]
    return _with_weight(op, wide, groups=1)


class _Reals:
    """Operators on single precision, one after the other."""

    def __init__(self) -> None:
        self.ops: list[Op] = []

    def do(self, kind: str, shape: Sequence[int], args: dict[str, Any], dtype: Any = _F32) -> Value:
        value = Value("v", np.dtype(dtype), tuple(shape), tuple(range(len(shape))))
        self.ops.append(Op(kind, args, [value]))
        return value

    def two(self, kind: str, a: Value, b: Any, dtype: Any = _F32) -> Value:
        other = b if isinstance(b, Value) else _constant(b)
        return self.do(kind, np.broadcast_shapes(a.bound, other.bound), {"self": a, "other": other}, dtype)

    def where(self, condition: Value, yes: Any, no: Any) -> Value:
        held = [v if isinstance(v, Value) else _constant(v) for v in (yes, no)]
        return self.do("where", condition.bound, {"condition": condition, "self": held[0], "other": held[1]})

    def convolution(self, op: Op, x: Value, dims: int, out: Value) -> list[Op]:
        """As ``Numerics.quantize_rows`` has it, step by step."""
        rank = len(x.bound)
        axes, kept = list(range(rank - dims, rank)), (*x.bound[: rank - dims], *(1,) * dims)
        along = {"self": x, "dim": axes, "keepdim": True}
        low = self.two("minimum", self.do("amin", kept, along), 0)
        high = self.two("maximum", self.do("amax", kept, along), 0)
        none = self.two("eq", low, high, np.bool_)
        span = self.where(none, 1, self.two("sub", high, low))
        scale = self.where(none, 1, self.two("div", _constant(255), span))
        centred = self._centred(x, low, high, scale)
        weight = op.args["weight"]
        data = np.ascontiguousarray(np.asarray(weight.data).astype(np.float32))
        args = {**op.args, "input": centred, "weight": _constant(data), "bias": None, "exact": True}
        args.pop("limits", None)
        total = self.do("conv2d", out.bound, args)
        shares = self.do("reciprocal", kept, {"self": scale})
        scales = np.broadcast_to(np.asarray(weight.q.scale, np.float32), (out.bound[-1],)) if weight.q else None
        real = self.two("mul", self.two("mul", total, shares), np.ascontiguousarray(scales))
        bias = op.args.get("bias")
        last = {"self": real, "other": bias if bias is not None else _constant(0)}
        if op.args.get("limits") is not None:
            last["limits"] = op.args["limits"]
        return [*self.ops, Op("add", last, [out], op.origin)]

    def _centred(self, x: Value, low: Value, high: Value, scale: Value) -> Value:
        below, above = self.two("mul", low, scale), self.two("mul", high, scale)
        first, second = self.two("add", below, -128), self.two("add", above, 127)
        positive = self.two("gt", self.two("add", first, second), 0, np.bool_)
        zeros = [self.two("sub", self.do("neg", v.bound, {"self": v}), -n) for v, n in ((below, -128), (above, 127))]
        chosen = self.where(positive, *zeros)
        zero = self._rounded(self._byte(chosen))
        stored = self._byte(self.two("add", self._rounded(self.two("mul", x, scale)), zero))
        return self.two("sub", stored, zero)

    def _byte(self, x: Value) -> Value:
        return self.two("minimum", self.two("maximum", x, -128), 127)

    def _rounded(self, x: Value) -> Value:
        return self.do("round", x.bound, {"self": x})


def _constant(data: Any) -> Value:
    held = np.asarray(data, np.float32)
    return Value("v", _F32, held.shape, tuple(range(held.ndim)), held)
