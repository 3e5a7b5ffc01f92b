"""Kernels that create, copy or cast tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.ir.aten.reference import copies
from edgewright.ir.aten.reference import create as ref
from edgewright.runtime.kernel import kernel, register
from edgewright.runtime.tensor import Array

register("aten::full.out", ref.full, ref.size_shape)
register("aten::zeros.out", ref.zeros, ref.size_shape)
register("aten::ones.out", ref.ones, ref.size_shape)
register("aten::rand.out", ref.rand, ref.size_shape)
register("aten::randn.out", ref.randn, ref.size_shape)
register("aten::full_like.out", ref.fill, ref.fill_shape)
register("aten::fill.Scalar_out", ref.fill, ref.fill_shape)
register("aten::fill.Tensor_out", ref.fill, ref.fill_shape)
register("aten::scalar_tensor.out", ref.scalar_tensor, ref.scalar_tensor_shape)
register("aten::arange.out", lambda end: ref.arange(0, end), lambda end: ref.arange_shape(0, end))
register("aten::arange.start_out", ref.arange, ref.arange_shape)

# What an empty tensor holds is undefined; zeros keep it the same from run to run.
register("aten::empty.out", ref.zeros, ref.size_shape)
register("dim_order_ops::_empty_dim_order.out", ref.zeros, copies.empty_dim_order_shape)

for _key in ("aten::_to_copy", "aten::alias_copy", "aten::clone", "aten::detach_copy", "aten::lift_fresh_copy",
             "et_copy::_d2h_copy", "et_copy::_h2d_copy"):  # fmt: skip
    register(f"{_key}.out", copies.clone, copies.same_shape)
register("dim_order_ops::_clone_dim_order.out", copies.clone, copies.dim_order_shape)
register("dim_order_ops::_to_dim_order_copy.out", copies.clone, copies.dim_order_shape)
register("aten::copy.out", copies.copy, copies.copy_shape)
register("aten::view_as_real_copy.out", copies.view_as_real, copies.view_as_real_shape)


@kernel("aten::copy_", shape=None)
def _copy_in_place(self: Array, src: Array, *_: Any) -> None:
    np.copyto(self, copies.copy(self, src))
