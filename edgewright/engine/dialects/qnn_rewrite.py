"""What QNN's translation is written with: kinds of values, moves between operators, and half precision."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.engine.dialects.elementwise import ELEMENTWISE
from edgewright.engine.dialects.rewrite import GraphRewrite, RuleTable
from edgewright.ir.graph import Array, Graph, Op, QParams, Value
from edgewright.ir.qnn.dtypes import half
from edgewright.ir.qnn.table import PREFIX, QNN, STORED

FLOAT32 = np.dtype(np.float32)
QUANTIZE, DEQUANTIZE = f"{PREFIX}Quantize", f"{PREFIX}Dequantize"
# What moves elements and changes none.
DATA_MOVEMENT = {name for name, row in QNN.items() if row.domain == STORED} | {"ScatterElements", "ScatterNd"}
_WORDS = (np.dtype(np.uint16), np.dtype(np.int16))


class QnnRewrite(GraphRewrite):
    """``halves``: what is rounded to half precision already, by what it is made of."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.halves: dict[Value, Value] = {}

    def keep(self, op: Op) -> None:
        """An operator as it is; a result without dimensions may be made of numbers that have one."""
        given, out = op.args["inputs"], op.outputs[0]
        if op.kind in ELEMENTWISE and out is not None and not out.bound and any(v.bound for v in given):
            op = Op(op.kind, {**op.args, "inputs": [self.view(op, v, ()) for v in given]}, op.outputs, op.origin)
        super().keep(op)

    def emit(self, kind: str, source: Op, out: Value, /, **args: Any) -> None:
        """A result without dimensions may be made of numbers that have one."""
        if not out.bound and kind not in ("view", "slice", "index_select"):
            args = {name: self.view(source, v, ()) if isinstance(v, Value) and v.bound == (1,) else v
                    for name, v in args.items()}  # fmt: skip
        super().emit(kind, source, out, **args)

    def bare(self, op: Op, x: Value) -> Value | None:
        """What is stored, as integers that stand for themselves; None of what the engine stores otherwise."""
        if x.q is None:
            return x
        if not is_movable(x) or str(x.dtype) == "int8":
            return None
        if x.data is not None:
            return replace(x, q=None)
        return self.then("view", op, replace(x, q=None), x.bound, self=x, size=list(x.bound))

    def temporary(self, like: Value, shape: Sequence[int], **changes: Any) -> Value:
        """A value of another shape, stored as another is."""
        shape = tuple(int(n) for n in shape)
        name = f"{like.name}_{len(self.ops)}"
        return replace(like, name=name, shape=shape, dim_order=tuple(range(len(shape))), data=None, **changes)

    def then(self, kind: str, op: Op, like: Value, shape: Sequence[int], /, **args: Any) -> Value:
        """An operator whose result only others of this translation read."""
        out = self.temporary(like, shape)
        self.emit(kind, op, out, **args)
        return out

    # ------------------------------------------------------------------------------------------------------- moves

    def view(self, op: Op, x: Value, shape: Sequence[int]) -> Value:
        if tuple(shape) == x.bound:
            return x
        if x.data is not None:
            return replace(self.temporary(x, shape), data=np.ascontiguousarray(x.data).reshape(tuple(shape)))
        return self.then("view", op, x, shape, self=x, size=list(shape))

    def turned(self, op: Op, x: Value, dims: Sequence[int]) -> Value:
        if list(dims) == list(range(len(x.bound))):
            return x
        shape = [x.bound[d] for d in dims]
        if x.data is not None:
            return replace(self.temporary(x, shape), data=np.ascontiguousarray(x.data.transpose(tuple(dims))))
        return self.then("permute", op, x, shape, self=x, dims=list(dims))

    def cut(self, op: Op, x: Value, start: Sequence[int], length: Sequence[int]) -> Value:
        if tuple(length) == x.bound:
            return x
        return self.then("slice", op, x, length, self=x, start=list(start), length=list(length))

    def padded(self, op: Op, x: Value, pairs: Sequence[tuple[int, int]], value: float = 0.0) -> Value:
        if not any(n for pair in pairs for n in pair):
            return x
        shape = [n + a + b for n, (a, b) in zip(x.bound, pairs, strict=True)]
        return self.then("pad", op, x, shape, self=x, before=[a for a, _ in pairs], after=[b for _, b in pairs],
                         value=value)  # fmt: skip

    def joined(self, op: Op, parts: Sequence[Value], dim: int) -> Value:
        if len(parts) == 1:
            return parts[0]
        shape = list(parts[0].bound)
        shape[dim] = sum(p.bound[dim] for p in parts)
        return self.then("cat", op, parts[0], shape, tensors=list(parts), dim=dim)

    def finish_as(self, op: Op, made: Value, out: Value) -> None:
        """What was made, in the result's shape."""
        self.emit("view", op, out, self=made, size=list(out.bound))

    # ------------------------------------------------------------------------------------------------ half precision

    def half(self, op: Op, x: Value) -> Value:
        """Real numbers in half precision."""
        if x.data is not None:
            return replace(x, data=half(x.data))
        if x not in self.halves:
            made = self.then("round_to_half", op, x, x.bound, self=x)
            self.halves[x] = self.halves[made] = made
        return self.halves[x]

    def rounded(self, op: Op) -> Op:
        """An operator that moves elements, on real numbers in half precision."""
        given = op.args.get("inputs", ())
        if op.kind.removeprefix(PREFIX) not in DATA_MOVEMENT or not any(map(is_float32, given)):
            return op
        held = [self.half(op, v) if is_float32(v) else v for v in given]
        return Op(op.kind, {**op.args, "inputs": held}, op.outputs, op.origin)

    def computed(self, kind: str, op: Op, out: Value, /, **args: Any) -> None:
        """An operator on real numbers, whose result is brought to half precision."""
        result = self.then(kind, op, out, out.bound, **args)
        self.emit("round_to_half", op, out, self=result)
        self.halves[out] = out

    def exact(self, kind: str, op: Op, out: Value, /, **args: Any) -> None:
        """One whose result is of half precision as its operands are."""
        self.emit(kind, op, out, **args)
        self.halves[out] = out


rule: RuleTable[QnnRewrite] = RuleTable(PREFIX)


def is_quantized(*values: Value) -> bool:
    """Integers with one scale, of 8 or 16 bits."""
    return all(is_int8(v) or is_int16(v) for v in values)


def is_int8(value: Value) -> bool:
    q = value.q
    return q is not None and q.axis is None and str(q.dtype) in ("uint8", "int8") and value.dtype == q.dtype


def is_int16(value: Value) -> bool:
    q = value.q
    return q is not None and q.axis is None and q.dtype in _WORDS and value.dtype == q.dtype


def is_float32(*values: Value) -> bool:
    return all(v.q is None and v.dtype == FLOAT32 for v in values)


def is_movable(value: Value) -> bool:
    """Its elements may be moved as they are stored."""
    return value.dtype is not None and (value.q is None or (value.q.axis is None and value.q.dtype == value.dtype))


def result_of(op: Op) -> Value:
    out = op.outputs[0]
    assert out is not None
    return out


def io_of(op: Op) -> tuple[list[Value], Value]:
    return op.args["inputs"], result_of(op)


def same_type(a: Value, b: Value) -> bool:
    return a.q == b.q and a.dtype == b.dtype


def non_empty(*values: Value) -> bool:
    return all(0 not in v.bound for v in values)


def make_constant(name: str, data: Array, q: QParams | None = None) -> Value:
    return Value(name, data.dtype, data.shape, tuple(range(data.ndim)), data, q=q)


def element_count(shape: Sequence[int]) -> int:
    return math.prod(int(n) for n in shape)
