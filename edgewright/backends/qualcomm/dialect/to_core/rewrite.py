"""Infrastructure of the QNN translation: type predicates, data movement helpers, and fp16 rounding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.backends.qualcomm.dialect.dtypes import round_to_fp16
from edgewright.backends.qualcomm.dialect.table import PREFIX, QNN
from edgewright.ir.graph import Array, Graph, Op, QParams, Value
from edgewright.ir.rewrite import GraphRewrite, RuleTable

FLOAT32 = np.dtype(np.float32)
QUANTIZE, DEQUANTIZE = f"{PREFIX}Quantize", f"{PREFIX}Dequantize"
_INT16_TYPES = (np.dtype(np.uint16), np.dtype(np.int16))


class QnnRewrite(GraphRewrite):
    """A QNN graph being translated. ``rounded``: values rounded to fp16, by their source."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.rounded: dict[Value, Value] = {}

    def strip_qparams(self, op: Op, x: Value) -> Value | None:
        """The stored integers as a tensor without scale; None if the engine stores them differently."""
        if x.q is None:
            return x
        if not is_movable(x) or str(x.dtype) == "int8":
            return None
        if x.data is not None:
            return replace(x, q=None)
        return self.emit_temporary("core.bitcast", op, replace(x, q=None), x.bound, self=x)

    def temporary(self, like: Value, shape: Sequence[int], **changes: Any) -> Value:
        """A new value of another shape, stored like ``like``."""
        shape = tuple(int(n) for n in shape)
        name = f"{like.name}_{len(self.ops)}"
        return replace(like, name=name, shape=shape, dim_order=tuple(range(len(shape))), data=None, **changes)

    def emit_temporary(self, kind: str, op: Op, like: Value, shape: Sequence[int], /, **args: Any) -> Value:
        """Emit an operator into a new temporary, and return it."""
        out = self.temporary(like, shape)
        self.emit(kind, op, out, **args)
        return out

    # ----------------------------------------------------------------------------------------------- data movement

    def reshape(self, op: Op, x: Value, shape: Sequence[int]) -> Value:
        if tuple(shape) == x.bound:
            return x
        if x.data is not None:
            return replace(self.temporary(x, shape), data=np.ascontiguousarray(x.data).reshape(tuple(shape)))
        return self.emit_temporary("core.view", op, x, shape, self=x, size=list(shape))

    def transpose(self, op: Op, x: Value, dims: Sequence[int]) -> Value:
        if list(dims) == list(range(len(x.bound))):
            return x
        shape = [x.bound[d] for d in dims]
        if x.data is not None:
            return replace(self.temporary(x, shape), data=np.ascontiguousarray(x.data.transpose(tuple(dims))))
        return self.emit_temporary("core.permute", op, x, shape, self=x, dims=list(dims))

    def slice(self, op: Op, x: Value, start: Sequence[int], length: Sequence[int]) -> Value:
        if tuple(length) == x.bound:
            return x
        return self.emit_temporary("core.slice", op, x, length, self=x, start=list(start), length=list(length))

    def pad(self, op: Op, x: Value, pairs: Sequence[tuple[int, int]], value: float = 0.0) -> Value:
        if not any(n for pair in pairs for n in pair):
            return x
        shape = [n + a + b for n, (a, b) in zip(x.bound, pairs, strict=True)]
        before, after = [a for a, _ in pairs], [b for _, b in pairs]
        return self.emit_temporary("core.pad", op, x, shape, self=x, before=before, after=after, value=value)

    def concat(self, op: Op, parts: Sequence[Value], dim: int) -> Value:
        if len(parts) == 1:
            return parts[0]
        shape = list(parts[0].bound)
        shape[dim] = sum(p.bound[dim] for p in parts)
        return self.emit_temporary("core.cat", op, parts[0], shape, tensors=list(parts), dim=dim)

    def emit_reshape(self, op: Op, source: Value, out: Value) -> None:
        """Emit ``out`` as a reshape of ``source``, whose integers get its quantization parameters."""
        if source.q != out.q:
            source = self.emit_temporary("core.bitcast", op, replace(source, q=out.q), source.bound, self=source)
        self.emit("core.view", op, out, self=source, size=list(out.bound))

    # --------------------------------------------------------------------------------------------------------- fp16

    def round_half(self, op: Op, x: Value) -> Value:
        """A float value rounded to fp16."""
        if x.data is not None:
            return replace(x, data=round_to_fp16(x.data))
        if x not in self.rounded:
            result = self.emit_temporary("core.round_to_fp16", op, x, x.bound, self=x)
            self.rounded[x] = self.rounded[result] = result
        return self.rounded[x]

    def round_inputs(self, op: Op) -> Op:
        """A data-movement operator with its float operands rounded to fp16."""
        operands = op.args.get("inputs", ())
        if not QNN[op.kind.removeprefix(PREFIX)].moves or not any(map(is_float32, operands)):
            return op
        rounded_operands = [self.round_half(op, v) if is_float32(v) else v for v in operands]
        return Op(op.kind, {**op.args, "inputs": rounded_operands}, op.outputs, op.origin)

    def emit_rounded(self, kind: str, op: Op, out: Value, /, **args: Any) -> None:
        """Emit a float operator, and round its result to fp16."""
        result = self.emit_temporary(kind, op, out, out.bound, **args)
        self.emit("core.round_to_fp16", op, out, self=result)
        self.rounded[out] = out

    def emit_exact(self, kind: str, op: Op, out: Value, /, **args: Any) -> None:
        """Emit a float operator whose result is representable in fp16 if its operands are."""
        self.emit(kind, op, out, **args)
        self.rounded[out] = out


rule: RuleTable[QnnRewrite] = RuleTable(PREFIX)


def is_quantized(*values: Value) -> bool:
    """Whether all values are int8 or int16 with one scale."""
    return all(is_int8(v) or is_int16(v) for v in values)


def is_int8(value: Value) -> bool:
    q = value.q
    return q is not None and q.axis is None and str(q.dtype) in ("uint8", "int8") and value.dtype == q.dtype


def is_int16(value: Value) -> bool:
    q = value.q
    return q is not None and q.axis is None and q.dtype in _INT16_TYPES and value.dtype == q.dtype


def is_float32(*values: Value) -> bool:
    return all(v.q is None and v.dtype == FLOAT32 for v in values)


def is_movable(value: Value) -> bool:
    """Whether elements can be moved in their stored form."""
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


def convert_to(rw: QnnRewrite, op: Op, x: Value, like: Value) -> Value:
    return x if same_type(x, like) else rw.emit_temporary("qnn.Convert", op, like, x.bound, inputs=[x])


def as_int16(value: Value) -> Value:
    """An int8 tensor as int16, of the same scale and integers."""
    if not is_int8(value) or value.q is None:
        return value
    dtype = np.dtype(np.uint16 if value.q.dtype.kind == "u" else np.int16)
    return replace(value, dtype=dtype, q=replace(value.q, dtype=dtype))
