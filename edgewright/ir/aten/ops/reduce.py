"""Rows of the reductions and scans. They name dimensions; those that flatten (no dimension named) give one number."""

from __future__ import annotations

from edgewright.ir.aten.ops.row_builders import SELF, row
from edgewright.ir.aten.reference import reduce as ref
from edgewright.ir.aten.table import Layout
from edgewright.ir.ports import ACT, INDEX

AXES = Layout.AXES

row("sum", "sum.default sum.dim_IntList", ref.reduce_sum, ref.reduction_shape, AXES)
row("mean", "mean.default mean.dim", ref.reduce_mean, ref.reduction_shape, AXES)
row("prod", "prod.default prod.dim_int", ref.reduce_prod, ref.reduction_shape, AXES)
row("var", "var.correction var.dim var.default", ref.variance, ref.variance_shape, AXES)
row("var_mean", "var_mean.correction", ref.var_mean, ref.var_mean_shape, AXES)
row("linalg_vector_norm", "linalg_vector_norm.default", ref.vector_norm, ref.vector_norm_shape, AXES)
row("any", "any.default any.dim any.dims", ref.reduce_any, ref.reduce_any_shape, AXES, self=INDEX, out=INDEX)

# An extreme is one of the input's own values.
row("amax", "amax.default max.default", ref.amax, ref.extreme_shape, AXES, self=ACT, out=SELF)
row("amin", "amin.default min.default", ref.amin, ref.extreme_shape, AXES, self=ACT, out=SELF)
row("max_dim", "max.dim", ref.max_dim, ref.extreme_dim_shape, AXES, self=ACT, out=SELF)
row("min_dim", "min.dim", ref.min_dim, ref.extreme_dim_shape, AXES, self=ACT, out=SELF)
row("topk", "topk.default", ref.topk, ref.topk_shape, AXES, self=ACT, out=SELF)
row("sort", "sort.default sort.stable", ref.sort, ref.sort_shape, AXES, self=ACT, out=SELF)
# Without a dimension the place is counted in the flattened tensor, which only the original layout has.
row("argmax", "argmax.default", ref.argmax, ref.arg_shape, AXES, self=ACT, out=INDEX)
row("argmin", "argmin.default", ref.argmin, ref.arg_shape, AXES, self=ACT, out=INDEX)
row("cumsum", "cumsum.default", ref.cumsum, ref.cumsum_shape, AXES)
