"""Kernels of reductions and scans."""

from __future__ import annotations

from edgewright.ir.aten.reference import reduce as ref
from edgewright.runtime.kernel import register

register("aten::sum.IntList_out", ref.reduce_sum, ref.reduction_shape)
register("aten::mean.out", ref.reduce_mean, ref.reduction_shape)
register("aten::mean.dtype_out", lambda x, dtype: ref.reduce_mean(x, dtype=dtype), lambda x, dtype: ())
register("aten::prod.out", lambda x, dtype: ref.reduce_prod(x, dtype=dtype), lambda x, dtype: ())
register(
    "aten::prod.int_out",
    lambda x, dim, keepdim, dtype: ref.reduce_prod(x, [dim], keepdim, dtype),
    lambda x, dim, keepdim, dtype: ref.reduction_shape(x, [dim], keepdim),
)
register("aten::var.correction_out", ref.variance, ref.variance_shape)
register("aten::var_mean.correction_out", ref.var_mean, ref.var_mean_shape)
register(
    "aten::var.out",
    lambda x, dim, unbiased, keepdim: ref.variance(x, dim, int(unbiased), keepdim),
    lambda x, dim, unbiased, keepdim: ref.variance_shape(x, dim, int(unbiased), keepdim),
)
register("aten::any.all_out", ref.reduce_any, ref.reduce_any_shape)
register("aten::any.dims_out", ref.reduce_any, ref.reduce_any_shape)
register(
    "aten::any.out",
    lambda x, dim, keepdim: ref.reduce_any(x, [dim], keepdim),
    lambda x, dim, keepdim: ref.reduce_any_shape(x, [dim], keepdim),
)
register("aten::amax.out", ref.amax, ref.extreme_shape)
register("aten::amin.out", ref.amin, ref.extreme_shape)
register("aten::max.unary_out", ref.amax, ref.extreme_shape)
register("aten::min.unary_out", ref.amin, ref.extreme_shape)
register("aten::max.dim_max", ref.max_dim, ref.extreme_dim_shape)
register("aten::min.dim_min", ref.min_dim, ref.extreme_dim_shape)
register("aten::argmax.out", ref.argmax, ref.arg_shape)
register("aten::argmin.out", ref.argmin, ref.arg_shape)
register("aten::cumsum.out", ref.cumsum, ref.cumsum_shape)
register("aten::topk.values", ref.topk, ref.topk_shape)
