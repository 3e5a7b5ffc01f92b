"""Lowering context that builds a TFLite device graph from a partition; every row's lowering uses it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.backends.nxp.dialect.elementwise import clamp_limits as stored_limits
from edgewright.backends.nxp.dialect.table import PREFIX
from edgewright.ir.graph import Array, Graph, Op, QParams, Value
from edgewright.lowering.passes.layout import FlatteningLowering, Order, identity, is_trivial_permutation

INT8, INT32 = np.dtype(np.int8), np.dtype(np.int32)
# TFLite activations by their clamp limits.
RELU_KINDS = {(0.0, float("inf")): "RELU", (0.0, 6.0): "RELU6", (-1.0, 1.0): "RELU_N1_TO_1", (0.0, 1.0): "RELU_0_TO_1"}


class NeutronLowering(FlatteningLowering):
    """Builds the device graph of one partition."""

    def __init__(self, group: Graph, rows: Any, target: Any = None) -> None:
        super().__init__(group, rows)
        self.target = target
        self._numbers: dict[tuple[int, ...], Value] = {}

    # --------------------------------------------------------------------------------------------------- appending

    def node(
        self, kind: str, shape: Sequence[int], q: QParams | None, inputs: Sequence[Value], **options: Any
    ) -> Value:
        """Append an operator and return its output."""
        out = Value(f"{self.origin.node or kind.lower()}_{len(self.graph.ops)}", INT8, tuple(shape), q=q)
        out.dim_order = identity(len(out.shape))
        self.emit(PREFIX + kind, out, inputs=list(inputs), **options)
        return out

    def int_constant(self, *items: Any) -> Value:
        """An int32 constant, such as a shape or axes; equal constants are shared."""
        data = np.asarray(items[0], INT32)
        key = (*data.shape, -1, *data.ravel().tolist())
        if key not in self._numbers:
            self._numbers[key] = self.constant(data)
        return self._numbers[key]

    def quantized_constant(self, data: Array, q: QParams) -> Value:
        """A constant from stored integers."""
        return self.constant(np.ascontiguousarray(data, q.dtype), q)

    def quantize_constant(self, data: Any) -> Value:
        """A constant from real values, quantized symmetrically per tensor."""
        real = np.asarray(data, np.float64)
        largest = float(np.abs(real).max(initial=0)) or 1.0
        q = QParams(largest / 127, 0, INT8, -127, 127)
        return self.quantized_constant(np.clip(np.round(real / q.scale), -127, 127), q)

    def permute(self, source: Value, out: Value, dims: list[int]) -> None:
        out.q = source.q  # its integer range may be wider than the value's
        if is_trivial_permutation(source.bound, dims):
            self.emit(f"{PREFIX}RESHAPE", out, **self._reshape_args(source, out.bound))
        else:
            self.emit(f"{PREFIX}TRANSPOSE", out, inputs=[source, self.int_constant(dims)])

    def copy(self, source: Value, out: Value) -> None:
        out.q = source.q
        self.emit(f"{PREFIX}RESHAPE", out, **self._reshape_args(source, out.bound))

    def _reshape_args(self, source: Value, shape: Sequence[int]) -> dict[str, Any]:
        return {"inputs": [source, self.int_constant(list(shape))], "new_shape": list(shape)}

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        if x.bound == tuple(shape):
            return x
        if x.data is not None:
            return self.constant(x.data.reshape(shape), x.q)
        return self.node("RESHAPE", shape, x.q, **self._reshape_args(x, shape))

    def transpose(self, x: Value, perms: Sequence[int]) -> Value:
        shape = [x.bound[p] for p in perms]
        if is_trivial_permutation(x.bound, perms):
            return self.reshape(x, shape)
        return self.node("TRANSPOSE", shape, x.q, [x, self.int_constant(list(perms))])

    def slice(self, x: Value, start: Sequence[int], size: Sequence[int]) -> Value:
        if x.bound == tuple(size):
            return x
        return self.node("SLICE", size, x.q, [x, self.int_constant(list(start)), self.int_constant(list(size))])

    def pad(self, x: Value, pads: Sequence[tuple[int, int]], value: int) -> Value:
        """Pad with a constant, passed as a raw integer."""
        if not any(map(any, pads)):
            return x
        shape = [n + a + b for n, (a, b) in zip(x.bound, pads, strict=True)]
        assert x.q is not None
        border = self.quantized_constant(np.asarray([value]), x.q)
        return self.node("PADV2", shape, x.q, [x, self.int_constant([list(p) for p in pads]), border])

    # -------------------------------------------------------------------------------------------------- results

    def finish(self, op: Op, order: Order, value: Value) -> None:
        """Bind ``value`` to the output of ``op``, after applying the clamp of a fused activation."""
        self.alias(output(op), order, self.clamp(value, op.args.get("limits")))

    def clamp(self, x: Value, limits: tuple[float, float] | None) -> Value:
        """Clamp ``x`` to real limits; no operator if its integer range is within them."""
        if limits is None:
            return x
        low, high = stored_limits(x, *limits)
        if (low, high) == (-128, 127):
            return x
        name = RELU_KINDS.get((float(limits[0]), float(limits[1])))
        if name is not None:
            return self.node(name, x.bound, x.q, [x])
        assert x.q is not None
        for kind, limit, idle in (("MINIMUM", high, 127), ("MAXIMUM", low, -128)):
            if limit != idle:
                x = self.node(kind, x.bound, x.q, [x, self.quantized_constant(np.full([1] * len(x.bound), limit), x.q)])
        return x


# --------------------------------------------------------------------------------------------------------- helpers


def output(op: Op) -> Value:
    out = op.outputs[0]
    assert out is not None
    return out


def scale_of(value: Value) -> float:
    assert value.q is not None
    return float(np.float32(np.asarray(value.q.scale)))


def zero_point(value: Value) -> int:
    assert value.q is not None
    return int(np.asarray(value.q.zero_point).reshape(-1)[0])


def same_qparams(a: Value, b: Value) -> bool:
    """True if two tensors have equal quantization parameters."""
    if a.q is None or b.q is None:
        return a.q is b.q
    return np.float32(np.asarray(a.q.scale)) == np.float32(np.asarray(b.q.scale)) and zero_point(a) == zero_point(b)
