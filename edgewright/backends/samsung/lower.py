"""From a group of operators to a device graph of ENN's: what every row's lowering is written with.

ENN keeps the order of dimensions that PyTorch has (NCHW), so a node is what its operator is, one to one where ENN has
it. A node's ``inputs`` are its tensors in order, its other arguments the parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.ir.enn.table import PREFIX
from edgewright.ir.graph import Array, Graph, Op, Value
from edgewright.lowering.passes.layout import GroupLowering, Order, identity
from edgewright.lowering.passes.value_storage import same_encoding

FLOAT32 = np.dtype(np.float32)
# Names of quantization. Stock has the first only; Samsung's plugin for LiteRT has both, whatever the sign.
QUANTIZED = {"int8": "AINT8", "uint8": "AINT8", "int16": "AINT16", "uint16": "AINT16"}
LARGEST = float(np.finfo(np.float32).max)
FUSED = {(0.0, float("inf")): "RELU", (0.0, 6.0): "RELU6"}  # activations that a convolution takes in


class EnnLowering(GroupLowering):
    """Builds the device graph of one group."""

    def __init__(self, group: Graph, rows: Mapping[str, Any], target: Any = None) -> None:
        super().__init__(group, rows)
        self.target = target

    def _device(self, value: Value, order: Order) -> Value:
        made = super()._device(value, order)
        if order == identity(len(order)):
            made.name = value.name
        return made

    def _constant(self, value: Value, order: Order) -> Value:
        made = super()._constant(value, order)
        if made.data is not None and made.data.shape != made.shape:  # numpy gives one number alone a dimension
            made.data = made.data.reshape(made.bound)
        return made

    # --------------------------------------------------------------------------------------------------- appending

    def node(self, kind: str, inputs: Sequence[Value], outs: Value | Sequence[Value | None], /, **params: Any) -> None:
        """Append a node."""
        made: list[Value | None] = [outs] if isinstance(outs, Value) else list(outs)
        self.graph.ops.append(Op(PREFIX + kind, {"inputs": list(inputs), **params}, made, self.origin))

    def turn(self, held: Value, made: Value, dims: list[int]) -> None:
        self.node("TRANSPOSE", [held], made, perm=dims)

    def copy(self, held: Value, made: Value) -> None:
        self.node("RESHAPE", [held], made, new_shape=list(made.bound))

    def reshaped(self, held: Value, shape: Sequence[int]) -> Value:
        """A tensor in another shape."""
        if tuple(shape) == held.bound:
            return held
        if held.data is not None:
            return self.constant(held.data.reshape(tuple(shape)), held.q)
        made = self.temporary(shape, held)
        self.copy(held, made)
        return made

    def stored_as(self, held: Value, like: Value) -> Value:
        """A tensor's values, stored as another's are: through real numbers, as stock does."""
        if same_encoding(held, like):
            return held
        made = self.temporary(held.bound, like)
        self.converted(held, made)
        return made

    def converted(self, held: Value, made: Value) -> None:
        """Append what brings a tensor to another scale."""
        if held.q is None:
            self.node("QUANTIZE", [held], made, **parameters(made))
        elif made.q is None:
            self.node("DEQUANTIZE", [held], made, **parameters(held))
        else:
            real = Value("temporary", FLOAT32, held.bound, identity(len(held.bound)))
            self.node("DEQUANTIZE", [held], real, **parameters(held))
            self.node("QUANTIZE", [real], made, **parameters(made))

    # ----------------------------------------------------------------------------------------------------- results

    def finish(self, op: Op, kind: str, inputs: Sequence[Value], /, told: bool = True, **params: Any) -> None:
        """Append the node that makes the result of ``op``. ``told``: it is told that its result is quantized."""
        out = self.make(result(op))
        self.node(kind, inputs, out, **params, **(quantization(out) if told else {}))

    def move(self, op: Op, kind: str, held: Value, /, **params: Any) -> None:
        """Append a node that moves elements only, and what brings its result to the scale it is wanted in."""
        out = result(op)
        if same_encoding(held, out):
            self.node(kind, [held], self.make(out), **params)
        else:
            between = self.temporary(out.bound, held)
            self.node(kind, [held], between, **params)
            self.converted(between, self.make(out))

    def limited(self, held: Value, made: Value, low: float, high: float) -> None:
        """Append the node that keeps values within limits."""
        if (low, high) == (0.0, float("inf")):
            self.node("RELU", [held], made, **quantization(made))
        else:
            ends = {"minimum": float(max(low, -LARGEST)), "maximum": float(min(high, LARGEST))}
            self.node("CLIP", [held], made, **ends, **quantization(made))

    # ---------------------------------------------------------------------------------------------------- operands

    def operand(self, op: Op, name: str) -> Value:
        """An operand of an elementwise operator; numbers become constants."""
        value = op.args[name]
        return self.get(value) if isinstance(value, Value) else self.number(value, op)

    def number(self, given: float, op: Op) -> Value:
        """A number as the operands of ``op`` are stored: one step from zero, if they are quantized."""
        like = next(v for v in op.inputs() if not v.constant)
        if like.q is None:
            return self.constant(np.asarray(given, like.dtype))
        scale = abs(float(given)) or 1.0
        zero = 1 if given < 0 and like.q.qmin == 0 else 0
        stored = zero + int(np.sign(given))
        return self.constant(np.asarray(stored, like.q.dtype), replace(like.q, scale=scale, zero_point=zero))


# ------------------------------------------------------------------------------------------------------- about values


def result(op: Op) -> Value:
    out = op.outputs[0]
    assert out is not None
    return out


def quantization(value: Value) -> dict[str, str]:
    """The parameter that tells a node how its result is quantized."""
    return {} if value.q is None else {"quant_dtype": QUANTIZED[str(value.q.dtype)]}


def parameters(value: Value) -> dict[str, list[Any]]:
    """Scales and zero points, as conversions are told them."""
    assert value.q is not None
    scales = np.atleast_1d(np.asarray(value.q.scale, np.float64)).tolist()
    return {"scales": scales, "zero_points": [int(z) for z in np.atleast_1d(np.asarray(value.q.zero_point))]}


def real_numbers(value: Value) -> Array:
    """A real constant's values, in double precision."""
    return np.asarray(value.data, np.float64)
