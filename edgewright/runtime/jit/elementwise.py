"""Functions of one number and of two, element by element, as operators of a device graph."""

from __future__ import annotations

import math
from collections.abc import Sequence

from edgewright.runtime.jit.graph_builder import Maker
from edgewright.runtime.jit.registry import Args, taken
from edgewright.runtime.tensor import TensorSlot

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
