"""Reductions and scans over dimension arguments; without any, the result is a scalar."""

from __future__ import annotations

from edgewright.ir.aten.ops.row_builders import SELF, define_composite, define_op
from edgewright.ir.aten.reference import reduce as ref
from edgewright.ir.aten.table import OpClass
from edgewright.ir.ports import ACT, INDEX

OTHER = OpClass.OTHER

define_op("sum", "sum.default sum.dim_IntList", ref.reduce_sum, ref.reduction_shape, OTHER)
define_op("mean", "mean.default mean.dim", ref.reduce_mean, ref.reduction_shape, OTHER)
define_op("prod", "prod.default prod.dim_int", ref.reduce_prod, ref.reduction_shape, OTHER)
define_op("var", "var.correction var.dim var.default", ref.variance, ref.variance_shape, OTHER)
define_op("var_mean", "var_mean.correction", ref.var_mean, ref.var_mean_shape, OTHER)
define_composite("linalg_vector_norm", "linalg_vector_norm.default", ref.vector_norm, ref.vector_norm_shape, OTHER)
define_op("any", "any.default any.dim any.dims", ref.reduce_any, ref.reduce_any_shape, OTHER, self=INDEX, out=INDEX)

# An extreme is one of the input's values, so it shares the input's scale.
define_op("amax", "amax.default max.default", ref.amax, ref.extreme_shape, OTHER, self=ACT, out=SELF)
define_op("amin", "amin.default min.default", ref.amin, ref.extreme_shape, OTHER, self=ACT, out=SELF)
define_op("max_dim", "max.dim", ref.max_dim, ref.extreme_dim_shape, OTHER, self=ACT, out=SELF)
define_op("min_dim", "min.dim", ref.min_dim, ref.extreme_dim_shape, OTHER, self=ACT, out=SELF)
define_op("topk", "topk.default", ref.topk, ref.topk_shape, OTHER, self=ACT, out=SELF)
define_composite("sort", "sort.default sort.stable", ref.sort, ref.sort_shape, OTHER, self=ACT, out=SELF)
define_op("argmax", "argmax.default", ref.argmax, ref.arg_shape, OTHER, self=ACT, out=INDEX)
define_op("argmin", "argmin.default", ref.argmin, ref.arg_shape, OTHER, self=ACT, out=INDEX)
define_op("cumsum", "cumsum.default", ref.cumsum, ref.cumsum_shape, OTHER)
