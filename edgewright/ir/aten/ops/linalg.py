"""Rows of matrix products. All see the last dimensions as rows and columns, so all need the original layout."""

from __future__ import annotations

from edgewright.ir.aten.ops.row_builders import row
from edgewright.ir.aten.reference import attention, distance
from edgewright.ir.aten.reference import linalg as ref
from edgewright.ir.aten.table import Layout
from edgewright.ir.ports import ACT, BIAS, INDEX, Weight

SHAPE = Layout.SHAPE

row("linear", "linear.default", ref.linear, ref.linear_shape, SHAPE, input=ACT, weight=Weight(0), bias=BIAS, out=ACT)
# What linear decomposes to; its weight then comes transposed.
row(
    "addmm",
    "addmm.default",
    ref.addmm,
    ref.addmm_shape,
    SHAPE,
    self=BIAS,
    mat1=ACT,
    mat2=Weight(1),
    out=ACT,
)
row("mm", "mm.default", ref.mm, ref.mm_shape, SHAPE, self=ACT, mat2=ACT, out=ACT)
row("bmm", "bmm.default", ref.bmm, ref.bmm_shape, SHAPE, self=ACT, mat2=ACT, out=ACT)
row("matmul", "matmul.default", ref.matmul, ref.matmul_shape, SHAPE, self=ACT, other=ACT, out=ACT)
row(
    "scaled_dot_product_attention",
    "scaled_dot_product_attention.default",
    attention.scaled_dot_product_attention,
    attention.scaled_dot_product_attention_shape,
    SHAPE,
    query=ACT,
    key=ACT,
    value=ACT,
    attn_mask=INDEX,
    out=ACT,
)
row(
    "cdist",
    "cdist.default _cdist_forward.default",
    distance.cdist,
    distance.cdist_shape,
    SHAPE,
    x1=ACT,
    x2=ACT,
    out=ACT,
)
