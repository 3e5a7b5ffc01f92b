"""Translation of ENN operators to core operators.

ENN images are NCHW, the engine's NHWC: between translated operators images stay NHWC, and are transposed where anything
else reads them. Unsupported operators stay as they are and run as reference steps.

Integers are bit-exact with the reference. Floats are rounded to fp16 where the reference rounds them; sums before that
use the engine's order.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgewright.backends.samsung.dialect.elementwise import FUNCTIONS, uses_fixed_point_sum
from edgewright.backends.samsung.dialect.numerics import inputs_of, is_qint8, result_of, round_to_fp16
from edgewright.backends.samsung.dialect.table import PREFIX
from edgewright.backends.samsung.dialect.to_core import conv, move, reduce  # noqa: F401  (register their rules)
from edgewright.backends.samsung.dialect.to_core.rewrite import EnnRewrite, is_float32, non_empty, rule, uint16_to_int16
from edgewright.ir.core.dialect import CORE
from edgewright.ir.graph import Graph, Op, Value
from edgewright.ir.int_rules import ELEMENTWISE
from edgewright.ir.numerics import Numerics

_BINARY = {
    "ELTSUM": "core.add", "SUB": "core.sub", "ELTMUL": "core.mul", "ELTDIV": "core.div", "MAXIMUM": "core.maximum",
    "MIN": "core.minimum",
}  # fmt: skip
_UNARY = {name: f"core.{function}" for function, name in FUNCTIONS.items() if f"core.{function}" in CORE}


def to_core(graph: Graph, numerics: Numerics) -> Graph:
    rw = EnnRewrite(uint16_to_int16(graph))
    for op in rw.graph.ops:
        rule.apply(rw, op, _elementwise if op.kind in ELEMENTWISE else None)
    for value in rw.graph.outputs:
        rw.nchw(value)
    return rw.finish()


# ------------------------------------------------------------------------------------------------------- elementwise


def _elementwise(rw: EnnRewrite, op: Op) -> bool:
    """Keep the operator, in NHWC if an operand exists only in that layout."""
    operands, out = inputs_of(op), result_of(op)
    if not _use_nhwc(rw, operands, out):
        return False
    rw.emit_nhwc(op.kind, op, out, **{**op.args, "inputs": [rw.nhwc(_to_rank4(v)) for v in operands]})
    return True


def _use_nhwc(rw: EnnRewrite, operands: list[Value], out: Value) -> bool:
    """Whether a rank-4 operator should run on NHWC operands."""
    if len(out.bound) != 4 or not rw.prefers_nhwc(operands):
        return False
    return all(len(v.bound) == 4 or (v.constant and len(v.bound) < 4) for v in operands)


def _to_rank4(value: Value) -> Value:
    """A constant with leading dimensions of 1, up to rank 4."""
    if len(value.bound) == 4 or value.data is None:
        return value
    shape = (*(1,) * (4 - len(value.bound)), *value.bound)
    return replace(value, shape=shape, dim_order=(0, 1, 2, 3), data=value.data.reshape(shape))


@rule(*_BINARY)
def _binary(rw: EnnRewrite, op: Op) -> bool:
    """Float operators, and int8 ones that core has; other integers are compiled elementwise."""
    (a, b), out, kind = inputs_of(op), result_of(op), _BINARY[op.kind.removeprefix(PREFIX)]
    floats = all(is_float32(v) for v in (a, b, out))
    if not non_empty(out) or (a.constant and b.constant):
        return False
    if not floats and not _has_int8_kernel(kind, a, b, out):
        return _elementwise(rw, op)
    image = _use_nhwc(rw, [a, b], out)
    operands = [
        rw.float_operand(op, v, image) if floats else rw.in_layout(v, image)
        for v in (_to_rank4(v) if image else v for v in (a, b))
    ]
    if floats:
        rw.emit_float(kind, op, out, image, self=operands[0], other=operands[1])
    else:
        rw.emit(kind, op, rw.define(out, image), self=operands[0], other=operands[1])
    return True


def _has_int8_kernel(kind: str, a: Value, b: Value, out: Value) -> bool:
    if kind == "core.mul":
        return is_qint8(a) and is_qint8(b) and is_qint8(out)
    return kind in ("core.add", "core.sub") and uses_fixed_point_sum(a, b, out)


@rule(*_UNARY)
def _unary(rw: EnnRewrite, op: Op) -> bool:
    (x,), out = inputs_of(op), result_of(op)
    if not is_float32(x) or not is_float32(out) or x.constant or not non_empty(out):
        return _elementwise(rw, op)
    image = _use_nhwc(rw, [x], out)
    rw.emit_float(_UNARY[op.kind.removeprefix(PREFIX)], op, out, image, self=rw.float_operand(op, x, image))
    return True


def _scalar(value: float) -> Value:
    return Value(f"number_{value}", np.dtype(np.float32), (), (), np.asarray(value, np.float32))


@rule("HardSigmoid")
def _hard_sigmoid(rw: EnnRewrite, op: Op) -> bool:
    (x,), out = inputs_of(op), result_of(op)
    if not is_float32(x) or not is_float32(out) or x.constant or not non_empty(out):
        return _elementwise(rw, op)
    image = _use_nhwc(rw, [x], out)
    operand = rw.float_operand(op, x, image)
    shifted = replace(operand, name=f"{operand.name}_moved")
    rw.emit("core.add", op, shifted, self=operand, other=_scalar(3.0), limits=(0.0, 6.0))
    rw.emit_float("core.div", op, out, image, self=shifted, other=_scalar(6.0))
    return True


@rule("CLIP", "RELU")
def _clamp(rw: EnnRewrite, op: Op) -> bool:
    """If fp16 represents the limits exactly, clamping needs no further rounding."""
    (x,), out = inputs_of(op), result_of(op)
    limits = (op.args["minimum"], op.args["maximum"]) if op.kind.endswith("CLIP") else (0.0, float("inf"))
    low, high = (float(n) for n in np.asarray(limits, np.float32))
    if not is_float32(x) or not is_float32(out) or x.constant or not non_empty(out) or not low <= high:
        return _elementwise(rw, op)
    image = _use_nhwc(rw, [x], out)
    operand = rw.float_operand(op, x, image)
    if all(float(n) == e for n, e in zip(round_to_fp16(np.array(limits, np.float64)), limits, strict=True)):
        target = rw.define(out, image)
        rw.emit("core.clamp", op, target, self=operand, limits=(low, high))
        rw.mark_rounded(target)
    else:
        rw.emit_float("core.clamp", op, out, image, self=operand, limits=(low, high))
    return True


@rule("QUANTIZE", "DEQUANTIZE")
def _conversion(rw: EnnRewrite, op: Op) -> bool:
    """Int8 uses the core conversion."""
    (x,), out = inputs_of(op), result_of(op)
    if not (is_qint8(x) and is_float32(out)) and not (is_float32(x) and is_qint8(out)):
        return _elementwise(rw, op)
    image = _use_nhwc(rw, [x], out)
    rw.emit("core.convert", op, rw.define(out, image), self=rw.in_layout(x, image))
    return True


@rule("POW")
def _pow(rw: EnnRewrite, op: Op) -> bool:
    (x, power), out = inputs_of(op), result_of(op)
    if not all(is_float32(v) for v in (x, power, out)) or (x.constant and power.constant) or not non_empty(out):
        return _elementwise(rw, op)
    image = _use_nhwc(rw, [x, power], out)
    operands = [rw.float_operand(op, _to_rank4(v) if image else v, image) for v in (x, power)]
    rw.emit_float("core.pow", op, out, image, self=operands[0], exponent=operands[1])
    return True
