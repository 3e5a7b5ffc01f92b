"""Kernels of gather, scatter, and indexing by tensors."""

from __future__ import annotations

from typing import Any

from edgewright.ir.aten.reference import indexing as ref
from edgewright.ir.aten.reference import masks
from edgewright.ir.aten.reference.dims import Array
from edgewright.runtime.kernel import kernel, register

register("aten::gather.out", ref.gather, ref.gather_shape)
register("aten::scatter.src_out", ref.scatter, ref.scatter_shape)
register("aten::scatter.value_out", ref.scatter, ref.scatter_shape)
register("aten::scatter_add.out", ref.scatter_add, ref.scatter_shape)
register("aten::index_select.out", ref.index_select, ref.index_select_shape)
# padding_idx, scale_grad_by_freq and sparse only matter to the gradient.
register(
    "aten::embedding.out",
    lambda weight, indices, *_: ref.embedding(weight, indices),
    lambda weight, indices, *_: ref.embedding_shape(weight, indices),
)
register("aten::index.Tensor_out", ref.index, ref.index_shape)
register("aten::index_put.out", ref.index_put, ref.index_put_shape)
register("aten::select_scatter.out", ref.select_scatter, ref.select_scatter_shape)
register("aten::slice_scatter.out", ref.slice_scatter, ref.slice_scatter_shape)
register("aten::masked_select.out", masks.masked_select, masks.masked_select_shape)
register("aten::masked_scatter.out", masks.masked_scatter, masks.masked_scatter_shape)
register("aten::nonzero.out", masks.nonzero, masks.nonzero_shape)
register("aten::repeat_interleave.Tensor_out", masks.repeat_interleave, masks.repeat_interleave_shape)


@kernel("aten::index_put_", None)
def index_put_(self: Array, indices: Any, values: Array, accumulate: bool) -> None:
    self[...] = ref.index_put(self, indices, values, accumulate).astype(self.dtype)
