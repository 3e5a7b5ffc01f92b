"""Rows of matrix products and convolution."""

from __future__ import annotations

from edgewright.ir.aten.reference import conv, linalg
from edgewright.runtime.registry import row

row("aten::mm.out", linalg.mm, linalg.mm_shape)
row("aten::bmm.out", linalg.bmm, linalg.bmm_shape)
row("aten::addmm.out", linalg.addmm, linalg.addmm_shape)
row("aten::linear.out", linalg.linear, linalg.linear_shape)
row("aten::convolution.out", conv.convolution, conv.convolution_shape)
row("aten::convolution_backward.out", conv.convolution_backward, conv.convolution_backward_shape)
