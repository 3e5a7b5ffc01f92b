"""Activation functions. Bounded ones (relu6) have calibrated ranges: a backend may fuse them instead."""

from __future__ import annotations

from edgewright.ir.aten.ops.row_builders import define_composite, define_op
from edgewright.ir.aten.reference import activations as ref
from edgewright.ir.aten.reference import create, unary
from edgewright.ir.aten.table import OpClass
from edgewright.ir.ports import ACT, Range, Same

for _name in ("relu", "hardtanh"):
    define_op(_name, f"{_name}.default", getattr(ref, _name), create.same_shape)
for _name in ("relu6", "leaky_relu", "elu", "celu", "selu", "gelu", "hardswish", "silu", "mish", "softplus", "logit"):
    define_composite(_name, f"{_name}.default", getattr(ref, _name), create.same_shape)

define_op("sigmoid", "sigmoid.default", ref.sigmoid, create.same_shape, self=ACT, out=Range(0, 1))
define_composite("hardsigmoid", "hardsigmoid.default", ref.hardsigmoid, create.same_shape, self=ACT, out=Range(0, 1))
define_op("tanh", "tanh.default", unary.tanh, create.same_shape, self=ACT, out=Range(-1, 1, narrows=True))

# The slope has a per-tensor range and is not a weight: per-channel scales would be as many numbers as slopes.
define_composite("prelu", "prelu.default", ref.prelu, ref.prelu_shape, OpClass.OTHER, self=ACT, weight=ACT, out=ACT)

define_composite("glu", "glu.default", ref.glu, ref.glu_shape, OpClass.OTHER)


define_op(
    "dropout",
    "dropout.default",
    ref.inference_dropout,
    ref.inference_dropout_shape,
    OpClass.RESHAPE,
    lambda op: op.args["train"] is False or op.args["p"] == 0,
    input=ACT,
    out=Same("input"),
)
