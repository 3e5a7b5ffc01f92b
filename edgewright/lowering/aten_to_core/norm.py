"""Lowering of softmax, normalization, and activations that expand to several core operators."""

from __future__ import annotations

import math

import numpy as np

from edgewright.ir.graph import Op, Value
from edgewright.lowering.aten_to_core.elementwise import Lowering, unary
from edgewright.lowering.aten_to_core.operands import (
    BOOL,
    F32,
    FLOATS,
    cast_value,
    computed,
    dtype_of,
    emit_result,
    float_node,
    normalize_dim,
    require_floats,
    result,
    scalar,
    store,
)
from edgewright.lowering.passes.layout import LoweringContext, order_with_last, require


def softmax(low: LoweringContext, op: Op) -> None:
    """The core operator runs over the last dimension: any other is transposed to the end."""
    x, out = op.args["self"], result(op)
    require_floats(x, out)
    order = order_with_last(normalize_dim(x, op.args["dim"]), len(x.shape))
    low.emit("core.softmax", low.make(out, order), self=low.get(x, order))


def log_softmax(low: LoweringContext, op: Op) -> None:
    x, out = op.args["self"], result(op)
    require_floats(x, out)
    dim, data = normalize_dim(x, op.args["dim"]), cast_value(low, computed(low, x), F32)
    shape = [1 if d == dim else n for d, n in enumerate(x.bound)]
    shifted = float_node(
        low, "core.sub", data, low.compute("core.amax", shape, F32, self=data, dim=[dim], keepdim=True)
    )
    powers = float_node(low, "core.exp", shifted)
    total = low.compute("core.sum", shape, F32, self=powers, dim=[dim], keepdim=True)
    emit_result(low, "core.sub", out, F32, self=shifted, other=float_node(low, "core.log", total))


def layer_norm(low: LoweringContext, op: Op) -> None:
    x, out, factors = op.args["input"], result(op), _factors(low, op)
    shape = [int(n) for n in op.args["normalized_shape"]]
    low.emit("core.layer_norm", low.make(out), input=low.get(x), normalized_shape=shape, **factors,
             eps=float(op.args["eps"]))  # fmt: skip


def group_norm(low: LoweringContext, op: Op) -> None:
    x, out, factors = op.args["input"], result(op), _factors(low, op)
    sizes = (op.args["N"], op.args["C"], op.args["HxW"])
    require(sizes == (*x.bound[:2], math.prod(x.bound[2:])) and op.args["group"], "sizes must be the tensor's")
    low.emit("core.group_norm", low.make(out), input=low.get(x), num_groups=int(op.args["group"]), **factors,
             eps=float(op.args["eps"]))  # fmt: skip


def instance_norm(low: LoweringContext, op: Op) -> None:
    """Normalization by the statistics of a batch of one, which instance norms become: every channel is a group."""
    x, out, factors = op.args["input"], result(op), _factors(low, op)
    require(len(x.bound) > 2 and x.bound[0] == 1, "statistics must be those of one image")
    low.emit("core.group_norm", low.make(out), input=low.get(x), num_groups=x.bound[1], **factors,
             eps=float(op.args["eps"]))  # fmt: skip


def _factors(low: LoweringContext, op: Op) -> dict[str, Value | None]:
    values = {name: op.args[name] for name in ("weight", "bias")}
    require_floats(op.args["input"], result(op), *(v for v in values.values() if v is not None))
    return {name: None if v is None else low.get(v) for name, v in values.items()}


# -------------------------------------------------------------------------------------------------------- activations


def gelu(low: LoweringContext, op: Op) -> None:
    kinds = {"none": "core.gelu", "tanh": "core.gelu_tanh"}
    require(op.args["approximate"] in kinds, "must be a known approximation")
    unary(kinds[op.args["approximate"]], floating=True)(low, op)


def _select(low: LoweringContext, comparison: str, x: Value, limit: Value, then: Value, otherwise: Value) -> Value:
    """``where(x <comparison> limit, then, otherwise)``."""
    condition = low.compute(comparison, x.bound, BOOL, self=x, other=limit)
    return low.compute("core.where", x.bound, F32, condition=condition, self=then, other=otherwise)


def _operand(low: LoweringContext, op: Op) -> Value:
    return cast_value(low, computed(low, op.args["self"]), F32)


def leaky_relu(low: LoweringContext, op: Op) -> None:
    x, slope = _operand(low, op), float(np.float32(op.args["negative_slope"]))
    negative = float_node(low, "core.mul", x, slope)
    store(low, _select(low, "core.gt", x, scalar(low, 0, F32), x, negative), result(op))


def elu(low: LoweringContext, op: Op) -> None:
    x = _operand(low, op)
    alpha, scale, inner = (np.float32(op.args[name]) for name in ("alpha", "scale", "input_scale"))
    powers = float_node(low, "core.expm1", float_node(low, "core.mul", x, inner))
    negative, positive = float_node(low, "core.mul", powers, alpha * scale), float_node(low, "core.mul", x, scale)
    store(low, _select(low, "core.lt", x, scalar(low, 0, F32), negative, positive), result(op))


def logit(low: LoweringContext, op: Op) -> None:
    """``log(x / (1 - x))`` of ``x`` clamped to ``eps`` and ``1 - eps``, bounds of the operand's type."""
    x, eps = _operand(low, op), op.args["eps"]
    dtype = dtype_of(op.args["self"])
    dtype = dtype if dtype in FLOATS else F32
    if eps is not None and eps >= 0:
        epsilon = np.asarray(eps, dtype)
        bottom, top = (low.constant(v.astype(np.float32)) for v in (epsilon, np.asarray(1 - epsilon, dtype)))
        below = _select(low, "core.gt", x, top, top, x)
        x = _select(low, "core.lt", x, bottom, bottom, below)
    rest = float_node(low, "core.add", float_node(low, "core.neg", x), 1.0)
    store(low, float_node(low, "core.log", float_node(low, "core.div", x, rest)), result(op))


def glu(low: LoweringContext, op: Op) -> None:
    x, dim = _operand(low, op), normalize_dim(op.args["self"], op.args["dim"])
    length = [n // 2 if d == dim else n for d, n in enumerate(x.bound)]
    starts = [[i * length[d] if d == dim else 0 for d in range(len(length))] for i in (0, 1)]
    first, second = (low.compute("core.slice", length, F32, self=x, start=start, length=length) for start in starts)
    store(low, float_node(low, "core.mul", first, float_node(low, "core.sigmoid", second)), result(op))


LOWERINGS: dict[str, Lowering] = {
    "softmax": softmax, "log_softmax": log_softmax, "layer_norm": layer_norm, "native_group_norm": group_norm,
    "batch_norm_no_stats": instance_norm,
    "gelu": gelu, "leaky_relu": leaky_relu, "elu": elu, "logit": logit, "glu": glu,
}  # fmt: skip
