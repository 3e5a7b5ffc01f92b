"""Normalizations and softmax."""

from __future__ import annotations

import math

import numpy as np

from edgewright.ir import int_rows
from edgewright.ir.aten.reference import norm
from edgewright.ir.core.evaluation import EvaluationContext
from edgewright.ir.core.table import (
    LIMITS,
    NUMBER,
    Shape,
    ShapeOf,
    define,
    define_aten,
    first_operand,
    integer,
    integers,
    require,
)
from edgewright.ir.dialect import FLAG
from edgewright.ir.graph import Array, Op

define_aten("layer_norm", "normalization over the last dimensions, `normalized_shape`", "input weight? bias?",
            "F F? F? -> F", {"normalized_shape": integers(0), "eps": NUMBER})  # fmt: skip
define_aten("rms_norm", "division by the root of the mean square over the last dimensions", "input weight?",
            "F F? -> F", {"normalized_shape": integers(0), "eps": NUMBER})  # fmt: skip
define_aten("group_norm", "normalization of `num_groups` groups of channels, dimension 1", "input weight? bias?",
            "F F? F? -> F", {"num_groups": integer(1), "eps": NUMBER})  # fmt: skip


def _softmax(ex: EvaluationContext, op: Op) -> Array:
    return ex.store(op, norm.softmax(ex.real(op.args["self"]), -1))


define("softmax", "of the last dimension", "self", "F -> F | Q -> Q", first_operand, _softmax, LIMITS,
       compiled="f32 f16 bf16")  # fmt: skip

# ------------------------------------------------------------------------------------------ with exact sums of integers


def _int_softmax(ex: EvaluationContext, op: Op) -> Array:
    """Softmax along the last dimension, or its logarithm (``log``)."""
    x = op.args["self"]
    function = int_rows.log_softmax if op.args["log"] else int_rows.softmax
    with np.errstate(all="ignore"):
        return ex.store(op, function(x, ex.raw(x), -1))


def _int_norm(ex: EvaluationContext, op: Op) -> Array:
    """A norm of consecutive rows of ``length`` elements: of layers or groups if they are centered (``center``), else
    RMS norm. ``channel_size`` elements share a weight; ``groups`` rows in turn have weights of their own."""
    x, length, groups = op.args["self"], op.args["length"], op.args["groups"]
    rows = (np.asarray(ex.raw(x), np.int64) - int(np.asarray(x.q.zero_point))).reshape(-1, length)
    with np.errstate(all="ignore"):
        result = int_rows.normalize_rows(x, rows, op.args["epsilon"], op.args["center"])
        split = result.reshape(-1, groups, length // op.args["channel_size"], op.args["channel_size"])
        for name, combine in (("weight", np.multiply), ("bias", np.add)):
            if op.args.get(name) is not None:
                split = combine(split, np.asarray(ex.raw(op.args[name])).reshape(1, groups, -1, 1))
        return ex.store(op, np.asarray(split, np.float32).reshape(x.bound))


def _int_norm_shape(op: Op, shape_of: ShapeOf) -> Shape:
    shape, groups = tuple(shape_of(op.args["self"])), op.args["groups"]
    length, channel_size = op.args["length"], op.args["channel_size"]
    require(math.prod(shape) % (length * groups) == 0 and length % channel_size == 0, "rows must fit the tensor")
    for name in ("weight", "bias"):
        factor = op.args.get(name)
        fits = factor is None or math.prod(shape_of(factor)) == groups * (length // channel_size)
        require(fits, f"{name} must have an element for each channel")
    return shape


define("int_softmax", "softmax, or its logarithm, of the last dimension of quantized rows, with exact integer sums",
       "self", "quantized -> quantized", first_operand, _int_softmax, {"log": FLAG})  # fmt: skip
define("int_norm", "norm of consecutive rows of quantized elements, with exact integer sums", "self weight? bias?",
       "quantized f32? f32? -> quantized", _int_norm_shape, _int_norm,
       {"length": integer(1), "channel_size": integer(1), "groups": integer(1), "epsilon": NUMBER,
        "center": FLAG})  # fmt: skip
