"""Lowering context that builds an ENN device graph from a partition; every row's lowering uses it.

ENN uses PyTorch's dimension order (NCHW), so most operators map one to one to nodes. A node's ``inputs`` are its tensor
operands in order; its other arguments are parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.backends.samsung.dialect.table import PREFIX
from edgewright.ir.graph import Array, Graph, Op, Value
from edgewright.lowering.passes.layout import GroupLowering, Order, identity
from edgewright.lowering.passes.value_storage import same_encoding

FLOAT32 = np.dtype(np.float32)
# Names of quantized types. ExecuTorch uses AINT8 only; Samsung's LiteRT plugin uses both, for signed and unsigned.
QUANT_DTYPES = {"int8": "AINT8", "uint8": "AINT8", "int16": "AINT16", "uint16": "AINT16"}
FLOAT32_MAX = float(np.finfo(np.float32).max)
FUSED_ACTIVATIONS = {(0.0, float("inf")): "RELU", (0.0, 6.0): "RELU6"}  # activations that a convolution can fuse


class EnnLowering(GroupLowering):
    """Builds the device graph of one partition."""

    def __init__(self, group: Graph, rows: Mapping[str, Any], target: Any = None) -> None:
        super().__init__(group, rows)
        self.target = target

    def _device(self, value: Value, order: Order) -> Value:
        device_value = super()._device(value, order)
        if order == identity(len(order)):
            device_value.name = value.name
        return device_value

    def _constant(self, value: Value, order: Order) -> Value:
        constant_value = super()._constant(value, order)
        if (
            constant_value.data is not None and constant_value.data.shape != constant_value.shape
        ):  # numpy turns a scalar into a vector
            constant_value.data = constant_value.data.reshape(constant_value.bound)
        return constant_value

    # --------------------------------------------------------------------------------------------------- appending

    def node(self, kind: str, inputs: Sequence[Value], outs: Value | Sequence[Value | None], /, **params: Any) -> None:
        """Append a node."""
        outputs: list[Value | None] = [outs] if isinstance(outs, Value) else list(outs)
        self.graph.ops.append(Op(PREFIX + kind, {"inputs": list(inputs), **params}, outputs, self.origin))

    def permute(self, source: Value, out: Value, dims: list[int]) -> None:
        self.node("TRANSPOSE", [source], out, perm=dims)

    def copy(self, source: Value, out: Value) -> None:
        self.node("RESHAPE", [source], out, new_shape=list(out.bound))

    def reshape(self, source: Value, shape: Sequence[int]) -> Value:
        """Reshape a tensor."""
        if tuple(shape) == source.bound:
            return source
        if source.data is not None:
            return self.constant(source.data.reshape(tuple(shape)), source.q)
        out = self.temporary(shape, source)
        self.copy(source, out)
        return out

    def requantize_like(self, source: Value, like: Value) -> Value:
        """Convert to the quantization parameters of ``like``: dequantize and quantize, as ExecuTorch does."""
        if same_encoding(source, like):
            return source
        out = self.temporary(source.bound, like)
        self.convert(source, out)
        return out

    def convert(self, source: Value, out: Value) -> None:
        """Append the quantize or dequantize nodes that convert between the parameters of two values."""
        if source.q is None:
            self.node("QUANTIZE", [source], out, **qparams_args(out))
        elif out.q is None:
            self.node("DEQUANTIZE", [source], out, **qparams_args(source))
        else:
            real = Value("temporary", FLOAT32, source.bound, identity(len(source.bound)))
            self.node("DEQUANTIZE", [source], real, **qparams_args(source))
            self.node("QUANTIZE", [real], out, **qparams_args(out))

    # ----------------------------------------------------------------------------------------------------- results

    def finish(
        self, op: Op, kind: str, inputs: Sequence[Value], /, with_quant_dtype: bool = True, **params: Any
    ) -> None:
        """Append the node that computes the output of ``op``. ``with_quant_dtype``: pass the type of a quantized
        output as a parameter."""
        out = self.make(output(op))
        self.node(kind, inputs, out, **params, **(quant_dtype_arg(out) if with_quant_dtype else {}))

    def move(self, op: Op, kind: str, source: Value, /, **params: Any) -> None:
        """Append a data-movement node, and a conversion if the output has different quantization parameters."""
        out = output(op)
        if same_encoding(source, out):
            self.node(kind, [source], self.make(out), **params)
        else:
            moved = self.temporary(out.bound, source)
            self.node(kind, [source], moved, **params)
            self.convert(moved, self.make(out))

    def clamp(self, source: Value, out: Value, low: float, high: float) -> None:
        """Append a clamp."""
        if (low, high) == (0.0, float("inf")):
            self.node("RELU", [source], out, **quant_dtype_arg(out))
        else:
            ends = {"minimum": float(max(low, -FLOAT32_MAX)), "maximum": float(min(high, FLOAT32_MAX))}
            self.node("CLIP", [source], out, **ends, **quant_dtype_arg(out))

    # ---------------------------------------------------------------------------------------------------- operands

    def operand(self, op: Op, name: str) -> Value:
        """An operand of an elementwise operator; scalars become constants."""
        value = op.args[name]
        return self.get(value) if isinstance(value, Value) else self.scalar_constant(value, op)

    def scalar_constant(self, scalar: float, op: Op) -> Value:
        """A scalar in the type of the operands of ``op``; a quantized one has its magnitude as the scale."""
        like = next(v for v in op.inputs() if not v.constant)
        if like.q is None:
            return self.constant(np.asarray(scalar, like.dtype))
        scale = abs(float(scalar)) or 1.0
        zero = 1 if scalar < 0 and like.q.qmin == 0 else 0
        stored = zero + int(np.sign(scalar))
        return self.constant(np.asarray(stored, like.q.dtype), replace(like.q, scale=scale, zero_point=zero))


# ------------------------------------------------------------------------------------------------------------- values


def output(op: Op) -> Value:
    out = op.outputs[0]
    assert out is not None
    return out


def quant_dtype_arg(value: Value) -> dict[str, str]:
    """The parameter that passes the type of a quantized output to a node."""
    return {} if value.q is None else {"quant_dtype": QUANT_DTYPES[str(value.q.dtype)]}


def qparams_args(value: Value) -> dict[str, list[Any]]:
    """Scales and zero points as parameters of QUANTIZE and DEQUANTIZE."""
    assert value.q is not None
    scales = np.atleast_1d(np.asarray(value.q.scale, np.float64)).tolist()
    return {"scales": scales, "zero_points": [int(z) for z in np.atleast_1d(np.asarray(value.q.zero_point))]}


def float_data(value: Value) -> Array:
    """The values of a floating-point constant, in double precision."""
    return np.asarray(value.data, np.float64)
