"""Lowering of pooling, resizing and ``grid_sampler_2d``.

Average pooling and bilinear resizing are separable: a weighted sum of neighbors along the height, then along the width.
The weights come from the reference kernel itself, run on an identity matrix: column i of the result holds the
contribution of row i to every output, so padding, rounding and corner modes need no second implementation.

XNNPACK has nodes for the common cases of these operators, which its rows choose: ``pool_average``, ``pool_global``,
``pool_extent`` and ``resize_bilinear``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from edgewright.backends.table import pool_params, reduced_dims
from edgewright.engine.graph.grid_sample import Sampling, lower_grid_sample
from edgewright.ir.aten.reference import pool, resample
from edgewright.ir.graph import Array, Op, Value
from edgewright.lowering.aten_to_core.elementwise import Lowering
from edgewright.lowering.aten_to_core.operands import (
    F32,
    computed,
    limits,
    require_floats,
    reshape_sizes,
    result,
)
from edgewright.lowering.passes.layout import NHWC, LoweringContext, common_order, require

_MAX_SIDE = 4096  # extent of a side: the weights come from a square image of it
ColumnKernel = Callable[[Array], Any]  # the reference kernel, applied to images one pixel wide


# ------------------------------------------------------------------------------------------ one core operator


def max_pool2d(low: LoweringContext, op: Op) -> None:
    """The indices are not computed: a call whose indices are read is not lowered."""
    x, out = op.args["self"], result(op)
    require(len(x.shape) == 4, "must be a batch of images")
    if x.q is None:
        require_floats(x)
    kernel, stride, padding, dilation = pool_params(op)
    pads = list(padding)
    for axis in (0, 1):  # ceil_mode becomes padding at the end
        covered = (int(out.bound[2 + axis]) - 1) * stride[axis] + (kernel[axis] - 1) * dilation[axis] + 1
        pads[2 * axis + 1] = max(pads[2 * axis + 1], covered - int(x.bound[2 + axis]) - pads[2 * axis])
    low.emit("core.max_pool2d", low.make(out, NHWC), self=low.get(x, NHWC), kernel_size=kernel, stride=stride,
             padding=pads, dilation=dilation, **limits(op))  # fmt: skip


def pool_average(low: LoweringContext, op: Op) -> None:
    x, out = op.args["self"], result(op)
    kernel, stride, padding, _ = pool_params(op)
    low.emit("core.avg_pool2d", low.make(out, NHWC), self=low.get(x, NHWC), kernel_size=kernel, stride=stride,
             padding=padding, **limits(op))  # fmt: skip


def pool_global(low: LoweringContext, op: Op) -> None:
    """The mean of each image."""
    x, out = op.args["self"], result(op)
    if len(out.shape) == 4:
        low.emit("core.global_avg_pool2d", low.make(out, NHWC), self=low.get(x, NHWC), **limits(op))
        return
    pooled = low.temporary((x.bound[0], 1, 1, x.bound[1]), out)
    low.emit("core.global_avg_pool2d", pooled, self=low.get(x, NHWC), **limits(op))
    low.emit("core.view", low.make(out), self=pooled, size=reshape_sizes(out))


def pool_extent(low: LoweringContext, op: Op) -> None:
    """Maximum over height, width or both: a max pool whose window is the entire extent."""
    x, out = op.args["self"], result(op)
    dims = reduced_dims(op)
    kernel = [int(x.bound[d]) if d in dims else 1 for d in (2, 3)]
    keepdim = len(out.shape) == 4
    shape = [x.bound[0], *(1 if d in dims else x.bound[d] for d in (2, 3)), x.bound[1]]
    pooled = low.make(out, NHWC) if keepdim else low.temporary(shape, out)
    low.emit("core.max_pool2d", pooled, self=low.get(x, NHWC), kernel_size=kernel, stride=kernel, padding=[0] * 4,
             dilation=[1, 1])  # fmt: skip
    if not keepdim:
        order = (0, 2, 1) if len(out.shape) == 3 else (0, 1)
        low.emit("core.view", low.make(out, order), self=pooled, size=reshape_sizes(out, order))


def resize_bilinear(low: LoweringContext, op: Op) -> None:
    x, out = op.args["input"], result(op)
    low.emit("core.upsample_bilinear2d", low.make(out, NHWC), input=low.get(x, NHWC), output_size=list(out.bound[2:]),
             align_corners=op.args["align_corners"])  # fmt: skip


# ------------------------------------------------------------------------------------------------------------ separable


def resize_filter(low: LoweringContext, narrow: ColumnKernel, size: int) -> dict[str, Value]:
    """Start, count and weights of the neighbors that each output along a side sums."""
    matrix = np.asarray(narrow(np.eye(size, dtype=np.float32)[None, :, :, None]), np.float32)[0, :, :, 0].T
    nonzero = matrix != 0
    starts = nonzero.argmax(1)
    counts = np.where(nonzero.any(1), size - nonzero[:, ::-1].argmax(1) - starts, 1)
    taps = int(counts.max())
    columns = np.minimum(starts[:, None] + np.arange(taps), size - 1)
    weights = np.where(np.arange(taps) < counts[:, None], np.take_along_axis(matrix, columns, 1), 0)
    arrays = {"starts": starts.astype(np.int32), "counts": counts.astype(np.int32), "weights": weights}
    return {name: low.constant(np.ascontiguousarray(a)) for name, a in arrays.items()}


def _emit_separable(low: LoweringContext, op: Op, sides: Sequence[ColumnKernel]) -> None:
    """A resize along the height, then along the width."""
    x, out = next(op.inputs()), result(op)
    rank = len(x.shape)
    require_floats(x, out)
    require(rank in (3, 4) and max(x.bound[-2:]) <= _MAX_SIDE, "must be images of moderate size")
    order = common_order(low, op, rank)
    value = computed(low, x, order)
    for side, (narrow, dim) in enumerate(zip(sides, (rank - 2, rank - 1), strict=True)):
        at = order.index(dim)
        filters = resize_filter(low, narrow, value.bound[at])
        args = {"self": value, "dim": at, **filters}
        if side:
            low.emit("core.separable_resize", low.make(out, order), **args)
        else:
            shape = (*value.bound[:at], out.bound[dim], *value.bound[at + 1 :])
            value = low.compute("core.separable_resize", shape, F32, **args)


def avg_pool2d(low: LoweringContext, op: Op) -> None:
    kernel, stride, pads, _ = pool_params(op)
    padding, divisor = pads[::2], op.args["divisor_override"]
    require(divisor != 0, "the divisor must not be zero")

    def column_kernel(i: int) -> ColumnKernel:
        def narrow(image: Array) -> Any:
            window, step, pad = ([v[i], n] for v, n in ((kernel, 1), (stride, 1), (padding, 0)))
            divide, modes = None if divisor is None else 1, (op.args["ceil_mode"], op.args["count_include_pad"])
            averaged = pool.avg_pool2d(image, window, step, pad, *modes, divide)
            return averaged / (divisor if divisor is not None and i == 0 else 1)

        return narrow

    _emit_separable(low, op, [column_kernel(0), column_kernel(1)])


def adaptive_avg_pool2d(low: LoweringContext, op: Op) -> None:
    sides = [lambda image, n=n: pool.adaptive_avg_pool2d(image, [n, 1]) for n in result(op).bound[-2:]]
    _emit_separable(low, op, sides)


def upsample_bilinear2d(low: LoweringContext, op: Op) -> None:
    """With and without antialiasing."""
    out, align = result(op), op.args["align_corners"]
    resize: Callable[..., Any]
    if op.kind == "upsample_bilinear2d":
        resize, factors = resample.resize_bilinear2d, list(op.args["scale_factors"] or [None, None])
        factors = factors * 2 if len(factors) == 1 else factors
    else:
        resize, factors = resample.upsample_bilinear2d_aa, [op.args["scales_h"], op.args["scales_w"]]
    sizes = zip(out.bound[2:], factors, strict=True)
    sides = [lambda image, n=n, factor=factor: resize(image, [n, 1], align, factor, None) for n, factor in sizes]
    _emit_separable(low, op, sides)


def grid_sampler_2d(low: LoweringContext, op: Op) -> None:
    """Gathers the neighbors of each point and sums them with their weights."""
    x, grid, out = op.args["input"], op.args["grid"], result(op)
    require_floats(x, grid, out)
    batch, channels, *sizes = x.bound
    points = low.view(low.get(grid), (math.prod(grid.bound[:3]), 2))
    pixels = low.view(computed(low, x, NHWC), (batch * math.prod(sizes), channels))
    sampling = Sampling(
        int(op.args["interpolation_mode"]), int(op.args["padding_mode"]), bool(op.args["align_corners"])
    )

    def add_op(kind: str, shape: Sequence[int], args: dict[str, Any], dtype: Any = F32) -> Value:
        return low.compute(kind, shape, dtype, **args)

    total = lower_grid_sample(add_op, pixels, points, batch, sizes, sampling)
    low.emit("core.view", low.make(out, NHWC), self=total, size=[batch, *grid.bound[1:3], channels])


LOWERINGS: dict[str, Lowering] = {
    "max_pool2d": max_pool2d, "avg_pool2d": avg_pool2d, "adaptive_avg_pool2d": adaptive_avg_pool2d,
    "upsample_bilinear2d": upsample_bilinear2d, "upsample_bilinear2d_aa": upsample_bilinear2d,
    "grid_sampler_2d": grid_sampler_2d,
}  # fmt: skip
