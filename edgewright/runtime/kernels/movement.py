"""Rows of the operators that only move elements, and of the distances between rows."""

from __future__ import annotations

from edgewright.ir.aten.reference import distance, movement, pad, rearrange
from edgewright.runtime.registry import row

row("aten::view_copy.out", movement.view, movement.view_shape)
row("aten::permute_copy.out", movement.permute, movement.permute_shape)
row("aten::transpose_copy.int_out", movement.transpose, movement.transpose_shape)
row("aten::t_copy.out", movement.matrix_transpose, movement.matrix_transpose_shape)
row(
    "aten::squeeze_copy.dim_out",
    lambda x, dim: movement.squeeze(x, [dim]),
    lambda x, dim: movement.squeeze_shape(x, [dim]),
)
row("aten::squeeze_copy.dims_out", movement.squeeze, movement.squeeze_shape)
row("aten::unsqueeze_copy.out", movement.unsqueeze, movement.unsqueeze_shape)
row("aten::expand_copy.out", movement.expand, movement.expand_shape)
row("aten::repeat.out", movement.repeat, movement.repeat_shape)
row("aten::slice_copy.Tensor_out", movement.slice_, movement.slice_shape)
row("aten::narrow_copy.out", movement.narrow, movement.narrow_shape)
row("aten::select_copy.int_out", movement.select, movement.select_shape)
row("aten::flip.out", movement.flip, movement.flip_shape)
row("aten::roll.out", movement.roll, movement.roll_shape)
row("aten::diagonal_copy.out", movement.diagonal, movement.diagonal_shape)
row("aten::tril.out", movement.tril, movement.tril_shape)

row("aten::cat.out", rearrange.cat, rearrange.cat_shape)
row("aten::stack.out", rearrange.stack, rearrange.stack_shape)
row("aten::split_copy.Tensor_out", rearrange.split, rearrange.split_shape)
row("aten::split_with_sizes_copy.out", rearrange.split_with_sizes, rearrange.split_with_sizes_shape)
row("aten::unbind_copy.int_out", rearrange.unbind, rearrange.unbind_shape)
row("aten::as_strided_copy.out", rearrange.as_strided, rearrange.as_strided_shape)
row("aten::unfold_copy.out", rearrange.unfold, rearrange.unfold_shape)
row("aten::pixel_shuffle.out", rearrange.pixel_shuffle, rearrange.pixel_shuffle_shape)
row("aten::pixel_unshuffle.out", rearrange.pixel_unshuffle, rearrange.pixel_unshuffle_shape)

row("aten::constant_pad_nd.out", pad.constant_pad, pad.constant_pad_shape)
for _n in (1, 2, 3):
    row(f"aten::reflection_pad{_n}d.out", pad.reflection_pad, pad.reflection_pad_shape)
    row(f"aten::replication_pad{_n}d.out", pad.replication_pad, pad.replication_pad_shape)

row("aten::_cdist_forward.out", distance.cdist, distance.cdist_shape)
row("aten::_pdist_forward.out", distance.pdist, distance.pdist_shape)
