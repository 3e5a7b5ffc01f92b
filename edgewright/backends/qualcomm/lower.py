"""Lowering context that builds a QNN device graph from a partition; every row's lowering uses it.

A node's kind is the name of the QNN operator; ``inputs`` are its tensor operands in order and ``params`` its
parameters: arrays for tensor parameters, numbers for scalar parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.backends.qualcomm.fp16 import with_cast_ends
from edgewright.backends.qualcomm.qnn.build import Encoding
from edgewright.ir.graph import Array, Graph, Op, QParams, Value
from edgewright.ir.qnn.scaling import block_scales
from edgewright.lowering.passes.layout import GroupLowering, Order, common_order, identity, is_trivial_permutation
from edgewright.lowering.passes.value_storage import clamp_is_redundant, same_encoding

INT32, INT64 = np.dtype(np.int32), np.dtype(np.int64)
MIDDLE = 1 << 15  # 16-bit zero point that some operators require
LARGEST_FACTOR = 32639  # largest 16-bit weight: larger ones gave wrong results in tests


class QnnLowering(GroupLowering):
    """Builds the device graph of one partition."""

    def __init__(self, group: Graph, rows: Mapping[str, Any], target: Any) -> None:
        super().__init__(with_cast_ends(group), rows)
        self.target = target
        self._symmetric: dict[Value, Value] = {}

    # ------------------------------------------------------------------------------------------------- wide integers

    def run(self) -> Graph:
        """QNN only casts int64: inputs and outputs of that type are cast, and int32 is used in between."""
        graph = super().run()
        before: list[Op] = []
        for index, (value, held) in enumerate(zip(self.group.inputs, graph.inputs, strict=True)):
            if value.dtype == INT64:
                graph.inputs[index] = wide = replace(held, dtype=INT64)
                before.append(Op("Cast", {"inputs": [wide], "params": {}}, [held]))
        graph.ops[:0] = before
        for index, (value, held) in enumerate(zip(self.group.outputs, graph.outputs, strict=True)):
            if value.dtype == INT64:
                graph.outputs[index] = wide = replace(held, dtype=INT64)
                self.node("Cast", [held], wide)
        return graph

    def _device(self, value: Value, order: Order) -> Value:
        made = super()._device(value, order)
        return replace(made, dtype=INT32) if made.dtype == INT64 else made

    def _constant(self, value: Value, order: Order) -> Value:
        made = super()._constant(value, order)
        made.data = np.asarray(made.data, made.dtype).reshape(made.bound)  # a number alone has no dimension
        return made

    # --------------------------------------------------------------------------------------------------- appending

    def node(self, kind: str, inputs: Sequence[Value], out: Value | Sequence[Value], /, **params: Any) -> None:
        """Append a node."""
        outs = [out] if isinstance(out, Value) else list(out)
        self.graph.ops.append(Op(kind, {"inputs": list(inputs), "params": params}, [*outs], self.origin))

    def permute(self, held: Value, made: Value, dims: list[int]) -> None:
        if is_trivial_permutation(held.bound, dims):
            self.node("Reshape", [held], made)
        elif len(dims) > 4 and 1 in held.bound:  # the compiler may fail on rank 5: drop dimensions of size 1
            kept = [d for d in range(len(dims)) if held.bound[d] != 1]
            turned = [d for d in dims if d in kept]
            small = self.temporary([held.bound[d] for d in turned], made)
            flat = self.reshaped(held, [held.bound[d] for d in kept])
            self.node("Transpose", [flat], small, perm=unsigned([kept.index(d) for d in turned]))
            self.node("Reshape", [small], made)
        else:
            self.node("Transpose", [held], made, perm=unsigned(dims))

    def copy(self, held: Value, made: Value) -> None:
        self.node("Reshape", [held], made)

    def reshaped(self, held: Value, shape: Sequence[int]) -> Value:
        """Reshape a tensor."""
        if tuple(shape) == held.bound:
            return held
        if held.constant:
            assert held.data is not None
            return self.constant(held.data.reshape(tuple(shape)), held.q)
        made = self.temporary(shape, held)
        self.node("Reshape", [held], made)
        return made

    def stored_as(self, held: Value, like: Value) -> Value:
        """Convert to the quantization parameters of ``like``."""
        if same_encoding(held, replace(like, dtype=INT32) if like.dtype == INT64 else like):
            return held
        made = self.temporary(held.bound, like)
        self.node("Convert", [held], made)
        return made

    def whole(self, shape: Sequence[int], dtype: Any = INT32) -> Value:
        """A temporary of an integer type or bool."""
        return self.temporary(shape, Value("", np.dtype(dtype)))

    def symmetric(self, held: Value) -> Value:
        """A 16-bit tensor requantized symmetrically, as required for the right operand of a matrix product."""
        if held.q is None or held.q.dtype.itemsize < 2 or held.q.zero_point == MIDDLE or held.constant:
            return held
        if held not in self._symmetric:
            q = held.q
            assert isinstance(q.scale, float) and isinstance(q.zero_point, int)
            reach = max(q.zero_point - q.qmin, q.qmax - q.zero_point) * q.scale
            like = replace(held, q=replace(q, scale=reach / LARGEST_FACTOR, zero_point=MIDDLE), data=None)
            self._symmetric[held] = self.stored_as(held, like)
        return self._symmetric[held]

    # ----------------------------------------------------------------------------------------------------- results

    def finish(self, op: Op, order: Order, kind: str, inputs: Sequence[Value], /, **params: Any) -> None:
        """Append the node that computes the output of ``op`` in ``order``, with its fused clamp."""
        out = result(op)
        made = self.make(out, order)
        self.into(op, made, kind, inputs, **params)

    def into(self, op: Op, made: Value, kind: str, inputs: Sequence[Value], /, **params: Any) -> None:
        """Append the node that computes ``made``, and the clamp of a fused activation."""
        limits = op.args.get("limits")
        if limits is None or clamp_is_redundant(made.q, limits):
            self.node(kind, inputs, made, **params)
            return
        whole = self.temporary(made.bound, made)
        self.node(kind, inputs, whole, **params)
        self.limited(whole, made, *limits)

    def limited(self, held: Value, made: Value, low: float, high: float) -> None:
        """Append a clamp."""
        largest = float(np.finfo(np.float32).max)
        if (low, high) == (0.0, float("inf")):
            self.node("Relu", [held], made)
        else:
            ends = {"min_value": float(max(low, -largest)), "max_value": float(min(high, largest))}
            self.node("ReluMinMax", [held], made, **ends)

    # ---------------------------------------------------------------------------------------------------- operands

    def operand(self, op: Op, name: str, order: Order) -> Value:
        """An operand of an elementwise operator in dimension order ``order``; scalars become constants."""
        value = op.args[name]
        if not isinstance(value, Value):
            return self.number(value, op)
        rank = len(order)
        if len(value.shape) == rank:
            return self.get(value, order)
        held = self.get(value)
        if not value.shape:
            return held
        whole = self.reshaped(held, (1,) * (rank - len(value.shape)) + held.bound)
        if order == identity(rank):
            return whole
        if whole.constant:
            assert whole.data is not None
            return self.constant(np.ascontiguousarray(whole.data.transpose(order)), whole.q)
        made = self.temporary([whole.bound[d] for d in order], whole)
        self.permute(whole, made, list(order))
        return made

    def number(self, given: float, op: Op) -> Value:
        """A scalar in the type of the operands of ``op``."""
        like = next(v for v in op.inputs() if not v.constant)
        shape = (1,) if op.outputs[0] is not None and op.outputs[0].bound else ()  # scalars stay scalars
        if like.q is None:
            return self.constant(np.full(shape, given, like.dtype))
        top = like.q.qmax
        scale = abs(float(given)) / top or 1.0
        stored, zero = (0, 0) if given == 0 else (top, 0) if given > 0 else (0, top)
        return self.constant(np.full(shape, stored, like.q.dtype), replace(like.q, scale=scale, zero_point=zero))


# ------------------------------------------------------------------------------------------------------------- values


def result(op: Op) -> Value:
    out = op.outputs[0]
    assert out is not None
    return out


def element_of(value: Value) -> str:
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


def real_numbers(value: Value) -> Array:
    """The dequantized values of a constant."""
    data = np.asarray(value.data, np.float64)
    if value.q is None:
        return data
    shape = [1] * data.ndim
    if value.q.axis is not None and data.ndim:
        shape[value.q.axis] = -1
    given = (value.q.scale, value.q.zero_point)
    scale, zero = (np.asarray(n, np.float64).reshape(shape if np.ndim(n) else ()) for n in given)
    return np.asarray((data - zero) * scale)


def stored(data: Array, q: QParams | None) -> Array:
    """Quantize per tensor."""
    assert q is not None
    scale, zero = np.asarray(q.scale, np.float64), np.asarray(q.zero_point)
    return np.asarray(np.clip(np.round(data / scale) + zero, q.qmin, q.qmax), q.dtype)


def unsigned(numbers: Any) -> Array:
    return np.asarray(numbers, np.uint32)


def order_of(low: QnnLowering, op: Op) -> Order:
    """The dimension order of an elementwise operator."""
    return common_order(low, op, len(result(op).shape))
