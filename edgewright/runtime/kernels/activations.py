"""Rows of the activation functions, and of dropout."""

from __future__ import annotations

from edgewright.ir.aten.reference import activations as ref
from edgewright.ir.aten.reference import copies
from edgewright.runtime.registry import row

for _name in ("relu", "hardtanh", "leaky_relu", "elu", "gelu", "sigmoid", "logit"):
    row(f"aten::{_name}.out", getattr(ref, _name), copies.same_shape)
row("aten::glu.out", ref.glu, ref.glu_shape)
row("aten::native_dropout.out", ref.dropout, ref.dropout_shape)
