"""The static decoder as a graph of QNN operators, for Hexagon processors.

Linear layers are 1x1 convolutions over tokens, the form in which the HTP takes blockwise weights. The mask is a number
for each position, above all scores or below them: the smaller of the two is the masked score.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edgewright.errors import UsageError
from edgewright.ir.graph import Array, Graph, Op, QParams, Value
from edgewright.llm.static_decoder import MASK, MAX_SYMMETRIC, PROBABILITY, TANH, UINT16
from edgewright.llm.static_reference import quantize_int16
from edgewright.llm.static_weights import LinearWeights, QuantizedCheckpoint

_INT8, _INT16, _INT32 = (np.dtype(kind) for kind in (np.int8, np.int16, np.int32))
_INT32_MAX = 2**31 - 1
_BINARY = {"add": "ElementWiseAdd", "sub": "ElementWiseSubtract", "mul": "ElementWiseMultiply"}
_UNARY = {"sigmoid": "Sigmoid", "tanh": "Tanh", "gelu": "Gelu", "gelu_tanh": "Gelu"}  # the HTP has one GELU, with erf
_CONV = {
    "stride": np.array([1, 1], np.uint32), "pad_amount": np.array([[0, 0], [0, 0]], np.uint32),
    "dilation": np.array([1, 1], np.uint32), "group": 1,
}  # fmt: skip


def tensor(name: str, shape: Sequence[int], q: QParams | None, dtype: Any = None, data: Array | None = None) -> Value:
    """A tensor of a device graph: of an encoding, or plain."""
    stored = np.dtype(dtype) if q is None else q.dtype
    return Value(name, stored, tuple(shape), tuple(range(len(shape))), data, q=q)


class SharedConstants:
    """Constants that the graphs of several methods have in common: equal arrays are one."""

    def __init__(self, weights: QuantizedCheckpoint, encodings: Mapping[str, QParams]) -> None:
        self.weights, self.encodings = weights, encodings
        self._made: dict[str, Value] = {}

    def table(self, name: str) -> Value:
        if name not in self._made:
            q, table = self.encodings[name], self.weights.table(name)
            self._made[name] = tensor(name, table.shape, q, data=_quantize(table, q))
        return self._made[name]

    def norm(self, name: str) -> list[Value]:
        """Weight and bias of a norm."""
        if name not in self._made:
            integers, scale = quantize_int16(self.weights.vector(name))
            q = QParams(scale, 0, _INT16, -MAX_SYMMETRIC, MAX_SYMMETRIC)
            self._made[name] = tensor(name, integers.shape, q, data=integers)
            zeros = np.zeros(integers.shape, np.int32)
            q = QParams(1e-9, 0, _INT32, -_INT32_MAX, _INT32_MAX)
            self._made[f"{name}.bias"] = tensor(f"{name}_bias", integers.shape, q, data=zeros)
        return [self._made[name], self._made[f"{name}.bias"]]

    def linear(self, name: str, x: Value) -> list[Value]:
        """The filters [1, 1, inputs, outputs] of a linear layer, and its bias."""
        weights = self.weights.linear(name)
        if name not in self._made:
            self._made[name] = _filters(name, weights)
            if weights.bias is not None:
                self._made[f"{name}.bias"] = _bias(name, weights, weights.bias, x)
        return [self._made[name], *([] if weights.bias is None else [self._made[f"{name}.bias"]])]


def _filters(name: str, weights: LinearWeights) -> Value:
    outputs, blocks = weights.scales.shape
    data = np.ascontiguousarray(weights.integers.T)[None, None]
    scales = tuple(weights.scales.reshape(-1).tolist())
    if weights.bits == 8:
        q = QParams(scales, (0,) * outputs, _INT8, -127, 127, axis=3)
    else:
        q = QParams(scales, (0,) * len(scales), _INT8, -8, 7, axis=3, block=data.shape[2] // blocks)
    return tensor(name, data.shape, q, data=data)


def _bias(name: str, weights: LinearWeights, bias: Array, x: Value) -> Value:
    """The bias in units of the accumulator: the scale of the input times that of the weights."""
    assert x.q is not None
    units = np.asarray(x.q.scale) * weights.accumulator_scales
    integers = np.rint(bias / units)
    if np.abs(integers).max(initial=0) > _INT32_MAX:
        rule = "has a bias that is too large for the accumulators of the HTP"
        raise UsageError(f"layer {name!r}", rule, value=float(np.abs(bias).max()), remedy="Try 16a8w.")
    q = QParams(tuple(units.tolist()), (0,) * len(units), _INT32, -_INT32_MAX, _INT32_MAX, 0)
    return tensor(f"{name}_bias", bias.shape, q, data=integers.astype(np.int32))


def _quantize(x: Array, q: QParams) -> Array:
    stored = np.rint(x / np.asarray(q.scale)) + np.asarray(q.zero_point)
    result: Array = np.clip(stored, q.qmin, q.qmax).astype(q.dtype)
    return result


class QnnOperators:
    """Appends operators to ``graph``. A node's kind is QNN's; ``inputs`` are its tensors, ``params`` its parameters."""

    def __init__(self, name: str, constants: SharedConstants) -> None:
        self.graph = Graph(name)
        self.constants = constants
        self._count = 0

    @property
    def encodings(self) -> Mapping[str, QParams]:
        return self.constants.encodings

    def input(self, name: str, shape: Sequence[int], q: QParams | None = None, dtype: Any = np.int32) -> Value:
        value = tensor(name, shape, q, dtype)
        self.graph.inputs.append(value)
        return value

    def node(
        self, kind: str, inputs: Sequence[Value], shape: Sequence[int], q: QParams | None, /, **params: Any
    ) -> Value:
        out = tensor(f"v{self._count}", shape, q)
        self._count += 1
        self.graph.ops.append(Op(kind, {"inputs": list(inputs), "params": params}, [out]))
        return out

    # -------------------------------------------------------------------------------------------------------- operators

    def rows(self, name: str, index: Value) -> Value:
        table = self.constants.table(name)
        return self.node("Gather", [table, index], (*index.bound, table.bound[1]), table.q, axis=np.int32(0))

    def linear(self, name: str, x: Value) -> Value:
        operands = self.constants.linear(name, x)
        shape = (*x.bound[:-1], operands[0].bound[-1])
        return self.node("Conv2d", [x, *operands], shape, self.encodings[name], **_CONV)

    def norm(self, name: str, x: Value) -> Value:
        params = {"epsilon": float(self.constants.weights.norm_eps), "axes": np.array([len(x.bound) - 1], np.uint32)}
        return self.node("RmsNorm", [x, *self.constants.norm(name)], x.bound, self.encodings[name], **params)

    def binary(self, kind: str, name: str, x: Value, y: Value) -> Value:
        shape = np.broadcast_shapes(x.bound, y.bound)
        return self.node(_BINARY[kind], [x, y], shape, self.encodings[name])

    def unary(self, kind: str, name: str, x: Value) -> Value:
        q = {"sigmoid": PROBABILITY, "tanh": TANH}.get(kind) or self.encodings[name]
        return self.node(_UNARY[kind], [x], x.bound, q)

    def masked_scores(self, name: str, query: Value, keys: Value, mask: Value, heads: int) -> Value:
        scores = self.matmul(name, query, keys)
        length, columns = mask.bound[2:]
        by_head = self.reshape(scores, (1, heads, length, columns))
        return self.node("ElementWiseMinimum", [by_head, mask], by_head.bound, self.encodings[name])

    def softmax(self, x: Value) -> Value:
        return self.node("Softmax", [x], x.bound, PROBABILITY, axis=len(x.bound) - 1)

    def matmul(self, name: str, x: Value, y: Value) -> Value:
        return self.node("MatMul", [x, y], (*x.bound[:-1], y.bound[-1]), self.encodings[name])

    def convert(self, name: str, x: Value) -> Value:
        q = self.encodings[name]
        return x if x.q == q else self.node("Convert", [x], x.bound, q)

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        return x if x.bound == tuple(shape) else self.node("Reshape", [x], shape, x.q)

    def transpose(self, x: Value, dims: Sequence[int]) -> Value:
        shape = [x.bound[d] for d in dims]
        return self.node("Transpose", [x], shape, x.q, perm=np.array(dims, np.uint32))

    def columns(self, x: Value, start: int, end: int) -> Value:
        if (start, end) == (0, x.bound[-1]):
            return x
        ranges = np.array([*([0, n, 1] for n in x.bound[:-1]), [start, end, 1]], np.int32)
        return self.node("StridedSlice", [x], (*x.bound[:-1], end - start), x.q, ranges=ranges)

    def concat(self, name: str, parts: Sequence[Value], axis: int) -> Value:
        shape = list(parts[0].bound)
        shape[axis] = sum(part.bound[axis] for part in parts)
        return self.node("Concat", parts, shape, self.encodings[name], axis=axis)

    def mask_input(self, name: str, length: int, context: int) -> Value:
        """A mask, uint16: 65535 is visible, 0 is not."""
        q = self.encodings[MASK]
        assert q.dtype == UINT16
        return self.input(name, (1, 1, length, context), q)
