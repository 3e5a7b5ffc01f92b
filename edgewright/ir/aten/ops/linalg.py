"""Matrix products, and distances."""

from __future__ import annotations

from edgewright.ir.aten.ops.row_builders import define_composite, define_op
from edgewright.ir.aten.reference import linalg
from edgewright.ir.aten.reference import linalg as ref
from edgewright.ir.aten.table import OpClass
from edgewright.ir.ports import ACT, BIAS, INDEX, Weight

PRODUCT = OpClass.PRODUCT

define_composite(
    "linear", "linear.default", ref.linear, ref.linear_shape, PRODUCT, input=ACT, weight=Weight(0), bias=BIAS, out=ACT
)
# The decomposition of linear; its weight is transposed.
define_op("addmm", "addmm.default", ref.addmm, ref.addmm_shape, PRODUCT, self=BIAS, mat1=ACT, mat2=Weight(1), out=ACT)
define_op("mm", "mm.default", ref.mm, ref.mm_shape, PRODUCT, self=ACT, mat2=ACT, out=ACT)
define_op("bmm", "bmm.default", ref.bmm, ref.bmm_shape, PRODUCT, self=ACT, mat2=ACT, out=ACT)
define_op("matmul", "matmul.default", ref.matmul, ref.matmul_shape, PRODUCT, self=ACT, other=ACT, out=ACT)
define_op(
    "scaled_dot_product_attention",
    "scaled_dot_product_attention.default",
    linalg.scaled_dot_product_attention,
    linalg.scaled_dot_product_attention_shape,
    PRODUCT,
    query=ACT,
    key=ACT,
    value=ACT,
    attn_mask=INDEX,
    out=ACT,
)
define_op(
    "cdist",
    "cdist.default _cdist_forward.default",
    linalg.cdist,
    linalg.cdist_shape,
    OpClass.OTHER,
    x1=ACT,
    x2=ACT,
    out=ACT,
)
