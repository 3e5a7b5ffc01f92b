"""Lowering of kernel calls that expand to several core operators: activations, norms, variance, products of
activations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.ir.graph import Value
from edgewright.runtime.jit.graph_builder import FLOATS, TRANSCENDENTAL_COST, GraphBuilder, make_value
from edgewright.runtime.jit.reduce import reduced_dims
from edgewright.runtime.jit.registry import MULTI_RESULT, Args, lowers, lowers_fallback, op_name
from edgewright.runtime.jit.typed_elementwise import emit_cast, emit_typed, supports_operands
from edgewright.runtime.tensor import TensorSlot

_F32, _BOOL = np.dtype(np.float32), np.dtype(np.bool_)


def emit_float(g: GraphBuilder, kind: str, a: Value, b: Any = None, shape: Sequence[int] | None = None) -> Value:
    """Emit a float32 operator of one or two operands; Python numbers become constants."""
    args: dict[str, Any] = {"self": a}
    if b is not None:
        args["other"] = b if isinstance(b, Value) else make_value((), np.asarray(b, np.float32))
    broadcast = np.broadcast_shapes(a.bound, args["other"].bound if b is not None else ())
    return g.emit_core(kind, broadcast if shape is None else shape, args)


def emit_select(g: GraphBuilder, comparison: str, x: Value, limit: float, on_true: Value, on_false: Value) -> Value:
    """``where(x <comparison> limit, on_true, on_false)``."""
    condition = g.emit_core(
        comparison, x.bound, {"self": x, "other": make_value((), np.asarray(limit, np.float32))}, _BOOL
    )
    return g.emit_core("core.where", x.bound, {"condition": condition, "self": on_true, "other": on_false})


def store(g: GraphBuilder, value: Value, out: TensorSlot) -> bool:
    """Make a value the contents of ``out``, cast to its dtype."""
    viewed = g.view(value, out.bound)
    return emit_typed(g, "core.clone" if viewed.dtype == out.dtype else "core.cast", out, {"self": viewed}, out.dtype)


# --------------------------------------------------------------------------------------------------------- activations


@lowers("aten::leaky_relu.out", "aten::elu.out", "aten::logit.out", "aten::glu.out")
@lowers_fallback("aten::gelu.out")
def _activation(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, name = a["self"], op_name(a)
    if not g.supports(x, outs[0]) or g.constant_data(x) is not None or not (name == "glu" or x.bound == outs[0].bound):
        return False
    result = _ACTIVATIONS[name](g, emit_cast(g, x, _F32), a)
    g.macs += TRANSCENDENTAL_COST * math.prod(x.bound)
    return result is not None and result.bound == outs[0].bound and store(g, result, outs[0])


def _leaky_relu(g: GraphBuilder, x: Value, a: Args) -> Value | None:
    slope = float(np.float32(a["negative_slope"]))
    return emit_select(g, "core.gt", x, 0, x, emit_float(g, "core.mul", x, slope))


def _elu(g: GraphBuilder, x: Value, a: Args) -> Value | None:
    alpha, scale, inside = (np.float32(a[name]) for name in ("alpha", "scale", "input_scale"))
    negative = emit_float(
        g, "core.mul", emit_float(g, "core.expm1", emit_float(g, "core.mul", x, inside)), alpha * scale
    )
    return emit_select(g, "core.lt", x, 0, negative, emit_float(g, "core.mul", x, scale))


def _logit(g: GraphBuilder, x: Value, a: Args) -> Value | None:
    eps, dtype = a["eps"], a["self"].dtype if a["self"].dtype in FLOATS else _F32
    if eps is not None and eps >= 0:
        epsilon = np.asarray(eps, dtype)
        low, high = (make_value((), v.astype(np.float32)) for v in (epsilon, np.asarray(1 - epsilon, dtype)))
        above = g.emit_core(
            "core.where", x.bound, {"condition": _emit_compare(g, "core.gt", x, high), "self": high, "other": x}
        )
        x = g.emit_core(
            "core.where", x.bound, {"condition": _emit_compare(g, "core.lt", x, low), "self": low, "other": above}
        )
    rest = emit_float(g, "core.add", emit_float(g, "core.neg", x), 1.0)
    return emit_float(g, "core.log", emit_float(g, "core.div", x, rest))


def _emit_compare(g: GraphBuilder, comparison: str, x: Value, limit: Value) -> Value:
    return g.emit_core(comparison, x.bound, {"self": x, "other": limit}, _BOOL)


def _glu(g: GraphBuilder, x: Value, a: Args) -> Value | None:
    rank, dim = len(x.bound), a["dim"]
    if not rank or not -rank <= dim < rank or x.bound[dim] % 2:
        return None
    lengths = [n // 2 if d == dim % rank else n for d, n in enumerate(x.bound)]
    halves = []
    for i in (0, 1):
        start = [i * lengths[d] if d == dim % rank else 0 for d in range(rank)]
        halves.append(g.emit_core("core.slice", lengths, {"self": x, "start": start, "length": lengths}))
    return emit_float(g, "core.mul", halves[0], emit_float(g, "core.sigmoid", halves[1]))


def _gelu(g: GraphBuilder, x: Value, a: Args) -> Value | None:
    kinds = {"none": "core.gelu", "tanh": "core.gelu_tanh"}
    return emit_float(g, kinds[a["approximate"]], x) if a["approximate"] in kinds else None


_ACTIVATIONS = {"leaky_relu": _leaky_relu, "elu": _elu, "logit": _logit, "glu": _glu, "gelu": _gelu}


@lowers("aten::_log_softmax.out")
def _log_softmax(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, rank = a["self"], len(a["self"].bound)
    if not g.supports_float(x, *outs) or not rank or not -rank <= a["dim"] < rank or g.constant_data(x) is not None:
        return False
    dim, data = a["dim"] % rank, g.value(x)
    shape = [1 if d == dim else n for d, n in enumerate(x.bound)]
    args = {"dim": [dim], "keepdim": True}
    shifted = emit_float(g, "core.sub", data, g.emit_core("core.amax", shape, {"self": data, **args}))
    total = g.emit_core("core.sum", shape, {"self": emit_float(g, "core.exp", shifted), **args})
    g.macs += TRANSCENDENTAL_COST * math.prod(x.bound)
    return emit_typed(g, "core.sub", outs[0], {"self": shifted, "other": emit_float(g, "core.log", total)}, _F32)


# ------------------------------------------------------------------------------------------------ moments and norms

MULTI_RESULT |= {"aten::var_mean.correction_out"}


@lowers("aten::var.correction_out", "aten::var.out", "aten::var_mean.correction_out")
def _variance(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, dims = a["self"], reduced_dims(a["self"], a["dim"])
    if not g.supports(x, *outs) or dims is None or not dims or g.constant_data(x) is not None:
        return False
    correction = a["correction"] if "correction" in a else int(bool(a["unbiased"]))
    count = math.prod(x.bound[d] for d in dims)
    divisor = max(count - (1 if correction is None else correction), 0)
    shape = [1 if d in dims else n for d, n in enumerate(x.bound)]
    args, data = {"dim": dims, "keepdim": True}, emit_cast(g, x, _F32)
    mean = g.emit_core("core.mean", shape, {"self": data, **args})
    square = emit_float(g, "core.square", emit_float(g, "core.sub", data, mean))
    variance = emit_float(g, "core.div", g.emit_core("core.sum", shape, {"self": square, **args}), float(divisor))
    g.macs += TRANSCENDENTAL_COST * math.prod(x.bound)
    values = (variance, mean)[: len(outs)]
    if any(math.prod(v.bound) != math.prod(o.bound) for v, o in zip(values, outs, strict=True)):
        return False
    return all(store(g, v, o) for v, o in zip(values, outs, strict=True))


@lowers_fallback("aten::_native_batch_norm_legit_no_training.out")
def _batch_norm(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    """One multiply and one add per channel: the statistics are constants."""
    x, names = a["input"], ("weight", "bias", "running_mean", "running_var")
    slots = [a[name] for name in names]
    constants = [g.constant_data(s) for s in slots]
    if not g.supports_float(x, outs[0], *slots) or len(x.bound) < 2 or g.constant_data(x) is not None:
        return False
    all_constant = all(
        s is None or (h is not None and h.shape == x.bound[1:2]) for s, h in zip(slots, constants, strict=True)
    )
    weight, bias, mean, variance = constants
    if not all_constant or mean is None or variance is None:
        return False
    with np.errstate(all="ignore"):
        factor = (1 if weight is None else weight) / np.sqrt(variance + np.float32(a["eps"]))
        shift = (0 if bias is None else bias) - mean * factor
    nhwc = g.is_image(x) and g.prefers_nhwc([x])
    shape = (1, 1, 1, -1) if nhwc else (1, -1, *(1,) * (len(x.bound) - 2))
    factors = [np.ascontiguousarray(v.astype(np.float32).reshape(shape)) for v in (factor, shift)]
    scaled = emit_float(
        g, "core.mul", g.value_nhwc(x) if nhwc else g.value(x), make_value(factors[0].shape, factors[0])
    )
    g.emit_to("core.add", outs[0], {"self": scaled, "other": make_value(factors[1].shape, factors[1])}, nhwc=nhwc)
    g.macs += math.prod(x.bound)
    return True


# ------------------------------------------------------------------------------------------- products of two tensors


def emit_matmul(g: GraphBuilder, a: TensorSlot, b: TensorSlot) -> Value | None:
    """``a @ b`` for two computed matrices; None if it is not supported."""
    fits = len(a.bound) == len(b.bound) == 2 and a.bound[1] == b.bound[0]
    if not g.supports_float(a, b) or not fits:
        return None
    g.macs += math.prod(a.bound) * b.bound[1]
    return g.emit_core("core.bmm", (a.bound[0], b.bound[1]), {"self": g.value(a), "other": g.value(b)})


@lowers_fallback("aten::mm.out")
def _mm(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    result = emit_matmul(g, a["self"], a["mat2"])
    return (
        result is not None and g.supports_float(outs[0]) and result.bound == outs[0].bound and store(g, result, outs[0])
    )


@lowers_fallback("aten::addmm.out")
def _addmm(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    bias, beta, alpha = a["self"], float(a["beta"]), float(a["alpha"])
    if not g.supports_float(bias, outs[0]) or not supports_operands(g, (bias,), bias):
        return False
    result = emit_matmul(g, a["mat1"], a["mat2"])
    if result is None or np.broadcast_shapes(result.bound, bias.bound) != outs[0].bound:
        return False
    if alpha != 1:
        result = emit_float(g, "core.mul", result, alpha)
    if beta == 0:
        return result.bound == outs[0].bound and store(g, result, outs[0])
    addend = g.value(bias)
    if beta != 1:
        addend = (
            make_value(addend.bound, addend.data * np.float32(beta))
            if addend.data is not None
            else emit_float(g, "core.mul", addend, beta)
        )
    return emit_typed(g, "core.add", outs[0], {"self": result, "other": addend}, _F32)
