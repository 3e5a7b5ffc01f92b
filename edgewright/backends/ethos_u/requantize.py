"""Lowering of changes of scale or type between stored integers."""

from __future__ import annotations

from edgewright.backends.ethos_u.lower import INT32, TosaLowering, result, scale_of, zero_of
from edgewright.ir.graph import Op
from edgewright.lowering.passes.layout import common_order


def requantize(low: TosaLowering, op: Op) -> None:
    """The same real numbers, stored otherwise: signed from unsigned, or in another scale."""
    x, out = op.args["self"], result(op)
    order = common_order(low, op, len(out.shape))
    held = low.get(x, order)
    if x.dtype.kind == "u" and out.dtype is not None and out.dtype.kind == "u":
        held, zero = low.rescale(held, INT32, 1.0, zero_of(x)), 0  # TOSA has no way from unsigned to unsigned
    else:
        zero = zero_of(x)
    assert out.q is not None
    made = low.rescale(held, out.q.dtype, scale_of(x) / scale_of(out), zero, zero_of(out))
    low.alias(out, order, low.within(made, out))
