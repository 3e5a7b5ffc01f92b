"""From a group of operators to a device graph of TFLite's: what every row's lowering is written with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.ir.graph import Array, Graph, Op, QParams, Value
from edgewright.ir.tflite.elementwise import limits as stored_limits
from edgewright.ir.tflite.table import PREFIX
from edgewright.lowering.passes.flatten_images import FlatteningLowering
from edgewright.lowering.passes.layout import Order, identity, is_trivial_permutation

INT8, INT32 = np.dtype(np.int8), np.dtype(np.int32)
# Activations that TFLite has an operator for, by their limits.
LIMITED = {(0.0, float("inf")): "RELU", (0.0, 6.0): "RELU6", (-1.0, 1.0): "RELU_N1_TO_1", (0.0, 1.0): "RELU_0_TO_1"}


class NeutronLowering(FlatteningLowering):
    """Builds the device graph of one group."""

    def __init__(self, group: Graph, rows: Any, target: Any = None) -> None:
        super().__init__(group, rows)
        self.target = target
        self._numbers: dict[tuple[int, ...], Value] = {}

    # --------------------------------------------------------------------------------------------------- appending

    def node(
        self, kind: str, shape: Sequence[int], q: QParams | None, inputs: Sequence[Value], **options: Any
    ) -> Value:
        """Append an operator, and give its result."""
        made = Value(f"{self.origin.node or kind.lower()}_{len(self.graph.ops)}", INT8, tuple(shape), q=q)
        made.dim_order = identity(len(made.shape))
        self.emit(PREFIX + kind, made, inputs=list(inputs), **options)
        return made

    def numbers(self, *items: Any) -> Value:
        """Shapes, axes and the like, as a constant; each once."""
        data = np.asarray(items[0], INT32)
        key = (*data.shape, -1, *data.ravel().tolist())
        if key not in self._numbers:
            self._numbers[key] = self.constant(data)
        return self._numbers[key]

    def stored(self, data: Array, q: QParams) -> Value:
        """A constant of stored integers."""
        return self.constant(np.ascontiguousarray(data, q.dtype), q)

    def real(self, data: Any) -> Value:
        """A constant of real numbers, stored with one scale and no zero point."""
        real = np.asarray(data, np.float64)
        largest = float(np.abs(real).max(initial=0)) or 1.0
        q = QParams(largest / 127, 0, INT8, -127, 127)
        return self.stored(np.clip(np.round(real / q.scale), -127, 127), q)

    def turn(self, held: Value, made: Value, dims: list[int]) -> None:
        made.q = held.q  # which may use integers that the value itself does not
        if is_trivial_permutation(held.bound, dims):
            self.emit(f"{PREFIX}RESHAPE", made, **self._shaped(held, made.bound))
        else:
            self.emit(f"{PREFIX}TRANSPOSE", made, inputs=[held, self.numbers(dims)])

    def copy(self, held: Value, made: Value) -> None:
        made.q = held.q
        self.emit(f"{PREFIX}RESHAPE", made, **self._shaped(held, made.bound))

    def _shaped(self, held: Value, shape: Sequence[int]) -> dict[str, Any]:
        return {"inputs": [held, self.numbers(list(shape))], "new_shape": list(shape)}

    def reshaped(self, x: Value, shape: Sequence[int]) -> Value:
        if x.bound == tuple(shape):
            return x
        if x.data is not None:
            return self.constant(x.data.reshape(shape), x.q)
        return self.node("RESHAPE", shape, x.q, **self._shaped(x, shape))

    def transposed(self, x: Value, perms: Sequence[int]) -> Value:
        shape = [x.bound[p] for p in perms]
        if is_trivial_permutation(x.bound, perms):
            return self.reshaped(x, shape)
        return self.node("TRANSPOSE", shape, x.q, [x, self.numbers(list(perms))])

    def sliced(self, x: Value, start: Sequence[int], size: Sequence[int]) -> Value:
        if x.bound == tuple(size):
            return x
        return self.node("SLICE", size, x.q, [x, self.numbers(list(start)), self.numbers(list(size))])

    def padded(self, x: Value, pads: Sequence[tuple[int, int]], value: int) -> Value:
        """``x`` with a border of a stored value."""
        if not any(map(any, pads)):
            return x
        shape = [n + a + b for n, (a, b) in zip(x.bound, pads, strict=True)]
        assert x.q is not None
        border = self.stored(np.asarray([value]), x.q)
        return self.node("PADV2", shape, x.q, [x, self.numbers([list(p) for p in pads]), border])

    # -------------------------------------------------------------------------------------------------- finishing

    def finish(self, op: Op, order: Order, made: Value) -> None:
        """Let ``made`` be the result of ``op``, within the limits of an activation that was fused onto it."""
        self.alias(result(op), order, self.limited(made, op.args.get("limits")))

    def limited(self, x: Value, limits: tuple[float, float] | None) -> Value:
        """``x`` within real limits; nothing where its integers cannot leave them."""
        if limits is None:
            return x
        low, high = stored_limits(x, *limits)
        if (low, high) == (-128, 127):
            return x
        name = LIMITED.get((float(limits[0]), float(limits[1])))
        if name is not None:
            return self.node(name, x.bound, x.q, [x])
        assert x.q is not None
        for kind, limit, idle in (("MINIMUM", high, 127), ("MAXIMUM", low, -128)):
            if limit != idle:
                x = self.node(kind, x.bound, x.q, [x, self.stored(np.full([1] * len(x.bound), limit), x.q)])
        return x


# -------------------------------------------------------------------------------------------------- small questions


def result(op: Op) -> Value:
    out = op.outputs[0]
    assert out is not None
    return out


def scale_of(value: Value) -> float:
    assert value.q is not None
    return float(np.float32(np.asarray(value.q.scale)))


def zero_of(value: Value) -> int:
    assert value.q is not None
    return int(np.asarray(value.q.zero_point).reshape(-1)[0])


def alike(a: Value, b: Value) -> bool:
    """True if two tensors store the same values as the same integers."""
    if a.q is None or b.q is None:
        return a.q is b.q
    return np.float32(np.asarray(a.q.scale)) == np.float32(np.asarray(b.q.scale)) and zero_of(a) == zero_of(b)
