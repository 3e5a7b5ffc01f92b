"""Lowering of convolutions and matrix products."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.backends.samsung.lower import FUSED, EnnLowering, quantization, result
from edgewright.ir.graph import Array, Op, Value
from edgewright.lowering.passes.value_storage import clamp_is_redundant


def along(op: Op, name: str, fill: int) -> list[int]:
    """A convolution's strides and the like, one for each dimension; a sequence is an image one pixel wide."""
    given, dims = list(op.args.get(name) or [fill]), len(op.args["weight"].shape) - 2
    given = given * dims if len(given) == 1 else given
    return [*given, fill] if dims == 1 else given


def _window(op: Op) -> list[int]:
    found = list(op.args["weight"].bound[2:])
    return [*found, 1] if len(found) == 1 else found


def pads(op: Op) -> list[tuple[int, int]]:
    """Padding before and after; ``same`` keeps the size, with the odd one at the end."""
    given = op.args["padding"]
    if not isinstance(given, str):
        return [(p, p) for p in along(op, "padding", 0)]
    steps = zip(_window(op), along(op, "dilation", 1), strict=True)
    whole = [d * (k - 1) if given == "same" else 0 for k, d in steps]
    return [(n // 2, n - n // 2) for n in whole]


def is_depthwise(op: Op) -> bool:
    weight = op.args["weight"]
    return bool(weight.shape[1] == 1 and weight.shape[0] == op.args.get("groups", 1))


def convolution(low: EnnLowering, op: Op) -> None:
    """Images; a sequence is one with a last dimension of 1."""
    x, weight, out = op.args["input"], op.args["weight"], result(op)
    transposed, groups = bool(op.args.get("transposed")), int(op.args.get("groups", 1))
    flat = len(weight.shape) == 3
    held = low.get(x)
    image = low.reshaped(held, (*held.bound, 1)) if flat else held
    padding = pads(op)
    if any(a != b for a, b in padding):
        image, padding = _padded(low, image, padding), [(0, 0), (0, 0)]
    extra = along(op, "output_padding", 0) if transposed else [0, 0]
    (top, _), (left, _) = padding
    top, left = top - extra[0], left - extra[1]
    (kernel_h, kernel_w), (stride_h, stride_w) = _window(op), along(op, "stride", 1)
    dilation_h, dilation_w = along(op, "dilation", 1)
    params: dict[str, Any] = {
        "kernel_h": kernel_h, "kernel_w": kernel_w, "stride_h": stride_h, "stride_w": stride_w,
        "dilation_h": dilation_h, "dilation_w": dilation_w, "groups": groups, "padding": "EXPLICIT",
        "padding_type": "CONSTANT", "explicit_padding": [top, left, top, left], "in_channels": image.bound[1],
        "out_channels": out.bound[1],
    }  # fmt: skip
    kind = f"{'DW' if is_depthwise(op) else ''}{'DECONV2D' if transposed else 'CONV2D'}"
    inputs = [image, _filters(low, weight, transposed), *_bias(low, op)]
    shape = (*out.bound, 1) if flat else out.bound
    made = _sum(low, op, kind, inputs, [n + (extra[d - 2] if d > 1 else 0) for d, n in enumerate(shape)], params)
    _shaped(low, out, made, shape, extra)


def _shaped(low: EnnLowering, out: Value, made: Value, shape: tuple[int, ...], extra: list[int]) -> None:
    """The result of a convolution in its own shape: without the rows that more output asked for."""
    if any(extra):
        cut = low.make(out) if shape == out.bound else low.temporary(shape, out)
        begin, ones = [0, 0, *extra], [1] * 4
        low.node("STRIDEDSLICE", [made], cut, begin=begin, end=list(made.bound), strides=ones)
        made = cut
    if shape != out.bound:
        low.copy(made, low.make(out))
    elif not any(extra):
        low.alias(out, tuple(range(len(shape))), made)


def _padded(low: EnnLowering, image: Value, padding: list[tuple[int, int]]) -> Value:
    """An image with a border that differs from side to side."""
    (top, bottom), (left, right) = padding
    n, c, h, w = image.bound
    made = low.temporary((n, c, h + top + bottom, w + left + right), image)
    widths = [0, 0, top, left, 0, 0, bottom, right]
    low.node("PAD", [image], made, explicit_padding=widths, padding="EXPLICIT", padding_type="CONSTANT",
             **quantization(made))  # fmt: skip
    return made


def _filters(low: EnnLowering, weight: Value, transposed: bool) -> Value:
    """Weights OIHW; those of transposed convolutions have their first dimensions swapped for it."""
    assert weight.data is not None
    data: Array = weight.data[..., None] if weight.data.ndim == 3 else weight.data
    if not transposed:
        return low.get(weight) if data is weight.data else low.constant(np.ascontiguousarray(data), weight.q)
    q = weight.q if weight.q is None or weight.q.axis is None else replace(weight.q, axis=1 - weight.q.axis)
    return low.constant(np.ascontiguousarray(data.swapaxes(0, 1)), q)


def _bias(low: EnnLowering, op: Op) -> list[Value]:
    """A bias stays a real number, beside integers too."""
    bias = op.args.get("bias")
    return [] if bias is None else [low.get(bias)]


def _sum(low: EnnLowering, op: Op, kind: str, inputs: list[Value], shape: list[int], params: dict[str, Any]) -> Value:
    """Append a sum of products, and the activation that was fused onto it."""
    out, limits = result(op), op.args.get("limits")
    own = tuple(shape) == out.bound
    fused = FUSED.get(limits) if limits is not None and kind != "FC" else None
    told = {**({"activation": fused} if fused else {}), **params}
    last = low.make(out) if own else low.temporary(shape, out)
    if limits is None or (out.q is not None and (fused or clamp_is_redundant(out.q, limits))):
        low.node(kind, inputs, last, **quantization(last), **told)
        return last
    whole = low.temporary(shape, out)
    low.node(kind, inputs, whole, **quantization(whole), **told)
    low.limited(whole, last, *limits)
    return last


def linear(low: EnnLowering, op: Op) -> None:
    _product(low, op, op.args["input"], low.get(op.args["weight"]), _bias(low, op))


def _product(low: EnnLowering, op: Op, x: Value, weight: Value, bias: list[Value]) -> None:
    sizes = {"in_channels": weight.bound[1], "out_channels": weight.bound[0]}
    _sum(low, op, "FC", [low.get(x), weight, *bias], list(result(op).bound), sizes)


def _turned(low: EnnLowering, weight: Value) -> Value:
    """A matrix of (input, output) as FC has it."""
    assert weight.data is not None
    q = weight.q if weight.q is None or weight.q.axis is None else replace(weight.q, axis=1 - weight.q.axis)
    return low.constant(np.ascontiguousarray(weight.data.T), q)


def addmm(low: EnnLowering, op: Op) -> None:
    _product(low, op, op.args["mat1"], _turned(low, op.args["mat2"]), [low.get(op.args["self"])])


def mm(low: EnnLowering, op: Op) -> None:
    """A constant matrix is a weight; two computed ones are a batch of one product."""
    a, b, out = op.args["self"], op.args["mat2"], result(op)
    if b.constant:
        _product(low, op, a, _turned(low, b), [])
        return
    inputs = [low.reshaped(low.get(v), (1, *v.bound)) for v in (a, b)]
    made = low.temporary((1, *out.bound), out)
    low.node("BATCH_MATMUL", inputs, made, **quantization(made))
    low.copy(made, low.make(out))


def bmm(low: EnnLowering, op: Op) -> None:
    low.finish(op, "BATCH_MATMUL", [low.get(op.args["self"]), low.get(op.args["mat2"])])
