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
    same_shape = tuple(shape) == out.bound
    fused = FUSED_ACTIVATIONS.get(limits) if limits is not None and kind != "FC" else None
    all_params = {**({"activation": fused} if fused else {}), **params}
    result = low.make(out) if same_shape else low.temporary(shape, out)
    if limits is None or (out.q is not None and (fused or clamp_is_redundant(out.q, limits))):
        low.node(kind, inputs, result, **quant_dtype_arg(result), **all_params)
        return result
    unclamped = low.temporary(shape, out)
    low.node(kind, inputs, unclamped, **quant_dtype_arg(unclamped), **all_params)
    low.clamp(unclamped, result, *limits)
    return result


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
