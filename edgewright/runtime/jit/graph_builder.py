"""A device graph in the making, of the tensors that kernel calls read and write."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.ir.dtypes import DType, bfloat16
from edgewright.ir.graph import Array, Graph, Op, QParams, Value
from edgewright.runtime.tensor import TensorSlot

Turned = dict[tuple[int, tuple[int, ...]], tuple[Array, Array]]
_F32 = np.dtype(np.float32)
# Those of 16 bits are computed in 32, and each result is rounded (``engine/graph/widen_fp16.py``).
REALS = (_F32, np.dtype(np.float16), bfloat16)
TYPES = (*REALS, *(np.dtype(t) for t in ("bool", "uint8", "int8", "int16", "int32", "int64")))
WORTH = 1_000_000  # products of numbers: below, numpy is done before the engine would be compiled
_TO_PIXELS, _TO_PLANES = (0, 2, 3, 1), (0, 3, 1, 2)


class Maker:
    """A device graph in the making. A row that returns False has added nothing."""

    def __init__(self, only_reader: Callable[[TensorSlot], bool], turned: Turned | None = None) -> None:
        self.turned: Turned = {} if turned is None else turned  # constants in other orders, with what they are of
        self.graph = Graph("segment")
        self.only_reader = only_reader  # whether one call reads a tensor, and nothing else ever sees it
        self.given: list[TensorSlot] = []
        self.guards: set[tuple[TensorSlot, int, bool]] = set()  # places: below what they must be, and may be negative
        self.macs = 0
        self._forms: dict[tuple[TensorSlot, bool], Value] = {}
        self._slots: list[TensorSlot] = []  # kept, so that their ids stay theirs
        self._shown: dict[TensorSlot, Value] = {}  # what views are another shape of
        self.makers: dict[Value, Op] = {}  # by the value they make

    def usable(self, *slots: TensorSlot | None) -> bool:
        """Real numbers, all of one type."""
        there = [s for s in slots if s is not None]
        known = all(s.dtype in REALS and not s.dynamic and 0 not in s.bound for s in there)
        return known and len({s.dtype for s in there}) <= 1

    def known(self, *slots: TensorSlot | None) -> bool:
        """Tensors of any type that the engine computes with, whose integers are themselves."""
        return all(s is None or self._known(s) for s in slots)

    def _known(self, slot: TensorSlot) -> bool:
        held = self._forms.get((slot, False)) or self._forms.get((slot, True))
        plain = slot.dtype in TYPES and not slot.dynamic and 0 not in slot.bound
        return plain and (held is None or held.q is None)

    def alike(self, *slots: TensorSlot) -> bool:
        """Known, and of one type."""
        return self.known(*slots) and len({s.dtype for s in slots}) == 1

    @staticmethod
    def image(slot: TensorSlot) -> bool:
        return len(slot.bound) == 4

    def constant(self, slot: TensorSlot | None) -> Array | None:
        """The contents of a tensor that the file holds, or of one made from it."""
        if slot is None:
            return None
        known = self._forms.get((slot, False))
        if known is not None:
            return known.data
        fixed = slot.memory is not None and not slot.memory.flags.writeable and not slot.mutated
        return slot.array if fixed else None

    def planes(self, slot: TensorSlot) -> Value:
        return self._form(slot, False)

    def pixels(self, slot: TensorSlot) -> Value:
        return self._form(slot, True)

    def like(self, slots: Sequence[TensorSlot]) -> bool:
        """Whether an operator on elements had better see pixels."""
        same = all(self.image(s) and s.bound == slots[0].bound for s in slots)
        return same and any((s, True) in self._forms for s in slots)

    def is_made(self, slot: TensorSlot) -> bool:
        return (slot, False) in self._forms or (slot, True) in self._forms

    def _form(self, slot: TensorSlot, pixels: bool) -> Value:
        if not self.is_made(slot):
            self._bring(slot)
        if (slot, pixels) not in self._forms:
            value = self._forms[slot, not pixels]
            order = _TO_PIXELS if pixels else _TO_PLANES
            turned = new(tuple(value.bound[d] for d in order), dtype=value.dtype)
            if value.data is not None:
                turned.data = self.turn(value.data, order)
            else:
                self._add("permute", turned, {"self": value, "dims": list(order)})
            self._forms[slot, pixels] = turned
        return self._forms[slot, pixels]

    def turn(self, data: Array, dims: Sequence[int]) -> Array:
        """A constant with its dimensions in another order; the same array each time."""
        key = (id(data), tuple(dims))
        if key not in self.turned:
            self.turned[key] = (data, np.ascontiguousarray(data.transpose(dims)))
        return self.turned[key][1]

    def _bring(self, slot: TensorSlot) -> None:
        """A tensor from outside: a constant, or an input as it lies in memory."""
        data, last = self.constant(slot), slot.dim_order == _TO_PIXELS
        if data is not None:
            value, last = new(slot.bound, np.ascontiguousarray(data).reshape(slot.bound)), False
        else:
            value = new(tuple(slot.bound[d] for d in slot.dim_order), dtype=slot.dtype)
            self.graph.inputs.append(value)
            self.given.append(slot)
        self.bind(slot, value, pixels=last)

    def bind(self, slot: TensorSlot, value: Value, *, pixels: bool) -> None:
        """A tensor is what a value is; reals of 32 bits are rounded to its 16."""
        if value.dtype == _F32 != slot.dtype and slot.dtype in REALS:
            value = self.between("convert", value.bound, {"self": value}, slot.dtype)
        self._slots.append(slot)
        self._forms.pop((slot, not pixels), None)
        self._forms[slot, pixels] = value

    def add(self, kind: str, out: TensorSlot, args: dict[str, Any], *, pixels: bool = False) -> None:
        """An operator whose result is ``out``."""
        shape = tuple(out.bound[d] for d in _TO_PIXELS) if pixels else out.bound
        value = new(shape, dtype=out.dtype)
        self._add(kind, value, args)
        self.bind(out, value, pixels=pixels)

    def between(self, kind: str, shape: Sequence[int], args: dict[str, Any], dtype: DType | None = None) -> Value:
        """An operator whose result only the segment knows."""
        value = new(shape, dtype=dtype)
        self._add(kind, value, args)
        return value

    def viewed(self, value: Value, shape: Sequence[int]) -> Value:
        """Another shape of a value."""
        if tuple(shape) == value.bound:
            return value
        return self.between("view", shape, {"self": value, "size": list(shape)}, value.dtype)

    @staticmethod
    def single(number: Any) -> Array:
        return np.asarray([number], _F32)

    def _add(self, kind: str, value: Value, args: dict[str, Any]) -> None:
        op = Op(kind, args, [value])
        self.graph.ops.append(op)
        self.makers[value] = op

    def inline(self, graph: Graph, given: Sequence[TensorSlot], made: Sequence[TensorSlot]) -> bool:
        """All of another device graph, which sees tensors as they lie in memory."""
        pairs = list(zip(graph.inputs + graph.outputs, (*given, *made), strict=False))
        if len(pairs) != len(given) + len(made) or len(graph.inputs) != len(given):
            return False
        meant: dict[TensorSlot, QParams | None] = {}  # by slot: what bytes stand for
        if not all(self._suits(v, s) and meant.setdefault(s, v.q) == v.q for v, s in pairs):
            return False
        for value, slot in zip(graph.inputs, given, strict=True):
            if value.q is not None and not self.is_made(slot):
                self._bring(slot)
                self._forms[slot, False].q = value.q
        inside = {v: self.output(s) for v, s in zip(graph.inputs, given, strict=True)}
        for op in graph.ops:
            outputs = [None if v is None else inside.setdefault(v, replace(v)) for v in op.outputs]
            args = {name: _replaced(argument, inside) for name, argument in op.args.items()}
            self.graph.ops.append(Op(op.kind, args, outputs, op.origin))
        for value, slot in zip(graph.outputs, made, strict=True):
            self.bind(slot, inside[value], pixels=slot.dim_order == _TO_PIXELS)
        self.macs += WORTH
        return True

    def _suits(self, value: Value, slot: TensorSlot) -> bool:
        """Whether an end of a device graph can be a tensor of the program: reals, or bytes of the same meaning."""
        plain = slot.dim_order == tuple(range(len(slot.bound)))
        lies = tuple(slot.bound[d] for d in slot.dim_order)
        if value.constant or value.dtype != slot.dtype or value.bound != lies or slot.dynamic or 0 in slot.bound:
            return False
        if value.q is None:
            return slot.dtype in REALS and (plain or slot.dim_order == _TO_PIXELS)
        known, fixed = self._forms.get((slot, False)), value.q.axis is None and value.q.dynamic is None
        same = self.constant(slot) is None if known is None else known.q == value.q
        return plain and fixed and same and value.q.dtype == slot.dtype and slot.dtype.itemsize == 1

    def reshape(self, slot: TensorSlot, view: TensorSlot) -> bool:
        """``view`` is another shape of what ``slot`` holds, as it lies in memory."""
        plain = all(s.dim_order == tuple(range(len(s.bound))) for s in (slot, view))
        if not (plain and self.usable(slot, view) and self.is_made(slot)):
            return False
        source = self.planes(slot)
        if self._shown.get(view) is not source:
            self.add("view", view, {"self": source, "size": list(view.bound)})
            self._shown[view] = source
        return True

    def output(self, slot: TensorSlot) -> Value:
        """A result as it lies in memory."""
        return self._form(slot, slot.dim_order == _TO_PIXELS)


def _replaced(argument: Any, values: Mapping[Value, Value]) -> Any:
    if isinstance(argument, list | tuple):
        return type(argument)(_replaced(a, values) for a in argument)
    return values.get(argument, argument) if isinstance(argument, Value) else argument


def new(shape: Sequence[int], data: Array | None = None, dtype: DType | None = None) -> Value:
    held = _F32 if data is None else data.dtype
    return Value("v", dtype or held, tuple(shape), tuple(range(len(shape))), data)
