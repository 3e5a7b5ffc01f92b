"""Builder of a core graph whose inputs and outputs are tensor slots of a loaded method."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Union

import numpy as np

from edgewright.errors import ExecutionError
from edgewright.ir.dtypes import DType
from edgewright.ir.graph import Array, Graph, Op, QParams, Value
from edgewright.ir.numerics import Numerics
from edgewright.lowering.aten_to_core.operands import F32, FLOATS
from edgewright.lowering.passes.layout import NHWC, LoweringContext, Order, identity, require
from edgewright.runtime.jit.segment_step import scalar_slot
from edgewright.runtime.tensor import TensorSlot

# Transposed and converted constants with their sources, by the source's id and the order or type.
TransposeCache = dict[tuple[int, Union[tuple[int, ...], str]], tuple[Array, Array]]
DTYPES = (*FLOATS, *(np.dtype(t) for t in ("bool", "uint8", "int8", "int16", "int32", "int64")))
MIN_MACS = 1_000_000  # below, numpy finishes before the engine has compiled
# Operators that keep indices in range.
_RANGE_PRESERVING = ("core.view", "core.cast", "core.clone", "core.permute", "core.slice", "core.expand")


class GraphBuilder(LoweringContext):
    """Builds a core graph from kernel calls.

    Calls are operators of the ATen dialect on values that stand for the contents of tensor slots. A slot
    from outside becomes an input of the graph when a lowering first reads it.
    """

    relabels_permutes = False
    statistics_dtype = np.float32
    complete = False  # every call must be lowered, not only those that repay it

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
        self.scalars: dict[int, TensorSlot] = {}  # inputs that are numbers of the value table, by their index
        self.producers: dict[Value, Op] = {}
        self.row_parameters: dict[Value, Value] = {}  # scales and zero points of rows, with the rows

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

    def results(self, slots: Sequence[TensorSlot]) -> list[Value]:
        """The values of slots as outputs of the graph."""
        values = [self.value_in_dim_order(slot) for slot in slots]
        for slot, value in zip(slots, values, strict=True):
            if value.dtype != slot.dtype:  # what has no value of its type stays inside of a graph
                raise ExecutionError("tensor", "must have the type that the graph computes", value=str(slot.dtype))
        return values

    def scalar(self, index: int, size: int) -> Value:
        """The integer of value ``index`` of the method as an input of the graph; before each run it is checked to be
        from 0 to ``size`` - 1."""
        if index not in self.scalars:
            self.scalars[index] = scalar_slot()
        slot = self.scalars[index]
        self.guards.add((slot, size, False))
        return self.get(self.source(slot))

    # ---------------------------------------------------------------------------------------------------- operators

    def emit(self, kind: str, out: Value, /, **args: Any) -> None:
        super().emit(kind, out, **args)
        self.producers[out] = self.graph.ops[-1]

    def transpose_constant(self, data: Array, order: Order) -> Array:
        """A transposed constant; the same array for the same arguments, so that weights are packed once."""
        if order == identity(data.ndim):
            return np.ascontiguousarray(data).reshape(data.shape)  # it would give a 0-d array a dimension
        key = (id(data), tuple(order))
        if key not in self.transposed:
            self.transposed[key] = (data, np.ascontiguousarray(data.transpose(order)))
        return self.transposed[key][1]

    def cast_constant(self, data: Array, dtype: DType) -> Array:
        """A constant of another type; the same array for the same arguments."""
        key = (id(data), str(dtype))
        if key not in self.transposed:
            self.transposed[key] = (data, np.ascontiguousarray(data).astype(dtype))
        return self.transposed[key][1]

    def scalar_dtype(self, dtype: DType) -> DType:
        """Kernels of 16-bit types compute in float32, with numbers that are not rounded."""
        return F32 if dtype in FLOATS else dtype

    def require_nonzero(self, divisor: Any) -> None:
        slot = self._slots.get(divisor) if isinstance(divisor, Value) else None
        if slot is None or divisor.constant:
            super().require_nonzero(divisor)
        else:
            self.guards.add((slot, 0, False))  # checked before each run

    # --------------------------------------------------------------------------------------------------- conditions

    def supports_float(self, *slots: TensorSlot) -> bool:
        """Static, non-empty tensors of one floating-point dtype."""
        return all(s.dtype in FLOATS for s in slots) and self.supports_same_dtype(*slots)

    def supports(self, *slots: TensorSlot) -> bool:
        """Static, non-empty tensors of a dtype that the engine computes with, not quantized."""
        for slot in slots:
            value = self._bound.get(slot)
            if (
                slot.dynamic
                or slot.dtype not in DTYPES
                or 0 in slot.bound
                or (value is not None and (value.q is not None or value.dtype != slot.dtype))
            ):
                return False
        return True

    def supports_same_dtype(self, *slots: TensorSlot) -> bool:
        """``supports``, and all of one dtype."""
        return self.supports(*slots) and len({s.dtype for s in slots}) == 1

    def require_in_range(self, index: Value, size: int, *, wrap: bool) -> None:
        """Constants are checked here, results of argmax and top-k by their bound, and inputs of the segment by a guard,
        before each run."""
        if index.constant:
            super().require_in_range(index, size, wrap=wrap)
        elif index in self._slots:
            self.guards.add((self._slots[index], size, wrap))
        else:
            require(self._upper_bound(self.get(index)) <= size, "must be in range")

    def _upper_bound(self, value: Value) -> float:
        """Exclusive upper bound of the indices that the segment computes."""
        op = self.producers.get(value)
        while op is not None and op.kind in _RANGE_PRESERVING:
            value = op.args["self"]
            op = self.producers.get(value)
        if op is not None and op.kind == "core.remainder":
            divisor = op.args["other"]
            data = divisor.data if isinstance(divisor, Value) else np.asarray(divisor)
            return int(data.item()) if data is not None and data.size == 1 and data.item() > 0 else math.inf
        if op is None or op.kind not in ("core.argmax", "core.argmin", "core.topk_indices"):
            return math.inf
        return int(op.args["self"].bound[op.args["dim"]])

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
        source = self.source(slot)
        if self._view_sources.get(view) is not source:
            self.bind_reshape(slot, view)
            self._view_sources[view] = source
        return True

    def bind_reshape(self, slot: TensorSlot, view: TensorSlot) -> None:
        """Make the contents of ``slot``, in another shape, those of ``view``."""
        value = Value("v", view.dtype, view.bound, identity(len(view.bound)))
        self.emit("core.view", self.make(value), self=self.get(self.source(slot)), size=list(view.bound))
        self.bind_result(view, value)


def _substitute(argument: Any, values: Mapping[Value, Value]) -> Any:
    if isinstance(argument, list | tuple):
        return type(argument)(_substitute(a, values) for a in argument)
    return values.get(argument, argument) if isinstance(argument, Value) else argument
