"""Reductions, scans and orders along dimensions."""

from __future__ import annotations

from edgewright.ir.aten.reference import reduce
from edgewright.ir.core.evaluation import EvaluationContext
from edgewright.ir.core.table import DIM, DIMS, Shape, ShapeOf, define, define_aten, integer, require
from edgewright.ir.dialect import FLAG
from edgewright.ir.graph import Array, Op

_REDUCTION = {"dim": DIMS, "keepdim": FLAG}
_ARGMAX = {"dim": DIM.or_absent(), "keepdim": FLAG}

define_aten("sum prod", "over `dim`; over all dimensions if it is empty", "self", "F -> F | i64 -> i64", _REDUCTION)
define_aten("mean", "over `dim`; over all dimensions if it is empty", "self", "F -> F", _REDUCTION)
define_aten("amax amin", "over `dim`; over all dimensions if it is empty", "self", "N -> N", _REDUCTION)
define_aten("argmax argmin", "index of the first extreme along `dim`", "self", "number -> i64", _ARGMAX)
define_aten("cumsum", "sums of the elements up to each, along `dim`", "self", "F -> F | i64 -> i64", {"dim": DIM})


def _topk_indices(ex: EvaluationContext, op: Op) -> Array:
    """The indices of the top k; values are gathered separately."""
    return reduce.topk(ex.raw(op.args["self"]), op.args["k"], op.args["dim"], op.args["largest"])[1]


def _topk_shape(op: Op, shape_of: ShapeOf) -> Shape:
    shape, dim, k = list(shape_of(op.args["self"])), op.args["dim"], op.args["k"]
    require(0 <= dim < len(shape) and k <= shape[dim], "needs as many elements along the dimension as k")
    return (*shape[:dim], k, *shape[dim + 1 :])


define("topk_indices", "indices of the `k` largest or smallest along `dim`, in order", "self", "number -> i64",
       _topk_shape, _topk_indices, {"k": integer(1), "dim": integer(0), "largest": FLAG})  # fmt: skip
