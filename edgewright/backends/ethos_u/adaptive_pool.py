"""Lowering of adaptive pools: the sizes of the result are given, and windows follow."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from edgewright.backends.ethos_u.lower import TosaLowering, result
from edgewright.backends.ethos_u.movement import stored_as
from edgewright.backends.ethos_u.pool import (
    MAX_WINDOW,
    all_sums,
    divided,
    image_mean,
    image_of,
    largest,
    name_image,
    spatial_dims,
)
from edgewright.backends.ethos_u.slice_concat import cut, joined
from edgewright.ir.graph import Op, Value


class Run(NamedTuple):
    """Windows of an adaptive pool along one dimension: of one length, and equally far apart."""

    first: int
    length: int
    windows: int
    step: int

    @property
    def extent(self) -> int:
        return (self.windows - 1) * self.step + self.length


def adaptive_runs(size: int, count: int) -> list[Run]:
    """All windows of an adaptive pool, as few runs."""
    found: list[Run] = []
    for o in range(count):
        first = o * size // count
        length = -(-(o + 1) * size // count) - first
        run = found[-1] if found else None
        step = first - (run.first + (run.windows - 1) * run.step) if run else 0
        if (
            run
            and run.length == length
            and size // count < MAX_WINDOW
            and step > 0
            and (run.windows == 1 or run.step == step)
        ):
            found[-1] = Run(run.first, length, run.windows + 1, step)
        else:
            found.append(Run(first, length, 1, 1))
    return found


Pooled = Callable[[Value, Run, Run], Value]


def adaptive(low: TosaLowering, op: Op, pooled: Pooled) -> None:
    """Regions whose windows are alike are pooled together, and joined."""
    x, out = op.args["self"], result(op)
    dims = spatial_dims(op)
    image = image_of(low, x, dims)
    rows = adaptive_runs(image.bound[1], out.bound[-2] if dims == 2 else 1)
    columns = adaptive_runs(image.bound[2], out.bound[-1])
    lines = []
    for row in rows:
        line = cut(low, image, 1, row.first, row.extent)
        parts = [pooled(cut(low, line, 2, column.first, column.extent), row, column) for column in columns]
        lines.append(joined(low, parts, 2))
    name_image(low, out, dims, joined(low, lines, 1))


def adaptive_max_pool2d(low: TosaLowering, op: Op) -> None:
    def pooled(region: Value, row: Run, column: Run) -> Value:
        made = largest(low, region, [row.length, column.length], [row.step, column.step], [0] * 4)
        return stored_as(low, op.args["self"], result(op), made)

    adaptive(low, op, pooled)


def adaptive_avg_pool(low: TosaLowering, op: Op) -> None:
    x = op.args["self"]

    def pooled(region: Value, row: Run, column: Run) -> Value:
        kernel = [row.length, column.length]
        if kernel == list(region.bound[1:3]):
            return image_mean(low, op, x, region)
        acc = all_sums(low, region, x, kernel, [row.step, column.step], [0] * 4)
        return divided(low, op, acc, np.array([[math.prod(kernel)]]))

    adaptive(low, op, pooled)
