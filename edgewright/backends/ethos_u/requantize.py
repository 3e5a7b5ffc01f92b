"""Lowering of requantization between quantized tensors."""

from __future__ import annotations

from edgewright.backends.ethos_u.lower import INT32, TosaLowering, result, scale_of, zero_of
from edgewright.ir.graph import Op
from edgewright.lowering.passes.layout import common_order


def requantize(low: TosaLowering, op: Op) -> None:
    """Change scale or signedness, keeping the real values."""
    x, out = op.args["self"], result(op)
    order = common_order(low, op, len(out.shape))
    tensor = low.get(x, order)
    if x.dtype.kind == "u" and out.dtype is not None and out.dtype.kind == "u":
        tensor, zero = low.rescale(tensor, INT32, 1.0, zero_of(x)), 0  # TOSA cannot rescale unsigned to unsigned
    else:
        zero = zero_of(x)
    assert out.q is not None
    rescaled = low.rescale(tensor, out.q.dtype, scale_of(x) / scale_of(out), zero, zero_of(out))
    low.alias(out, order, low.clamp_to(rescaled, out))
