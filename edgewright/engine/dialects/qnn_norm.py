"""QNN's softmax and norms as the engine's: of integers, those that Samsung's are, which have the same meaning."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.engine.dialects.qnn_rewrite import (
    QnnRewrite,
    io_of,
    is_float32,
    is_int8,
    is_quantized,
    make_constant,
    non_empty,
    rule,
    same_type,
)
from edgewright.ir.graph import Op, Value
from edgewright.ir.qnn.dtypes import real as numbers_of
from edgewright.ir.qnn.norm_softmax import rows_of

_SOFTMAX = {"Softmax": "enn.SOFTMAX", "LogSoftmax": "enn.LOGSOFTMAX"}


def _last(made: QnnRewrite, op: Op, x: Value, axis: int) -> tuple[Value, list[int]]:
    """A tensor with one dimension last, and the order that brings it back."""
    dims = [*(d for d in range(len(x.bound)) if d != axis), axis]
    return made.turned(op, x, dims), [dims.index(d) for d in range(len(dims))]


@rule("Softmax", "LogSoftmax")
def _softmax(made: QnnRewrite, op: Op) -> bool:
    (x,), out = io_of(op)
    if not non_empty(x, out) or x.constant or float(op.args["beta"]) != 1.0 or not x.bound:
        return False
    name = op.kind.partition(".")[2]
    if is_quantized(x, out):
        given, back = _last(made, op, x, int(op.args["axis"]))
        last = made.then(_SOFTMAX[name], op, out, given.bound, inputs=[given], axis=len(x.bound) - 1)
    elif is_float32(x, out):
        given, back = _last(made, op, made.half(op, x), int(op.args["axis"]))
        last = made.then("softmax", op, out, given.bound, self=given) if name == "Softmax" else _log(made, op, given)
        last = made.half(op, last)
    else:
        return False
    made.emit("permute", op, out, self=last, dims=back)
    if is_float32(out):
        made.halves[out] = out
    return True


def _log(made: QnnRewrite, op: Op, x: Value) -> Value:
    """Below the largest, by the logarithm of the exponentials' sum."""
    axis, one = [len(x.bound) - 1], (*x.bound[:-1], 1)
    largest = made.then("amax", op, x, one, self=x, dim=axis, keepdim=True)
    below = made.then("sub", op, x, x.bound, self=x, other=largest)
    powers = made.then("exp", op, x, x.bound, self=below)
    total = made.then("sum", op, x, one, self=powers, dim=axis, keepdim=True)
    return made.then("sub", op, x, x.bound, self=below, other=made.then("log", op, x, one, self=total))


@rule("LayerNorm", "RmsNorm", "GroupNorm", "InstanceNorm")
def _norm(made: QnnRewrite, op: Op) -> bool:
    (x, *factors), out = io_of(op)
    order = rows_of(op)
    if order is None or not non_empty(x, out) or x.constant or any(v.data is None for v in factors):
        return False
    if not is_quantized(x, out) and not is_float32(x, out):
        return False
    dims, shape = order
    name = op.kind.partition(".")[2]
    factors = [_flat(v) for v in factors]
    rows = name in ("LayerNorm", "RmsNorm")
    size = shape[1] if rows else x.bound[-1]
    if (rows and dims != list(range(len(dims)))) or any(v.bound != (size,) for v in factors):
        return False
    given = made.turned(op, x if is_quantized(x) else made.half(op, x), dims)
    last = (_whole_rows if is_quantized(x) else _real_rows)(made, op, name, given, out, factors, shape)
    made.emit("permute", op, out, self=last, dims=[dims.index(d) for d in range(len(dims))])
    if is_float32(out):
        made.halves[out] = out
    return True


def _whole_rows(made: QnnRewrite, op: Op, name: str, x: Value, out: Value, factors: list[Value],
                shape: tuple[int, ...]) -> Value:  # fmt: skip
    epsilon = float(op.args["epsilon"])
    if name in ("LayerNorm", "RmsNorm"):
        flat = made.view(op, x, shape)
        ones = _filled(factors, shape[1])
        kind, more = ("enn.LAYERNORM", {}) if name == "LayerNorm" else ("enn.RMSNORM", {"normalize_shape": [shape[1]]})
        kept = ones if name == "LayerNorm" else ones[: max(1, len(factors))]
        last = made.then(kind, op, out, shape, inputs=[flat, *kept], epsilon=epsilon, **more)
    else:
        groups = x.bound[1] if name == "InstanceNorm" else int(op.args["group"])
        images = (x.bound[0], x.bound[1], shape[0] * shape[1] // (x.bound[0] * x.bound[1]))
        flat, wide = _stored_as(made, op, made.view(op, x, images), _words(x)), _words(out)
        given = [flat, *_filled(factors, x.bound[1])]
        last = made.then("enn.GROUPNORM", op, wide, images, inputs=given, epsilon=epsilon, num_groups=groups)
        last = _stored_as(made, op, last, out)
    return made.view(op, last, x.bound)


def _stored_as(made: QnnRewrite, op: Op, x: Value, like: Value) -> Value:
    return x if same_type(x, like) else made.then("qnn.Convert", op, like, x.bound, inputs=[x])


def _words(value: Value) -> Value:
    """Bytes as the same integers of 16 bits: rows of groups must lie densely, which bytes need not."""
    if not is_int8(value) or value.q is None:
        return value
    dtype = np.dtype(np.uint16 if value.q.dtype.kind == "u" else np.int16)
    return replace(value, dtype=dtype, q=replace(value.q, dtype=dtype))


def _flat(value: Value) -> Value:
    """A constant of one dimension."""
    assert value.data is not None
    q = value.q if value.q is None or value.q.axis is None else replace(value.q, axis=0)
    return make_constant("factor", np.ascontiguousarray(value.data).reshape(-1), q)


def _filled(factors: list[Value], size: int) -> list[Value]:
    """A factor and something to add for each element of a row."""
    missing = [make_constant("factor", np.full(size, n, np.float32)) for n in (1, 0)]
    return [*factors, *missing[len(factors) :]]


def _real_rows(made: QnnRewrite, op: Op, name: str, x: Value, out: Value, factors: list[Value],
               shape: tuple[int, ...]) -> Value:  # fmt: skip
    size = shape[1] if name in ("LayerNorm", "RmsNorm") else x.bound[1]
    kept = [make_constant("factor", numbers_of(v, np.asarray(v.data))) for v in _filled(factors, size)]
    args: dict[str, Any] = {"weight": kept[0], "bias": kept[1], "eps": float(op.args["epsilon"])}
    if name in ("LayerNorm", "RmsNorm"):
        kind = "layer_norm" if name == "LayerNorm" else "rms_norm"
        bias = args.pop("bias") if name == "RmsNorm" else None
        flat = made.view(op, x, shape)
        last = made.then(kind, op, out, shape, input=flat, normalized_shape=[size], **args)
        if bias is not None and len(factors) > 1:
            last = made.then("add", op, out, shape, self=last, other=bias)
    else:
        groups = size if name == "InstanceNorm" else int(op.args["group"])
        last = made.then("group_norm", op, out, x.bound, input=x, num_groups=groups, **args)
    return made.view(op, made.half(op, last), x.bound)
