"""Translation of TOSA's convolutions and matrix products.

TOSA separates accumulation from requantization: CONV2D produces int32 or int48 accumulators, and a RESCALE rounds them,
once ("single") or, with DOUBLE_ROUND, twice (TOSA specification, RESCALE and apply_scale_32). A RESCALE that is the
only reader is fused into the convolution's ``scaling``. Where something else reads the accumulators, or the window has
no specialized kernel, the convolution computes accumulators from an explicitly padded image.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.backends.ethos_u.dialect.to_core_rewrite import (
    INT8_RANGES,
    INT_RANGES,
    TosaRewrite,
    int_pairs,
    make_constant,
    result_of,
    rule,
)
from edgewright.engine.kernels.int8_depthwise import MAX_TAPS
from edgewright.ir.graph import Array, Op, QParams, Value

_WEIGHT = QParams(1.0, 0, np.dtype(np.int8), -128, 127)
_MAX_TAPS = {1: MAX_TAPS, 2: 49}  # of depthwise kernels, by the size of an input element


def _operands(rw: TosaRewrite, op: Op, channels: int) -> dict[str, Any] | None:
    """Input and bias of an int8 or int16 convolution with constant weights; None for other types."""
    x, weight, bias = (op.args[name] for name in ("input", "weight", "bias"))
    is_int16 = x.dtype == np.dtype(np.int16)
    if x.dtype not in INT_RANGES or weight.data is None or bias.data is None or weight.dtype.kind != "i":
        return None
    if (not is_int16 and weight.dtype != np.dtype(np.int8)) or bias.data.dtype.kind != "i":
        return None
    if op.args["weight_zp"] or rw.zero_point(x) != op.args["input_zp"] or bias.data.size not in (1, channels):
        return None
    data = np.broadcast_to(bias.data.reshape(-1), channels).astype(np.int64 if is_int16 else np.int32)
    return {"input": x, "bias": make_constant(data)}


def _emit_requantized(rw: TosaRewrite, op: Op, kind: str, filters: Array, channels: int, **sizes: Any) -> bool:
    operands = _operands(rw, op, channels)
    rescale = None if operands is None else rw.fuse_rescale(op)
    if operands is None or rescale is None:
        return False
    scaling, out = rescale
    weight = make_constant(filters, _WEIGHT if op.args["input"].dtype in INT8_RANGES else None)
    rw.emit(kind, op, out, **operands, weight=weight, scaling=scaling, **sizes)
    return True


@rule("conv2d")
def _conv2d(rw: TosaRewrite, op: Op) -> bool:
    weight = op.args["weight"]
    if weight.data is None or weight.dtype.kind != "i":
        return False
    return _emit_requantized(
        rw, op, "core.conv2d", weight.data, weight.bound[0], padding=[int(n) for n in op.args["pad"]], groups=1,
        **int_pairs(op, "stride", "dilation"),
    ) or _emit_accumulators(rw, op, weight.data)  # fmt: skip


@rule("depthwise_conv2d")
def _depthwise(rw: TosaRewrite, op: Op) -> bool:
    x, weight = op.args["input"], op.args["weight"]
    if weight.data is None or weight.dtype.kind != "i" or x.dtype not in INT_RANGES:
        return False
    high, wide, inputs, multiplier = weight.bound
    if multiplier > 1 and inputs == x.bound[-1]:
        op = _repeat_channels(rw, op, multiplier)
    filters = weight.data.reshape(1, high, wide, inputs * multiplier)
    few_taps = high * wide <= _MAX_TAPS[x.dtype.itemsize]
    return (few_taps and _emit_requantized(
        rw, op, "core.depthwise_conv2d", filters, inputs * multiplier, padding=[int(n) for n in op.args["pad"]],
        groups=inputs * multiplier, **int_pairs(op, "stride", "dilation"),
    )) or _emit_accumulators(rw, op, filters.reshape(high, wide, inputs * multiplier, 1))  # fmt: skip


def _repeat_channels(rw: TosaRewrite, op: Op, multiplier: int) -> Op:
    """Repeat each channel once per filter, so that the channel multiplier becomes 1."""
    x = op.args["input"]
    expanded, repeated, flat = (rw.new_value(x, shape) for shape in
                        ((*x.bound, 1), (*x.bound, multiplier), (*x.bound[:-1], x.bound[-1] * multiplier)))  # fmt: skip
    rw.emit("core.view", op, expanded, self=x, size=list(expanded.bound))
    rw.emit("tosa.tile", op, repeated, input=expanded, multiples=[1] * len(x.bound) + [multiplier])
    rw.emit("core.view", op, flat, self=repeated, size=list(flat.bound))
    return replace(op, args={**op.args, "input": flat})


def _emit_accumulators(rw: TosaRewrite, op: Op, filters: Array) -> bool:
    """Emit the accumulators with the generic kernel of ``lower/int_conv.py``."""
    x, bias, acc = op.args["input"], op.args["bias"], result_of(op)
    padding = [int(n) for n in op.args["pad"]]
    if x.dtype not in INT_RANGES or bias.data is None or len(x.bound) != 4 or min(padding) < 0:
        return False
    image = rw.pad_image(op, x, padding, int(op.args["input_zp"])) if any(padding) else x
    if image is None:
        return False
    weights = filters.astype(np.int64) - int(op.args["weight_zp"])
    axes = (0, 1, 3) if "depthwise" in op.kind else (1, 2, 3)
    bound = int(np.abs(weights).sum(axis=axes).max(initial=0)) * (1 << 8 * x.dtype.itemsize)
    if bound + int(np.abs(bias.data.astype(np.int64)).max(initial=0)) < 1 << 31 and acc not in rw.outputs:
        rw.values[acc] = replace(rw.value(acc), dtype=np.dtype(np.int32))
    args = {**op.args, "weight": make_constant(filters), "input": image, "pad": [0] * 4}
    rw.emit(op.kind, op, acc, **args)
    return True


@rule("conv3d")
def _conv3d(rw: TosaRewrite, op: Op) -> bool:
    """A 3D convolution as 2D: the planes of each window become channels of one image."""
    x, weight, acc = op.args["input"], op.args["weight"], result_of(op)
    if x.dtype not in INT_RANGES or weight.data is None or weight.dtype.kind != "i" or len(x.bound) != 5:
        return False
    count, kernel_depth = weight.bound[0], weight.bound[1]
    batch, depth = acc.bound[0], acc.bound[1]
    planes_as_channels = _gather_planes(rw, op, x, kernel_depth, depth)
    if planes_as_channels is None:
        return False
    flat = rw.new_value(x, (batch * depth, *planes_as_channels.bound[2:]))
    rw.emit("core.view", op, flat, self=planes_as_channels, size=list(flat.bound))
    filters = weight.data.transpose(0, 2, 3, 1, 4).reshape(count, *weight.bound[2:4], -1)
    accumulators = rw.new_value(acc, (batch * depth, *acc.bound[2:]))
    args = {**op.args, "input": flat, "weight": make_constant(filters)}
    args |= {name: [int(n) for n in op.args[name]][at:] for name, at in (("pad", 2), ("stride", 1), ("dilation", 1))}
    plane = Op("tosa.conv2d", args, [accumulators], op.origin)
    operands = _operands(rw, plane, count)
    rescale = None if operands is None else rw.fuse_rescale(op)
    if operands is None or rescale is None:
        return _emit_accumulators(rw, plane, filters) and _emit_volume(rw, op, accumulators, acc)
    scaling, out = rescale
    image = rw.new_value(out, accumulators.bound)
    filters_value = make_constant(filters, _WEIGHT if x.dtype in INT8_RANGES else None)
    rw.emit("core.conv2d", plane, image, **operands, weight=filters_value, scaling=scaling, padding=args["pad"],
              groups=1, **int_pairs(plane, "stride", "dilation"))  # fmt: skip
    return _emit_volume(rw, op, image, out)


def _emit_volume(rw: TosaRewrite, op: Op, image: Value, out: Value) -> bool:
    """Reshape the images of all planes to volumes."""
    image_value = rw.value(image)
    if image_value.dtype != rw.value(out).dtype:
        rw.values[out] = replace(rw.value(out), dtype=image_value.dtype)
    rw.emit("core.view", op, out, self=image, size=list(out.bound))
    return True


def _gather_planes(rw: TosaRewrite, op: Op, x: Value, kernel_depth: int, depth: int) -> Value | None:
    """For each result the planes of its window side by side: ``[batch, depth, height, width, kernel_depth *
    channels]``.
    """
    (front, back), stride, dilation = op.args["pad"][:2], int(op.args["stride"][0]), int(op.args["dilation"][0])
    batch, in_depth, *rest = x.bound
    groups = -(-(in_depth + front + back) // stride)
    if (
        min(front, back) < 0
        or (in_depth + front + back - (kernel_depth - 1) * dilation - 1) // stride + 1 != depth
        or depth < 1
    ):
        return None
    padded = rw.new_value(x, (batch, groups * stride, *rest))
    after = groups * stride - in_depth - front
    if not rw.pad(op, x, padded, [0, front, 0, 0, 0], [0, after, 0, 0, 0], int(op.args["input_zp"])):
        return None
    grouped = rw.new_value(x, (batch, groups, stride, *rest))
    rw.emit("core.view", op, grouped, self=padded, size=list(grouped.bound))
    planes = []
    for k in range(kernel_depth):
        group, offset = divmod(k * dilation, stride)
        part, plane = rw.new_value(x, (batch, depth, 1, *rest)), rw.new_value(x, (batch, depth, *rest))
        rw.emit("core.slice", op, part, self=grouped, start=[0, group, offset, 0, 0, 0], length=list(part.bound))
        rw.emit("core.view", op, plane, self=part, size=list(plane.bound))
        planes.append(plane)
    merged = rw.new_value(x, (batch, depth, *rest[:-1], kernel_depth * rest[-1]))
    rw.emit("core.cat", op, merged, tensors=planes, dim=4)
    return merged


@rule("matmul")
def _matmul(rw: TosaRewrite, op: Op) -> bool:
    a, b = op.args["a"], op.args["b"]
    if any(v.dtype not in INT_RANGES or v.data is not None for v in (a, b)):
        return False
    scaled = rw.fuse_rescale(op)
    if scaled is None:
        return False
    scaling, out = scaled
    zeros = (int(op.args["a_zp"]), int(op.args["b_zp"]))
    rw.emit("core.int_matmul", op, out, self=a, other=b, zeros=zeros, scaling=scaling)
    return True


@rule("transpose_conv2d")
def _transposed(rw: TosaRewrite, op: Op) -> bool:
    """conv_transpose2d if the output padding is less than the stride; otherwise the reference runs it."""
    weight, pads = op.args["weight"], [int(n) for n in op.args["out_pad"]]
    extra = [max(pads[1], 0), max(pads[3], 0)]
    supported = all(e < s for e, s in zip(extra, op.args["stride"], strict=True)) and max(pads[0], pads[2]) <= 0
    if weight.data is None or not supported:
        return False
    cropped = [max(-n, 0) for n in pads]
    return _emit_requantized(rw, op, "core.conv_transpose2d", weight.data, weight.bound[0], padding=cropped, groups=1,
                             dilation=[1, 1], output_padding=extra, **int_pairs(op, "stride"))  # fmt: skip
