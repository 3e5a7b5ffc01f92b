"""Lowering of pooling, resizing and ``grid_sampler_2d``.

Average pooling and bilinear resizing are separable: a weighted sum of neighbors along the height, then along the
width. The weights come from the reference kernel itself, run on an identity matrix: column i of the result holds the
contribution of row i to every output, so padding, rounding and corner modes need no second implementation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from edgewright.engine.graph.grid_sample import Sampling, lower_grid_sample
from edgewright.ir.aten.reference import pool, resample
from edgewright.ir.graph import Array, Value
from edgewright.runtime.jit.graph_builder import GraphBuilder, make_value
from edgewright.runtime.jit.registry import Args, lowers
from edgewright.runtime.tensor import TensorSlot

_MAX_SIDE = 4096  # extent of a side: the weights come from a square image of it
ColumnKernel = Callable[[Array], Any]  # the reference kernel, applied to images one pixel wide


def resize_filter(narrow: ColumnKernel, size: int) -> dict[str, Value]:
    """Start, count and weights of the neighbors that each output along a side sums."""
    matrix = np.asarray(narrow(np.eye(size, dtype=np.float32)[None, :, :, None]), np.float32)[0, :, :, 0].T
    nonzero = matrix != 0
    starts = nonzero.argmax(1)
    counts = np.where(nonzero.any(1), size - nonzero[:, ::-1].argmax(1) - starts, 1)
    taps = int(counts.max())
    columns = np.minimum(starts[:, None] + np.arange(taps), size - 1)
    weights = np.where(np.arange(taps) < counts[:, None], np.take_along_axis(matrix, columns, 1), 0)
    arrays = {"starts": starts.astype(np.int32), "counts": counts.astype(np.int32), "weights": weights}
    return {name: make_value(a.shape, np.ascontiguousarray(a)) for name, a in arrays.items()}


def emit_separable(g: GraphBuilder, x: TensorSlot, out: TensorSlot, sides: Sequence[ColumnKernel]) -> bool:
    """Emit a resize along the height, then along the width."""
    rank = len(x.bound)
    if (
        not g.supports_float(x, out)
        or rank not in (3, 4)
        or g.constant_data(x) is not None
        or max(x.bound[-2:]) > _MAX_SIDE
    ):
        return False
    nhwc = g.prefers_nhwc([x])
    value, dims = (g.value_nhwc(x), (1, 2)) if nhwc else (g.value(x), (rank - 2, rank - 1))
    try:
        filters = [resize_filter(narrow, value.bound[d]) for narrow, d in zip(sides, dims, strict=True)]
    except (ValueError, ArithmeticError):
        return False  # the kernel reports the error when it runs
    if tuple(b["starts"].bound[0] for b in filters) != out.bound[-2:]:
        return False
    tall = (*value.bound[: dims[0]], out.bound[-2], *value.bound[dims[0] + 1 :])
    resized = g.emit_core("core.separable_resize", tall, {"self": value, "dim": dims[0], **filters[0]})
    g.emit_to("core.separable_resize", out, {"self": resized, "dim": dims[1], **filters[1]}, nhwc=nhwc)
    g.macs += 4 * math.prod(out.bound)
    return True


def _pair(argument: Any, default: Any = None) -> list[Any]:
    values = list(argument) if argument else list(default or [])
    return values * 2 if len(values) == 1 else values


@lowers("aten::avg_pool2d.out")
def _avg_pool(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    kernel = _pair(a["kernel_size"])
    stride, padding = _pair(a["stride"], kernel), _pair(a["padding"])
    divisor = a["divisor_override"]
    if any(len(v) != 2 for v in (kernel, stride, padding)) or divisor == 0:
        return False

    def column_kernel(i: int) -> ColumnKernel:
        def narrow(image: Array) -> Any:
            window, step, pads = ([v[i], n] for v, n in ((kernel, 1), (stride, 1), (padding, 0)))
            divide = None if divisor is None else 1
            averaged = pool.avg_pool2d(image, window, step, pads, a["ceil_mode"], a["count_include_pad"], divide)
            return averaged / (divisor if divisor is not None and i == 0 else 1)

        return narrow

    return emit_separable(g, a["self"], outs[0], [column_kernel(0), column_kernel(1)])


def _average_column(count: int, image: Array) -> Any:
    return pool.adaptive_avg_pool2d(image, [count, 1])


@lowers("aten::_adaptive_avg_pool2d.out")
def _adaptive_avg_pool(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    sides = [partial(_average_column, int(n)) for n in _pair(a["output_size"])]
    return len(sides) == 2 and emit_separable(g, a["self"], outs[0], sides)


@lowers("aten::upsample_bilinear2d.vec_out")
def _bilinear(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    factors = _pair(a["scale_factors"]) or [None, None]
    return _emit_resize(g, a["input"], outs[0], resample.resize_bilinear2d, a["align_corners"], factors)


@lowers("aten::_upsample_bilinear2d_aa.out")
def _upsample_bilinear_aa(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    factors = [a["scales_h"], a["scales_w"]]
    return _emit_resize(g, a["self"], outs[0], resample.upsample_bilinear2d_aa, a["align_corners"], factors)


def _emit_resize(
    g: GraphBuilder, x: TensorSlot, out: TensorSlot, resize: Any, align: bool, factors: Sequence[Any]
) -> bool:
    if len(out.bound) != 4 or len(factors) != 2:
        return False

    def along_side(i: int) -> ColumnKernel:
        return lambda image: resize(image, [out.bound[2 + i], 1], align, factors[i], None)

    return emit_separable(g, x, out, [along_side(0), along_side(1)])


@lowers("aten::max_pool2d_with_indices.out")
def _max_pool(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    """The indices are not computed: a call whose indices are read is not lowered."""
    x, out = a["self"], outs[0]
    kernel = _pair(a["kernel_size"])
    stride, padding, dilation = _pair(a["stride"], kernel), _pair(a["padding"]), _pair(a["dilation"])
    if (
        not g.supports_float(x, out)
        or not g.is_image(x)
        or any(len(v) != 2 for v in (kernel, stride, padding, dilation))
    ):
        return False
    if min(*kernel, *stride, *dilation) < 1 or any(not 0 <= 2 * p <= k for p, k in zip(padding, kernel, strict=True)):
        return False
    pads = []
    for i, (size, count) in enumerate(zip(x.bound[2:], out.bound[2:], strict=True)):
        reach = (count - 1) * stride[i] + dilation[i] * (kernel[i] - 1) + 1
        pads += [padding[i], max(reach - size - padding[i], 0)]
    args = {"self": g.value_nhwc(x), "kernel_size": kernel, "stride": stride, "padding": pads, "dilation": dilation}
    g.emit_to("core.max_pool2d", out, args, nhwc=True)
    g.macs += math.prod(out.bound) * kernel[0] * kernel[1]
    return True


@lowers("aten::grid_sampler_2d.out")
def _grid_sample(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    """Gathers the neighbors of each point and sums them with their weights."""
    x, grid, out = a["input"], a["grid"], outs[0]
    if (
        not g.supports_float(x, grid, out)
        or len(x.bound) != 4
        or len(grid.bound) != 4
        or g.constant_data(x) is not None
    ):
        return False
    batch, channels, *sizes = x.bound
    if grid.bound[0] != batch or grid.bound[3] != 2 or out.bound != (batch, channels, *grid.bound[1:3]):
        return False
    rows = math.prod(grid.bound[:3])
    points = g.emit_core("core.view", (rows, 2), {"self": g.value(grid), "size": [rows, 2]})
    size = [batch * math.prod(sizes), channels]
    flat_image = g.emit_core("core.view", size, {"self": g.value_nhwc(x), "size": size})
    sampling = Sampling(int(a["interpolation_mode"]), int(a["padding_mode"]), bool(a["align_corners"]))
    total = lower_grid_sample(g.emit_core, flat_image, points, batch, sizes, sampling)
    shape = [batch, *grid.bound[1:3], channels]
    image = g.emit_core("core.view", shape, {"self": total, "size": shape})
    g.bind(out, image, nhwc=True)
    g.macs += math.prod(out.bound) * 16
    return True
