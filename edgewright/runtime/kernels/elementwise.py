"""Rows of the elementwise family."""

from __future__ import annotations

from edgewright.ir.reference import elementwise as ref
from edgewright.runtime.registry import row

row("aten::add.out", ref.add, ref.broadcast_shape)
row("aten::add.Scalar_out", ref.add, ref.broadcast_shape)
