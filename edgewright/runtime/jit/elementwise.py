"""Lowering of float32 elementwise kernels in the layout of their operands."""

from __future__ import annotations

import math
from collections.abc import Sequence

from edgewright.runtime.jit.graph_builder import GraphBuilder
from edgewright.runtime.jit.registry import Args, core_kind, lowers, op_name
from edgewright.runtime.tensor import TensorSlot

_UNARY = ("sigmoid", "tanh", "exp", "sqrt", "abs", "neg", "log", "rsqrt", "floor", "ceil")


@lowers(*(f"aten::{name}.out" for name in _UNARY), "aten::relu.out", "aten::hardtanh.out", "aten::clamp.out")
def _unary(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x = a["self"]
    if not g.supports_float(x, *outs) or x.bound != outs[0].bound:
        return False
    name = op_name(a)
    nhwc = g.prefers_nhwc([x])
    operand = g.value_nhwc(x) if nhwc else g.value(x)
    if name in _UNARY:
        g.emit_to(f"core.{name}", outs[0], {"self": operand}, nhwc=nhwc)
        return True
    low, high = {"relu": (0.0, None), "hardtanh": (a.get("min_val"), a.get("max_val"))}.get(
        name, (a.get("min"), a.get("max"))
    )
    limits = (-math.inf if low is None else float(low), math.inf if high is None else float(high))
    if not limits[0] <= limits[1]:
        return False
    g.emit_to("core.clamp", outs[0], {"self": operand, "limits": limits}, nhwc=nhwc)
    return True


@lowers(*(f"aten::{name}.out" for name in ("add", "sub", "mul", "div", "maximum", "minimum")))
def _binary(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, y = a["self"], a["other"]
    if not g.supports_float(x, y, *outs) or a.get("alpha", 1) != 1:
        return False
    if g.constant(x) is not None and g.constant(y) is not None:
        return False
    nhwc = g.prefers_nhwc([x, y])
    load = g.value_nhwc if nhwc else g.value
    g.emit_to(core_kind(a), outs[0], {"self": load(x), "other": load(y)}, nhwc=nhwc)
    return True
