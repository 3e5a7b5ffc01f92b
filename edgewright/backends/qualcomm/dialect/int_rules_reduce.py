"""QNN's integer pools and reductions: windows and axes, and their requantization (float32 multiply, round half to
even).
"""

from __future__ import annotations

import math

import numpy as np

from edgewright.backends.qualcomm.dialect.int_rules import dequantize, quantize
from edgewright.backends.qualcomm.dialect.reduce import mean_factors
from edgewright.backends.qualcomm.dialect.table import PREFIX
from edgewright.engine.codegen.builder import Reg, const
from edgewright.engine.codegen.ranged_int import IntRangeError, RangedInt, RangedIntBuilder
from edgewright.engine.codegen.vector import clamp, round_to_int, to_float32
from edgewright.engine.dialects.reduce import REDUCTIONS, IntReduction, reduce_epilogue
from edgewright.ir.graph import Array, Op, Value

_POOLS = ("PoolAvg2d", "PoolAvg3d", "PoolMax2d")
_AXES = ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin")


def _io(op: Op) -> tuple[Value, Value]:
    (x,), out = op.args["inputs"], op.outputs[0]
    assert out is not None
    return x, out


def _pool_reduction(op: Op) -> IntReduction:
    """Windows of a pool; padding counts as zero, so only sums may include it."""
    x, out = _io(op)
    sizes, steps = (tuple(int(n) for n in op.args[name]) for name in ("filter_size", "stride"))
    pads: list[int] = []
    for n, m, k, s, (before, after) in zip(x.bound[1:-1], out.bound[1:-1], sizes, steps, op.args["pad_amount"],
                                           strict=True):  # fmt: skip
        pads += [int(before), max(int(after) if before else 0, (m - 1) * s + k - n - int(before), 0)]
    is_max = op.kind.endswith("PoolMax2d")
    if any(pads) and (is_max or len(sizes) != 2):
        raise IntRangeError("windows beyond the image")
    if x.q is None or out.q is None:
        raise IntRangeError("float operand")
    if is_max:
        return IntReduction(x, "max", window=sizes, stride=steps)
    factors, zero = mean_factors(op), int(np.asarray(x.q.zero_point))
    padding = (pads[0], pads[1], pads[2], pads[3]) if len(sizes) == 2 else (0, 0, 0, 0)
    extras = () if factors.size == 1 else (_factor_bits(factors),)
    return IntReduction(x, "sum", (), True, sizes, steps, padding, zero, extras)


def _factor_bits(factors: Array) -> Value:
    """Float factors as an int32 constant."""
    bits = np.ascontiguousarray(factors).view(np.int32)
    return Value("factors", bits.dtype, bits.shape, tuple(range(bits.ndim)), bits)


def _axes_reduction(op: Op) -> IntReduction:
    x, out = _io(op)
    axes = tuple(sorted(int(a) for a in op.args["axes"]))
    keepdims = bool(op.args["keep_dims"])
    shape = tuple(1 if d in axes else n for d, n in enumerate(x.bound) if keepdims or d not in axes)
    if shape != out.bound or not axes or 0 in x.bound:
        raise IntRangeError("output shape mismatch")
    kind = "max" if op.kind.endswith("Max") else "min" if op.kind.endswith("Min") else "sum"
    return IntReduction(x, kind, axes, keepdims)


for _name in _POOLS:
    REDUCTIONS[PREFIX + _name] = _pool_reduction
for _name in _AXES:
    REDUCTIONS[PREFIX + _name] = _axes_reduction


@reduce_epilogue(f"{PREFIX}ReduceMax", f"{PREFIX}ReduceMin", f"{PREFIX}PoolMax2d")
def _max_min(i: RangedIntBuilder, op: Op, total: RangedInt, extras: list[Reg]) -> RangedInt:
    x, out = _io(op)
    if x.q == out.q:
        return total
    return quantize(i, dequantize(i, total, x), out)


@reduce_epilogue(f"{PREFIX}ReduceMean", f"{PREFIX}ReduceSum", f"{PREFIX}PoolAvg2d", f"{PREFIX}PoolAvg3d")
def _mean_sum(i: RangedIntBuilder, op: Op, total: RangedInt, extras: list[Reg]) -> RangedInt:
    x, out = _io(op)
    if x.q is None and out.q is None and op.kind.endswith("ReduceSum"):
        return total
    if x.q is None or out.q is None:
        raise IntRangeError("float operand")
    f, q, zero = i.f, out.q, int(np.asarray(out.q.zero_point))
    centered = i.plus(total, -int(np.asarray(x.q.zero_point)) * _element_count(op, x))
    floats = to_float32(f, i.narrow(centered).reg)
    factor = f.bitcast(extras[0], floats.type) if extras else const(float(mean_factors(op).reshape(())), floats.type)
    clamped = clamp(f, f.op("fmul", floats, factor), q.qmin - zero, q.qmax - zero)
    return RangedInt(f.add(round_to_int(f, clamped), zero), q.qmin, q.qmax)


def _element_count(op: Op, x: Value) -> int:
    if "axes" in op.args:
        return math.prod(x.bound[int(a)] for a in op.args["axes"])
    return math.prod(int(n) for n in op.args["filter_size"])
