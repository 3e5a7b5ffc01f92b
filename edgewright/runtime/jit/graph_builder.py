"""Builder of a core graph whose inputs and outputs are tensor slots of a loaded method."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.ir.dtypes import DType, bfloat16
from edgewright.ir.graph import Array, Graph, Op, QParams, Value
from edgewright.ir.numerics import Numerics
from edgewright.runtime.tensor import TensorSlot

TransposeCache = dict[tuple[int, tuple[int, ...]], tuple[Array, Array]]
_F32 = np.dtype(np.float32)
# 16-bit types are computed in float32; every result is rounded (``engine/graph/widen_fp16.py``).
FLOATS = (_F32, np.dtype(np.float16), bfloat16)
DTYPES = (*FLOATS, *(np.dtype(t) for t in ("bool", "uint8", "int8", "int16", "int32", "int64")))
MIN_MACS = 1_000_000  # below, numpy finishes before the engine has compiled
TRANSCENDENTAL_COST = 10  # cost of a transcendental function, in multiply-accumulates
_TO_NHWC, _TO_NCHW = (0, 2, 3, 1), (0, 3, 1, 2)


class GraphBuilder:
    """Builds a core graph from kernel calls.

    A slot has up to two values: one in its logical dimension order and, for images, one in NHWC. Lowerings ask for the
    layout they compute in; ``_in_layout`` inserts a permute the first time a slot is needed in the other one. This is
    layout propagation in its simplest form: elementwise operators follow their operands (``prefers_nhwc``), so between
    two convolutions nothing is permuted.
    """

    def __init__(
        self, has_single_reader: Callable[[TensorSlot], bool], transposed: TransposeCache | None = None
    ) -> None:
        self.transposed: TransposeCache = {} if transposed is None else transposed  # constants, each with its source
        self.graph = Graph("segment")
        self.has_single_reader = has_single_reader  # exactly one call reads the tensor, and nothing else observes it
        self.input_slots: list[TensorSlot] = []
        self.guards: set[tuple[TensorSlot, int, bool]] = set()  # index tensor, size of the dimension, negatives allowed
        self.macs = 0
        self.numerics: Numerics | None = None  # of the delegates whose graphs are inlined
        self._values: dict[tuple[TensorSlot, bool], Value] = {}
        self._bound_slots: list[TensorSlot] = []  # keeps slots alive, so that their ids stay unique
        self._view_sources: dict[TensorSlot, Value] = {}
        self.producers: dict[Value, Op] = {}

    def supports_float(self, *slots: TensorSlot | None) -> bool:
        """Static, non-empty tensors of one floating-point dtype."""
        present = [s for s in slots if s is not None]
        supported = all(s.dtype in FLOATS and not s.dynamic and 0 not in s.bound for s in present)
        return supported and len({s.dtype for s in present}) <= 1

    def supports(self, *slots: TensorSlot | None) -> bool:
        """Static, non-empty tensors of a dtype that the engine computes with, not quantized."""
        return all(s is None or self._supports(s) for s in slots)

    def _supports(self, slot: TensorSlot) -> bool:
        bound = self._values.get((slot, False)) or self._values.get((slot, True))
        supported = slot.dtype in DTYPES and not slot.dynamic and 0 not in slot.bound
        return supported and (bound is None or bound.q is None)

    def supports_same_dtype(self, *slots: TensorSlot) -> bool:
        """``supports``, and all of one dtype."""
        return self.supports(*slots) and len({s.dtype for s in slots}) == 1

    @staticmethod
    def is_image(slot: TensorSlot) -> bool:
        return len(slot.bound) == 4

    def constant(self, slot: TensorSlot | None) -> Array | None:
        """The contents of a constant of the file, or of a folded one; None for anything else."""
        if slot is None:
            return None
        bound = self._values.get((slot, False))
        if bound is not None:
            return bound.data
        is_constant = slot.memory is not None and not slot.memory.flags.writeable and not slot.mutated
        return slot.array if is_constant else None

    def value(self, slot: TensorSlot) -> Value:
        """The slot's value in logical dimension order."""
        return self._in_layout(slot, False)

    def value_nhwc(self, slot: TensorSlot) -> Value:
        """The slot's value in NHWC."""
        return self._in_layout(slot, True)

    def prefers_nhwc(self, slots: Sequence[TensorSlot]) -> bool:
        """Whether an elementwise operator on ``slots`` should compute in NHWC: one of them already is."""
        same = all(self.is_image(s) and s.bound == slots[0].bound for s in slots)
        return same and any((s, True) in self._values for s in slots)

    def is_bound(self, slot: TensorSlot) -> bool:
        """Whether the graph has a value for the slot already."""
        return (slot, False) in self._values or (slot, True) in self._values

    def _in_layout(self, slot: TensorSlot, nhwc: bool) -> Value:
        if not self.is_bound(slot):
            self._import_slot(slot)
        if (slot, nhwc) not in self._values:
            value = self._values[slot, not nhwc]
            order = _TO_NHWC if nhwc else _TO_NCHW
            other = make_value(tuple(value.bound[d] for d in order), dtype=value.dtype)
            if value.data is not None:
                other.data = self.transpose_constant(value.data, order)
            else:
                self._append("core.permute", other, {"self": value, "dims": list(order)})
            self._values[slot, nhwc] = other
        return self._values[slot, nhwc]

    def transpose_constant(self, data: Array, dims: Sequence[int]) -> Array:
        """A transposed constant; the same array for the same arguments, so that weights are packed once."""
        key = (id(data), tuple(dims))
        if key not in self.transposed:
            self.transposed[key] = (data, np.ascontiguousarray(data.transpose(dims)))
        return self.transposed[key][1]

    def _import_slot(self, slot: TensorSlot) -> None:
        """Bind a tensor from outside the graph: a constant, or an input in its memory layout."""
        data, nhwc = self.constant(slot), slot.dim_order == _TO_NHWC
        if data is not None:
            value, nhwc = make_value(slot.bound, np.ascontiguousarray(data).reshape(slot.bound)), False
        else:
            value = make_value(tuple(slot.bound[d] for d in slot.dim_order), dtype=slot.dtype)
            self.graph.inputs.append(value)
            self.input_slots.append(slot)
        self.bind(slot, value, nhwc=nhwc)

    def bind(self, slot: TensorSlot, value: Value, *, nhwc: bool) -> None:
        """Make ``value`` the contents of ``slot``; a float32 value is rounded to a 16-bit slot's dtype."""
        if value.dtype == _F32 != slot.dtype and slot.dtype in FLOATS:
            value = self.emit("core.convert", value.bound, {"self": value}, slot.dtype)
        self._bound_slots.append(slot)
        self._values.pop((slot, not nhwc), None)
        self._values[slot, nhwc] = value

    def emit_to(self, kind: str, out: TensorSlot, args: dict[str, Any], *, nhwc: bool = False) -> None:
        """Append an operator whose result is ``out``."""
        shape = tuple(out.bound[d] for d in _TO_NHWC) if nhwc else out.bound
        value = make_value(shape, dtype=out.dtype)
        self._append(kind, value, args)
        self.bind(out, value, nhwc=nhwc)

    def emit(self, kind: str, shape: Sequence[int], args: dict[str, Any], dtype: DType | None = None) -> Value:
        """Append an operator and return its result, a value internal to the graph."""
        value = make_value(shape, dtype=dtype)
        self._append(kind, value, args)
        return value

    def view(self, value: Value, shape: Sequence[int]) -> Value:
        """``value`` in another shape."""
        if tuple(shape) == value.bound:
            return value
        return self.emit("core.view", shape, {"self": value, "size": list(shape)}, value.dtype)

    @staticmethod
    def float_scalar(number: Any) -> Array:
        return np.asarray([number], _F32)

    def _append(self, kind: str, value: Value, args: dict[str, Any]) -> None:
        op = Op(kind, args, [value])
        self.graph.ops.append(op)
        self.producers[value] = op

    def inline(self, graph: Graph, inputs: Sequence[TensorSlot], outputs: Sequence[TensorSlot]) -> bool:
        """Append all operators of another core graph, whose inputs and outputs are in memory layout."""
        pairs = list(zip(graph.inputs + graph.outputs, (*inputs, *outputs), strict=False))
        if len(pairs) != len(inputs) + len(outputs) or len(graph.inputs) != len(inputs):
            return False
        qparams: dict[TensorSlot, QParams | None] = {}
        if not all(self._matches(v, s) and qparams.setdefault(s, v.q) == v.q for v, s in pairs):
            return False
        for value, slot in zip(graph.inputs, inputs, strict=True):
            if value.q is not None and not self.is_bound(slot):
                self._import_slot(slot)
                self._values[slot, False].q = value.q
        mapping = {v: self.value_in_dim_order(s) for v, s in zip(graph.inputs, inputs, strict=True)}
        for op in graph.ops:
            op_outputs = [None if v is None else mapping.setdefault(v, replace(v)) for v in op.outputs]
            args = {name: _substitute(argument, mapping) for name, argument in op.args.items()}
            self.graph.ops.append(Op(op.kind, args, op_outputs, op.origin))
        for value, slot in zip(graph.outputs, outputs, strict=True):
            self.bind(slot, mapping[value], nhwc=slot.dim_order == _TO_NHWC)
        self.macs += MIN_MACS
        return True

    def _matches(self, value: Value, slot: TensorSlot) -> bool:
        """Whether a graph input or output can be this tensor: floating point, or int8 of the same quantization."""
        contiguous = slot.dim_order == tuple(range(len(slot.bound)))
        stored_shape = tuple(slot.bound[d] for d in slot.dim_order)
        if (
            value.constant
            or value.dtype != slot.dtype
            or value.bound != stored_shape
            or slot.dynamic
            or 0 in slot.bound
        ):
            return False
        if value.q is None:
            return slot.dtype in FLOATS and (contiguous or slot.dim_order == _TO_NHWC)
        bound, per_tensor = self._values.get((slot, False)), value.q.axis is None and value.q.dynamic is None
        same = self.constant(slot) is None if bound is None else bound.q == value.q
        return contiguous and per_tensor and same and value.q.dtype == slot.dtype and slot.dtype.itemsize == 1

    def bind_view(self, slot: TensorSlot, view: TensorSlot) -> bool:
        """Bind ``view`` to the contents of ``slot`` in another shape of the same memory."""
        contiguous = all(s.dim_order == tuple(range(len(s.bound))) for s in (slot, view))
        if not (contiguous and self.supports_float(slot, view) and self.is_bound(slot)):
            return False
        source = self.value(slot)
        if self._view_sources.get(view) is not source:
            self.emit_to("core.view", view, {"self": source, "size": list(view.bound)})
            self._view_sources[view] = source
        return True

    def value_in_dim_order(self, slot: TensorSlot) -> Value:
        """The slot's value in its memory layout."""
        return self._in_layout(slot, slot.dim_order == _TO_NHWC)


def _substitute(argument: Any, values: Mapping[Value, Value]) -> Any:
    if isinstance(argument, list | tuple):
        return type(argument)(_substitute(a, values) for a in argument)
    return values.get(argument, argument) if isinstance(argument, Value) else argument


def make_value(shape: Sequence[int], data: Array | None = None, dtype: DType | None = None) -> Value:
    default = _F32 if data is None else data.dtype
    return Value("v", dtype or default, tuple(shape), tuple(range(len(shape))), data)
