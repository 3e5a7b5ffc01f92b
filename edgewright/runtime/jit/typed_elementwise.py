"""Casts of operands and results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.ir.aten.reference.elementwise import cast
from edgewright.ir.dtypes import DType
from edgewright.ir.graph import Value
from edgewright.runtime.jit.graph_builder import GraphBuilder, make_value
from edgewright.runtime.jit.registry import Args, lowers, lowers_fallback
from edgewright.runtime.tensor import TensorSlot


def emit_cast(g: GraphBuilder, arg: Any, dtype: DType) -> Value:
    """A tensor or a number, cast to ``dtype``."""
    if not isinstance(arg, TensorSlot):
        return make_value((), np.asarray(cast(arg, dtype)))
    value = g.value(arg)
    if value.dtype == dtype:
        return value
    if value.data is not None:
        return make_value(value.bound, value.data.astype(dtype, order="C"))
    return g.emit_core("core.cast", value.bound, {"self": value}, dtype)


def emit_typed(g: GraphBuilder, kind: str, out: TensorSlot, args: dict[str, Any], dtype: DType) -> bool:
    """Emit an operator whose result is of ``dtype``, cast to that of ``out``."""
    if out.dtype == dtype:
        g.emit_to(kind, out, args)
    else:
        g.emit_to("core.cast", out, {"self": g.emit_core(kind, out.bound, args, dtype)})
    g.macs += math.prod(out.bound)
    return True


def broadcasts_to(operands: Sequence[Any], out: TensorSlot) -> bool:
    """Whether the operands broadcast to the shape of the result."""
    shapes = [x.bound for x in operands if isinstance(x, TensorSlot)]
    try:
        return np.broadcast_shapes(*shapes) == out.bound
    except ValueError:
        return False


def supports_operands(g: GraphBuilder, operands: Sequence[Any], out: TensorSlot) -> bool:
    slots = [x for x in operands if isinstance(x, TensorSlot)]
    return bool(slots) and g.supports(*slots, out) and broadcasts_to(operands, out)


@lowers_fallback("aten::clone.out", "dim_order_ops::_clone_dim_order.out")
@lowers("aten::_to_copy.out", "dim_order_ops::_to_dim_order_copy.out", "aten::alias_copy.out", "aten::detach_copy.out",
       "aten::lift_fresh_copy.out", "et_copy::_h2d_copy.out", "et_copy::_d2h_copy.out")  # fmt: skip
def _cast(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, (out,) = a["self"], outs
    if not supports_operands(g, (x,), out) or a.get("dim_order") not in (None, list(out.dim_order)):
        return False
    if x.dtype == out.dtype:
        nhwc = g.prefers_nhwc([x])
        g.bind(out, g.value_nhwc(x) if nhwc else g.value(x), nhwc=nhwc)
    else:
        g.emit_to("core.cast", out, {"self": g.value(x)})
    return True
