"""Infrastructure of the ENN translation: NCHW and NHWC copies of images, fp16 rounding, and int16 in float32.

``uint16_to_int16`` replaces uint16 tensors by int16 with a zero point 32768 lower, which represents the same values.
NaN is stored as integer 0 of the declared type, which has no int16 counterpart of the same meaning. So an operator that
may produce NaN keeps its uint16 result.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.backends.samsung.dialect.numerics import constant_float, is_qint8, round_to_fp16
from edgewright.backends.samsung.dialect.table import PREFIX
from edgewright.ir.core.quant_params import integer_range
from edgewright.ir.graph import Graph, Op, Value
from edgewright.ir.rewrite import GraphRewrite, RuleTable

TO_NHWC = (0, 2, 3, 1)  # permutation from NCHW
TO_NCHW = (0, 3, 1, 2)  # permutation from NHWC; also the NHWC position of each NCHW dimension
UNLIMITED = {"minimum": float("-inf"), "maximum": float("inf")}  # a CLIP that only changes the storage type
_F32 = np.dtype(np.float32)


class EnnRewrite(GraphRewrite):
    """An ENN graph being translated. ``nhwc_values``: the NHWC copy of an image, by its NCHW value."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.nhwc_values: dict[Value, Value] = {}
        self.rounded: dict[Value, Value] = {}  # values rounded to fp16, by their source
        self.available = set(graph.inputs)  # values that exist in their original layout

    # -------------------------------------------------------------------------------------------------- operands

    def keep(self, op: Op) -> None:
        for value in op.inputs():
            self.nchw(value)
        super().keep(op)
        self.available |= set(op.outputs)

    def nchw(self, value: Value) -> Value:
        """A value in its original layout."""
        if value not in self.available and not value.constant:
            self._emit_layout_change(self.nhwc_values[value], value, TO_NCHW)
            self.available.add(value)
        return value

    def nhwc(self, value: Value) -> Value:
        """A rank-4 value in NHWC."""
        if value.constant:
            return as_nhwc(value)
        if value not in self.nhwc_values:
            self.nhwc_values[value] = as_nhwc(value)
            self._emit_layout_change(value, self.nhwc_values[value], TO_NHWC)
        return self.nhwc_values[value]

    def _emit_layout_change(self, x: Value, out: Value, dims: tuple[int, ...]) -> None:
        """Emit a permute, or a view if one pixel or one channel makes both layouts equal in memory."""
        pixels = x.bound[1] * x.bound[2] if dims == TO_NCHW else x.bound[2] * x.bound[3]
        args: dict[str, Any] = {"dims": list(dims)}
        same_memory = pixels == 1 or out.bound[3 if dims == TO_NHWC else 1] == 1
        if same_memory:
            args = {"size": list(out.bound)}
        self.ops.append(Op("core.view" if same_memory else "core.permute", {"self": x, **args}, [out]))
        if x in self.rounded and self.rounded[x] is x:
            self.rounded[out] = out

    def in_layout(self, value: Value, image: bool) -> Value:
        """The value in NHWC if ``image``, else in its original layout."""
        return self.nhwc(value) if image else self.nchw(value)

    def float_operand(self, op: Op, value: Value, image: bool) -> Value:
        """A value as float32: rounded to fp16, or dequantized."""
        current = self.in_layout(value, image)
        if current.data is not None:
            return replace(current, dtype=_F32, q=None, data=constant_float(current))
        if value.q is None:
            return self.round_half(op, current)
        out = replace(current, name=f"{current.name}_real", dtype=_F32, q=None)
        self.emit(
            "core.convert" if is_qint8(value) else f"{PREFIX}DEQUANTIZE", op, out, **_operand_args(value, current)
        )
        return out

    def round_half(self, op: Op, x: Value) -> Value:
        """A float value rounded to fp16."""
        if x not in self.rounded:
            out = replace(x, name=f"{x.name}_rounded")
            self.emit("core.round_to_fp16", op, out, self=x)
            self.rounded[x] = self.rounded[out] = out
        return self.rounded[x]

    def prefers_nhwc(self, values: list[Value]) -> bool:
        """Whether NHWC avoids a transposition: one of the values exists only in that layout."""
        return any(v in self.nhwc_values and v not in self.available and not v.constant for v in values)

    # --------------------------------------------------------------------------------------------------- results

    def define(self, out: Value, image: bool) -> Value:
        """The value that holds a result in the chosen layout, registered as available."""
        if image:
            self.nhwc_values[out] = as_nhwc(out)
            return self.nhwc_values[out]
        self.available.add(out)
        return out

    def emit_nchw(self, kind: str, op: Op, out: Value, /, **args: Any) -> None:
        """Emit an operator on values in their original layout."""
        self.emit(kind, op, self.define(out, False), **args)

    def emit_nhwc(self, kind: str, op: Op, out: Value, /, **args: Any) -> None:
        """Emit an operator that produces an NHWC image."""
        self.emit(kind, op, self.define(out, True), **args)

    def emit_float(self, kind: str, op: Op, out: Value, image: bool, /, **args: Any) -> None:
        """Emit a float32 operator, and convert its result to the stored type."""
        target = self.define(out, image)
        result = replace(target, name=f"{target.name}_single", dtype=_F32, q=None)
        self.emit(kind, op, result, **args)
        self.store_float(op, result, target)

    def store_float(self, op: Op, source: Value, target: Value) -> None:
        """Convert a float32 value to the type of ``target``: round to fp16 or quantize."""
        if target.q is None:
            self.emit("core.round_to_fp16", op, target, self=source)
            self.rounded[target] = target
        else:
            self.emit(
                "core.convert" if is_qint8(target) else f"{PREFIX}QUANTIZE",
                op,
                target,
                **_operand_args(target, source),
            )

    def mark_rounded(self, value: Value) -> None:
        """Record that a result is already representable in fp16."""
        self.rounded[value] = value


rule: RuleTable[EnnRewrite] = RuleTable(PREFIX)


def _operand_args(quantized: Value, x: Value) -> dict[str, Any]:
    return {"self": x} if is_qint8(quantized) else {"inputs": [x]}


def as_nhwc(value: Value) -> Value:
    """The value with NHWC shape (and data, if constant)."""
    shape = tuple(value.bound[d] for d in TO_NHWC)
    data = None if value.data is None else np.ascontiguousarray(value.data.transpose(TO_NHWC))
    return replace(value, name=f"{value.name}_pixels", shape=shape, dim_order=(0, 1, 2, 3), data=data)


def is_float32(value: Value) -> bool:
    return value.q is None and value.dtype == _F32


def is_int16(value: Value) -> bool:
    """Whether a tensor is int16 with one scale."""
    q = value.q
    return q is not None and q.axis is None and q.dtype == np.dtype(np.int16) and value.dtype == q.dtype


def widen_to_int16(value: Value) -> Value:
    """The same integers of an int8 tensor as int16."""
    assert value.q is not None
    int16 = np.dtype(np.int16)
    return replace(value, name=f"{value.name}_wider", dtype=int16, q=replace(value.q, dtype=int16), data=None)


def non_empty(*values: Value) -> bool:
    return all(0 not in v.bound for v in values)


def same_kind(*values: Value) -> bool:
    """Whether all values are float32, all int8, or all int16."""
    return any(all(kind(v) for v in values) for kind in (is_float32, is_qint8, is_int16))


def hw_pair(op: Op, name: str) -> list[int]:
    return [int(op.args[f"{name}_{side}"]) for side in "hw"]


def padding_of(op: Op) -> list[int]:
    """Top, bottom, left and right padding."""
    top, left, bottom, right = (int(n) for n in op.args["explicit_padding"])
    return [top, bottom, left, right]


_HALF = 1 << 15
_UNSIGNED, _SIGNED = np.dtype(np.uint16), np.dtype(np.int16)
_NAN_KINDS = {
    PREFIX + name for name in ("ELTDIV", "POW", "LOG", "SQRT", "RSQRT")
}  # may produce NaN from finite operands


def uint16_to_int16(graph: Graph) -> Graph:
    """Replace uint16 tensors except graph inputs, outputs, and results that may be NaN."""
    replacements = {v: _as_int16(v) for v in graph.values() if v.q is not None and v.dtype == _UNSIGNED}
    if not replacements:
        return graph

    def remap(arg: Any) -> Any:
        if isinstance(arg, list | tuple):
            return type(arg)(remap(g) for g in arg)
        return replacements.get(arg, arg) if isinstance(arg, Value) else arg

    read = {v for op in graph.ops for v in op.inputs()}
    available = set(graph.inputs)  # as the graph has them
    ops = [op for v in graph.inputs if v in replacements for op in _convert(v, replacements[v])]
    for op in graph.ops:
        outputs = list(op.outputs) if _may_be_nan(op) else [remap(v) for v in op.outputs]
        ops.append(Op(op.kind, {n: remap(a) for n, a in op.args.items()}, outputs, op.origin))
        unsigned_results = [v for v in outputs if v is not None and v in replacements]
        ops += [op for v in unsigned_results if v in read for op in _convert(v, replacements[v])]
        available |= set(unsigned_results)
    outputs_list = list(graph.outputs)
    for v in dict.fromkeys(outputs_list):
        if v in replacements and v not in available:
            ops += _convert(replacements[v], v)
    return Graph(graph.name, graph.inputs, outputs_list, ops)


def _may_be_nan(op: Op) -> bool:
    """Whether a result may be NaN: by its operator, or because of float operands that are not known to be finite."""
    if op.kind in _NAN_KINDS or not np.float32(op.args.get("epsilon", 1)) > 0:
        return True
    if op.kind == f"{PREFIX}BatchNormalization" and not _has_positive_variance(op):
        return True
    floats = [v for v in op.inputs() if v.q is None and v.dtype is not None and v.dtype.kind == "f"]
    return not all(v.data is not None and np.isfinite(round_to_fp16(v.data)).all() for v in floats)


def _has_positive_variance(op: Op) -> bool:
    variance = op.args["inputs"][4]
    if variance.data is None:
        return False
    return bool((constant_float(variance) + np.float32(op.args["epsilon"]) > 0).all())


def _as_int16(value: Value) -> Value:
    q = value.q
    assert q is not None
    zero_point: Any = (
        tuple(int(z) - _HALF for z in q.zero_point) if isinstance(q.zero_point, tuple) else q.zero_point - _HALF
    )
    data = None if value.data is None else (value.data.astype(np.int32) - _HALF).astype(np.int16)
    q = replace(q, zero_point=zero_point, dtype=_SIGNED, qmin=q.qmin - _HALF, qmax=q.qmax - _HALF)
    return replace(value, dtype=_SIGNED, data=data, q=q)


def _convert(x: Value, out: Value) -> list[Op]:
    """A CLIP without limits, which only changes the storage type. It saturates to the result's range, but elements may
    be outside of a range that is narrower than their type: then it writes a value with the range of the type."""
    q = out.q
    assert q is not None
    low, high = integer_range(q.dtype)
    if (q.qmin, q.qmax) == (low, high) or q.axis is not None:
        return [Op(f"{PREFIX}CLIP", {"inputs": [x], **UNLIMITED}, [out])]
    unlimited = replace(out, name=f"{out.name}_unlimited", q=replace(q, qmin=low, qmax=high))
    return [*_convert(x, unlimited), Op("core.bitcast", {"self": unlimited}, [out])]
