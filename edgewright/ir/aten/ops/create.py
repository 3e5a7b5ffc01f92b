"""Rows that make tensors of numbers, and rows that copy or cast them."""

from __future__ import annotations

from edgewright.ir.aten.ops.row_builders import SELF, row
from edgewright.ir.aten.reference import copies, scalars
from edgewright.ir.aten.reference import create as ref
from edgewright.ir.aten.table import Layout
from edgewright.ir.ports import ACT, INDEX, Range, Same

# One number everywhere looks the same in any layout; a sequence or a diagonal does not.
row("full", "full.default", ref.full, ref.size_shape, Layout.AXES, out=ACT)
row("zeros", "zeros.default", ref.zeros, ref.size_shape, Layout.AXES, out=ACT)
row("ones", "ones.default", ref.ones, ref.size_shape, Layout.AXES, out=ACT)
# Only the shape of ``self`` counts.
row("full_like", "full_like.default", ref.full_like, ref.like_shape, self=INDEX, out=ACT)
row("zeros_like", "zeros_like.default", ref.zeros_like, ref.like_shape, self=INDEX, out=ACT)
row("ones_like", "ones_like.default", ref.ones_like, ref.like_shape, self=INDEX, out=ACT)
row("scalar_tensor", "scalar_tensor.default", ref.scalar_tensor, ref.scalar_tensor_shape, out=ACT)
row("arange", "arange.default arange.start arange.start_step", ref.arange, ref.arange_shape, Layout.SHAPE, out=ACT)
row("linspace", "linspace.default", ref.linspace, ref.linspace_shape, Layout.SHAPE, out=ACT)
row("eye", "eye.default eye.m", ref.eye, ref.eye_shape, Layout.SHAPE, out=Range(0, 1))
row("rand", "rand.default", ref.rand, ref.size_shape, Layout.AXES, out=Range(0, 1))
row("rand_like", "rand_like.default", ref.rand_like, ref.like_shape, self=INDEX, out=Range(0, 1))
row("randn", "randn.default", ref.randn, ref.size_shape, Layout.AXES, out=ACT)
row("randn_like", "randn_like.default", ref.randn_like, ref.like_shape, self=INDEX, out=ACT)

row("cast", "_to_copy.default to.dtype", copies.clone, copies.same_shape, self=ACT, out=SELF)
row(
    "clone",
    "clone.default contiguous.default alias.default alias_copy.default detach.default detach_copy.default "
    "lift_fresh_copy.default",
    copies.clone,
    copies.same_shape,
    self=ACT,
    out=SELF,
)
# Only the shape and type of ``self`` count.
row("copy", "copy.default", copies.copy, copies.copy_shape, self=INDEX, src=ACT, out=Same("src"))
row("sym_size", "sym_size.int", scalars.size_of, ref.scalar_shape, Layout.AXES, self=INDEX, out=INDEX)
