"""TOSA's convolutions and products of matrices.

The RESCALE after one becomes part of it. Where something else reads the sums, or the engine has no kernel for windows
like these, sums are made by themselves, of an image that was given its border before.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.engine.dialects.tosa_rewrite import (
    INT8_RANGES,
    INT_RANGES,
    TosaRewrite,
    int_pairs,
    make_constant,
    result_of,
    rule,
)
from edgewright.ir.graph import Array, Op, QParams, Value

_WEIGHT = QParams(1.0, 0, np.dtype(np.int8), -128, 127)
_MOST_TAPS = {1: 64, 2: 49}  # of windows that kernels for each channel have, by the data's bytes


def _operands(made: TosaRewrite, op: Op, channels: int) -> dict[str, Any] | None:
    """Image and bias of a convolution of bytes or words by constants; None if it is another one."""
    x, weight, bias = (op.args[name] for name in ("input", "weight", "bias"))
    words = x.dtype == np.dtype(np.int16)
    if x.dtype not in INT_RANGES or weight.data is None or bias.data is None or weight.dtype.kind != "i":
        return None
    if (not words and weight.dtype != np.dtype(np.int8)) or bias.data.dtype.kind != "i":
        return None
    if op.args["weight_zp"] or made.zero(x) != op.args["input_zp"] or bias.data.size not in (1, channels):
        return None
    data = np.broadcast_to(bias.data.reshape(-1), channels).astype(np.int64 if words else np.int32)
    return {"input": x, "bias": make_constant(data)}


def _product(made: TosaRewrite, op: Op, kind: str, filters: Array, channels: int, **sizes: Any) -> bool:
    given = _operands(made, op, channels)
    scaled = None if given is None else made.scaled(op)
    if given is None or scaled is None:
        return False
    scaling, out = scaled
    weight = make_constant(filters, _WEIGHT if op.args["input"].dtype in INT8_RANGES else None)
    made.emit(kind, op, out, **given, weight=weight, scaling=scaling, **sizes)
    return True


@rule("conv2d")
def _conv2d(made: TosaRewrite, op: Op) -> bool:
    weight = op.args["weight"]
    if weight.data is None or weight.dtype.kind != "i":
        return False
    return _product(
        made, op, "conv2d", weight.data, weight.bound[0], padding=[int(n) for n in op.args["pad"]], groups=1,
        **int_pairs(op, "stride", "dilation"),
    ) or _sums(made, op, weight.data)  # fmt: skip


@rule("depthwise_conv2d")
def _depthwise(made: TosaRewrite, op: Op) -> bool:
    x, weight = op.args["input"], op.args["weight"]
    if weight.data is None or weight.dtype.kind != "i" or x.dtype not in INT_RANGES:
        return False
    high, wide, inputs, each = weight.bound
    if each > 1 and inputs == x.bound[-1]:
        op = _spread(made, op, each)
    filters = weight.data.reshape(1, high, wide, inputs * each)
    few = high * wide <= _MOST_TAPS[x.dtype.itemsize]
    return (few and _product(
        made, op, "depthwise_conv2d", filters, inputs * each, padding=[int(n) for n in op.args["pad"]],
        groups=inputs * each, **int_pairs(op, "stride", "dilation"),
    )) or _sums(made, op, filters.reshape(high, wide, inputs * each, 1))  # fmt: skip


def _spread(made: TosaRewrite, op: Op, each: int) -> Op:
    """The same convolution of an image that has each channel as often as there are filters for it."""
    x = op.args["input"]
    tall, wide, flat = (made.like(x, shape) for shape in
                        ((*x.bound, 1), (*x.bound, each), (*x.bound[:-1], x.bound[-1] * each)))  # fmt: skip
    made.emit("view", op, tall, self=x, size=list(tall.bound))
    made.emit("tosa.tile", op, wide, input=tall, multiples=[1] * len(x.bound) + [each])
    made.emit("view", op, flat, self=wide, size=list(flat.bound))
    return replace(op, args={**op.args, "input": flat})


def _sums(made: TosaRewrite, op: Op, filters: Array) -> bool:
    """The accumulators, by a kernel for any window."""
    x, bias, acc = op.args["input"], op.args["bias"], result_of(op)
    edges = [int(n) for n in op.args["pad"]]
    if x.dtype not in INT_RANGES or bias.data is None or len(x.bound) != 4 or min(edges) < 0:
        return False
    image = made.bordered(op, x, edges, int(op.args["input_zp"])) if any(edges) else x
    if image is None:
        return False
    weights = filters.astype(np.int64) - int(op.args["weight_zp"])
    axes = (0, 1, 3) if "depthwise" in op.kind else (1, 2, 3)
    reach = int(np.abs(weights).sum(axis=axes).max(initial=0)) * (1 << 8 * x.dtype.itemsize)
    if reach + int(np.abs(bias.data.astype(np.int64)).max(initial=0)) < 1 << 31 and acc not in made.outputs:
        made.values[acc] = replace(made.value(acc), dtype=np.dtype(np.int32))
    given = {**op.args, "weight": make_constant(filters), "input": image, "pad": [0] * 4}
    made.emit(op.kind, op, acc, **given)
    return True


@rule("conv3d")
def _conv3d(made: TosaRewrite, op: Op) -> bool:
    """Planes that a window reaches, joined as channels of one image: a convolution of images."""
    x, weight, acc = op.args["input"], op.args["weight"], result_of(op)
    if x.dtype not in INT_RANGES or weight.data is None or weight.dtype.kind != "i" or len(x.bound) != 5:
        return False
    count, deep = weight.bound[0], weight.bound[1]
    batch, depth = acc.bound[0], acc.bound[1]
    joined = _planes(made, op, x, deep, depth)
    if joined is None:
        return False
    flat = made.like(x, (batch * depth, *joined.bound[2:]))
    made.emit("view", op, flat, self=joined, size=list(flat.bound))
    filters = weight.data.transpose(0, 2, 3, 1, 4).reshape(count, *weight.bound[2:4], -1)
    sums = made.like(acc, (batch * depth, *acc.bound[2:]))
    args = {**op.args, "input": flat, "weight": make_constant(filters)}
    args |= {name: [int(n) for n in op.args[name]][at:] for name, at in (("pad", 2), ("stride", 1), ("dilation", 1))}
    plane = Op("tosa.conv2d", args, [sums], op.origin)
    given = _operands(made, plane, count)
    scaled = None if given is None else made.scaled(op)
    if given is None or scaled is None:
        return _sums(made, plane, filters) and _folded_out(made, op, sums, acc)
    scaling, out = scaled
    image = made.like(out, sums.bound)
    filters_value = make_constant(filters, _WEIGHT if x.dtype in INT8_RANGES else None)
    made.emit("conv2d", plane, image, **given, weight=filters_value, scaling=scaling, padding=args["pad"],
              groups=1, **int_pairs(plane, "stride", "dilation"))  # fmt: skip
    return _folded_out(made, op, image, out)


def _folded_out(made: TosaRewrite, op: Op, image: Value, out: Value) -> bool:
    """An image for each plane, as volumes again."""
    held = made.value(image)
    if held.dtype != made.value(out).dtype:
        made.values[out] = replace(made.value(out), dtype=held.dtype)
    made.emit("view", op, out, self=image, size=list(out.bound))
    return True


def _planes(made: TosaRewrite, op: Op, x: Value, deep: int, depth: int) -> Value | None:
    """``[batch, results, height, width, deep * channels]``: for each result the planes of its window, side by side."""
    (front, back), stride, step = op.args["pad"][:2], int(op.args["stride"][0]), int(op.args["dilation"][0])
    batch, have, *rest = x.bound
    groups = -(-(have + front + back) // stride)
    if min(front, back) < 0 or (have + front + back - (deep - 1) * step - 1) // stride + 1 != depth or depth < 1:
        return None
    whole = made.like(x, (batch, groups * stride, *rest))
    after = groups * stride - have - front
    if not made.pad(op, x, whole, [0, front, 0, 0, 0], [0, after, 0, 0, 0], int(op.args["input_zp"])):
        return None
    cut = made.like(x, (batch, groups, stride, *rest))
    made.emit("view", op, cut, self=whole, size=list(cut.bound))
    planes = []
    for k in range(deep):
        group, inside = divmod(k * step, stride)
        part, plane = made.like(x, (batch, depth, 1, *rest)), made.like(x, (batch, depth, *rest))
        made.emit("slice", op, part, self=cut, start=[0, group, inside, 0, 0, 0], length=list(part.bound))
        made.emit("view", op, plane, self=part, size=list(plane.bound))
        planes.append(plane)
    joined = made.like(x, (batch, depth, *rest[:-1], deep * rest[-1]))
    made.emit("cat", op, joined, tensors=planes, dim=4)
    return joined


@rule("matmul")
def _matmul(made: TosaRewrite, op: Op) -> bool:
    a, b = op.args["a"], op.args["b"]
    if any(v.dtype not in INT_RANGES or v.data is not None for v in (a, b)):
        return False
    scaled = made.scaled(op)
    if scaled is None:
        return False
    scaling, out = scaled
    zeros = (int(op.args["a_zp"]), int(op.args["b_zp"]))
    made.emit("whole_matmul", op, out, self=a, other=b, zeros=zeros, scaling=scaling)
    return True


@rule("transpose_conv2d")
def _transposed(made: TosaRewrite, op: Op) -> bool:
    """What is added at the lower edges is less than a step; more stays with the reference."""
    weight, pads = op.args["weight"], [int(n) for n in op.args["out_pad"]]
    extra = [max(pads[1], 0), max(pads[3], 0)]
    fits = all(e < s for e, s in zip(extra, op.args["stride"], strict=True)) and max(pads[0], pads[2]) <= 0
    if weight.data is None or not fits:
        return False
    cut = [max(-n, 0) for n in pads]
    return _product(made, op, "conv_transpose2d", weight.data, weight.bound[0], padding=cut, groups=1, dilation=[1, 1],
                    output_padding=extra, **int_pairs(op, "stride"))  # fmt: skip
