"""Kernels of activation functions and dropout."""

from __future__ import annotations

from edgewright.ir.aten.reference import activations as ref
from edgewright.ir.aten.reference import copies
from edgewright.runtime.kernel import register

for _name in ("relu", "hardtanh", "leaky_relu", "elu", "gelu", "sigmoid", "logit"):
    register(f"aten::{_name}.out", getattr(ref, _name), copies.same_shape)
register("aten::glu.out", ref.glu, ref.glu_shape)
register("aten::native_dropout.out", ref.dropout, ref.dropout_shape)
