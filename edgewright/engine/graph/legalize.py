"""Legalization: rewrite operators without a kernel in terms of operators that have one. Results are bit-exact, except
for non-finite floats.

- Depthwise convolution with a channel multiplier: repeat each input channel.
- Dilated transposed convolution: insert zeros between the filter taps.
- Grouped int8 convolution with few channels per group: dense filters, zero outside their own group.
- Dynamically quantized image: quantize to integers held in float32, and convolve those exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.engine.graph.dynamic_quantization import is_dynamically_quantized, supports_dynamic_rows
from edgewright.ir.core.conv import is_core_pointwise_gemm
from edgewright.ir.graph import Array, Graph, Op, Value

_F32 = np.dtype(np.float32)
_MAX_FILTER_BYTES = 1 << 24  # of expanded filters


def legalize(graph: Graph) -> Graph:
    """Rewrite the graph; return it unchanged if every operator is legal."""
    legalizer = _Legalizer(graph)
    rewritten = [legalizer.rewrite(op) for op in graph.ops]
    if all(ops is None for ops in rewritten):
        return graph
    ops = [o for op, new in zip(graph.ops, rewritten, strict=True) for o in ([op] if new is None else new)]
    read = {v for op in ops for v in op.inputs()} | set(graph.outputs)
    unused = [op for op in ops if op.kind == "core.convert" and not any(v in read for v in op.outputs)]
    return Graph(graph.name, graph.inputs, graph.outputs, [op for op in ops if op not in unused])


class _Legalizer:
    def __init__(self, graph: Graph) -> None:
        self.makers = {v: op for op in graph.ops for v in op.outputs if v is not None}

    def rewrite(self, op: Op) -> list[Op] | None:
        """The replacement of an operator, or None if it is legal."""
        weight = op.args.get("weight")
        if op.kind not in ("core.conv2d", "core.depthwise_conv2d", "core.conv_transpose2d") or not isinstance(
            weight, Value
        ):
            return None
        if weight.data is None or "scaling" in op.args:
            return None
        return (
            _expand_channel_multiplier(op)
            or _expand_dilation(op)
            or _expand_groups(op)
            or self._expand_dynamic_quantization(op)
        )

    def _expand_dynamic_quantization(self, op: Op) -> list[Op] | None:
        x, weight, out = op.args["input"], op.args["weight"], op.outputs[0]
        maker, q = self.makers.get(x), weight.q
        if (
            op.kind != "core.conv2d"
            or not is_dynamically_quantized(x)
            or supports_dynamic_rows(op)
            or maker is None
            or out is None
            or q is None
        ):
            return None
        supported = q.block is None and q.dtype == np.dtype(np.int8) and out.q is None and out.dtype == _F32
        source = maker.args["self"]
        if (
            maker.kind != "core.convert"
            or not supported
            or source.q is not None
            or source.dtype != _F32
            or is_core_pointwise_gemm(op)
        ):
            return None
        return _FloatBuilder().convolution(op, source, -(x.q.axis or -1), out)


def _expand_channel_multiplier(op: Op) -> list[Op] | None:
    x, groups = op.args["input"], int(op.args["groups"])
    if op.kind != "core.depthwise_conv2d" or op.args["weight"].bound[3] <= groups or len(x.bound) != 4:
        return None
    times = op.args["weight"].bound[3] // groups
    shapes = [(*x.bound, 1), (*x.bound, times), (*x.bound[:3], groups * times)]
    values = [replace(x, shape=s, dim_order=tuple(range(len(s)))) for s in shapes]
    ops = [
        Op("core.view", {"self": x, "size": list(shapes[0])}, [values[0]]),
        Op("core.expand", {"self": values[0], "size": list(shapes[1])}, [values[1]]),
        Op("core.view", {"self": values[1], "size": list(shapes[2])}, [values[2]]),
    ]
    args = {**op.args, "input": values[2], "groups": groups * times}
    return [*ops, Op(op.kind, args, list(op.outputs), op.origin)]


def _with_weight(op: Op, data: Array, **changed: Any) -> list[Op]:
    weight = replace(op.args["weight"], shape=data.shape, data=data)
    return [Op(op.kind, {**op.args, "weight": weight, **changed}, list(op.outputs), op.origin)]


def _is_symmetric(weight: Value) -> bool:
    """Whether a stored 0 means 0."""
    return weight.q is None or (weight.q.block is None and not np.any(weight.q.zero_point))


def _expand_dilation(op: Op) -> list[Op] | None:
    dilation, data = [int(d) for d in op.args["dilation"]], np.asarray(op.args["weight"].data)
    if op.kind != "core.conv_transpose2d" or dilation == [1, 1] or not _is_symmetric(op.args["weight"]):
        return None
    sizes = [d * (k - 1) + 1 for d, k in zip(dilation, data.shape[1:3], strict=True)]
    if data.nbytes // max(1, data.shape[1] * data.shape[2]) * sizes[0] * sizes[1] > _MAX_FILTER_BYTES:
        return None
    expanded = np.zeros((data.shape[0], *sizes, data.shape[3]), data.dtype)
    expanded[:, :: dilation[0], :: dilation[1]] = data
    (dense,) = _with_weight(op, expanded, dilation=[1, 1])
    return _expand_groups(dense) or [dense]


def _expand_groups(op: Op) -> list[Op] | None:
    groups, data = int(op.args["groups"]), np.asarray(op.args["weight"].data)
    x = op.args["input"]
    narrow = op.kind in ("core.conv2d", "core.conv_transpose2d") and groups > 1 and data.shape[0] // groups % 16 != 0
    if (
        not narrow
        or data.dtype != np.dtype(np.int8)
        or x.q is None
        or is_dynamically_quantized(x)
        or not _is_symmetric(op.args["weight"])
    ):
        return None
    if data.nbytes * groups > _MAX_FILTER_BYTES:
        return None
    outputs, inputs = data.shape[0] // groups, data.shape[3]
    expanded = np.zeros((*data.shape[:3], inputs * groups), data.dtype)
    for g in range(groups):
        expanded[g * outputs : (g + 1) * outputs, :, :, g * inputs : (g + 1) * inputs] = data[
            g * outputs : (g + 1) * outputs
        ]
    return _with_weight(op, expanded, groups=1)


class _FloatBuilder:
    """Appends float32 operators."""

    def __init__(self) -> None:
        self.ops: list[Op] = []

    def add(self, kind: str, shape: Sequence[int], args: dict[str, Any], dtype: Any = _F32) -> Value:
        value = Value("v", np.dtype(dtype), tuple(shape), tuple(range(len(shape))))
        self.ops.append(Op(kind, args, [value]))
        return value

    def binary(self, kind: str, a: Value, b: Any, dtype: Any = _F32) -> Value:
        other = b if isinstance(b, Value) else _constant(b)
        return self.add(kind, np.broadcast_shapes(a.bound, other.bound), {"self": a, "other": other}, dtype)

    def where(self, condition: Value, on_true: Any, on_false: Any) -> Value:
        branches = [v if isinstance(v, Value) else _constant(v) for v in (on_true, on_false)]
        return self.add(
            "core.where", condition.bound, {"condition": condition, "self": branches[0], "other": branches[1]}
        )

    def convolution(self, op: Op, x: Value, dims: int, out: Value) -> list[Op]:
        """Quantize ``x`` with the steps of ``Numerics.quantize_rows``, convolve, and rescale."""
        rank = len(x.bound)
        axes, reduced = list(range(rank - dims, rank)), (*x.bound[: rank - dims], *(1,) * dims)
        reduction = {"self": x, "dim": axes, "keepdim": True}
        low = self.binary("core.minimum", self.add("core.amin", reduced, reduction), 0)
        high = self.binary("core.maximum", self.add("core.amax", reduced, reduction), 0)
        constant_input = self.binary("core.eq", low, high, np.bool_)
        span = self.where(constant_input, 1, self.binary("core.sub", high, low))
        scale = self.where(constant_input, 1, self.binary("core.div", _constant(255), span))
        centered = self._quantize_centered(x, low, high, scale)
        weight = op.args["weight"]
        data = np.ascontiguousarray(np.asarray(weight.data).astype(np.float32))
        args = {**op.args, "input": centered, "weight": _constant(data), "bias": None, "exact": True}
        args.pop("limits", None)
        total = self.add("core.conv2d", out.bound, args)
        inverse_scale = self.add("core.reciprocal", reduced, {"self": scale})
        scales = np.broadcast_to(np.asarray(weight.q.scale, np.float32), (out.bound[-1],)) if weight.q else None
        real = self.binary("core.mul", self.binary("core.mul", total, inverse_scale), np.ascontiguousarray(scales))
        bias = op.args.get("bias")
        bias_add = {"self": real, "other": bias if bias is not None else _constant(0)}
        if op.args.get("limits") is not None:
            bias_add["limits"] = op.args["limits"]
        return [*self.ops, Op("core.add", bias_add, [out], op.origin)]

    def _quantize_centered(self, x: Value, low: Value, high: Value, scale: Value) -> Value:
        below, above = self.binary("core.mul", low, scale), self.binary("core.mul", high, scale)
        first, second = self.binary("core.add", below, -128), self.binary("core.add", above, 127)
        positive = self.binary("core.gt", self.binary("core.add", first, second), 0, np.bool_)
        zeros = [
            self.binary("core.sub", self.add("core.neg", v.bound, {"self": v}), -n)
            for v, n in ((below, -128), (above, 127))
        ]
        zero_point = self.where(positive, *zeros)
        zero = self._round(self._clamp_int8(zero_point))
        quantized = self._clamp_int8(self.binary("core.add", self._round(self.binary("core.mul", x, scale)), zero))
        return self.binary("core.sub", quantized, zero)

    def _clamp_int8(self, x: Value) -> Value:
        return self.binary("core.minimum", self.binary("core.maximum", x, -128), 127)

    def _round(self, x: Value) -> Value:
        return self.add("core.round", x.bound, {"self": x})


def _constant(data: Any) -> Value:
    array = np.asarray(data, np.float32)
    return Value("v", _F32, array.shape, tuple(range(array.ndim)), array)
