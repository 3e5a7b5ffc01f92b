"""Builder of a core graph whose inputs and outputs are tensor slots of a loaded method."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.ir.dtypes import DType, bfloat16
from edgewright.ir.graph import Array, Graph, Op, QParams, Value
from edgewright.ir.numerics import Numerics
from edgewright.lowering.passes.layout import NHWC, LoweringContext, Order, identity
from edgewright.runtime.tensor import TensorSlot

TransposeCache = dict[tuple[int, tuple[int, ...]], tuple[Array, Array]]
_F32 = np.dtype(np.float32)
# 16-bit types are computed in float32; every result is rounded (``engine/graph/widen_fp16.py``).
FLOATS = (_F32, np.dtype(np.float16), bfloat16)
DTYPES = (*FLOATS, *(np.dtype(t) for t in ("bool", "uint8", "int8", "int16", "int32", "int64")))
MIN_MACS = 1_000_000  # below, numpy finishes before the engine has compiled
TRANSCENDENTAL_COST = 10  # cost of a transcendental function, in multiply-accumulates


class GraphBuilder(LoweringContext):
    """Builds a core graph from kernel calls.

    Calls are operators of the ATen dialect (``make_op``) on values that stand for the contents of tensor slots. A slot
    from outside becomes an input of the graph when a lowering first reads it.
    """

    def __init__(
        self, has_single_reader: Callable[[TensorSlot], bool], transposed: TransposeCache | None = None
    ) -> None:
        super().__init__("segment")
        self.transposed: TransposeCache = {} if transposed is None else transposed  # constants, each with its source
        self.has_single_reader = has_single_reader  # exactly one call reads the tensor, and nothing else observes it
        self.input_slots: list[TensorSlot] = []
        self.guards: set[tuple[TensorSlot, int, bool]] = set()  # index tensor, size of the dimension, negatives allowed
        self.macs = 0
        self.numerics: Numerics | None = None  # of the delegates whose graphs are inlined
        self._bound: dict[TensorSlot, Value] = {}  # the contents of slots that the graph reads or computes
        self._outside: dict[TensorSlot, Value] = {}
        self._slots: dict[Value, TensorSlot] = {}  # of values from outside
        self._view_sources: dict[TensorSlot, Value] = {}
        self.producers: dict[Value, Op] = {}

    # ------------------------------------------------------------------------------------------------------- slots

    def source(self, slot: TensorSlot) -> Value:
        """The value that stands for the contents of a slot."""
        value = self._bound.get(slot) or self._outside.get(slot)
        if value is None:
            data = self.constant_data(slot)
            value = Value("v", slot.dtype, slot.bound, slot.dim_order, data)
            self._outside[slot] = value
            self._slots[value] = slot
        return value

    def is_bound(self, slot: TensorSlot) -> bool:
        """Whether the graph has a value for the slot already."""
        return slot in self._bound

    def bind_result(self, slot: TensorSlot, value: Value) -> None:
        """Make ``value``, which the graph defines, the contents of ``slot``."""
        self._bound[slot] = value

    def bind_constant(self, slot: TensorSlot, data: Array) -> None:
        self._bound[slot] = Value("v", data.dtype, data.shape, identity(data.ndim), data)

    def constant_data(self, slot: TensorSlot | None) -> Array | None:
        """The contents of a constant of the file, or of a folded one; None for anything else."""
        if slot is None:
            return None
        bound = self._bound.get(slot)
        if bound is not None:
            return bound.data
        is_constant = slot.memory is not None and not slot.memory.flags.writeable and not slot.mutated
        return slot.array if is_constant else None

    def orders(self, value: Value) -> list[Order]:
        unread = self._slots.get(value) if value not in self._by_order and not value.constant else None
        return super().orders(value) if unread is None else [unread.dim_order]

    def get(self, value: Value, order: Order | None = None) -> Value:
        slot = self._slots.get(value)
        if slot is not None and value not in self._by_order and not value.constant:
            self._bound.setdefault(slot, value)
            stored = self._device(value, slot.dim_order)
            self.graph.inputs.append(stored)
            self.input_slots.append(slot)
            self.alias(value, slot.dim_order, stored)
        return super().get(value, order)

    def value_in_dim_order(self, slot: TensorSlot) -> Value:
        """The slot's value in its memory layout."""
        return self.get(self.source(slot), slot.dim_order)

    # ---------------------------------------------------------------------------------------------------- operators

    def emit(self, kind: str, out: Value, /, **args: Any) -> None:
        super().emit(kind, out, **args)
        self.producers[out] = self.graph.ops[-1]

    def transpose_constant(self, data: Array, order: Order) -> Array:
        """A transposed constant; the same array for the same arguments, so that weights are packed once."""
        if order == identity(data.ndim):
            return np.ascontiguousarray(data)
        key = (id(data), tuple(order))
        if key not in self.transposed:
            self.transposed[key] = (data, np.ascontiguousarray(data.transpose(order)))
        return self.transposed[key][1]

    def scalar_dtype(self, dtype: DType) -> DType:
        """Kernels of 16-bit types compute in float32, with numbers that are not rounded."""
        return _F32 if dtype in FLOATS else dtype

    def require_nonzero(self, divisor: Any) -> None:
        slot = self._slots.get(divisor) if isinstance(divisor, Value) else None
        if slot is None or divisor.constant:
            super().require_nonzero(divisor)
        else:
            self.guards.add((slot, 0, False))  # checked before each run

    # -------------------------------------------------------------------------------------- lowerings of kernel calls

    def supports_float(self, *slots: TensorSlot | None) -> bool:
        """Static, non-empty tensors of one floating-point dtype."""
        present = [s for s in slots if s is not None]
        supported = all(s.dtype in FLOATS and not s.dynamic and 0 not in s.bound for s in present)
        return supported and len({s.dtype for s in present}) <= 1

    def supports(self, *slots: TensorSlot | None) -> bool:
        """Static, non-empty tensors of a dtype that the engine computes with, not quantized."""
        return all(s is None or self._supports(s) for s in slots)

    def _supports(self, slot: TensorSlot) -> bool:
        bound = self._bound.get(slot)
        supported = slot.dtype in DTYPES and not slot.dynamic and 0 not in slot.bound
        return supported and (bound is None or bound.q is None)

    def supports_same_dtype(self, *slots: TensorSlot) -> bool:
        """``supports``, and all of one dtype."""
        return self.supports(*slots) and len({s.dtype for s in slots}) == 1

    @staticmethod
    def is_image(slot: TensorSlot) -> bool:
        return len(slot.bound) == 4

    def value(self, slot: TensorSlot) -> Value:
        """The slot's value in logical dimension order."""
        return self.get(self.source(slot))

    def value_nhwc(self, slot: TensorSlot) -> Value:
        """The slot's value in NHWC."""
        return self.get(self.source(slot), NHWC)

    def prefers_nhwc(self, slots: Sequence[TensorSlot]) -> bool:
        """Whether an elementwise operator on ``slots`` should compute in NHWC: one of them already is."""
        same = all(self.is_image(s) and s.bound == slots[0].bound for s in slots)
        return same and any(s in self._bound and NHWC in self.orders(self._bound[s]) for s in slots)

    def bind(self, slot: TensorSlot, value: Value, *, nhwc: bool) -> None:
        """Make ``value`` the contents of ``slot``; a float32 value is rounded to a 16-bit slot's dtype."""
        if value.dtype == _F32 != slot.dtype and slot.dtype in FLOATS:
            value = self.emit_core("core.convert", value.bound, {"self": value}, slot.dtype)
        if value.data is not None:
            self.bind_constant(slot, value.data.transpose(0, 3, 1, 2) if nhwc else value.data)
            return
        source = Value("v", value.dtype, slot.bound, identity(len(slot.bound)), q=value.q)
        self.alias(source, NHWC if nhwc else identity(len(slot.bound)), value)
        self.bind_result(slot, source)

    def emit_to(self, kind: str, out: TensorSlot, args: dict[str, Any], *, nhwc: bool = False) -> None:
        """Append an operator whose result is ``out``."""
        shape = tuple(out.bound[d] for d in NHWC) if nhwc else out.bound
        self.bind(out, self.emit_core(kind, shape, args, out.dtype), nhwc=nhwc)

    def emit_core(self, kind: str, shape: Sequence[int], args: dict[str, Any], dtype: DType | None = None) -> Value:
        """Append an operator and return its result, a value internal to the graph."""
        value = make_value(shape, dtype=dtype)
        self.emit(kind, value, **args)
        return value

    # ---------------------------------------------------------------------------------------------------- delegates

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
                self.source(slot).q = value.q
        mapping = {v: self.value_in_dim_order(s) for v, s in zip(graph.inputs, inputs, strict=True)}
        for op in graph.ops:
            op_outputs = [None if v is None else mapping.setdefault(v, replace(v)) for v in op.outputs]
            args = {name: _substitute(argument, mapping) for name, argument in op.args.items()}
            self.graph.ops.append(Op(op.kind, args, op_outputs, op.origin))
        for value, slot in zip(graph.outputs, outputs, strict=True):
            contents = Value("v", value.dtype, slot.bound, slot.dim_order, q=value.q)
            self.alias(contents, slot.dim_order, mapping[value])
            self.bind_result(slot, contents)
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
            return slot.dtype in FLOATS and (contiguous or slot.dim_order == NHWC)
        bound, per_tensor = self._bound.get(slot), value.q.axis is None and value.q.dynamic is None
        same = self.constant_data(slot) is None if bound is None else bound.q == value.q
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


def _substitute(argument: Any, values: Mapping[Value, Value]) -> Any:
    if isinstance(argument, list | tuple):
        return type(argument)(_substitute(a, values) for a in argument)
    return values.get(argument, argument) if isinstance(argument, Value) else argument


def make_value(shape: Sequence[int], data: Array | None = None, dtype: DType | None = None) -> Value:
    default = _F32 if data is None else data.dtype
    return Value("v", dtype or default, tuple(shape), tuple(range(len(shape))), data)
