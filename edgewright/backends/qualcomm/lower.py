"""Lowering context that builds a QNN device graph from a partition; every row's lowering uses it.

A node's kind is the name of the QNN operator; ``inputs`` are its tensor operands in order and ``params`` its
parameters: arrays for tensor parameters, numbers for scalar parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.backends.qualcomm.dialect.conv import block_scales
from edgewright.backends.qualcomm.fp16 import cast_boundary
from edgewright.backends.qualcomm.qnn.build import Encoding
from edgewright.ir.graph import Array, Graph, Op, QParams, Value
from edgewright.lowering.passes.layout import GroupLowering, Order, common_order, identity, is_trivial_permutation
from edgewright.lowering.passes.value_storage import clamp_is_redundant, representable_range, same_encoding

INT32, INT64 = np.dtype(np.int32), np.dtype(np.int64)
MIDPOINT = 1 << 15  # 16-bit zero point that some operators require
MAX_INT16_WEIGHT = 32639  # largest 16-bit weight: larger ones gave wrong results in tests


class QnnLowering(GroupLowering):
    """Builds the device graph of one partition."""

    def __init__(self, group: Graph, rows: Mapping[str, Any], target: Any) -> None:
        super().__init__(cast_boundary(group), rows)
        self.target = target
        self._symmetric: dict[Value, Value] = {}

    # ------------------------------------------------------------------------------------------------- wide integers

    def run(self) -> Graph:
        """QNN only casts int64: inputs and outputs of that type are cast, and int32 is used in between."""
        graph = super().run()
        casts: list[Op] = []
        for index, (value, source) in enumerate(zip(self.group.inputs, graph.inputs, strict=True)):
            if value.dtype == INT64:
                graph.inputs[index] = wide = replace(source, dtype=INT64)
                casts.append(Op("Cast", {"inputs": [wide], "params": {}}, [source]))
        graph.ops[:0] = casts
        for index, (value, source) in enumerate(zip(self.group.outputs, graph.outputs, strict=True)):
            if value.dtype == INT64:
                graph.outputs[index] = wide = replace(source, dtype=INT64)
                self.node("Cast", [source], wide)
        return graph

    def _device(self, value: Value, order: Order) -> Value:
        result = super()._device(value, order)
        return replace(result, dtype=INT32) if result.dtype == INT64 else result

    def _constant(self, value: Value, order: Order) -> Value:
        result = super()._constant(value, order)
        result.data = np.asarray(result.data, result.dtype).reshape(result.bound)  # a number alone has no dimension
        return result

    # --------------------------------------------------------------------------------------------------- appending

    def node(self, kind: str, inputs: Sequence[Value], out: Value | Sequence[Value], /, **params: Any) -> None:
        """Append a node."""
        outs = [out] if isinstance(out, Value) else list(out)
        self.graph.ops.append(Op(kind, {"inputs": list(inputs), "params": params}, [*outs], self.origin))

    def permute(self, source: Value, result: Value, dims: list[int]) -> None:
        if is_trivial_permutation(source.bound, dims):
            self.node("Reshape", [source], result)
        elif len(dims) > 4 and 1 in source.bound:  # the compiler may fail on rank 5: drop dimensions of size 1
            dims_kept = [d for d in range(len(dims)) if source.bound[d] != 1]
            dims_perm = [d for d in dims if d in dims_kept]
            small = self.temporary([source.bound[d] for d in dims_perm], result)
            flat = self.reshape(source, [source.bound[d] for d in dims_kept])
            self.node("Transpose", [flat], small, perm=as_uint32([dims_kept.index(d) for d in dims_perm]))
            self.node("Reshape", [small], result)
        else:
            self.node("Transpose", [source], result, perm=as_uint32(dims))

    def copy(self, source: Value, result: Value) -> None:
        self.node("Reshape", [source], result)

    def reshape(self, source: Value, shape: Sequence[int]) -> Value:
        """Reshape a tensor."""
        if tuple(shape) == source.bound:
            return source
        if source.constant:
            assert source.data is not None
            return self.constant(source.data.reshape(tuple(shape)), source.q)
        result = self.temporary(shape, source)
        self.node("Reshape", [source], result)
        return result

    def requantize_like(self, source: Value, like: Value) -> Value:
        """Convert to the quantization parameters of ``like``."""
        if same_encoding(source, replace(like, dtype=INT32) if like.dtype == INT64 else like):
            return source
        result = self.temporary(source.bound, like)
        self.node("Convert", [source], result)
        return result

    def plain_temporary(self, shape: Sequence[int], dtype: Any = INT32) -> Value:
        """A temporary of an integer type or bool."""
        return self.temporary(shape, Value("", np.dtype(dtype)))

    def to_symmetric(self, source: Value) -> Value:
        """A 16-bit tensor requantized symmetrically, as required for the right operand of a matrix product."""
        if source.q is None or source.q.dtype.itemsize < 2 or source.q.zero_point == MIDPOINT or source.constant:
            return source
        if source not in self._symmetric:
            q = source.q
            assert isinstance(q.scale, float) and isinstance(q.zero_point, int)
            reach = max(q.zero_point - q.qmin, q.qmax - q.zero_point) * q.scale
            like = replace(source, q=replace(q, scale=reach / MAX_INT16_WEIGHT, zero_point=MIDPOINT), data=None)
            self._symmetric[source] = self.requantize_like(source, like)
        return self._symmetric[source]

    # ----------------------------------------------------------------------------------------------------- results

    def finish(self, op: Op, order: Order, kind: str, inputs: Sequence[Value], /, **params: Any) -> None:
        """Append the node that computes the output of ``op`` in ``order``, with its fused clamp."""
        out = output_of(op)
        result = self.make(out, order)
        self.emit_into(op, result, kind, inputs, **params)

    def emit_into(self, op: Op, result: Value, kind: str, inputs: Sequence[Value], /, **params: Any) -> None:
        """Append the node that computes ``result``, and the clamp of a fused activation."""
        limits = op.args.get("limits")
        if limits is None or clamp_is_redundant(result.q, limits):
            self.node(kind, inputs, result, **params)
            return
        unclamped = self.temporary(result.bound, result)
        self.node(kind, inputs, unclamped, **params)
        self.emit_clamp(unclamped, result, *limits)

    def emit_clamp(self, source: Value, result: Value, low: float, high: float) -> None:
        """Append a clamp.

        Limits outside the result's range become its ends: QNN 2.51 ignores both limits of a ``ReluMinMax`` behind a
        convolution if one is larger than the range.
        """
        largest = float(np.finfo(np.float32).max)
        lowest, highest = representable_range(result.q) or (-largest, largest)
        if low == 0.0 and high >= highest:
            self.node("Relu", [source], result)
        else:
            ends = {"min_value": float(max(low, lowest)), "max_value": float(min(high, highest))}
            self.node("ReluMinMax", [source], result, **ends)

    # ---------------------------------------------------------------------------------------------------- operands

    def operand(self, op: Op, name: str, order: Order) -> Value:
        """An operand of an elementwise operator in dimension order ``order``; scalars become constants."""
        value = op.args[name]
        if not isinstance(value, Value):
            return self.scalar(value, op)
        rank = len(order)
        if len(value.shape) == rank:
            return self.get(value, order)
        source = self.get(value)
        if not value.shape:
            return source
        unclamped = self.reshape(source, (1,) * (rank - len(value.shape)) + source.bound)
        if order == identity(rank):
            return unclamped
        if unclamped.constant:
            assert unclamped.data is not None
            return self.constant(np.ascontiguousarray(unclamped.data.transpose(order)), unclamped.q)
        result = self.temporary([unclamped.bound[d] for d in order], unclamped)
        self.permute(unclamped, result, list(order))
        return result

    def scalar(self, number: float, op: Op) -> Value:
        """A scalar in the type of the operands of ``op``."""
        tensors = (*(v for v in op.inputs() if not v.constant), output_of(op))
        like = next((v for v in tensors if v.dtype != np.bool_), tensors[0])  # of a select, not the condition
        shape = (1,) if op.outputs[0] is not None and op.outputs[0].bound else ()  # scalars stay scalars
        if like.q is None:
            return self.constant(np.full(shape, number, like.dtype))
        top = like.q.qmax
        scale = abs(float(number)) / top or 1.0
        raw, zero = (0, 0) if number == 0 else (top, 0) if number > 0 else (0, top)
        return self.constant(np.full(shape, raw, like.q.dtype), replace(like.q, scale=scale, zero_point=zero))


# ------------------------------------------------------------------------------------------------------------- values


def output_of(op: Op) -> Value:
    out = op.outputs[0]
    assert out is not None
    return out


def qnn_dtype(value: Value) -> str:
    """QNN's element type of a tensor; for quantized tensors determined by the integer range."""
    q = value.q
    if q is None:
        return str(value.dtype)
    bits = 8 if q.qmax - q.qmin <= 255 else 16 if q.qmax - q.qmin <= 65535 else 32
    return f"{'s' if q.qmin < 0 else 'u'}{bits}"


def encoding_of(value: Value) -> Encoding | None:
    """Quantization encoding of a tensor. QNN's offset is the negated zero point."""
    q = value.q
    if q is None:
        return None
    if q.block is not None:
        units, multiples = block_scales(q, value.bound[q.axis or 0])
        return Encoding(tuple(units.tolist()), (0,) * units.size, q.axis, 4, tuple(multiples.ravel().tolist()))
    scales = tuple(np.atleast_1d(np.asarray(q.scale, np.float64)).tolist())
    offsets = tuple(-int(z) for z in np.atleast_1d(np.asarray(q.zero_point)))
    bits = 4 if value.constant and q.qmax - q.qmin <= 15 else 0
    return Encoding(scales, offsets, q.axis, bits)


def scale_of(value: Value) -> Any:
    """The scale, per tensor or per output channel."""
    assert value.q is not None
    if value.q.block is not None:
        return block_scales(value.q, value.bound[value.q.axis or 0])[0]
    return np.asarray(value.q.scale, np.float64)


def dequantize_constant(value: Value) -> Array:
    """The dequantized values of a constant."""
    data = np.asarray(value.data, np.float64)
    if value.q is None:
        return data
    shape = [1] * data.ndim
    if value.q.axis is not None and data.ndim:
        shape[value.q.axis] = -1
    number = (value.q.scale, value.q.zero_point)
    scale, zero = (np.asarray(n, np.float64).reshape(shape if np.ndim(n) else ()) for n in number)
    return np.asarray((data - zero) * scale)


def quantize_per_tensor(data: Array, q: QParams | None) -> Array:
    """Quantize per tensor."""
    assert q is not None
    scale, zero = np.asarray(q.scale, np.float64), np.asarray(q.zero_point)
    return np.asarray(np.clip(np.round(data / scale) + zero, q.qmin, q.qmax), q.dtype)


def as_uint32(numbers: Any) -> Array:
    return np.asarray(numbers, np.uint32)


def elementwise_order(low: QnnLowering, op: Op) -> Order:
    """The dimension order of an elementwise operator."""
    return common_order(low, op, len(output_of(op).shape))
