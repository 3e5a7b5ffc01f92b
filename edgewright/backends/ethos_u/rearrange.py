"""Lowering of rearrangements: pixel shuffle, channel shuffle, unfold, strided reads."""

from __future__ import annotations

import math

import numpy as np

from edgewright.backends.ethos_u.lower import BOOL, FLOAT32, INT32, TosaLowering, result, static_sizes, zero_of
from edgewright.backends.ethos_u.movement import requantize_to
from edgewright.backends.ethos_u.pool import alias_image, to_nhwc_image
from edgewright.backends.ethos_u.slice_concat import strided_runs, take
from edgewright.ir.aten.ops import OPS
from edgewright.ir.graph import Op, Value
from edgewright.lowering.passes.layout import Order, common_order, identity

MAX_SLICES = 256  # slices concatenated to one tensor


def pixel_shuffle(low: TosaLowering, op: Op) -> None:
    """Channels to pixels: first along the width, then along the height."""
    image = to_nhwc_image(low, op.args["self"], 2)
    n, h, w, c = image.bound
    f = op.args["upscale_factor"]
    channels = c // f**2
    parts = low.transpose(low.reshape(image, [n * h * w, channels, f, f]), [0, 2, 3, 1])
    transposed = low.transpose(low.reshape(parts, [n * h, w, f, f * channels]), [0, 2, 1, 3])
    _alias_result(low, op, low.reshape(transposed, [n, h * f, w * f, channels]))


def pixel_unshuffle(low: TosaLowering, op: Op) -> None:
    """Inverse of ``pixel_shuffle``."""
    image = to_nhwc_image(low, op.args["self"], 2)
    n, h, w, c = image.bound
    f = op.args["downscale_factor"]
    transposed = low.transpose(low.reshape(image, [n * h // f, f, w // f, f * c]), [0, 2, 1, 3])
    parts = low.transpose(low.reshape(transposed, [n * (h // f) * (w // f), f, f, c]), [0, 3, 1, 2])
    _alias_result(low, op, low.reshape(parts, [n, h // f, w // f, c * f * f]))


def _alias_result(low: TosaLowering, op: Op, image: Value) -> None:
    alias_image(low, result(op), 2, requantize_to(low, op.args["self"], result(op), image))


def channel_shuffle(low: TosaLowering, op: Op) -> None:
    x, out = op.args["self"], result(op)
    rank = len(x.shape)
    order: Order = (0, *range(2, rank), 1)
    x_last, groups = low.get(x, order), op.args["groups"]
    pixels, group_channels = math.prod(x_last.bound[:-1]), x.bound[1] // groups
    shuffled = low.transpose(low.reshape(x_last, [pixels, groups, group_channels]), [0, 2, 1])
    low.alias(out, order, requantize_to(low, x, out, low.reshape(shuffled, x_last.bound)))


def unfold(low: TosaLowering, op: Op) -> None:
    """Windows along one dimension; positions within a window become the last dimension."""
    x, out = op.args["self"], result(op)
    rank, dim = len(x.shape), op.args["dimension"] % len(x.shape)
    count, size = out.bound[dim], op.args["size"]
    indices = [i * op.args["step"] + j for i in range(count) for j in range(size)]
    selected = take(low, low.get(x), dim, indices)
    outer, inner = math.prod(x.bound[:dim]), math.prod(x.bound[dim + 1 :])
    windows = low.transpose(low.reshape(selected, [outer * count, size, inner]), [0, 2, 1])
    low.alias(out, identity(rank + 1), low.reshape(requantize_to(low, x, out, windows), static_sizes(out)))


def read_elements(op: Op) -> list[int]:
    """Flat indices of the elements an operator reads, in order of its result."""
    x = op.args["self"]
    positions = np.arange(math.prod(x.bound)).reshape(x.bound)
    return np.asarray(OPS[op.kind].call({**op.args, "self": positions})[0]).ravel().tolist()  # type: ignore[no-any-return]


def strided_read(low: TosaLowering, op: Op) -> None:
    """``as_strided`` and ``diagonal``: strided runs of the flattened input."""
    x, out = op.args["self"], result(op)
    flat = low.reshape(low.get(x), [math.prod(x.bound)])
    selected = take(low, flat, 0, read_elements(op))
    low.alias(out, identity(len(out.shape)), low.reshape(requantize_to(low, x, out, selected), static_sizes(out)))


def slice_count(op: Op) -> int:
    """Number of slices that a strided read or an unfold takes."""
    if op.kind == "unfold":
        count, size, step = result(op).bound[op.args["dimension"]], op.args["size"], op.args["step"]
        return len(strided_runs([i * step + j for i in range(count) for j in range(size)]))
    return len(strided_runs(read_elements(op)))


def tril(low: TosaLowering, op: Op) -> None:
    """Multiply by a mask of ones and zeros: no rounding."""
    x, out = op.args["self"], result(op)
    order = common_order(low, op, len(x.shape))
    tensor = low.get(x, order)
    ones = OPS["tril"].call({**op.args, "self": np.ones([1] * (len(x.shape) - 2) + list(x.bound[-2:]))})[0]
    mask = np.asarray(ones).transpose(order)
    if tensor.dtype == BOOL:
        masked = low.node("logical_and", tensor.bound, BOOL, a=tensor, b=low.const(mask, np.bool_))
    elif tensor.dtype in (FLOAT32, INT32):
        masked = low.node("mul", tensor.bound, tensor.dtype, a=tensor, b=low.const(mask, tensor.dtype), shift=0)
    else:
        wide = low.rescale(tensor, INT32, 1.0, zero_of(x))
        acc = low.node("mul", tensor.bound, INT32, a=wide, b=low.const(mask, np.int32), shift=0)
        masked = low.rescale(acc, tensor.dtype, 1.0, 0, zero_of(x))
    low.alias(out, order, requantize_to(low, x, out, masked))
