"""ENN's pools, resizing, reductions, softmax and norms as the engine's.

Integers of 16 bits are pooled and resized as real numbers, each rounding as the reference has it. Means, softmax and
norms of integers are sums of integers, and operators of their own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.engine.dialects.enn_rewrite import (
    TO_NCHW,
    UNLIMITED,
    EnnRewrite,
    hw_pair,
    is_float32,
    non_empty,
    padding_of,
    rule,
    same_kind,
    widen_to_int16,
)
from edgewright.ir.enn.numerics import byte, constant, inputs_of, result_of
from edgewright.ir.enn.table import PREFIX
from edgewright.ir.graph import Array, Op, Value

_IMAGE = 4


def _computed(made: EnnRewrite, kind: str, op: Op, name: str, /, **args: Any) -> None:
    """On an image: bytes as they are, others as real numbers."""
    x, out = inputs_of(op)[0], result_of(op)
    if byte(x):
        made.made(kind, op, out, **{name: made.image(x)}, **args)
    else:
        made.computed(kind, op, out, True, **{name: made.reals(op, x, True)}, **args)


# ------------------------------------------------------------------------------------------------------------- pools


@rule("MAXPOOL2D")
def _max_pool(made: EnnRewrite, op: Op) -> bool:
    (x,), out = inputs_of(op), result_of(op)
    if not same_kind(x, out) or not non_empty(x, out):
        return False
    args = {"kernel_size": hw_pair(op, "kernel"), "stride": hw_pair(op, "stride"), "padding": padding_of(op),
            "dilation": hw_pair(op, "dilation")}  # fmt: skip
    if is_float32(x):
        last = made.target(out, True)
        made.emit("max_pool2d", op, last, self=made.reals(op, x, True), **args)
        made.same(last)
    elif byte(x) and x.q != out.q:
        last = made.target(out, True)
        largest = replace(last, name=f"{last.name}_largest", dtype=x.dtype, q=x.q)
        made.emit("max_pool2d", op, largest, self=made.image(x), **args)
        made.emit("convert", op, last, self=largest)
    else:
        _computed(made, "max_pool2d", op, "self", **args)
    return True


@rule("AVGPOOL2D")
def _average_pool(made: EnnRewrite, op: Op) -> bool:
    """Padding that counts is made first: the engine's own does not."""
    (x,), out, around = inputs_of(op), result_of(op), padding_of(op)
    if not same_kind(x, out) or not non_empty(x, out):
        return False
    if any(around) and bool(op.args["count_include_pad"]):
        x = _padded(made, op, x, around)
        op, around = Op(op.kind, {**op.args, "inputs": [x]}, op.outputs, op.origin), [0, 0, 0, 0]
    _computed(made, "avg_pool2d", op, "self", kernel_size=hw_pair(op, "kernel"), stride=hw_pair(op, "stride"),
              padding=around)  # fmt: skip
    return True


def _padded(made: EnnRewrite, op: Op, x: Value, around: list[int]) -> Value:
    top, bottom, left, right = around
    batch, channels, high, wide = x.bound
    padded = replace(
        x, name=f"{x.name}_padded", shape=(batch, channels, high + top + bottom, wide + left + right), data=None
    )
    image = made.image(x)
    made.made("pad", op, padded, self=image, before=[0, top, left, 0], after=[0, bottom, right, 0], value=0.0)
    if image in made.halves:
        made.same(made.pixels[padded])
    return padded


@rule("RESIZE_BILINEAR")
def _bilinear(made: EnnRewrite, op: Op) -> bool:
    (x,), out = inputs_of(op), result_of(op)
    if not same_kind(x, out) or not non_empty(x, out):
        return False
    _computed(made, "upsample_bilinear2d", op, "input", output_size=list(out.bound[2:]),
              align_corners=bool(op.args["align_corners"]))  # fmt: skip
    return True


@rule("RESIZE_NEAREST_NEIGHBOR")
def _nearest(made: EnnRewrite, op: Op) -> bool:
    """By whole factors: every pixel several times."""
    (x,), out = inputs_of(op), result_of(op)
    batch, channels, high, wide = x.bound
    down, across = out.bound[2] // max(high, 1), out.bound[3] // max(wide, 1)
    if not non_empty(x, out) or (high * down, wide * across) != out.bound[2:]:
        return False
    image, last = made.image(x), made.target(out, True)
    apart = replace(
        image, name=f"{image.name}_apart", shape=(batch, high, 1, wide, 1, channels), dim_order=tuple(range(6))
    )
    shape = (batch, high, down, wide, across, channels)
    several = replace(apart, name=f"{image.name}_several", shape=shape)
    made.emit("view", op, apart, self=image, size=list(apart.bound))
    made.emit("expand", op, several, self=apart, size=list(shape))
    made.emit("view", op, last, self=several, size=list(last.bound))
    return True


# -------------------------------------------------------------------------------------------------------- reductions


@rule("REDUCEMEAN", "REDUCESUM")
def _reduced(made: EnnRewrite, op: Op) -> bool:
    (x,), out, axes = inputs_of(op), result_of(op), sorted(int(a) for a in op.args["axis"])
    keep, mean = bool(op.args["keep_dims"]), op.kind.endswith("MEAN")
    if not same_kind(x, out) or not non_empty(x, out) or not axes or x.constant:
        return False
    if mean and axes == [2, 3] and len(x.bound) == _IMAGE and x.q is None and made.any_pixels([x]):
        return _whole_image(made, op)
    if mean and axes == [2, 3] and len(x.bound) == _IMAGE and byte(x):
        return _whole_image(made, op)
    image = _turnable(made, x, axes, keep)
    where = sorted(TO_NCHW[a] for a in axes) if image else axes
    if x.q is None:
        made.computed("mean" if mean else "sum", op, out, image and keep, self=made.reals(op, x, image), dim=where,
                      keepdim=keep)  # fmt: skip
    else:
        last = made.target(out, image and keep)
        made.emit(op.kind, op, last, inputs=[made.either(x, image)], axis=where, keep_dims=keep)
    return True


def _turnable(made: EnnRewrite, x: Value, axes: list[int], keep: bool) -> bool:
    """An image can be reduced channels-last if what is left has one order."""
    if len(x.bound) != _IMAGE or not made.any_pixels([x]):
        return False
    left = [d for d in (1, 2, 3) if d not in axes]
    return keep or 1 not in left or left == [1]


def _whole_image(made: EnnRewrite, op: Op) -> bool:
    """The mean of each channel."""
    (x,), out = inputs_of(op), result_of(op)
    batch, channels = x.bound[:2]
    small = replace(out, name=f"{out.name}_mean", shape=(batch, channels, 1, 1), dim_order=(0, 1, 2, 3))
    if byte(x):
        made.made("global_avg_pool2d", op, small, self=made.image(x))
    else:
        made.computed("global_avg_pool2d", op, small, True, self=made.reals(op, x, True))
    held = made.pixels[small]
    made.flat("view", op, out, self=held, size=list(out.bound))
    if held in made.halves:
        made.same(out)
    return True


# --------------------------------------------------------------------------------------------------- softmax, norms


def _last(made: EnnRewrite, op: Op, axis: int) -> tuple[Value, Value, list[int]]:
    """An operand and a result with one dimension last, and the order that brings it back."""
    (x,), out = inputs_of(op), result_of(op)
    rank = len(x.bound)
    dims = [*(d for d in range(rank) if d != axis), axis]
    given = made.planes(x)
    if dims == list(range(rank)):
        return given, out, dims
    shape = tuple(x.bound[d] for d in dims)
    moved, made_of = (replace(v, name=f"{v.name}_last", shape=shape, dim_order=tuple(range(rank)), data=None)
                      for v in (x, out))  # fmt: skip
    made.emit("permute", op, moved, self=given, dims=dims)
    made.here |= {moved}
    if given in made.halves:
        made.same(moved)
    return moved, made_of, [dims.index(d) for d in range(rank)]


@rule("SOFTMAX", "LOGSOFTMAX")
def _softmax(made: EnnRewrite, op: Op) -> bool:
    (x,), out = inputs_of(op), result_of(op)
    log = op.kind.endswith("LOGSOFTMAX")
    if not same_kind(x, out) or not non_empty(x, out) or not x.bound or x.constant:
        return False
    axis = int(op.args["axis"]) % len(x.bound)
    given, last, back = _last(made, op, axis)
    if x.q is not None:
        made.flat(op.kind, op, last, inputs=[given], axis=len(x.bound) - 1)
    elif log:
        _log_softmax(made, op, given, last)
    else:
        made.computed("softmax", op, last, False, self=made.reals(op, given, False), dim=len(x.bound) - 1)
    if last is not out:
        made.flat("permute", op, out, self=last, dims=back)
        if x.q is None:
            made.same(out)
    return True


def _log_softmax(made: EnnRewrite, op: Op, given: Value, last: Value) -> None:
    x = made.reals(op, given, False)
    axis = [len(x.bound) - 1]
    largest, total, log = (
        replace(x, name=f"{x.name}_{n}", shape=(*x.bound[:-1], 1)) for n in ("largest", "total", "log")
    )
    below, powers = (replace(x, name=f"{x.name}_{n}") for n in ("below", "powers"))
    made.emit("amax", op, largest, self=x, dim=axis, keepdim=True)
    made.emit("sub", op, below, self=x, other=largest)
    made.emit("exp", op, powers, self=below)
    made.emit("sum", op, total, self=powers, dim=axis, keepdim=True)
    made.emit("log", op, log, self=total)
    made.computed("sub", op, last, False, self=below, other=log)


@rule("LAYERNORM", "GROUPNORM", "RMSNORM")
def _norm(made: EnnRewrite, op: Op) -> bool:
    (x, *factors), out = inputs_of(op), result_of(op)
    if not same_kind(x, out) or not non_empty(x, out) or x.constant or any(v.data is None for v in factors):
        return False
    name = op.kind.partition(".")[2]
    if x.q is not None:
        _whole_norm(made, op, byte(x) and name != "LAYERNORM")
        return True
    size = {"LAYERNORM": list(x.bound[-1:]), "RMSNORM": [int(n) for n in op.args.get("normalize_shape", [])]}.get(name)
    args: dict[str, Any] = {"num_groups": int(op.args["num_groups"])} if size is None else {"normalized_shape": size}
    kind = {"LAYERNORM": "layer_norm", "RMSNORM": "rms_norm", "GROUPNORM": "group_norm"}[name]
    named = dict(zip(("weight", "bias"), (made.reals(op, v, False) for v in factors), strict=False))
    made.computed(kind, op, out, False, input=made.reals(op, x, False), eps=float(op.args["epsilon"]), **args, **named)
    return True


def _whole_norm(made: EnnRewrite, op: Op, wide: bool) -> None:
    """Rows of several dimensions must lie densely, which bytes need not: those are done in 16 bits."""
    (x, *factors), out = inputs_of(op), result_of(op)
    if not wide:
        made.flat(op.kind, op, out, **{**op.args, "inputs": [made.planes(x), *factors]})
        return
    given, last = widen_to_int16(made.planes(x)), widen_to_int16(out)
    made.emit(f"{PREFIX}CLIP", op, given, inputs=[x], **UNLIMITED)
    made.emit(op.kind, op, last, **{**op.args, "inputs": [given, *factors]})
    made.flat(f"{PREFIX}CLIP", op, out, inputs=[last], **UNLIMITED)


@rule("PRELU")
def _prelu(made: EnnRewrite, op: Op) -> bool:
    (x, slope), out = inputs_of(op), result_of(op)
    if not same_kind(x, out) or not non_empty(x, out) or x.constant or slope.data is None:
        return False
    image = len(x.bound) == _IMAGE
    by = made.reals(op, slope, False)
    assert by.data is not None
    shape = (by.data.size,) if image or by.data.size == 1 else (by.data.size, *(1,) * (len(x.bound) - 2))
    shape = shape if x.bound else ()
    by = replace(by, shape=shape, dim_order=tuple(range(len(shape))), data=by.data.reshape(shape))
    made.computed("prelu", op, out, image, self=made.reals(op, x, image), weight=by)
    return True


@rule("BatchNormalization")
def _batch_norm(made: EnnRewrite, op: Op) -> bool:
    """Element by element, with each rounding of the reference."""
    (x, *factors), out = inputs_of(op), result_of(op)
    if (
        not same_kind(x, out)
        or not non_empty(x, out)
        or x.constant
        or any(v.data is None for v in factors)
        or len(x.bound) < 2
    ):
        return False
    image = len(x.bound) == _IMAGE
    weight, bias, mean, variance = (constant(v).reshape(-1) for v in factors)
    scale = np.float32(1) / np.sqrt(variance + np.float32(op.args["epsilon"]))
    now, shape = made.reals(op, x, image), (-1,) if image else (-1, *(1,) * (len(x.bound) - 2))
    for kind, by in (("sub", mean), ("mul", scale), ("mul", weight)):
        done = replace(now, name=f"{now.name}_{kind}")
        made.emit(kind, op, done, self=now, other=_factor(by.reshape(shape)))
        now = done
    made.computed("add", op, out, image, self=now, other=_factor(bias.reshape(shape)))
    return True


def _factor(data: Array) -> Value:
    return Value(
        "factor", np.dtype(np.float32), data.shape, tuple(range(data.ndim)), np.ascontiguousarray(data, np.float32)
    )
