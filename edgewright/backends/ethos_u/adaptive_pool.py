"""Lowering of adaptive pooling: windows follow from the output size."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from edgewright.backends.ethos_u.lower import TosaLowering, result
from edgewright.backends.ethos_u.movement import requantize_to
from edgewright.backends.ethos_u.pool import (
    MAX_WINDOW,
    alias_image,
    divide_by_counts,
    emit_max_pool,
    global_average,
    spatial_dims,
    strided_window_sum,
    to_nhwc_image,
)
from edgewright.backends.ethos_u.slice_concat import concat, slice_axis
from edgewright.ir.graph import Op, Value


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
