"""Lowering of pooling. Averages are exact sums, rounded once when they are requantized.

Windows of adaptive pooling follow from the output size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from edgewright.backends.ethos_u.lower import FLOAT32, INT32, INT48, TosaLowering, result, scale_of, zero_of
from edgewright.backends.ethos_u.movement import requantize_to
from edgewright.backends.ethos_u.slice_concat import concat, slice_axis, take
from edgewright.backends.table import pool_params
from edgewright.ir.graph import Array, Op, Value
from edgewright.lowering.passes.layout import Order

MAX_WINDOW = 64  # kernel size limit of a convolution, per axis
MAX_STRIDE = 3  # stride limit of a depthwise convolution, per axis

# --------------------------------------------------------------------------------------------------------- images


def image_order(rank: int, spatial: int) -> Order:
    """Channels-last order: the ``spatial`` dimensions, then the channel dimension before them."""
    return (*range(rank - spatial - 1), *range(rank - spatial, rank), rank - spatial - 1)


def to_nhwc_image(low: TosaLowering, x: Value, spatial: int) -> Value:
    """A tensor as NHWC images; 1-D inputs are images of height one."""
    rank = len(x.shape)
    x_nhwc = low.get(x, image_order(rank, spatial))
    batch = math.prod(x_nhwc.bound[: rank - spatial - 1])
    return low.reshape(x_nhwc, [batch, *([1] * (2 - spatial)), *x_nhwc.bound[rank - spatial - 1 :]])


def alias_image(low: TosaLowering, out: Value, spatial: int, image: Value) -> None:
    """Bind NHWC images as ``out``."""
    order = image_order(len(out.shape), spatial)
    low.alias(out, order, low.reshape(image, [out.bound[d] for d in order]))


def spatial_dims(op: Op) -> int:
    return 1 if op.kind.endswith("1d") else 2


def window_params(op: Op) -> tuple[list[int], list[int], list[int], list[int]]:
    """Kernel, stride, padding (top, bottom, left, right) and dilation of a 1-D or 2-D pool.

    The end padding is what the windows of the result cover: ``ceil_mode`` increases it, and leftover pixels decrease
    it, below zero if necessary.
    """
    if spatial_dims(op) == 2:
        kernel, stride, pads, dilation = pool_params(op)
    else:
        kernel = [1, op.args["kernel_size"][0]]
        stride = [1, (op.args.get("stride") or op.args["kernel_size"])[0]]
        left = (op.args.get("padding") or [0])[0]
        pads, dilation = [0, 0, left, left], [1, (op.args.get("dilation") or [1])[0]]
    x, out = op.args["self"], result(op)
    sizes_in, sizes_out = ([1] * (2 - spatial_dims(op)) + list(v.bound[-spatial_dims(op) :]) for v in (x, out))
    for axis in (0, 1):
        extent = (sizes_out[axis] - 1) * stride[axis] + (kernel[axis] - 1) * dilation[axis] + 1
        pads[2 * axis + 1] = extent - sizes_in[axis] - pads[2 * axis]
    return kernel, stride, pads, dilation


def crop_unread(low: TosaLowering, image: Value, pads: Sequence[int]) -> tuple[Value, list[int]]:
    """Crop rows and columns that no window reads, so that no padding is negative."""
    for axis in (1, 2):
        image = slice_axis(low, image, axis, 0, image.bound[axis] + min(pads[2 * axis - 1], 0))
    return image, [max(p, 0) for p in pads]


# -------------------------------------------------------------------------------------------------------- largest


def max_pool(low: TosaLowering, op: Op) -> None:
    x, out = op.args["self"], result(op)
    kernel, stride, pads, dilation = window_params(op)
    image, pads = crop_unread(low, to_nhwc_image(low, x, spatial_dims(op)), pads)
    if dilation == [1, 1]:
        pooled = emit_max_pool(low, image, kernel, stride, pads)
    else:
        pooled = image
        for axis in (0, 1):
            pooled = _dilated_max_pool(low, pooled, axis, kernel[axis], stride[axis], pads[2 * axis :], dilation[axis])
    alias_image(low, out, spatial_dims(op), requantize_to(low, x, out, pooled))


def emit_max_pool(low: TosaLowering, image: Value, kernel: list[int], stride: list[int], pads: Sequence[int]) -> Value:
    if any(pads) and (
        max(stride) > MAX_STRIDE or max(kernel) > MAX_WINDOW
    ):  # U55 and U65 do these without padding only
        for axis in (0, 1):
            image = _pad_with_lowest(low, image, 1 + axis, pads[2 * axis : 2 * axis + 2])
        pads = [0] * 4
    n, h, w, c = image.bound
    size = [(s + pads[2 * a] + pads[2 * a + 1] - kernel[a]) // stride[a] + 1 for a, s in enumerate((h, w))]
    return low.node("max_pool2d", [n, *size, c], image.dtype, input=image, kernel=kernel, stride=stride, pad=list(pads))


def _dilated_max_pool(
    low: TosaLowering, image: Value, axis: int, kernel: int, stride: int, pads: Sequence[int], dilation: int
) -> Value:
    """Dilated windows along one axis: deinterleave rows into one image per phase, where the taps are adjacent."""
    sides = [pads[0], pads[1]]
    shape = [kernel if a == axis else 1 for a in (0, 1)]
    if dilation == 1:
        steps = [stride if a == axis else 1 for a in (0, 1)]
        return emit_max_pool(
            low, image, shape, steps, [*(sides if axis == 0 else [0, 0]), *(sides if axis else [0, 0])]
        )
    size = image.bound[1 + axis] + sum(sides)
    count = (size - (kernel - 1) * dilation - 1) // stride + 1
    rows = -(-size // dilation)
    padded = _pad_with_lowest(low, image, 1 + axis, [sides[0], sides[1] + rows * dilation - size])
    outer, inner = math.prod(padded.bound[: 1 + axis]), math.prod(padded.bound[2 + axis :])
    phases = low.transpose(low.reshape(padded, [outer, rows, dilation, inner]), [0, 2, 1, 3])
    pooled = emit_max_pool(low, low.reshape(phases, [outer * dilation, rows, 1, inner]), [kernel, 1], [1, 1], [0] * 4)
    out_rows = rows - kernel + 1
    interleaved = low.transpose(low.reshape(pooled, [outer, dilation, out_rows, inner]), [0, 2, 1, 3])
    dense = low.reshape(interleaved, [*padded.bound[: 1 + axis], out_rows * dilation, *padded.bound[2 + axis :]])
    return take(low, dense, 1 + axis, range(0, (count - 1) * stride + 1, stride))


def _pad_with_lowest(low: TosaLowering, image: Value, axis: int, sides: Sequence[int]) -> Value:
    if not any(sides):
        return image
    lowest = -np.inf if image.dtype == FLOAT32 else np.iinfo(image.dtype).min
    padding = [side for a in range(len(image.bound)) for side in (sides if a == axis else (0, 0))]
    shape = [s + sum(padding[2 * a : 2 * a + 2]) for a, s in enumerate(image.bound)]
    fill = low.const([lowest], image.dtype)
    return low.node("pad", shape, image.dtype, input=image, padding=padding, value=fill)


# ---------------------------------------------------------------------------------------------------------- means


def window_sum(
    low: TosaLowering, image: Value, x: Value, kernel: Sequence[int], stride: Sequence[int], pads: Sequence[int]
) -> Value:
    """Sum of each window as a depthwise convolution with ones: int32, or int48 for 16-bit inputs."""
    n, h, w, c = image.bound
    size = [(s + pads[2 * a] + pads[2 * a + 1] - kernel[a]) // stride[a] + 1 for a, s in enumerate((h, w))]
    dtype = FLOAT32 if x.q is None else INT32 if x.q.dtype.itemsize == 1 else INT48
    ones = np.ones((*kernel, c, 1), np.float32 if x.q is None else np.int8)
    return low.node(
        "depthwise_conv2d", [n, *size, c], dtype, input=image, weight=low.const(ones),
        bias=low.const(np.zeros(c), dtype),
        input_zp=zero_of(x), weight_zp=0, pad=list(pads), stride=list(stride), dilation=[1, 1],
    )  # fmt: skip


def strided_window_sum(
    low: TosaLowering, image: Value, x: Value, kernel: list[int], stride: list[int], pads: list[int]
) -> Value:
    """``window_sum`` with any stride; a stride the NPU does not support becomes a slice of the dense result."""
    if max(kernel) > MAX_WINDOW:  # then the window covers the entire image
        acc = image if x.q is None else low.rescale(image, INT32, 1.0, zero_of(x))
        return axis_sum(low, axis_sum(low, acc, 1), 2)
    extent = [image.bound[1 + a] + pads[2 * a] + pads[2 * a + 1] - kernel[a] for a in (0, 1)]
    stride = [s if r else 1 for s, r in zip(stride, extent, strict=True)]
    if max(stride) > MAX_STRIDE and kernel == stride and not any(pads):
        return _block_sum(low, image, x, kernel)
    supported = [s if s <= MAX_STRIDE else 1 for s in stride]
    acc = window_sum(low, image, x, kernel, supported, pads)
    for a in (0, 1):
        if supported[a] != stride[a]:
            acc = take(low, acc, 1 + a, range(0, extent[a] // stride[a] * stride[a] + 1, stride[a]))
    return acc


def _block_sum(low: TosaLowering, image: Value, x: Value, kernel: list[int]) -> Value:
    """Sums of adjacent non-overlapping windows: split each dimension into windows and reduce them."""
    acc = image if x.q is None else low.rescale(image, INT32, 1.0, zero_of(x))
    for axis in (1, 2):
        outer, inner = math.prod(acc.bound[:axis]), math.prod(acc.bound[axis + 1 :])
        count = acc.bound[axis] // kernel[axis - 1]
        shape = [*acc.bound[:axis], count, *acc.bound[axis + 1 :]]
        blocks = low.reshape(acc, [outer * count, kernel[axis - 1], inner])
        acc = low.reshape(axis_sum(low, blocks, 1), shape)
    return acc


def avg_pool(low: TosaLowering, op: Op) -> None:
    x, out = op.args["self"], result(op)
    kernel, stride, pads, _ = window_params(op)
    image = to_nhwc_image(low, x, spatial_dims(op))
    divisors = window_counts(op, image.bound[1:3])
    image, pads = crop_unread(low, image, pads)
    if kernel == list(image.bound[1:3]) and not any(pads) and (divisors == math.prod(kernel)).all():
        alias_image(low, out, spatial_dims(op), global_average(low, op, x, image))
        return
    acc = strided_window_sum(low, image, x, kernel, stride, pads)
    alias_image(low, out, spatial_dims(op), divide_by_counts(low, op, acc, divisors))


def window_counts(op: Op, size: Sequence[int]) -> Array:
    """Divisor of each window, (height, width)."""
    kernel, stride, pads, _ = window_params(op)
    override = op.args.get("divisor_override")
    if override:
        return np.full((1, 1), override, np.int64)
    shape = ([1] * (2 - spatial_dims(op)) + list(result(op).bound[-spatial_dims(op) :]))[:2]
    per_axis = []
    for a in (0, 1):
        margin = pads[2 * a] if op.args.get("count_include_pad", True) else 0
        starts = np.arange(shape[a]) * stride[a] - pads[2 * a]
        ends = np.minimum(starts + kernel[a], size[a] + margin)
        per_axis.append(np.maximum(ends - np.maximum(starts, -margin), 1))
    return np.outer(*per_axis)


def divide_by_counts(low: TosaLowering, op: Op, acc: Value, divisors: Array) -> Value:
    """Divide sums by their counts and requantize; differing counts are scaled to a common denominator."""
    x, out = op.args["self"], result(op)
    denominator = math.lcm(*np.unique(divisors).tolist())
    limits = op.args.get("limits")
    if x.q is None:
        factors = low.const((1 / divisors)[None, :, :, None], np.float32)
        return low.requantize(low.node("mul", acc.bound, FLOAT32, a=acc, b=factors, shift=0), out, 1.0, limits)
    if (divisors == denominator).all():
        return low.requantize(acc, out, scale_of(x) / denominator, limits)
    if acc.dtype == INT48:
        acc = low.rescale(acc, INT32, 1.0)
    factors = low.const((denominator // divisors)[None, :, :, None], np.int32)
    acc = low.node("mul", acc.bound, INT32, a=acc, b=factors, shift=0)
    return low.requantize(acc, out, scale_of(x) / denominator, limits)


def max_scaled_sum(op: Op, divisors: Array) -> int:
    """Upper bound of the int32 values in ``divide_by_counts``."""
    size: int = op.args["self"].dtype.itemsize
    return math.lcm(*np.unique(divisors).tolist()) << 8 * size


def axis_sum(low: TosaLowering, acc: Value, axis: int) -> Value:
    if acc.bound[axis] == 1:
        return acc
    shape = [1 if a == axis else s for a, s in enumerate(acc.bound)]
    return low.node("reduce_sum", shape, acc.dtype, input=acc, axis=axis)


def prefers_avg_pool(x: Value, out: Value, size: Sequence[int], target: Any) -> bool:
    """True if AVG_POOL2D is cheaper than a sum and the output scale too coarse for its extra rounding to matter."""
    if x.q is None or out.q is None or target is None or target.family == "u55":
        return False
    return x.q.dtype.itemsize == 1 and max(size) <= MAX_WINDOW and scale_of(x) <= 2 * scale_of(out)


def global_average(low: TosaLowering, op: Op, x: Value, image: Value) -> Value:
    """Average of entire images, quantized like the result.

    A sum over flattened pixels, rounded once. On U65 and U85 AVG_POOL2D takes half the cycles but rounds twice; it is
    used where the output scale hides the difference.
    """
    out, (n, h, w, c) = result(op), image.bound
    limits = op.args.get("limits")
    if prefers_avg_pool(x, out, (h, w), low.target):
        zero = zero_of(x)
        mean = low.node("avg_pool2d", [n, 1, 1, c], image.dtype, input=image, kernel=[h, w], stride=[1, 1], pad=[0] * 4,
                        input_zp=zero, output_zp=zero)  # fmt: skip
        assert out.q is not None
        if x.q == out.q:
            return low.clamp_to(mean, out, limits)
        return low.clamp_to(
            low.rescale(mean, out.q.dtype, scale_of(x) / scale_of(out), zero, zero_of(out)), out, limits
        )
    flat = low.reshape(image, [n, h * w, 1, c])
    acc = axis_sum(low, flat if x.q is None else low.rescale(flat, INT32, 1.0, zero_of(x)), 1)
    if x.q is None:
        reciprocal = low.const(np.full((1, 1, 1, 1), 1 / (h * w)), np.float32)
        return low.requantize(low.node("mul", acc.bound, FLOAT32, a=acc, b=reciprocal, shift=0), out, 1.0, limits)
    return low.requantize(acc, out, scale_of(x) / (h * w), limits)


class WindowRun(NamedTuple):
    """Consecutive windows along one axis with equal length and stride."""

    first: int
    length: int
    windows: int
    step: int

    @property
    def extent(self) -> int:
        return (self.windows - 1) * self.step + self.length


def window_runs(size: int, count: int) -> list[WindowRun]:
    """The windows of an adaptive pool as runs of equal windows."""
    runs: list[WindowRun] = []
    for o in range(count):
        first = o * size // count
        length = -(-(o + 1) * size // count) - first
        run = runs[-1] if runs else None
        step = first - (run.first + (run.windows - 1) * run.step) if run else 0
        if (
            run
            and run.length == length
            and size // count < MAX_WINDOW
            and step > 0
            and (run.windows == 1 or run.step == step)
        ):
            runs[-1] = WindowRun(run.first, length, run.windows + 1, step)
        else:
            runs.append(WindowRun(first, length, 1, 1))
    return runs


RegionPool = Callable[[Value, WindowRun, WindowRun], Value]


def pool_regions(low: TosaLowering, op: Op, pool_region: RegionPool) -> None:
    """Pool each region of equal windows with one operator and concatenate the results."""
    x, out = op.args["self"], result(op)
    dims = spatial_dims(op)
    image = to_nhwc_image(low, x, dims)
    rows = window_runs(image.bound[1], out.bound[-2] if dims == 2 else 1)
    columns = window_runs(image.bound[2], out.bound[-1])
    pooled_rows = []
    for row in rows:
        strip = slice_axis(low, image, 1, row.first, row.extent)
        parts = [pool_region(slice_axis(low, strip, 2, column.first, column.extent), row, column) for column in columns]
        pooled_rows.append(concat(low, parts, 2))
    alias_image(low, out, dims, concat(low, pooled_rows, 1))


def adaptive_max_pool2d(low: TosaLowering, op: Op) -> None:
    def pooled(region: Value, row: WindowRun, column: WindowRun) -> Value:
        maxima = emit_max_pool(low, region, [row.length, column.length], [row.step, column.step], [0] * 4)
        return requantize_to(low, op.args["self"], result(op), maxima)

    pool_regions(low, op, pooled)


def adaptive_avg_pool(low: TosaLowering, op: Op) -> None:
    x = op.args["self"]

    def pooled(region: Value, row: WindowRun, column: WindowRun) -> Value:
        kernel = [row.length, column.length]
        if kernel == list(region.bound[1:3]):
            return global_average(low, op, x, region)
        acc = strided_window_sum(low, region, x, kernel, [row.step, column.step], [0] * 4)
        return divide_by_counts(low, op, acc, np.array([[math.prod(kernel)]]))

    pool_regions(low, op, pooled)
