"""Translation of ENN's convolutions and matrix products to core operators.

Int8 products are rounded as ``numerics.py`` says, so they become core operators; int16 ones carry a ``scaling``
(``ir/requant_scale.py``: a float64 factor and one rounding).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.backends.samsung.dialect.conv import LIMITS
from edgewright.backends.samsung.dialect.numerics import inputs_of, is_qint8, result_of, round_to_fp16
from edgewright.backends.samsung.dialect.to_core.rewrite import (
    EnnRewrite,
    hw_pair,
    is_float32,
    is_int16,
    non_empty,
    padding_of,
    rule,
)
from edgewright.ir.graph import Array, Op, QParams, Value
from edgewright.ir.requant_scale import product_scale, quantize_bias

_MAX_BIAS = {1: (1 << 31) - 1, 2: 1 << 48}  # by the size of an activation element
_MAX_DENSE_WEIGHTS = 1 << 24  # elements up to which grouped filters are expanded to dense ones


def _limits(op: Op) -> tuple[float, float] | None:
    return LIMITS[op.args["activation"]] if "activation" in op.args else None


def _requantization(op: Op) -> dict[str, Any] | None:
    """The bias and requantization arguments of a convolution; None if it is not supported."""
    (x, w), bias_values, out = inputs_of(op)[:2], inputs_of(op)[2:], result_of(op)
    if any(v.data is None or not non_empty(v) for v in (w, *bias_values)) or not non_empty(x, out):
        return None
    if all(is_float32(v) for v in (x, w, *bias_values, out)):
        return {
            "bias": replace(bias_values[0], data=round_to_fp16(np.asarray(bias_values[0].data)))
            if bias_values
            else None,
            "limits": _limits(op),
        }
    if not ((is_qint8(x) and is_qint8(out)) or (is_int16(x) and is_int16(out))) or not _is_symmetric(w, is_qint8(x)):
        return None
    bias = _bias(x, w, bias_values)
    if bias is False:
        return None
    return {"bias": bias, "limits": _limits(op)} if is_qint8(x) else {
        "bias": bias, "scaling": product_scale(x, w, out, _limits(op))}  # fmt: skip


def _is_symmetric(w: Value, is_int8: bool) -> bool:
    """Whether weights have zero point 0 and are no wider than the activations."""
    dtypes = (np.dtype(np.int8),) if is_int8 else (np.dtype(np.int8), np.dtype(np.int16))
    return w.q is not None and w.dtype in dtypes and not np.any(np.asarray(w.q.zero_point))


def _split_asymmetric(rw: EnnRewrite, op: Op) -> Op | None:
    """Rewrite a linear layer with asymmetric weights as one over duplicated inputs.

    Weights minus their zero point need one bit more than the type has, so they are split into a sum of two tensors that
    multiply the input twice. Returns None if two are not enough.
    """
    (x, w, *bias_values), out = inputs_of(op), result_of(op)
    if w.data is None or w.q is None or w.q.axis is not None or not ((is_qint8(x) and is_qint8(out)) or is_int16(x)):
        return None
    dtype = np.dtype(np.int8 if is_qint8(x) else np.int16)
    centered = w.data.astype(np.int32) - int(np.asarray(w.q.zero_point))
    int_range: Any = np.iinfo(dtype)
    first = np.clip(centered, int_range.min, int_range.max)
    second = centered - first
    if second.min(initial=0) < -int_range.max or second.max(initial=0) > int_range.max or not non_empty(x, out):
        return None
    data = np.concatenate([first, second], 1).astype(dtype)
    q = QParams(w.q.scale, 0, dtype, int(int_range.min), int(int_range.max))
    doubled = replace(x, name=f"{x.name}_twice", shape=(*x.bound[:-1], 2 * x.bound[-1]))
    rw.emit_nchw("core.cat", op, doubled, tensors=[rw.nchw(x)] * 2, dim=len(x.bound) - 1)
    weight = replace(w, shape=data.shape, dtype=dtype, data=data, q=q)
    return Op(op.kind, {**op.args, "inputs": [doubled, weight, *bias_values]}, op.outputs, op.origin)


def _bias(x: Value, w: Value, bias_values: list[Value]) -> Value | bool | None:
    """The bias in units of the accumulator; False if it does not fit."""
    if not bias_values or bias_values[0].data is None:
        return None
    units = quantize_bias(x, w, bias_values[0].data)
    is_int8 = is_qint8(x)
    if bias_values[0].data.dtype.kind != "f" or not np.all(np.abs(units) < _MAX_BIAS[1 if is_int8 else 2]):
        return False
    data = units.astype(np.int32 if is_int8 else np.int64)
    return replace(bias_values[0], dtype=data.dtype, shape=data.shape, dim_order=(0,), data=data, q=None)


def _filters(weight: Value, data: Array, channels: int) -> Value:
    """Weights in the given order; ``channels`` is the dimension of output channels."""
    data = np.ascontiguousarray(round_to_fp16(data) if weight.q is None else data)
    q = weight.q if weight.q is None or weight.q.axis is None else replace(weight.q, axis=channels)
    return replace(weight, shape=data.shape, dim_order=tuple(range(data.ndim)), data=data, q=q)


def _dense_filters(data: Array, groups: int) -> Array:
    """Expand grouped filters to all input channels, with zeros: [outputs, height, width, inputs]."""
    outputs, high, wide, inputs = data.shape
    dense = np.zeros((outputs, high, wide, inputs * groups), data.dtype)
    group_outputs = outputs // groups
    for g in range(groups):
        dense[g * group_outputs : (g + 1) * group_outputs, ..., g * inputs : (g + 1) * inputs] = data[
            g * group_outputs : (g + 1) * group_outputs
        ]
    return dense


def _needs_dense_filters(x: Value, w: Value, groups: int) -> bool:
    """Whether integer groups are too narrow for the kernels' vectors; zeros do not change the sums."""
    assert w.data is not None
    too_narrow = groups > 1 and x.q is not None and (is_int16(x) or (w.bound[0] // groups) % 16 != 0)
    return too_narrow and w.data.size * groups <= _MAX_DENSE_WEIGHTS


@rule("CONV2D", "DWCONV2D")
def _convolution(rw: EnnRewrite, op: Op) -> bool:
    (x, w), out, requant, groups = inputs_of(op)[:2], result_of(op), _requantization(op), int(op.args["groups"])
    if requant is None or w.data is None:
        return False
    depthwise = groups > 1 and groups == x.bound[1] == w.bound[0]
    data = w.data.transpose(1, 2, 3, 0) if depthwise else w.data.transpose(0, 2, 3, 1)
    if not depthwise and _needs_dense_filters(x, w, groups):
        data, groups = _dense_filters(data, groups), 1
    _emit_conv(rw, op, "core.depthwise_conv2d" if depthwise else "core.conv2d", out, input=_operand(rw, op, x, True),
             weight=_filters(w, data, 3 if depthwise else 0), stride=hw_pair(op, "stride"), padding=padding_of(op),
             dilation=hw_pair(op, "dilation"), groups=groups, **requant)  # fmt: skip
    return True


def _operand(rw: EnnRewrite, op: Op, x: Value, nhwc: bool) -> Value:
    return rw.float_operand(op, x, nhwc) if x.q is None else rw.in_layout(x, nhwc)


def _emit_conv(rw: EnnRewrite, op: Op, kind: str, out: Value, /, **args: Any) -> None:
    """Emit a convolution on NHWC images; float results are rounded to fp16."""
    if out.q is None:
        rw.emit_float(kind, op, out, True, **args)
    else:
        rw.emit_nhwc(kind, op, out, **args)


@rule("DECONV2D", "DWDECONV2D")
def _transposed(rw: EnnRewrite, op: Op) -> bool:
    """Filters are stored as [outputs per group, inputs, height, width]; dilated ones are expanded with zeros."""
    (x, w), out, requant, groups = inputs_of(op)[:2], result_of(op), _requantization(op), int(op.args["groups"])
    if requant is None or w.data is None or (w.q is not None and w.q.axis is not None and groups > 1):
        return False
    outputs, inputs = w.bound[0] * groups, w.bound[1] // groups
    data = w.data.reshape(w.bound[0], groups, inputs, *w.bound[2:]).transpose(1, 0, 3, 4, 2)
    data = _dilate_filters(data.reshape(outputs, *w.bound[2:], inputs), hw_pair(op, "dilation"))
    if _needs_dense_filters(x, replace(w, shape=(outputs,), data=data), groups):
        data, groups = _dense_filters(data, groups), 1
    if data.size > _MAX_DENSE_WEIGHTS or (is_int16(x) and not _fits(data, padding_of(op))):
        return False
    if is_int16(x):
        _emit_int16_transposed(rw, op, _filters(w, data[:, ::-1, ::-1], 0), requant, groups)
        return True
    _emit_conv(rw, op, "core.conv_transpose2d", out, input=_operand(rw, op, x, True), weight=_filters(w, data, 0),
             stride=hw_pair(op, "stride"), padding=padding_of(op), dilation=[1, 1], groups=groups,
             output_padding=[0, 0], **requant)  # fmt: skip
    return True


def _fits(data: Array, padding: list[int]) -> bool:
    return all(p < n for p, n in zip(padding, np.repeat(data.shape[1:3], 2), strict=True))


def _emit_int16_transposed(rw: EnnRewrite, op: Op, weight: Value, requant: dict[str, Any], groups: int) -> None:
    """Int16: a plain convolution over the zero-upsampled image."""
    x, out, (stride_y, stride_x) = inputs_of(op)[0], result_of(op), hw_pair(op, "stride")
    image = rw.nhwc(x)
    batch, high, wide, channels = image.bound

    def step(kind: str, name: str, operand: Value, shape: tuple[int, ...], **args: Any) -> Value:
        result = replace(image, name=f"{image.name}_{name}", shape=shape, dim_order=tuple(range(len(shape))))
        rw.emit(kind, op, result, self=operand, **args)
        return result

    if (stride_y, stride_x) != (1, 1):
        unit_shape, strided_shape = (
            (batch, high, 1, wide, 1, channels),
            (batch, high, stride_y, wide, stride_x, channels),
        )
        upsampled = step("core.view", "apart", image, unit_shape, size=list(unit_shape))
        upsampled = step(
            "core.pad",
            "spaced",
            upsampled,
            strided_shape,
            before=[0] * 6,
            after=[0, 0, stride_y - 1, 0, stride_x - 1, 0],
            value=0.0,
        )
        merged_shape = (batch, high * stride_y, wide * stride_x, channels)
        flat = step("core.view", "flat", upsampled, merged_shape, size=list(merged_shape))
        cropped = (batch, (high - 1) * stride_y + 1, (wide - 1) * stride_x + 1, channels)
        image = step("core.slice", "cut", flat, cropped, start=[0] * 4, length=list(cropped))
    padding = [n - 1 - p for p, n in zip(padding_of(op), np.repeat(weight.bound[1:3], 2).tolist(), strict=True)]
    rw.emit_nhwc("core.conv2d", op, out, input=image, weight=weight, stride=[1, 1], padding=padding, dilation=[1, 1],
              groups=groups, **requant)  # fmt: skip


def _dilate_filters(data: Array, dilation: list[int]) -> Array:
    if dilation == [1, 1]:
        return data
    outputs, high, wide, inputs = data.shape
    dilated = np.zeros((outputs, (high - 1) * dilation[0] + 1, (wide - 1) * dilation[1] + 1, inputs), data.dtype)
    dilated[:, :: dilation[0], :: dilation[1]] = data
    return dilated


@rule("FC")
def _linear(rw: EnnRewrite, op: Op) -> bool:
    (x, w), out = inputs_of(op)[:2], result_of(op)
    if len(x.bound) == 1 and non_empty(x):  # a single row
        row, row_result = (replace(v, name=f"{v.name}_row", shape=(1, *v.bound), dim_order=(0, 1)) for v in (x, out))
        rw.emit_nchw("core.view", op, row, self=rw.nchw(x), size=list(row.bound))
        rows = Op(op.kind, {**op.args, "inputs": [row, *inputs_of(op)[1:]]}, [row_result], op.origin)
        if not _linear(rw, rows):
            return False
        rw.emit_nchw("core.view", op, out, self=rw.nchw(row_result), size=list(out.bound))
        return True
    if w.q is not None and not _is_symmetric(w, is_qint8(x)):
        doubled = _split_asymmetric(rw, op)
        return doubled is not None and _linear(rw, doubled)
    requant = _requantization(op) if len(x.bound) > 1 else None
    if requant is None or w.data is None:
        return False
    if is_int16(x):
        _emit_int16_linear(rw, op, requant)
    elif x.q is None:
        rw.emit_float(
            "core.linear",
            op,
            out,
            False,
            input=rw.float_operand(op, x, False),
            weight=_filters(w, w.data, 0),
            **requant,
        )
    else:
        rw.emit_nchw("core.linear", op, out, input=rw.nchw(x), weight=_filters(w, w.data, 0), **requant)
    return True


def _emit_int16_linear(rw: EnnRewrite, op: Op, requant: dict[str, Any]) -> None:
    """Int16: rows as the pixels of an image, for the convolution kernel."""
    (x, w), out = inputs_of(op)[:2], result_of(op)
    assert w.data is not None
    rows = int(np.prod(x.bound[:-1]))
    shapes = [(1, 1, rows, int(v.bound[-1])) for v in (x, out)]
    flat, result = (replace(v, name=f"{v.name}_rows", shape=s, dim_order=(0, 1, 2, 3), data=None) for v, s in
                  zip((x, out), shapes, strict=True))  # fmt: skip
    rw.emit("core.view", op, flat, self=rw.nchw(x), size=list(shapes[0]))
    rw.emit("core.conv2d", op, result, input=flat, weight=_filters(w, w.data[:, None, None, :], 0), stride=[1, 1],
              padding=[0, 0, 0, 0], dilation=[1, 1], groups=1, **requant)  # fmt: skip
    rw.emit_nchw("core.view", op, out, self=result, size=list(out.bound))


@rule("BATCH_MATMUL")
def _matmul(rw: EnnRewrite, op: Op) -> bool:
    (a, b), out = inputs_of(op), result_of(op)
    if not non_empty(a, b, out) or a.constant or b.constant:
        return False
    if all(is_float32(v) for v in (a, b, out)):
        rw.emit_float(
            "core.bmm", op, out, False, self=rw.float_operand(op, a, False), other=rw.float_operand(op, b, False)
        )
        return True
    if not (all(is_qint8(v) for v in (a, b, out)) or all(is_int16(v) for v in (a, b, out))):
        return False
    assert a.q is not None and b.q is not None
    zeros = [int(np.asarray(q.zero_point)) for q in (a.q, b.q)]
    rw.emit_nchw("core.int_matmul", op, out, self=rw.nchw(a), other=rw.nchw(b), zeros=zeros,
              scaling=product_scale(a, b, out, None))  # fmt: skip
    return True
