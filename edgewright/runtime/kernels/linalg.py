"""Kernels of matrix products and convolution."""

from __future__ import annotations

from edgewright.ir.aten.reference import conv, linalg
from edgewright.runtime.kernel import register

register("aten::mm.out", linalg.mm, linalg.mm_shape)
register("aten::bmm.out", linalg.bmm, linalg.bmm_shape)
register("aten::addmm.out", linalg.addmm, linalg.addmm_shape)
register("aten::linear.out", linalg.linear, linalg.linear_shape)
register("aten::convolution.out", conv.convolution, conv.convolution_shape)
register("aten::convolution_backward.out", conv.convolution_backward, conv.convolution_backward_shape)
