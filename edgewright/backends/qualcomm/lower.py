"""From a group of operators to a device graph of QNN's: what every row's lowering is written with.

A node of the device graph is named by QNN's operator; ``inputs`` are its tensors in order and ``params`` its
parameters: arrays for tensors, numbers for scalars.
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
MIDDLE = 1 << 15  # the zero point of 16 bits that some operators insist on
LARGEST_FACTOR = 32639  # of 16 bits: larger ones were seen to give wrong results


class QnnLowering(GroupLowering):
    """Builds the device graph of one group."""

    def __init__(self, group: Graph, rows: Mapping[str, Any], target: Any) -> None:
        super().__init__(with_cast_ends(group), rows)
        self.target = target
        self._symmetric: dict[Value, Value] = {}

    # ------------------------------------------------------------------------------------------------- wide integers

    def run(self) -> Graph:
        """QNN has no operators on 64-bit integers, but casts them: inside, places and counts have 32."""
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

    def turn(self, held: Value, made: Value, dims: list[int]) -> None:
        if is_trivial_permutation(held.bound, dims):
            self.node("Reshape", [held], made)
        elif len(dims) > 4 and 1 in held.bound:  # the compiler may fail on five dimensions: those of 1 need no place
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
        """A tensor in another shape."""
        if tuple(shape) == held.bound:
            return held
        if held.constant:
            assert held.data is not None
            return self.constant(held.data.reshape(tuple(shape)), held.q)
        made = self.temporary(shape, held)
        self.node("Reshape", [held], made)
        return made

    def stored_as(self, held: Value, like: Value) -> Value:
        """A tensor's values, stored as another's are."""
        if same_encoding(held, replace(like, dtype=INT32) if like.dtype == INT64 else like):
            return held
        made = self.temporary(held.bound, like)
        self.node("Convert", [held], made)
        return made

    def whole(self, shape: Sequence[int], dtype: Any = INT32) -> Value:
        """Whole numbers, or truths, between two nodes of one operator."""
        return self.temporary(shape, Value("", np.dtype(dtype)))

    def symmetric(self, held: Value) -> Value:
        """16-bit integers around the middle, which products want on their right."""
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
        """Append the node that makes the result of ``op``, in ``order``, within its limits."""
        out = result(op)
        made = self.make(out, order)
        self.into(op, made, kind, inputs, **params)

    def into(self, op: Op, made: Value, kind: str, inputs: Sequence[Value], /, **params: Any) -> None:
        """Append the node that makes ``made``, and what keeps it in the limits that ``op`` took over."""
        limits = op.args.get("limits")
        if limits is None or clamp_is_redundant(made.q, limits):
            self.node(kind, inputs, made, **params)
            return
        whole = self.temporary(made.bound, made)
        self.node(kind, inputs, whole, **params)
        self.limited(whole, made, *limits)

    def limited(self, held: Value, made: Value, low: float, high: float) -> None:
        """Append the node that keeps values within limits."""
        largest = float(np.finfo(np.float32).max)
        if (low, high) == (0.0, float("inf")):
            self.node("Relu", [held], made)
        else:
            ends = {"min_value": float(max(low, -largest)), "max_value": float(min(high, largest))}
            self.node("ReluMinMax", [held], made, **ends)

    # ---------------------------------------------------------------------------------------------------- operands

    def operand(self, op: Op, name: str, order: Order) -> Value:
        """An operand of an elementwise operator, in ``order``; numbers become constants."""
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
        self.turn(whole, made, list(order))
        return made

    def number(self, given: float, op: Op) -> Value:
        """A number as the operands of ``op`` are stored."""
        like = next(v for v in op.inputs() if not v.constant)
        shape = (1,) if op.outputs[0] is not None and op.outputs[0].bound else ()  # scalars stay scalars
        if like.q is None:
            return self.constant(np.full(shape, given, like.dtype))
        top = like.q.qmax
        scale = abs(float(given)) / top or 1.0
        stored, zero = (0, 0) if given == 0 else (top, 0) if given > 0 else (0, top)
        return self.constant(np.full(shape, stored, like.q.dtype), replace(like.q, scale=scale, zero_point=zero))


# ------------------------------------------------------------------------------------------------------- about values


def result(op: Op) -> Value:
    out = op.outputs[0]
    assert out is not None
    return out


def element_of(value: Value) -> str:
    """The type QNN has for a tensor's elements: of quantized ones, by the range of their integers."""
    q = value.q
    if q is None:
        return str(value.dtype)
    bits = 8 if q.qmax - q.qmin <= 255 else 16 if q.qmax - q.qmin <= 65535 else 32
    return f"{'s' if q.qmin < 0 else 'u'}{bits}"


def encoding_of(value: Value) -> Encoding | None:
    """How a tensor is quantized. QNN's offset is the zero point's negative."""
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
    """The scale, or one for each output channel."""
    assert value.q is not None
    if value.q.block is not None:
        return block_scales(value.q, value.bound[value.q.axis or 0])[0]
    return np.asarray(value.q.scale, np.float64)


def real_numbers(value: Value) -> Array:
    """A constant's values."""
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
    """Real numbers as the integers that one scale has for them."""
    assert q is not None
    scale, zero = np.asarray(q.scale, np.float64), np.asarray(q.zero_point)
    return np.asarray(np.clip(np.round(data / scale) + zero, q.qmin, q.qmax), q.dtype)


def unsigned(numbers: Any) -> Array:
    return np.asarray(numbers, np.uint32)


def order_of(low: QnnLowering, op: Op) -> Order:
    """The order that an elementwise operator works in."""
    return common_order(low, op, len(result(op).shape))
