"""Lowering of pools. Means are exact sums, rounded once when they become the result's integers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.backends.ethos_u.lower import FLOAT32, INT32, INT48, TosaLowering, result, scale_of, zero_of
from edgewright.backends.ethos_u.movement import stored_as
from edgewright.backends.ethos_u.slice_concat import cut, picked
from edgewright.backends.table import pool_arguments
from edgewright.ir.graph import Array, Op, Value
from edgewright.lowering.passes.layout import Order

MAX_WINDOW = 64  # of a convolution, each way
MAX_STRIDE = 3  # of a depthwise convolution, each way

# --------------------------------------------------------------------------------------------------------- images


def image_order(rank: int, spatial: int) -> Order:
    """Channels last: ``spatial`` dimensions, then the one before them."""
    return (*range(rank - spatial - 1), *range(rank - spatial, rank), rank - spatial - 1)


def image_of(low: TosaLowering, x: Value, spatial: int) -> Value:
    """A tensor as images with channels last; a line is one pixel high."""
    rank = len(x.shape)
    held = low.get(x, image_order(rank, spatial))
    batch = math.prod(held.bound[: rank - spatial - 1])
    return low.reshaped(held, [batch, *([1] * (2 - spatial)), *held.bound[rank - spatial - 1 :]])


def name_image(low: TosaLowering, out: Value, spatial: int, made: Value) -> None:
    """Let images with channels last be ``out``."""
    order = image_order(len(out.shape), spatial)
    low.alias(out, order, low.reshaped(made, [out.bound[d] for d in order]))


def spatial_dims(op: Op) -> int:
    return 1 if op.kind.endswith("1d") else 2


def windows(op: Op) -> tuple[list[int], list[int], list[int], list[int]]:
    """Kernel, stride, padding (top, bottom, left, right) and dilation, of lines too; the padding at the end is what the
    windows of the result reach, which ``ceil_mode`` makes more and leftover pixels less (or negative)."""
    if spatial_dims(op) == 2:
        kernel, stride, pads, dilation = pool_arguments(op)
    else:
        kernel = [1, op.args["kernel_size"][0]]
        stride = [1, (op.args.get("stride") or op.args["kernel_size"])[0]]
        left = (op.args.get("padding") or [0])[0]
        pads, dilation = [0, 0, left, left], [1, (op.args.get("dilation") or [1])[0]]
    x, out = op.args["self"], result(op)
    sizes_in, sizes_out = ([1] * (2 - spatial_dims(op)) + list(v.bound[-spatial_dims(op) :]) for v in (x, out))
    for axis in (0, 1):
        reach = (sizes_out[axis] - 1) * stride[axis] + (kernel[axis] - 1) * dilation[axis] + 1
        pads[2 * axis + 1] = reach - sizes_in[axis] - pads[2 * axis]
    return kernel, stride, pads, dilation


def fitted(low: TosaLowering, image: Value, pads: Sequence[int]) -> tuple[Value, list[int]]:
    """An image without the rows and columns that no window reaches, and padding that is not negative."""
    for axis in (1, 2):
        image = cut(low, image, axis, 0, image.bound[axis] + min(pads[2 * axis - 1], 0))
    return image, [max(p, 0) for p in pads]


# -------------------------------------------------------------------------------------------------------- largest


def max_pool(low: TosaLowering, op: Op) -> None:
    x, out = op.args["self"], result(op)
    kernel, stride, pads, dilation = windows(op)
    image, pads = fitted(low, image_of(low, x, spatial_dims(op)), pads)
    if dilation == [1, 1]:
        made = largest(low, image, kernel, stride, pads)
    else:
        made = image
        for axis in (0, 1):
            made = _largest_apart(low, made, axis, kernel[axis], stride[axis], pads[2 * axis :], dilation[axis])
    name_image(low, out, spatial_dims(op), stored_as(low, x, out, made))


def largest(low: TosaLowering, image: Value, kernel: list[int], stride: list[int], pads: Sequence[int]) -> Value:
    if any(pads) and (
        max(stride) > MAX_STRIDE or max(kernel) > MAX_WINDOW
    ):  # U55 and U65 do these without padding only
        for axis in (0, 1):
            image = _with_lowest(low, image, 1 + axis, pads[2 * axis : 2 * axis + 2])
        pads = [0] * 4
    n, h, w, c = image.bound
    size = [(s + pads[2 * a] + pads[2 * a + 1] - kernel[a]) // stride[a] + 1 for a, s in enumerate((h, w))]
    return low.node("max_pool2d", [n, *size, c], image.dtype, input=image, kernel=kernel, stride=stride, pad=list(pads))


def _largest_apart(
    low: TosaLowering, image: Value, axis: int, kernel: int, stride: int, pads: Sequence[int], apart: int
) -> Value:
    """Windows of rows (or columns) that lie apart: rows are dealt out to as many images, where they are neighbours."""
    sides = [pads[0], pads[1]]
    shape = [kernel if a == axis else 1 for a in (0, 1)]
    if apart == 1:
        steps = [stride if a == axis else 1 for a in (0, 1)]
        return largest(low, image, shape, steps, [*(sides if axis == 0 else [0, 0]), *(sides if axis else [0, 0])])
    size = image.bound[1 + axis] + sum(sides)
    count = (size - (kernel - 1) * apart - 1) // stride + 1
    rows = -(-size // apart)
    padded = _with_lowest(low, image, 1 + axis, [sides[0], sides[1] + rows * apart - size])
    outer, inner = math.prod(padded.bound[: 1 + axis]), math.prod(padded.bound[2 + axis :])
    dealt = low.transposed(low.reshaped(padded, [outer, rows, apart, inner]), [0, 2, 1, 3])
    pooled = largest(low, low.reshaped(dealt, [outer * apart, rows, 1, inner]), [kernel, 1], [1, 1], [0] * 4)
    left = rows - kernel + 1
    back = low.transposed(low.reshaped(pooled, [outer, apart, left, inner]), [0, 2, 1, 3])
    whole = low.reshaped(back, [*padded.bound[: 1 + axis], left * apart, *padded.bound[2 + axis :]])
    return picked(low, whole, 1 + axis, range(0, (count - 1) * stride + 1, stride))


def _with_lowest(low: TosaLowering, image: Value, axis: int, sides: Sequence[int]) -> Value:
    if not any(sides):
        return image
    lowest = -np.inf if image.dtype == FLOAT32 else np.iinfo(image.dtype).min
    padding = [side for a in range(len(image.bound)) for side in (sides if a == axis else (0, 0))]
    shape = [s + sum(padding[2 * a : 2 * a + 2]) for a, s in enumerate(image.bound)]
    fill = low.tensor([lowest], image.dtype)
    return low.node("pad", shape, image.dtype, input=image, padding=padding, value=fill)


# ---------------------------------------------------------------------------------------------------------- means


def window_sum(
    low: TosaLowering, image: Value, x: Value, kernel: Sequence[int], stride: Sequence[int], pads: Sequence[int]
) -> Value:
    """The sum of every window: a depthwise convolution with ones. 32 bits, or 48."""
    n, h, w, c = image.bound
    size = [(s + pads[2 * a] + pads[2 * a + 1] - kernel[a]) // stride[a] + 1 for a, s in enumerate((h, w))]
    dtype = FLOAT32 if x.q is None else INT32 if x.q.dtype.itemsize == 1 else INT48
    ones = np.ones((*kernel, c, 1), np.float32 if x.q is None else np.int8)
    return low.node(
        "depthwise_conv2d", [n, *size, c], dtype, input=image, weight=low.tensor(ones),
        bias=low.tensor(np.zeros(c), dtype),
        input_zp=zero_of(x), weight_zp=0, pad=list(pads), stride=list(stride), dilation=[1, 1],
    )  # fmt: skip


def all_sums(low: TosaLowering, image: Value, x: Value, kernel: list[int], stride: list[int], pads: list[int]) -> Value:
    """``window_sum`` with any stride: what the NPU cannot skip is left out afterwards."""
    if max(kernel) > MAX_WINDOW:  # then it is the only one
        acc = image if x.q is None else low.rescale(image, INT32, 1.0, zero_of(x))
        return axis_sum(low, axis_sum(low, acc, 1), 2)
    reach = [image.bound[1 + a] + pads[2 * a] + pads[2 * a + 1] - kernel[a] for a in (0, 1)]
    stride = [s if r else 1 for s, r in zip(stride, reach, strict=True)]
    if max(stride) > MAX_STRIDE and kernel == stride and not any(pads):
        return _block_sums(low, image, x, kernel)
    small = [s if s <= MAX_STRIDE else 1 for s in stride]
    acc = window_sum(low, image, x, kernel, small, pads)
    for a in (0, 1):
        if small[a] != stride[a]:
            acc = picked(low, acc, 1 + a, range(0, reach[a] // stride[a] * stride[a] + 1, stride[a]))
    return acc


def _block_sums(low: TosaLowering, image: Value, x: Value, kernel: list[int]) -> Value:
    """Of windows side by side: each dimension is cut into windows, which are summed."""
    acc = image if x.q is None else low.rescale(image, INT32, 1.0, zero_of(x))
    for axis in (1, 2):
        outer, inner = math.prod(acc.bound[:axis]), math.prod(acc.bound[axis + 1 :])
        count = acc.bound[axis] // kernel[axis - 1]
        shape = [*acc.bound[:axis], count, *acc.bound[axis + 1 :]]
        blocks = low.reshaped(acc, [outer * count, kernel[axis - 1], inner])
        acc = low.reshaped(axis_sum(low, blocks, 1), shape)
    return acc


def avg_pool(low: TosaLowering, op: Op) -> None:
    x, out = op.args["self"], result(op)
    kernel, stride, pads, _ = windows(op)
    image = image_of(low, x, spatial_dims(op))
    counted = counts(op, image.bound[1:3])
    image, pads = fitted(low, image, pads)
    if kernel == list(image.bound[1:3]) and not any(pads) and (counted == math.prod(kernel)).all():
        name_image(low, out, spatial_dims(op), image_mean(low, op, x, image))
        return
    acc = all_sums(low, image, x, kernel, stride, pads)
    name_image(low, out, spatial_dims(op), divided(low, op, acc, counted))


def counts(op: Op, size: Sequence[int]) -> Array:
    """What the sum of every window is divided by, (height, width)."""
    kernel, stride, pads, _ = windows(op)
    override = op.args.get("divisor_override")
    if override:
        return np.full((1, 1), override, np.int64)
    shape = ([1] * (2 - spatial_dims(op)) + list(result(op).bound[-spatial_dims(op) :]))[:2]
    lines = []
    for a in (0, 1):
        margin = pads[2 * a] if op.args.get("count_include_pad", True) else 0
        starts = np.arange(shape[a]) * stride[a] - pads[2 * a]
        ends = np.minimum(starts + kernel[a], size[a] + margin)
        lines.append(np.maximum(ends - np.maximum(starts, -margin), 1))
    return np.outer(*lines)


def divided(low: TosaLowering, op: Op, acc: Value, counted: Array) -> Value:
    """Sums by their counts, as the result is stored: multiplied to one denominator where counts differ."""
    x, out = op.args["self"], result(op)
    common = math.lcm(*np.unique(counted).tolist())
    limits = op.args.get("limits")
    if x.q is None:
        factors = low.tensor((1 / counted)[None, :, :, None], np.float32)
        return low.narrow(low.node("mul", acc.bound, FLOAT32, a=acc, b=factors, shift=0), out, 1.0, limits)
    if (counted == common).all():
        return low.narrow(acc, out, scale_of(x) / common, limits)
    if acc.dtype == INT48:
        acc = low.rescale(acc, INT32, 1.0)
    factors = low.tensor((common // counted)[None, :, :, None], np.int32)
    acc = low.node("mul", acc.bound, INT32, a=acc, b=factors, shift=0)
    return low.narrow(acc, out, scale_of(x) / common, limits)


def largest_product(op: Op, counted: Array) -> int:
    """A bound of what ``divided`` computes."""
    size: int = op.args["self"].dtype.itemsize
    return math.lcm(*np.unique(counted).tolist()) << 8 * size


def axis_sum(low: TosaLowering, acc: Value, axis: int) -> Value:
    if acc.bound[axis] == 1:
        return acc
    shape = [1 if a == axis else s for a, s in enumerate(acc.bound)]
    return low.node("reduce_sum", shape, acc.dtype, input=acc, axis=axis)


def pools_in_two_steps(x: Value, out: Value, size: Sequence[int], target: Any) -> bool:
    """True where pooling is cheaper than summing, and the result not stored so finely that its rounding would show."""
    if x.q is None or out.q is None or target is None or target.family == "u55":
        return False
    return x.q.dtype.itemsize == 1 and max(size) <= MAX_WINDOW and scale_of(x) <= 2 * scale_of(out)


def image_mean(low: TosaLowering, op: Op, x: Value, image: Value) -> Value:
    """The mean of whole images, as the result is stored.

    Rounded once, from a sum of pixels in a row; but where U65 and U85 pool for half the cycles, and the result is not
    stored so finely that it would show, in two steps.
    """
    out, (n, h, w, c) = result(op), image.bound
    limits = op.args.get("limits")
    if pools_in_two_steps(x, out, (h, w), low.target):
        zero = zero_of(x)
        made = low.node("avg_pool2d", [n, 1, 1, c], image.dtype, input=image, kernel=[h, w], stride=[1, 1], pad=[0] * 4,
                        input_zp=zero, output_zp=zero)  # fmt: skip
        assert out.q is not None
        if x.q == out.q:
            return low.within(made, out, limits)
        return low.within(low.rescale(made, out.q.dtype, scale_of(x) / scale_of(out), zero, zero_of(out)), out, limits)
    flat = low.reshaped(image, [n, h * w, 1, c])
    acc = axis_sum(low, flat if x.q is None else low.rescale(flat, INT32, 1.0, zero_of(x)), 1)
    if x.q is None:
        part = low.tensor(np.full((1, 1, 1, 1), 1 / (h * w)), np.float32)
        return low.narrow(low.node("mul", acc.bound, FLOAT32, a=acc, b=part, shift=0), out, 1.0, limits)
    return low.narrow(acc, out, scale_of(x) / (h * w), limits)
