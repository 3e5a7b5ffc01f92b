"""Creation of tensors, and copies and casts."""

from __future__ import annotations

from edgewright.ir.aten.ops.row_builders import SELF, define_op
from edgewright.ir.aten.reference import create as ref
from edgewright.ir.aten.reference import scalars
from edgewright.ir.aten.table import OpClass
from edgewright.ir.ports import ACT, INDEX, Range, Same

define_op("full", "full.default", ref.full, ref.size_shape, OpClass.CREATION, out=ACT)
define_op("zeros", "zeros.default", ref.zeros, ref.size_shape, OpClass.CREATION, out=ACT)
define_op("ones", "ones.default", ref.ones, ref.size_shape, OpClass.CREATION, out=ACT)
# Only the shape of ``self`` is read.
define_op("full_like", "full_like.default", ref.full_like, ref.like_shape, OpClass.CREATION, self=INDEX, out=ACT)
define_op("zeros_like", "zeros_like.default", ref.zeros_like, ref.like_shape, OpClass.CREATION, self=INDEX, out=ACT)
define_op("ones_like", "ones_like.default", ref.ones_like, ref.like_shape, OpClass.CREATION, self=INDEX, out=ACT)
define_op(
    "scalar_tensor", "scalar_tensor.default", ref.scalar_tensor, ref.scalar_tensor_shape, OpClass.CREATION, out=ACT
)
define_op(
    "arange", "arange.default arange.start arange.start_step", ref.arange, ref.arange_shape, OpClass.CREATION, out=ACT
)
define_op("linspace", "linspace.default", ref.linspace, ref.linspace_shape, OpClass.CREATION, out=ACT)
define_op("eye", "eye.default eye.m", ref.eye, ref.eye_shape, OpClass.CREATION, out=Range(0, 1))
define_op("rand", "rand.default", ref.rand, ref.size_shape, OpClass.CREATION, out=Range(0, 1))
define_op(
    "rand_like", "rand_like.default", ref.rand_like, ref.like_shape, OpClass.CREATION, self=INDEX, out=Range(0, 1)
)
define_op("randn", "randn.default", ref.randn, ref.size_shape, OpClass.CREATION, out=ACT)
define_op("randn_like", "randn_like.default", ref.randn_like, ref.like_shape, OpClass.CREATION, self=INDEX, out=ACT)

define_op("cast", "_to_copy.default to.dtype", ref.clone, ref.same_shape, OpClass.CAST, self=ACT, out=SELF)
define_op(
    "clone",
    "clone.default contiguous.default alias.default alias_copy.default detach.default detach_copy.default "
    "lift_fresh_copy.default",
    ref.clone,
    ref.same_shape,
    OpClass.RESHAPE,
    self=ACT,
    out=SELF,
)
# Only the shape and dtype of ``self`` are read.
define_op("copy", "copy.default", ref.copy, ref.copy_shape, OpClass.OTHER, self=INDEX, src=ACT, out=Same("src"))
define_op("sym_size", "sym_size.int", scalars.size_of, ref.scalar_shape, OpClass.OTHER, self=INDEX, out=INDEX)
