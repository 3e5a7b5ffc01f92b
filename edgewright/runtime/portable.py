"""Kernel calls as operators of a device graph, so that the engine can run them: one row for each operator.

PyTorch's images have their channels before rows and columns, a device graph's have them last. Every tensor is kept in
the form it was made in, and turned only when the other is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.ir.dtypes import DType
from edgewright.ir.graph import Array, Graph, Op, QParams, Value
from edgewright.runtime.tensor import TensorSlot

Args = Mapping[str, Any]
Row = Callable[["Maker", Args, Sequence[TensorSlot]], bool]
ROWS: dict[str, Row] = {}
Turned = dict[tuple[int, tuple[int, ...]], tuple[Array, Array]]
OTHERWISE: dict[str, list[Row]] = {}  # for what the first row of a kernel does not take
_F32 = np.dtype(np.float32)
TYPES = tuple(np.dtype(t) for t in ("float32", "bool", "uint8", "int8", "int16", "int32", "int64"))
WORTH = 1_000_000  # products of numbers: below, numpy is done before the engine would be compiled
_TO_PIXELS, _TO_PLANES = (0, 2, 3, 1), (0, 3, 1, 2)


WHOLE: set[str] = set()  # kernels of which all results are made, not the first only


def taken(*keys: str) -> Callable[[Row], Row]:
    def register(row: Row) -> Row:
        ROWS.update(dict.fromkeys(keys, row))
        return row

    return register


def otherwise(*keys: str) -> Callable[[Row], Row]:
    """A row for what ``taken``'s row of the same kernels does not take."""

    def register(row: Row) -> Row:
        for key in keys:
            OTHERWISE.setdefault(key, []).append(row)
        return row

    return register


class Maker:
    """A device graph in the making. A row that returns False has added nothing."""

    def __init__(self, only_reader: Callable[[TensorSlot], bool], turned: Turned | None = None) -> None:
        self.turned: Turned = {} if turned is None else turned  # constants in other orders, with what they are of
        self.graph = Graph("segment")
        self.only_reader = only_reader  # whether one call reads a tensor, and nothing else ever sees it
        self.given: list[TensorSlot] = []
        self.guards: set[tuple[TensorSlot, int, bool]] = set()  # places: below what they must be, and may be negative
        self.macs = 0
        self._forms: dict[tuple[int, bool], Value] = {}
        self._slots: list[TensorSlot] = []  # kept, so that their ids stay theirs
        self._shown: dict[int, Value] = {}  # what views are another shape of
        self.makers: dict[int, Op] = {}  # by the id of the value they make

    def usable(self, *slots: TensorSlot | None) -> bool:
        return all(s is None or (s.dtype == _F32 and not s.dynamic and 0 not in s.bound) for s in slots)

    def known(self, *slots: TensorSlot | None) -> bool:
        """Tensors of any type that the engine computes with, whose integers are themselves."""
        return all(s is None or self._known(s) for s in slots)

    def _known(self, slot: TensorSlot) -> bool:
        held = self._forms.get((id(slot), False)) or self._forms.get((id(slot), True))
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
        known = self._forms.get((id(slot), False))
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
        return same and any((id(s), True) in self._forms for s in slots)

    def is_made(self, slot: TensorSlot) -> bool:
        return (id(slot), False) in self._forms or (id(slot), True) in self._forms

    def _form(self, slot: TensorSlot, pixels: bool) -> Value:
        if not self.is_made(slot):
            self._bring(slot)
        if (id(slot), pixels) not in self._forms:
            value = self._forms[id(slot), not pixels]
            order = _TO_PIXELS if pixels else _TO_PLANES
            turned = new(tuple(value.bound[d] for d in order), dtype=value.dtype)
            if value.data is not None:
                turned.data = self.turn(value.data, order)
            else:
                self._add("permute", turned, {"self": value, "dims": list(order)})
            self._forms[id(slot), pixels] = turned
        return self._forms[id(slot), pixels]

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
        self._slots.append(slot)
        self._forms.pop((id(slot), not pixels), None)
        self._forms[id(slot), pixels] = value

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

    @staticmethod
    def single(number: Any) -> Array:
        return np.asarray([number], _F32)

    def _add(self, kind: str, value: Value, args: dict[str, Any]) -> None:
        op = Op(kind, args, [value])
        self.graph.ops.append(op)
        self.makers[id(value)] = op

    def inline(self, graph: Graph, given: Sequence[TensorSlot], made: Sequence[TensorSlot]) -> bool:
        """All of another device graph, which sees tensors as they lie in memory."""
        pairs = list(zip(graph.inputs + graph.outputs, (*given, *made), strict=False))
        if len(pairs) != len(given) + len(made) or len(graph.inputs) != len(given):
            return False
        meant: dict[int, QParams | None] = {}  # by slot: what bytes stand for
        if not all(self._suits(v, s) and meant.setdefault(id(s), v.q) == v.q for v, s in pairs):
            return False
        for value, slot in zip(graph.inputs, given, strict=True):
            if value.q is not None and not self.is_made(slot):
                self._bring(slot)
                self._forms[id(slot), False].q = value.q
        inside = {id(v): self.output(s) for v, s in zip(graph.inputs, given, strict=True)}
        for op in graph.ops:
            outputs = [None if v is None else inside.setdefault(id(v), replace(v)) for v in op.outputs]
            args = {name: _replaced(argument, inside) for name, argument in op.args.items()}
            self.graph.ops.append(Op(op.kind, args, outputs, op.origin))
        for value, slot in zip(graph.outputs, made, strict=True):
            self.bind(slot, inside[id(value)], pixels=slot.dim_order == _TO_PIXELS)
        self.macs += WORTH
        return True

    def _suits(self, value: Value, slot: TensorSlot) -> bool:
        """Whether an end of a device graph can be a tensor of the program: reals, or bytes of the same meaning."""
        plain = slot.dim_order == tuple(range(len(slot.bound)))
        lies = tuple(slot.bound[d] for d in slot.dim_order)
        if value.constant or value.dtype != slot.dtype or value.bound != lies or slot.dynamic or 0 in slot.bound:
            return False
        if value.q is None:
            return slot.dtype == _F32 and (plain or slot.dim_order == _TO_PIXELS)
        known, fixed = self._forms.get((id(slot), False)), value.q.axis is None and value.q.dynamic is None
        same = self.constant(slot) is None if known is None else known.q == value.q
        return plain and fixed and same and value.q.dtype == slot.dtype and slot.dtype.itemsize == 1

    def reshape(self, slot: TensorSlot, view: TensorSlot) -> bool:
        """``view`` is another shape of what ``slot`` holds, as it lies in memory."""
        plain = all(s.dim_order == tuple(range(len(s.bound))) for s in (slot, view))
        if not (plain and self.usable(slot, view) and self.is_made(slot)):
            return False
        source = self.planes(slot)
        if self._shown.get(id(view)) is not source:
            self.add("view", view, {"self": source, "size": list(view.bound)})
            self._shown[id(view)] = source
        return True

    def output(self, slot: TensorSlot) -> Value:
        """A result as it lies in memory."""
        return self._form(slot, slot.dim_order == _TO_PIXELS)


def _replaced(argument: Any, values: Mapping[int, Value]) -> Any:
    if isinstance(argument, list | tuple):
        return type(argument)(_replaced(a, values) for a in argument)
    return values.get(id(argument), argument) if isinstance(argument, Value) else argument


def new(shape: Sequence[int], data: Array | None = None, dtype: DType | None = None) -> Value:
    held = _F32 if data is None else data.dtype
    return Value("v", dtype or held, tuple(shape), tuple(range(len(shape))), data)


def _pair(numbers: Sequence[int]) -> list[int]:
    return [int(n) for n in numbers] * (2 // len(numbers)) if len(numbers) in (1, 2) else []


# ----------------------------------------------------------------------------------------------------------- products


@taken("aten::convolution.out")
def _convolution(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, w, b = a["input"], m.constant(a["weight"]), a["bias"]
    lists = [_pair(a[name]) for name in ("stride", "padding", "dilation")]
    known = w is not None and w.ndim == 4 and w.dtype == _F32 and (b is None or m.constant(b) is not None)
    if not (m.usable(x, b, *outs) and m.image(x) and known and all(lists)) or a["transposed"] or w is None:
        return False
    (stride, pads, dilation), groups = lists, a["groups"]
    depthwise = groups > 1 and groups == x.bound[1] and w.shape[1] == 1
    filters = w[:, 0].transpose(1, 2, 0)[None] if depthwise else w.transpose(0, 2, 3, 1)
    m.macs += math.prod(outs[0].bound) * math.prod(w.shape[1:])
    args = {
        "input": m.pixels(x),
        "weight": new(filters.shape, np.ascontiguousarray(filters)),
        "bias": None if b is None else new(b.bound, m.constant(b)),
        "stride": stride,
        "padding": [pads[0], pads[0], pads[1], pads[1]],
        "dilation": dilation,
        "groups": groups,
        "output_padding": [0, 0],
    }
    m.add("depthwise_conv2d" if depthwise else "conv2d", outs[0], args, pixels=True)
    return True


@taken("aten::_native_batch_norm_legit_no_training.out")
def _batch_norm(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    """Into the filters before it, which is where it costs nothing."""
    x, given = a["input"], [a[n] for n in ("weight", "bias", "running_mean", "running_var")]
    values = [m.constant(s) for s in given]
    if not m.usable(x, outs[0], *given) or any(v is None and s is not None for v, s in zip(values, given, strict=True)):
        return False
    if not (m.image(x) and m.is_made(x) and m.only_reader(x)):
        return False
    made = m.pixels(x)
    op = m.makers.get(id(made))
    mean, variance = values[2], values[3]
    if op is None or op.kind not in ("conv2d", "depthwise_conv2d") or mean is None or variance is None:
        return False
    factor = (1 if values[0] is None else values[0]) / np.sqrt(variance + np.float32(a["eps"]))
    shift = (0 if values[1] is None else values[1]) - mean * factor
    weight, bias = op.args["weight"], op.args["bias"]
    spread = factor if op.kind == "depthwise_conv2d" else factor[:, None, None, None]
    op.args["weight"] = new(weight.bound, (weight.data * spread).astype(np.float32))
    op.args["bias"] = new(factor.shape, (shift if bias is None else bias.data * factor + shift).astype(np.float32))
    m.bind(outs[0], made, pixels=True)
    return True


def _product(m: Maker, x: TensorSlot, w: Array | None, bias: Any, out: TensorSlot, *, turned: bool) -> bool:
    if w is None or w.ndim != 2 or not m.usable(x, out) or w.dtype != _F32 or len(x.bound) < 1:
        return False
    columns = w.shape[1] if turned else w.shape[0]
    if bias is not None and bias.shape != (columns,):
        return False
    m.macs += math.prod(x.bound) * columns
    added = None if bias is None else new(bias.shape, np.ascontiguousarray(bias))
    weight = new(w.shape, np.ascontiguousarray(w))
    m.add("linear", out, {"input": m.planes(x), "weight": weight, "bias": added, "transposed": turned})
    return True


@taken("aten::addmm.out")
def _addmm(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    bias = m.constant(a["self"])
    if bias is None or a["beta"] != 1 or a["alpha"] != 1:
        return False
    return _product(m, a["mat1"], m.constant(a["mat2"]), bias, outs[0], turned=True)


@taken("aten::mm.out")
def _mm(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    return _product(m, a["self"], m.constant(a["mat2"]), None, outs[0], turned=True)


@taken("aten::linear.out")
def _linear(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    bias = m.constant(a["bias"])
    if a["bias"] is not None and bias is None:
        return False
    return _product(m, a["input"], m.constant(a["weight"]), bias, outs[0], turned=False)


# -------------------------------------------------------------------------------------------------- element by element

_UNARY = ("sigmoid", "tanh", "exp", "sqrt", "abs", "neg", "log", "rsqrt", "floor", "ceil")


@taken(*(f"aten::{name}.out" for name in _UNARY), "aten::relu.out", "aten::hardtanh.out", "aten::clamp.out")
def _unary(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x = a["self"]
    if not m.usable(x, *outs) or x.bound != outs[0].bound:
        return False
    name = a["key"].partition("::")[2].partition(".")[0]
    pixels = m.like([x])
    given = m.pixels(x) if pixels else m.planes(x)
    if name in _UNARY:
        m.add(name, outs[0], {"self": given}, pixels=pixels)
        return True
    low, high = {"relu": (0.0, None), "hardtanh": (a.get("min_val"), a.get("max_val"))}.get(
        name, (a.get("min"), a.get("max"))
    )
    limits = (-math.inf if low is None else float(low), math.inf if high is None else float(high))
    if not limits[0] <= limits[1]:
        return False
    m.add("clamp", outs[0], {"self": given, "limits": limits}, pixels=pixels)
    return True


@taken(*(f"aten::{name}.out" for name in ("add", "sub", "mul", "div", "maximum", "minimum")))
def _binary(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, y = a["self"], a["other"]
    if not m.usable(x, y, *outs) or a.get("alpha", 1) != 1:
        return False
    if m.constant(x) is not None and m.constant(y) is not None:
        return False
    pixels = m.like([x, y])
    form = m.pixels if pixels else m.planes
    m.add(a["key"][6:].partition(".")[0], outs[0], {"self": form(x), "other": form(y)}, pixels=pixels)
    return True


# These add rows to ``ROWS``.
from edgewright.runtime import portable_convolutions as portable_convolutions  # noqa: E402
from edgewright.runtime import portable_embeddings as portable_embeddings  # noqa: E402
from edgewright.runtime import portable_functions as portable_functions  # noqa: E402
from edgewright.runtime import portable_grid as portable_grid  # noqa: E402
from edgewright.runtime import portable_images as portable_images  # noqa: E402
from edgewright.runtime import portable_layers as portable_layers  # noqa: E402
from edgewright.runtime import portable_moves as portable_moves  # noqa: E402
from edgewright.runtime import portable_picks as portable_picks  # noqa: E402
from edgewright.runtime import portable_places as portable_places  # noqa: E402
from edgewright.runtime import portable_quantized as portable_quantized  # noqa: E402
from edgewright.runtime import portable_state as portable_state  # noqa: E402
from edgewright.runtime import portable_tables as portable_tables  # noqa: E402
from edgewright.runtime import portable_typed as portable_typed  # noqa: E402
