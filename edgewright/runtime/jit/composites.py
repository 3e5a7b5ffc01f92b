"""Kernel calls that several operators of a device graph make up: activations, norms, moments, products of tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.ir.graph import Value
from edgewright.runtime.jit.graph_builder import REALS, Maker, new
from edgewright.runtime.jit.reduce import all_dims
from edgewright.runtime.jit.registry import WHOLE, Args, otherwise, taken
from edgewright.runtime.jit.typed_elementwise import COSTLY, as_type, finish, name_of, usable
from edgewright.runtime.tensor import TensorSlot

_F32, _TRUTH = np.dtype(np.float32), np.dtype(np.bool_)


def real(m: Maker, kind: str, a: Value, b: Any = None, shape: Sequence[int] | None = None) -> Value:
    """An operator of one or two operands of single precision; numbers are operands too."""
    args: dict[str, Any] = {"self": a}
    if b is not None:
        args["other"] = b if isinstance(b, Value) else new((), np.asarray(b, np.float32))
    made = np.broadcast_shapes(a.bound, args["other"].bound if b is not None else ())
    return m.between(kind, made if shape is None else shape, args)


def chosen(m: Maker, how: str, x: Value, bound: float, yes: Value, no: Value) -> Value:
    condition = m.between(how, x.bound, {"self": x, "other": new((), np.asarray(bound, np.float32))}, _TRUTH)
    return m.between("where", x.bound, {"condition": condition, "self": yes, "other": no})


def stored(m: Maker, value: Value, out: TensorSlot) -> bool:
    """A value as the contents of a tensor."""
    held = m.viewed(value, out.bound)
    return finish(m, "clone" if held.dtype == out.dtype else "cast", out, {"self": held}, out.dtype)


# --------------------------------------------------------------------------------------------------------- activations


@taken("aten::leaky_relu.out", "aten::elu.out", "aten::logit.out", "aten::glu.out")
@otherwise("aten::gelu.out")
def _activation(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, name = a["self"], name_of(a)
    if not m.known(x, outs[0]) or m.constant(x) is not None or not (name == "glu" or x.bound == outs[0].bound):
        return False
    made = _ACTIVATIONS[name](m, as_type(m, x, _F32), a)
    m.macs += COSTLY * math.prod(x.bound)
    return made is not None and made.bound == outs[0].bound and stored(m, made, outs[0])


def _leaky_relu(m: Maker, x: Value, a: Args) -> Value | None:
    slope = float(np.float32(a["negative_slope"]))
    return chosen(m, "gt", x, 0, x, real(m, "mul", x, slope))


def _elu(m: Maker, x: Value, a: Args) -> Value | None:
    alpha, scale, inside = (np.float32(a[name]) for name in ("alpha", "scale", "input_scale"))
    below = real(m, "mul", real(m, "expm1", real(m, "mul", x, inside)), alpha * scale)
    return chosen(m, "lt", x, 0, below, real(m, "mul", x, scale))


def _logit(m: Maker, x: Value, a: Args) -> Value | None:
    eps, held = a["eps"], a["self"].dtype if a["self"].dtype in REALS else _F32
    if eps is not None and eps >= 0:
        least = np.asarray(eps, held)
        low, high = (new((), v.astype(np.float32)) for v in (least, np.asarray(1 - least, held)))
        above = m.between("where", x.bound, {"condition": _is(m, "gt", x, high), "self": high, "other": x})
        x = m.between("where", x.bound, {"condition": _is(m, "lt", x, low), "self": low, "other": above})
    rest = real(m, "add", real(m, "neg", x), 1.0)
    return real(m, "log", real(m, "div", x, rest))


def _is(m: Maker, how: str, x: Value, bound: Value) -> Value:
    return m.between(how, x.bound, {"self": x, "other": bound}, _TRUTH)


def _glu(m: Maker, x: Value, a: Args) -> Value | None:
    rank, dim = len(x.bound), a["dim"]
    if not rank or not -rank <= dim < rank or x.bound[dim] % 2:
        return None
    lengths = [n // 2 if d == dim % rank else n for d, n in enumerate(x.bound)]
    halves = []
    for i in (0, 1):
        start = [i * lengths[d] if d == dim % rank else 0 for d in range(rank)]
        halves.append(m.between("slice", lengths, {"self": x, "start": start, "length": lengths}))
    return real(m, "mul", halves[0], real(m, "sigmoid", halves[1]))


def _gelu(m: Maker, x: Value, a: Args) -> Value | None:
    kinds = {"none": "gelu", "tanh": "gelu_tanh"}
    return real(m, kinds[a["approximate"]], x) if a["approximate"] in kinds else None


_ACTIVATIONS = {"leaky_relu": _leaky_relu, "elu": _elu, "logit": _logit, "glu": _glu, "gelu": _gelu}


@taken("aten::_log_softmax.out")
def _log_softmax(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, rank = a["self"], len(a["self"].bound)
    if not m.usable(x, *outs) or not rank or not -rank <= a["dim"] < rank or m.constant(x) is not None:
        return False
    dim, data = a["dim"] % rank, m.planes(x)
    kept = [1 if d == dim else n for d, n in enumerate(x.bound)]
    args = {"dim": [dim], "keepdim": True}
    less = real(m, "sub", data, m.between("amax", kept, {"self": data, **args}))
    total = m.between("sum", kept, {"self": real(m, "exp", less), **args})
    m.macs += COSTLY * math.prod(x.bound)
    return finish(m, "sub", outs[0], {"self": less, "other": real(m, "log", total)}, _F32)


# ------------------------------------------------------------------------------------------------ moments and norms

WHOLE |= {"aten::var_mean.correction_out"}


@taken("aten::var.correction_out", "aten::var.out", "aten::var_mean.correction_out")
def _variance(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, dims = a["self"], all_dims(a["self"], a["dim"])
    if not m.known(x, *outs) or dims is None or not dims or m.constant(x) is not None:
        return False
    correction = a["correction"] if "correction" in a else int(bool(a["unbiased"]))
    count = math.prod(x.bound[d] for d in dims)
    divisor = max(count - (1 if correction is None else correction), 0)
    kept = [1 if d in dims else n for d, n in enumerate(x.bound)]
    args, data = {"dim": dims, "keepdim": True}, as_type(m, x, _F32)
    mean = m.between("mean", kept, {"self": data, **args})
    square = real(m, "square", real(m, "sub", data, mean))
    made = real(m, "div", m.between("sum", kept, {"self": square, **args}), float(divisor))
    m.macs += COSTLY * math.prod(x.bound)
    values = (made, mean)[: len(outs)]
    if any(math.prod(v.bound) != math.prod(o.bound) for v, o in zip(values, outs, strict=True)):
        return False
    return all(stored(m, v, o) for v, o in zip(values, outs, strict=True))


@otherwise("aten::_native_batch_norm_legit_no_training.out")
def _batch_norm(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    """A factor and a sum for each channel, which the file holds."""
    x, names = a["input"], ("weight", "bias", "running_mean", "running_var")
    slots = [a[name] for name in names]
    held = [m.constant(s) for s in slots]
    if not m.usable(x, outs[0], *slots) or len(x.bound) < 2 or m.constant(x) is not None:
        return False
    known = all(s is None or (h is not None and h.shape == x.bound[1:2]) for s, h in zip(slots, held, strict=True))
    weight, bias, mean, variance = held
    if not known or mean is None or variance is None:
        return False
    with np.errstate(all="ignore"):
        factor = (1 if weight is None else weight) / np.sqrt(variance + np.float32(a["eps"]))
        shift = (0 if bias is None else bias) - mean * factor
    pixels = m.image(x) and m.like([x])
    shape = (1, 1, 1, -1) if pixels else (1, -1, *(1,) * (len(x.bound) - 2))
    both = [np.ascontiguousarray(v.astype(np.float32).reshape(shape)) for v in (factor, shift)]
    scaled = real(m, "mul", m.pixels(x) if pixels else m.planes(x), new(both[0].shape, both[0]))
    m.add("add", outs[0], {"self": scaled, "other": new(both[1].shape, both[1])}, pixels=pixels)
    m.macs += math.prod(x.bound)
    return True


# ------------------------------------------------------------------------------------------- products of two tensors


def product(m: Maker, a: TensorSlot, b: TensorSlot) -> Value | None:
    """Of matrices that are both computed."""
    fits = len(a.bound) == len(b.bound) == 2 and a.bound[1] == b.bound[0]
    if not m.usable(a, b) or not fits:
        return None
    m.macs += math.prod(a.bound) * b.bound[1]
    return m.between("bmm", (a.bound[0], b.bound[1]), {"self": m.planes(a), "other": m.planes(b)})


@otherwise("aten::mm.out")
def _mm(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    made = product(m, a["self"], a["mat2"])
    return made is not None and m.usable(outs[0]) and made.bound == outs[0].bound and stored(m, made, outs[0])


@otherwise("aten::addmm.out")
def _addmm(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    bias, beta, alpha = a["self"], float(a["beta"]), float(a["alpha"])
    if not m.usable(bias, outs[0]) or not usable(m, (bias,), bias):
        return False
    made = product(m, a["mat1"], a["mat2"])
    if made is None or np.broadcast_shapes(made.bound, bias.bound) != outs[0].bound:
        return False
    if alpha != 1:
        made = real(m, "mul", made, alpha)
    if beta == 0:
        return made.bound == outs[0].bound and stored(m, made, outs[0])
    held = m.planes(bias)
    if beta != 1:
        held = new(held.bound, held.data * np.float32(beta)) if held.data is not None else real(m, "mul", held, beta)
    return finish(m, "add", outs[0], {"self": made, "other": held}, _F32)
