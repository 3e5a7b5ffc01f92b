"""Top-k indices and separable resize."""

from __future__ import annotations

import numpy as np

from edgewright.ir.aten.reference import reduce
from edgewright.ir.core.registry import EvaluationContext, implements
from edgewright.ir.graph import Array, Op


@implements("topk_indices")
def _topk_indices(ex: EvaluationContext, op: Op) -> Array:
    """The indices of the top k; values are gathered separately."""
    return reduce.topk(ex.raw(op.args["self"]), op.args["k"], op.args["dim"], op.args["largest"])[1]


@implements("separable_resize")
def _separable_resize(ex: EvaluationContext, op: Op) -> Array:
    """Separable resize along one dimension: a weighted sum of ``counts`` neighbors from ``starts``."""
    x, dim = np.moveaxis(ex.real(op.args["self"]), op.args["dim"], 0), op.args["dim"]
    starts, counts, weights = (op.args[name].data for name in ("starts", "counts", "weights"))
    result = np.zeros((len(starts), *x.shape[1:]), np.float32)
    for i, (start, count) in enumerate(zip(starts, counts, strict=True)):
        for k in range(count):
            result[i] += weights[i, k] * x[start + k]
    return ex.store(op, np.moveaxis(result, 0, dim))
