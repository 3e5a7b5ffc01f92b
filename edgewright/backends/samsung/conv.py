"""Lowering of convolutions and matrix products."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.backends.samsung.lower import FUSED_ACTIVATIONS, EnnLowering, output, quant_dtype_arg
from edgewright.ir.graph import Array, Op, Value
from edgewright.lowering.passes.value_storage import clamp_is_redundant


def conv_argument(op: Op, name: str, default: int) -> list[int]:
    """A convolution's stride, padding or dilation for each spatial dimension; 1-D becomes 2-D of width 1."""
    values, dims = list(op.args.get(name) or [default]), len(op.args["weight"].shape) - 2
    values = values * dims if len(values) == 1 else values
    return [*values, default] if dims == 1 else values


def _kernel_size(op: Op) -> list[int]:
    kernel = list(op.args["weight"].bound[2:])
    return [*kernel, 1] if len(kernel) == 1 else kernel


def conv_padding(op: Op) -> list[tuple[int, int]]:
    """Padding before and after each spatial dimension; ``same`` puts the odd element at the end."""
    padding = op.args["padding"]
    if not isinstance(padding, str):
        return [(p, p) for p in conv_argument(op, "padding", 0)]
    taps = zip(_kernel_size(op), conv_argument(op, "dilation", 1), strict=True)
    totals = [d * (k - 1) if padding == "same" else 0 for k, d in taps]
    return [(n // 2, n - n // 2) for n in totals]


def is_depthwise(op: Op) -> bool:
    weight = op.args["weight"]
    return bool(weight.shape[1] == 1 and weight.shape[0] == op.args.get("groups", 1))


def convolution(low: EnnLowering, op: Op) -> None:
    """2-D convolution; 1-D as 2-D of width 1. ENN has no output padding: a transposed convolution with output padding
    gets less padding at all sides, and the surplus rows are cropped."""
    x, weight, out = op.args["input"], op.args["weight"], output(op)
    transposed, groups = bool(op.args.get("transposed")), int(op.args.get("groups", 1))
    one_dimensional = len(weight.shape) == 3
    x_value = low.get(x)
    image = low.reshape(x_value, (*x_value.bound, 1)) if one_dimensional else x_value
    padding = conv_padding(op)
    if any(a != b for a, b in padding):
        image, padding = _pad_image(low, image, padding), [(0, 0), (0, 0)]
    output_padding = conv_argument(op, "output_padding", 0) if transposed else [0, 0]
    (top, _), (left, _) = padding
    top, left = top - output_padding[0], left - output_padding[1]
    (kernel_h, kernel_w), (stride_h, stride_w) = _kernel_size(op), conv_argument(op, "stride", 1)
    dilation_h, dilation_w = conv_argument(op, "dilation", 1)
    params: dict[str, Any] = {
        "kernel_h": kernel_h, "kernel_w": kernel_w, "stride_h": stride_h, "stride_w": stride_w,
        "dilation_h": dilation_h, "dilation_w": dilation_w, "groups": groups, "padding": "EXPLICIT",
        "padding_type": "CONSTANT", "explicit_padding": [top, left, top, left], "in_channels": image.bound[1],
        "out_channels": out.bound[1],
    }  # fmt: skip
    kind = f"{'DW' if is_depthwise(op) else ''}{'DECONV2D' if transposed else 'CONV2D'}"
    inputs = [image, _filter(low, weight, transposed), *_bias(low, op)]
    shape = (*out.bound, 1) if one_dimensional else out.bound
    result = _product_node(
        low, op, kind, inputs, [n + (output_padding[d - 2] if d > 1 else 0) for d, n in enumerate(shape)], params
    )
    _crop_and_reshape(low, out, result, shape, output_padding)


def _crop_and_reshape(
    low: EnnLowering, out: Value, result: Value, shape: tuple[int, ...], output_padding: list[int]
) -> None:
    """Crop the surplus of output padding, and reshape to the output's rank."""
    if any(output_padding):
        cropped = low.make(out) if shape == out.bound else low.temporary(shape, out)
        begin, ones = [0, 0, *output_padding], [1] * 4
        low.node("STRIDEDSLICE", [result], cropped, begin=begin, end=list(result.bound), strides=ones)
        result = cropped
    if shape != out.bound:
        low.copy(result, low.make(out))
    elif not any(output_padding):
        low.alias(out, tuple(range(len(shape))), result)


def _pad_image(low: EnnLowering, image: Value, padding: list[tuple[int, int]]) -> Value:
    """Pad asymmetrically, which a convolution cannot."""
    (top, bottom), (left, right) = padding
    n, c, h, w = image.bound
    padded = low.temporary((n, c, h + top + bottom, w + left + right), image)
    widths = [0, 0, top, left, 0, 0, bottom, right]
    low.node("PAD", [image], padded, explicit_padding=widths, padding="EXPLICIT", padding_type="CONSTANT",
             **quant_dtype_arg(padded))  # fmt: skip
    return padded


def _filter(low: EnnLowering, weight: Value, transposed: bool) -> Value:
    """The filter in OIHW; PyTorch stores that of a transposed convolution as IOHW."""
    assert weight.data is not None
    data: Array = weight.data[..., None] if weight.data.ndim == 3 else weight.data
    if not transposed:
        return low.get(weight) if data is weight.data else low.constant(np.ascontiguousarray(data), weight.q)
    q = weight.q if weight.q is None or weight.q.axis is None else replace(weight.q, axis=1 - weight.q.axis)
    return low.constant(np.ascontiguousarray(data.swapaxes(0, 1)), q)


def _bias(low: EnnLowering, op: Op) -> list[Value]:
    """The bias, float32 even if the operator is quantized."""
    bias = op.args.get("bias")
    return [] if bias is None else [low.get(bias)]


def _product_node(
    low: EnnLowering, op: Op, kind: str, inputs: list[Value], shape: list[int], params: dict[str, Any]
) -> Value:
    """Append a convolution or matrix product and its fused activation."""
    out, limits = output(op), op.args.get("limits")
    if len({v.q.dtype.itemsize for v in (*inputs[:2], out) if v.q is not None}) > 1:
        inputs = [_widen(low, inputs[0]), _widen(low, inputs[1]), *inputs[2:]]
    same_shape = tuple(shape) == out.bound
    fused = FUSED_ACTIVATIONS.get(limits) if limits is not None and kind != "FC" else None
    all_params = {**({"activation": fused} if fused else {}), **params}
    result = low.make(out) if same_shape else low.temporary(shape, out)
    needs_clamp = limits is not None and not (out.q is not None and (fused or clamp_is_redundant(out.q, limits)))
    unclamped = low.temporary(shape, out) if needs_clamp else result
    product = unclamped
    if out.q is not None and inputs[0].q is not None and out.q.dtype.itemsize < inputs[0].q.dtype.itemsize:
        product = low.temporary(shape, _as_16_bit(out))
    low.node(kind, inputs, product, **quant_dtype_arg(product), **all_params)
    if product is not unclamped:
        low.convert(product, unclamped)
    if limits is not None and needs_clamp:
        low.clamp(unclamped, result, *limits)
    return result


_FRACTION = 128  # of an 8-bit step: the 255 steps beside any zero point fit 16 bits


def _as_16_bit(value: Value) -> Value:
    """An 8-bit activation that 16 bits represent exactly."""
    assert value.q is not None and isinstance(value.q.scale, float)  # activations have one scale
    signed = value.q.dtype.kind == "i"
    low, high, zero = (-32768, 32767, 0) if signed else (0, 65535, 32768)
    dtype = np.dtype(np.int16 if signed else np.uint16)
    q = replace(value.q, scale=value.q.scale / _FRACTION, zero_point=zero, dtype=dtype, qmin=low, qmax=high)
    return replace(value, dtype=dtype, q=q)


def _widen(low: EnnLowering, operand: Value) -> Value:
    """An operand of a product in 16 bits, because ENN's products have operands and results of one type: between layers
    of 8 and of 16 bits, the narrower are converted. Nothing is rounded: weights keep their integers, activations have
    a fraction of their step."""
    q = operand.q
    if q is None or q.dtype.itemsize > 1:
        return operand
    if operand.data is None:
        wide = low.temporary(operand.bound, _as_16_bit(operand))
        low.convert(operand, wide)
        return wide
    signed = q.dtype.kind == "i"
    dtype, (least, most) = (np.dtype(np.int16), (-32768, 32767)) if signed else (np.dtype(np.uint16), (0, 65535))
    return low.constant(operand.data.astype(dtype), replace(q, dtype=dtype, qmin=least, qmax=most))


def linear(low: EnnLowering, op: Op) -> None:
    _fully_connected(low, op, op.args["input"], low.get(op.args["weight"]), _bias(low, op))


def _fully_connected(low: EnnLowering, op: Op, x: Value, weight: Value, bias: list[Value]) -> None:
    sizes = {"in_channels": weight.bound[1], "out_channels": weight.bound[0]}
    _product_node(low, op, "FC", [low.get(x), weight, *bias], list(output(op).bound), sizes)


def _transpose_weight(low: EnnLowering, weight: Value) -> Value:
    """``[input, output]`` to the ``[output, input]`` of FC."""
    assert weight.data is not None
    q = weight.q if weight.q is None or weight.q.axis is None else replace(weight.q, axis=1 - weight.q.axis)
    return low.constant(np.ascontiguousarray(weight.data.T), q)


def addmm(low: EnnLowering, op: Op) -> None:
    _fully_connected(low, op, op.args["mat1"], _transpose_weight(low, op.args["mat2"]), [low.get(op.args["self"])])


def mm(low: EnnLowering, op: Op) -> None:
    """FC if the matrix is constant, else BATCH_MATMUL with a batch of one."""
    a, b, out = op.args["self"], op.args["mat2"], output(op)
    if b.constant:
        _fully_connected(low, op, a, _transpose_weight(low, b), [])
        return
    inputs = [low.reshape(low.get(v), (1, *v.bound)) for v in (a, b)]
    product = low.temporary((1, *out.bound), out)
    low.node("BATCH_MATMUL", inputs, product, **quant_dtype_arg(product))
    low.copy(product, low.make(out))


def bmm(low: EnnLowering, op: Op) -> None:
    low.finish(op, "BATCH_MATMUL", [low.get(op.args["self"]), low.get(op.args["mat2"])])
