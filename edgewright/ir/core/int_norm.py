"""Softmax and norms of quantized rows with exact integer sums (``ir/int_rows.py``)."""

from __future__ import annotations

import numpy as np

from edgewright.ir import int_rows
from edgewright.ir.core.registry import EvaluationContext, implements
from edgewright.ir.graph import Array, Op


@implements("int_softmax")
def _int_softmax(ex: EvaluationContext, op: Op) -> Array:
    """Softmax along the last dimension, or its logarithm (``log``)."""
    x = op.args["self"]
    function = int_rows.log_softmax if op.args["log"] else int_rows.softmax
    with np.errstate(all="ignore"):
        return ex.store(op, function(x, ex.raw(x), -1))


@implements("int_norm")
def _int_norm(ex: EvaluationContext, op: Op) -> Array:
    """A norm of consecutive rows of ``length`` elements: of layers or groups if they are centered (``center``), else
    RMS norm. ``channel_size`` elements share a weight; ``groups`` rows in turn have weights of their own."""
    x, length, groups = op.args["self"], op.args["length"], op.args["groups"]
    rows = (np.asarray(ex.raw(x), np.int64) - int(np.asarray(x.q.zero_point))).reshape(-1, length)
    with np.errstate(all="ignore"):
        result = int_rows.normalize_rows(x, rows, op.args["epsilon"], op.args["center"])
        split = result.reshape(-1, groups, length // op.args["channel_size"], op.args["channel_size"])
        for name, combine in (("weight", np.multiply), ("bias", np.add)):
            if op.args[name] is not None:
                split = combine(split, np.asarray(ex.raw(op.args[name])).reshape(1, groups, -1, 1))
        return ex.store(op, np.asarray(split, np.float32).reshape(x.bound))
