"""Rows of the activation functions. Those with an in-built end (relu6) calibrate: a backend may fuse them instead."""

from __future__ import annotations

from edgewright.ir.aten.ops.row_builders import row
from edgewright.ir.aten.reference import activations as ref
from edgewright.ir.aten.reference import copies, unary
from edgewright.ir.aten.table import Layout
from edgewright.ir.ports import ACT, Range, Same

for _name in ("relu", "relu6", "hardtanh", "leaky_relu", "elu", "celu", "selu", "gelu", "hardswish", "silu", "mish",
              "softplus", "logit"):  # fmt: skip
    row(_name, f"{_name}.default", getattr(ref, _name), copies.same_shape)

row("sigmoid", "sigmoid.default", ref.sigmoid, copies.same_shape, self=ACT, out=Range(0, 1))
row("hardsigmoid", "hardsigmoid.default", ref.hardsigmoid, copies.same_shape, self=ACT, out=Range(0, 1))
row("tanh", "tanh.default", unary.tanh, copies.same_shape, self=ACT, out=Range(-1, 1, narrows=True))

# The slope is a range of its own, not a weight: a scale for each slope would be as many numbers as slopes.
row("prelu", "prelu.default", ref.prelu, ref.prelu_shape, Layout.SPATIAL, self=ACT, weight=ACT, out=ACT)

row("glu", "glu.default", ref.glu, ref.glu_shape, Layout.AXES)


row(
    "dropout",
    "dropout.default",
    ref.kept,
    ref.kept_shape,
    Layout.FOLLOW,
    lambda op: op.args["train"] is False or op.args["p"] == 0,
    input=ACT,
    out=Same("input"),
)
