"""Kernels of data movement, and of pairwise distances."""

from __future__ import annotations

from edgewright.ir.aten.reference import distance, movement, pad, rearrange
from edgewright.runtime.kernel import register

register("aten::view_copy.out", movement.view, movement.view_shape)
register("aten::permute_copy.out", movement.permute, movement.permute_shape)
register("aten::transpose_copy.int_out", movement.transpose, movement.transpose_shape)
register("aten::t_copy.out", movement.matrix_transpose, movement.matrix_transpose_shape)
register(
    "aten::squeeze_copy.dim_out",
    lambda x, dim: movement.squeeze(x, [dim]),
    lambda x, dim: movement.squeeze_shape(x, [dim]),
)
register("aten::squeeze_copy.dims_out", movement.squeeze, movement.squeeze_shape)
register("aten::unsqueeze_copy.out", movement.unsqueeze, movement.unsqueeze_shape)
register("aten::expand_copy.out", movement.expand, movement.expand_shape)
register("aten::repeat.out", movement.repeat, movement.repeat_shape)
register("aten::slice_copy.Tensor_out", movement.slice_, movement.slice_shape)
register("aten::narrow_copy.out", movement.narrow, movement.narrow_shape)
register("aten::select_copy.int_out", movement.select, movement.select_shape)
register("aten::flip.out", movement.flip, movement.flip_shape)
register("aten::roll.out", movement.roll, movement.roll_shape)
register("aten::diagonal_copy.out", movement.diagonal, movement.diagonal_shape)
register("aten::tril.out", movement.tril, movement.tril_shape)

register("aten::cat.out", rearrange.cat, rearrange.cat_shape)
register("aten::stack.out", rearrange.stack, rearrange.stack_shape)
register("aten::split_copy.Tensor_out", rearrange.split, rearrange.split_shape)
register("aten::split_with_sizes_copy.out", rearrange.split_with_sizes, rearrange.split_with_sizes_shape)
register("aten::unbind_copy.int_out", rearrange.unbind, rearrange.unbind_shape)
register("aten::as_strided_copy.out", rearrange.as_strided, rearrange.as_strided_shape)
register("aten::unfold_copy.out", rearrange.unfold, rearrange.unfold_shape)
register("aten::pixel_shuffle.out", rearrange.pixel_shuffle, rearrange.pixel_shuffle_shape)
register("aten::pixel_unshuffle.out", rearrange.pixel_unshuffle, rearrange.pixel_unshuffle_shape)

register("aten::constant_pad_nd.out", pad.constant_pad, pad.constant_pad_shape)
for _n in (1, 2, 3):
    register(f"aten::reflection_pad{_n}d.out", pad.reflection_pad, pad.reflection_pad_shape)
    register(f"aten::replication_pad{_n}d.out", pad.replication_pad, pad.replication_pad_shape)

register("aten::_cdist_forward.out", distance.cdist, distance.cdist_shape)
register("aten::_pdist_forward.out", distance.pdist, distance.pdist_shape)
