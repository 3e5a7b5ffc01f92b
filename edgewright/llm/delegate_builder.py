"""Builds one XNNPACK delegate of a method: a core graph, its blob, and the call.

The graph is built at the largest sizes; sizes of a dimension that varies between calls are inferred at run time, from
those of the inputs. Constants that XNNPACK does not pack are inputs of the delegate (``unpacked_constants``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.backends.xnnpack.blob import write_blob
from edgewright.backends.xnnpack.blob_writer import to_blob
from edgewright.backends.xnnpack.unpacked_constants import pass_unpacked_constants
from edgewright.ir.core.dialect import CORE
from edgewright.ir.graph import Array, Dim, Graph, Op, QParams, Size, Value
from edgewright.ir.verify import verify

F32 = np.dtype(np.float32)
INT8 = np.dtype(np.int8)
_EXTRA_BYTES = 64  # XNNPACK's kernels may read past the end of a tensor (XNN_EXTRA_BYTES)
_PER_ROW = QParams(1.0, 0, INT8, -128, 127, axis=-1, dynamic="per_token")


def tensor(name: str, shape: Sequence[Size], dtype: Any = F32, **fields: Any) -> Value:
    """A contiguous tensor of a method."""
    return Value(name, np.dtype(dtype), tuple(shape), tuple(range(len(shape))), **fields)


def constant(name: str, array: Array) -> Value:
    """A constant of a method."""
    return tensor(name, array.shape, array.dtype, data=np.ascontiguousarray(array))


class DelegateBuilder:
    """Adds operators to the graph of one delegate; ``call`` finishes it."""

    def __init__(self, name: str) -> None:
        self.graph = Graph(name)
        self._outer: list[Value] = []  # the method's values behind the graph's inputs
        self._inner: dict[Value, Value] = {}
        self._dynamic: dict[Value, Value] = {}  # dynamically quantized copies
        self._constants: dict[bytes, Value] = {}

    # ------------------------------------------------------------------------------------------------- operators

    def input(self, value: Value) -> Value:
        """The graph's value for a tensor of the method."""
        if value not in self._inner:
            self._inner[value] = Value(value.name, value.dtype, value.shape, value.dim_order)
            self.graph.inputs.append(self._inner[value])
            self._outer.append(value)
        return self._inner[value]

    def constant(self, array: Any) -> Value:
        """A float32 constant; equal ones are one value."""
        data = np.ascontiguousarray(array, np.float32)
        key = repr(data.shape).encode() + data.tobytes()
        if key not in self._constants:
            self._constants[key] = Value(f"c{len(self._constants)}", F32, data.shape, tuple(range(data.ndim)), data)
        return self._constants[key]

    def op(self, kind: str, shape: Sequence[Size], q: QParams | None = None, /, **args: Any) -> Value:
        """Append an operator; its result, a float32 tensor unless ``q`` is given."""
        dtype = F32 if q is None else q.dtype
        out = Value(f"v{len(self.graph.ops)}", dtype, tuple(shape), tuple(range(len(shape))), q=q)
        self.graph.ops.append(Op(f"core.{kind}", args, [out]))
        return out

    def unary(self, kind: str, x: Value) -> Value:
        return self.op(kind, x.shape, self=x)

    def binary(self, kind: str, x: Value, y: Value | float, **args: Any) -> Value:
        """An elementwise operator, broadcasting; a number is a constant."""
        other = y if isinstance(y, Value) else self.constant([y])
        return self.op(kind, _broadcast(x.shape, other.shape), self=x, other=other, **args)

    def linear(self, x: Value, weight: Value, bias: Value | None = None) -> Value:
        """A linear layer; its input is quantized by row if the weights are integers."""
        operand = x if weight.q is None else self.quantized(x)
        return self.op("linear", (*x.shape[:-1], weight.bound[0]), input=operand, weight=weight, bias=bias)

    def quantized(self, x: Value) -> Value:
        """``x`` as int8 rows with a scale and zero point each; one copy for all linear layers that read it."""
        if x not in self._dynamic:
            self._dynamic[x] = self.op("convert", x.shape, _PER_ROW, self=x)
        return self._dynamic[x]

    def slice_last(self, x: Value, start: int, length: int) -> Value:
        """Columns of the last dimension. A length of 0 is the full extent of a dynamic dimension."""
        lengths = [0 if isinstance(size, Dim) else size for size in x.shape[:-1]]
        starts = [0] * len(lengths)
        return self.op("slice", (*x.shape[:-1], length), self=x, start=[*starts, start], length=[*lengths, length])

    # ------------------------------------------------------------------------------------------------------ call

    def call(self, outputs: Sequence[tuple[Value, Value]]) -> Op:
        """The delegate call that computes the method's values from the graph's: pairs of (graph's, method's)."""
        graph = self.graph
        graph.outputs = [inner for inner, _ in outputs]
        for value in graph.values():
            value.shape = value.bound
        verify(graph, CORE)
        arrays = pass_unpacked_constants(graph)
        blob, named = to_blob(graph)
        unpacked = [constant(f"{graph.name}_c{i}", array) for i, array in enumerate(arrays)]
        args = {
            "id": "XnnpackBackend", "blob": write_blob(blob), "specs": {}, "named": named, "overread": _EXTRA_BYTES,
            "inputs": [*self._outer, *unpacked],
        }  # fmt: skip
        return Op("delegate", args, [outer for _, outer in outputs])


def _broadcast(a: Sequence[Size], b: Sequence[Size]) -> tuple[Size, ...]:
    rank = max(len(a), len(b))
    pairs = zip((1,) * (rank - len(a)) + tuple(a), (1,) * (rank - len(b)) + tuple(b), strict=True)
    return tuple(y if x == 1 else x for x, y in pairs)
