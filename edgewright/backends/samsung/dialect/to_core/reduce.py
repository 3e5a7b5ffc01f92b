"""Translation of ENN's pooling, resize, reductions, softmax and norms to core operators.

Int16 is pooled and resized in float32, with each rounding of the reference. Integer means, softmax and norms keep their
kind and have exact integer lowerings.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.backends.samsung.dialect.numerics import constant_float, inputs_of, is_qint8, result_of
from edgewright.backends.samsung.dialect.table import PREFIX
from edgewright.backends.samsung.dialect.to_core.rewrite import (
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
from edgewright.ir.graph import Array, Op, Value
from edgewright.ir.int_rows import norm_fits_int64

_IMAGE = 4


def _emit_image_op(rw: EnnRewrite, kind: str, op: Op, name: str, /, **args: Any) -> None:
    """Emit an operator on NHWC images: int8 directly, others in float32."""
    x, out = inputs_of(op)[0], result_of(op)
    if is_qint8(x):
        rw.emit_nhwc(kind, op, out, **{name: rw.nhwc(x)}, **args)
    else:
        rw.emit_float(kind, op, out, True, **{name: rw.float_operand(op, x, True)}, **args)


# ----------------------------------------------------------------------------------------------------------- pooling


@rule("MAXPOOL2D")
def _max_pool(rw: EnnRewrite, op: Op) -> bool:
    (x,), out = inputs_of(op), result_of(op)
    if not same_kind(x, out) or not non_empty(x, out):
        return False
    args = {"kernel_size": hw_pair(op, "kernel"), "stride": hw_pair(op, "stride"), "padding": padding_of(op),
            "dilation": hw_pair(op, "dilation")}  # fmt: skip
    if is_float32(x):
        target = rw.define(out, True)
        rw.emit("core.max_pool2d", op, target, self=rw.float_operand(op, x, True), **args)
        rw.mark_rounded(target)
    elif is_qint8(x) and x.q != out.q:
        target = rw.define(out, True)
        max_value = replace(target, name=f"{target.name}_largest", dtype=x.dtype, q=x.q)
        rw.emit("core.max_pool2d", op, max_value, self=rw.nhwc(x), **args)
        rw.emit("core.convert", op, target, self=max_value)
    else:
        _emit_image_op(rw, "core.max_pool2d", op, "self", **args)
    return True


@rule("AVGPOOL2D")
def _average_pool(rw: EnnRewrite, op: Op) -> bool:
    """Padding that counts toward the average is materialized; the core operator excludes padding."""
    (x,), out, padding = inputs_of(op), result_of(op), padding_of(op)
    if not same_kind(x, out) or not non_empty(x, out):
        return False
    if any(padding) and bool(op.args["count_include_pad"]):
        x = _padded(rw, op, x, padding)
        op, padding = Op(op.kind, {**op.args, "inputs": [x]}, op.outputs, op.origin), [0, 0, 0, 0]
    _emit_image_op(rw, "core.avg_pool2d", op, "self", kernel_size=hw_pair(op, "kernel"), stride=hw_pair(op, "stride"),
              padding=padding)  # fmt: skip
    return True


def _padded(rw: EnnRewrite, op: Op, x: Value, padding: list[int]) -> Value:
    top, bottom, left, right = padding
    batch, channels, high, wide = x.bound
    padded = replace(
        x, name=f"{x.name}_padded", shape=(batch, channels, high + top + bottom, wide + left + right), data=None
    )
    image = rw.nhwc(x)
    rw.emit_nhwc("core.pad", op, padded, self=image, before=[0, top, left, 0], after=[0, bottom, right, 0], value=0.0)
    if image in rw.rounded:
        rw.mark_rounded(rw.nhwc_values[padded])
    return padded


@rule("RESIZE_BILINEAR")
def _bilinear(rw: EnnRewrite, op: Op) -> bool:
    (x,), out = inputs_of(op), result_of(op)
    if not same_kind(x, out) or not non_empty(x, out):
        return False
    _emit_image_op(rw, "core.upsample_bilinear2d", op, "input", output_size=list(out.bound[2:]),
              align_corners=bool(op.args["align_corners"]))  # fmt: skip
    return True


@rule("RESIZE_NEAREST_NEIGHBOR")
def _nearest(rw: EnnRewrite, op: Op) -> bool:
    """Integer scale factors: repeat each pixel."""
    (x,), out = inputs_of(op), result_of(op)
    batch, channels, high, wide = x.bound
    scale_y, scale_x = out.bound[2] // max(high, 1), out.bound[3] // max(wide, 1)
    if not non_empty(x, out) or (high * scale_y, wide * scale_x) != out.bound[2:]:
        return False
    image, target = rw.nhwc(x), rw.define(out, True)
    expanded = replace(
        image, name=f"{image.name}_apart", shape=(batch, high, 1, wide, 1, channels), dim_order=tuple(range(6))
    )
    shape = (batch, high, scale_y, wide, scale_x, channels)
    repeated = replace(expanded, name=f"{image.name}_several", shape=shape)
    rw.emit("core.view", op, expanded, self=image, size=list(expanded.bound))
    rw.emit("core.expand", op, repeated, self=expanded, size=list(shape))
    rw.emit("core.view", op, target, self=repeated, size=list(target.bound))
    return True


# -------------------------------------------------------------------------------------------------------- reductions


@rule("REDUCEMEAN", "REDUCESUM")
def _reduce(rw: EnnRewrite, op: Op) -> bool:
    (x,), out, axes = inputs_of(op), result_of(op), sorted(int(a) for a in op.args["axis"])
    keepdims, mean = bool(op.args["keep_dims"]), op.kind.endswith("MEAN")
    if not same_kind(x, out) or not non_empty(x, out) or not axes or x.constant:
        return False
    if mean and axes == [2, 3] and len(x.bound) == _IMAGE and x.q is None and rw.prefers_nhwc([x]):
        return _global_mean(rw, op)
    if mean and axes == [2, 3] and len(x.bound) == _IMAGE and is_qint8(x):
        return _global_mean(rw, op)
    use_nhwc = _can_reduce_nhwc(rw, x, axes, keepdims)
    dims = sorted(TO_NCHW[a] for a in axes) if use_nhwc else axes
    if x.q is None:
        operand = rw.float_operand(op, x, use_nhwc)
        rw.emit_float("core.mean" if mean else "core.sum", op, out, use_nhwc and keepdims, self=operand, dim=dims,
                      keepdim=keepdims)  # fmt: skip
    else:
        target = rw.define(out, use_nhwc and keepdims)
        rw.emit(op.kind, op, target, inputs=[rw.in_layout(x, use_nhwc)], axis=dims, keep_dims=keepdims)
    return True


def _can_reduce_nhwc(rw: EnnRewrite, x: Value, axes: list[int], keepdims: bool) -> bool:
    """Whether a reduction in NHWC leaves the remaining dimensions in NCHW order."""
    if len(x.bound) != _IMAGE or not rw.prefers_nhwc([x]):
        return False
    remaining = [d for d in (1, 2, 3) if d not in axes]
    return keepdims or 1 not in remaining or remaining == [1]


def _global_mean(rw: EnnRewrite, op: Op) -> bool:
    """The mean of each channel, as a global average pool."""
    (x,), out = inputs_of(op), result_of(op)
    batch, channels = x.bound[:2]
    mean_value = replace(out, name=f"{out.name}_mean", shape=(batch, channels, 1, 1), dim_order=(0, 1, 2, 3))
    if is_qint8(x):
        rw.emit_nhwc("core.global_avg_pool2d", op, mean_value, self=rw.nhwc(x))
    else:
        rw.emit_float("core.global_avg_pool2d", op, mean_value, True, self=rw.float_operand(op, x, True))
    pooled = rw.nhwc_values[mean_value]
    rw.emit_nchw("core.view", op, out, self=pooled, size=list(out.bound))
    if pooled in rw.rounded:
        rw.mark_rounded(out)
    return True


# --------------------------------------------------------------------------------------------------- softmax, norms


def _move_axis_last(rw: EnnRewrite, op: Op, axis: int) -> tuple[Value, Value, list[int]]:
    """Operand and result with one dimension moved last, and the inverse permutation."""
    (x,), out = inputs_of(op), result_of(op)
    rank = len(x.bound)
    dims = [*(d for d in range(rank) if d != axis), axis]
    operand = rw.nchw(x)
    if dims == list(range(rank)):
        return operand, out, dims
    shape = tuple(x.bound[d] for d in dims)
    permuted, permuted_out = (replace(v, name=f"{v.name}_last", shape=shape, dim_order=tuple(range(rank)), data=None)
                      for v in (x, out))  # fmt: skip
    rw.emit("core.permute", op, permuted, self=operand, dims=dims)
    rw.available |= {permuted}
    if operand in rw.rounded:
        rw.mark_rounded(permuted)
    return permuted, permuted_out, [dims.index(d) for d in range(rank)]


@rule("SOFTMAX", "LOGSOFTMAX")
def _softmax(rw: EnnRewrite, op: Op) -> bool:
    (x,), out = inputs_of(op), result_of(op)
    log = op.kind.endswith("LOGSOFTMAX")
    if not same_kind(x, out) or not non_empty(x, out) or not x.bound or x.constant:
        return False
    axis = int(op.args["axis"]) % len(x.bound)
    operand, target, inverse = _move_axis_last(rw, op, axis)
    if x.q is not None:
        rw.emit_nchw("core.int_softmax", op, target, self=operand, log=log)
    elif log:
        _log_softmax(rw, op, operand, target)
    else:
        rw.emit_float("core.softmax", op, target, False, self=rw.float_operand(op, operand, False))
    if target is not out:
        rw.emit_nchw("core.permute", op, out, self=target, dims=inverse)
        if x.q is None:
            rw.mark_rounded(out)
    return True


def _log_softmax(rw: EnnRewrite, op: Op, operand: Value, target: Value) -> None:
    x = rw.float_operand(op, operand, False)
    axis = [len(x.bound) - 1]
    largest, total, log = (
        replace(x, name=f"{x.name}_{n}", shape=(*x.bound[:-1], 1)) for n in ("largest", "total", "log")
    )
    shifted, exponentials = (replace(x, name=f"{x.name}_{n}") for n in ("below", "powers"))
    rw.emit("core.amax", op, largest, self=x, dim=axis, keepdim=True)
    rw.emit("core.sub", op, shifted, self=x, other=largest)
    rw.emit("core.exp", op, exponentials, self=shifted)
    rw.emit("core.sum", op, total, self=exponentials, dim=axis, keepdim=True)
    rw.emit("core.log", op, log, self=total)
    rw.emit_float("core.sub", op, target, False, self=shifted, other=log)


@rule("LAYERNORM", "GROUPNORM", "RMSNORM")
def _norm(rw: EnnRewrite, op: Op) -> bool:
    (x, *factors), out = inputs_of(op), result_of(op)
    if not same_kind(x, out) or not non_empty(x, out) or x.constant or any(v.data is None for v in factors):
        return False
    name = op.kind.partition(".")[2]
    if x.q is not None:
        return _emit_int_norm(rw, op, is_qint8(x) and name != "LAYERNORM")
    size = {"LAYERNORM": list(x.bound[-1:]), "RMSNORM": [int(n) for n in op.args.get("normalize_shape", [])]}.get(name)
    args: dict[str, Any] = {"num_groups": int(op.args["num_groups"])} if size is None else {"normalized_shape": size}
    kind = {"LAYERNORM": "core.layer_norm", "RMSNORM": "core.rms_norm", "GROUPNORM": "core.group_norm"}[name]
    params = dict(zip(("weight", "bias"), (rw.float_operand(op, v, False) for v in factors), strict=False))
    rw.emit_float(
        kind, op, out, False, input=rw.float_operand(op, x, False), eps=float(op.args["epsilon"]), **args, **params
    )
    return True


def _emit_int_norm(rw: EnnRewrite, op: Op, widen: bool) -> bool:
    """Norms over several dimensions need dense rows, which int8 tensors may not have: those are widened to int16."""
    (x, *factors), out = inputs_of(op), result_of(op)
    args = _int_norm_args(op, x)
    if not norm_fits_int64(x, args["length"]):
        return False
    constants = [_float_constant(v) for v in factors]
    args |= {"weight": constants[0], "bias": constants[1] if len(constants) > 1 else None}
    if not widen:
        rw.emit_nchw("core.int_norm", op, out, self=rw.nchw(x), **args)
        return True
    wide_input, wide_output = widen_to_int16(rw.nchw(x)), widen_to_int16(out)
    rw.emit(f"{PREFIX}CLIP", op, wide_input, inputs=[x], **UNLIMITED)
    rw.emit("core.int_norm", op, wide_output, self=wide_input, **args)
    rw.emit_nchw(f"{PREFIX}CLIP", op, out, inputs=[wide_output], **UNLIMITED)
    return True


def _int_norm_args(op: Op, x: Value) -> dict[str, Any]:
    epsilon, one = float(op.args["epsilon"]), {"channel_size": 1, "groups": 1}
    if op.kind.endswith("LAYERNORM"):
        return {"length": x.bound[-1], "epsilon": epsilon, "center": True, **one}
    if op.kind.endswith("RMSNORM"):
        length = math.prod(int(n) for n in op.args["normalize_shape"])
        return {"length": length, "epsilon": epsilon, "center": False, **one}
    groups, size = int(op.args["num_groups"]), math.prod(x.bound[2:])
    length = x.bound[1] // groups * size
    return {"length": length, "epsilon": epsilon, "center": True, "channel_size": size, "groups": groups}


def _float_constant(value: Value) -> Value:
    data = np.ascontiguousarray(constant_float(value).reshape(-1), np.float32)
    return Value(value.name, data.dtype, data.shape, (0,), data)


@rule("PRELU")
def _prelu(rw: EnnRewrite, op: Op) -> bool:
    (x, slope), out = inputs_of(op), result_of(op)
    if not same_kind(x, out) or not non_empty(x, out) or x.constant or slope.data is None:
        return False
    image = len(x.bound) == _IMAGE
    slopes = rw.float_operand(op, slope, False)
    assert slopes.data is not None
    shape = (slopes.data.size,) if image or slopes.data.size == 1 else (slopes.data.size, *(1,) * (len(x.bound) - 2))
    shape = shape if x.bound else ()
    slopes = replace(slopes, shape=shape, dim_order=tuple(range(len(shape))), data=slopes.data.reshape(shape))
    rw.emit_float("core.prelu", op, out, image, self=rw.float_operand(op, x, image), weight=slopes)
    return True


@rule("BatchNormalization")
def _batch_norm(rw: EnnRewrite, op: Op) -> bool:
    """Elementwise, with each rounding of the reference."""
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
    weight, bias, mean, variance = (constant_float(v).reshape(-1) for v in factors)
    scale = np.float32(1) / np.sqrt(variance + np.float32(op.args["epsilon"]))
    current, shape = rw.float_operand(op, x, image), (-1,) if image else (-1, *(1,) * (len(x.bound) - 2))
    for kind, operand in (("core.sub", mean), ("core.mul", scale), ("core.mul", weight)):
        result = replace(current, name=f"{current.name}_{kind}")
        rw.emit(kind, op, result, self=current, other=_factor(operand.reshape(shape)))
        current = result
    rw.emit_float("core.add", op, out, image, self=current, other=_factor(bias.reshape(shape)))
    return True


def _factor(data: Array) -> Value:
    return Value(
        "factor", np.dtype(np.float32), data.shape, tuple(range(data.ndim)), np.ascontiguousarray(data, np.float32)
    )
