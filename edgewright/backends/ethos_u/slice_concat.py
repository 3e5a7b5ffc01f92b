"""Slicing, concatenation, tiling and reversal: the building blocks of data movement."""

from __future__ import annotations

import math
from collections.abc import Sequence

from edgewright.backends.ethos_u.lower import TosaLowering
from edgewright.ir.graph import Value


def strided_runs(indices: Sequence[int]) -> list[tuple[int, int, int]]:
    """Split indices into arithmetic runs: (first, count, step)."""
    runs, at = [], 0
    while at < len(indices):
        end = at + 1
        step = indices[end] - indices[at] if end < len(indices) else 1
        while end < len(indices) and indices[end] - indices[end - 1] == step:
            end += 1
        if end - at == 2 and step != 1 and end < len(indices) and indices[end] - indices[end - 1] in (0, 1):
            end, step = at + 1, 1  # the second index starts a longer run
        runs.append((indices[at], end - at, step))
        at = end
    return runs


def take(low: TosaLowering, x: Value, axis: int, indices: Sequence[int]) -> Value:
    """Take indices along one axis, as a concatenation of strided slices."""
    return concat(low, [_take_run(low, x, axis, *run) for run in strided_runs(indices)], axis)


def concat(low: TosaLowering, parts: Sequence[Value], axis: int) -> Value:
    if len(parts) == 1:
        return parts[0]
    shape = list(parts[0].bound)
    shape[axis] = sum(p.bound[axis] for p in parts)
    return low.node("concat", shape, parts[0].dtype, inputs=list(parts), axis=axis)


def slice_axis(low: TosaLowering, x: Value, axis: int, first: int, count: int) -> Value:
    start = [first if a == axis else 0 for a in range(len(x.bound))]
    return low.slice(x, start, _with_size(x.bound, axis, count))


def _with_size(shape: Sequence[int], axis: int, size: int) -> list[int]:
    return [size if a == axis else s for a, s in enumerate(shape)]


def _take_run(low: TosaLowering, x: Value, axis: int, first: int, count: int, step: int) -> Value:
    if count == 1 or step == 1:
        return slice_axis(low, x, axis, first, count)
    if step == 0:
        return tile(low, slice_axis(low, x, axis, first, 1), _with_size([1] * len(x.bound), axis, count))
    if step < 0:
        return reverse(low, _take_run(low, x, axis, first + (count - 1) * step, count, -step), axis)
    return _strided_slice(low, x, axis, first, count, step)


def tile(low: TosaLowering, x: Value, multiples: Sequence[int]) -> Value:
    if all(t == 1 for t in multiples):
        return x
    shape = [a * b for a, b in zip(x.bound, multiples, strict=True)]
    return low.node("tile", shape, x.dtype, input=x, multiples=list(multiples))


def reverse(low: TosaLowering, x: Value, axis: int) -> Value:
    """Reverse one axis. U55 and U65 cannot reverse the last, so the axis is never last."""
    shape = [math.prod(x.bound[:axis]), x.bound[axis], math.prod(x.bound[axis + 1 :])]
    cube = low.reshape(x, [shape[0], shape[1], 1, shape[2]])
    return low.reshape(low.node("reverse", cube.bound, x.dtype, input=cube, axis=1), x.bound)


def _strided_slice(low: TosaLowering, x: Value, axis: int, first: int, count: int, step: int) -> Value:
    """Every ``step``-th element: reshape to rows of ``step`` elements and keep the first column."""
    available = min(count * step, x.bound[axis] - first)
    rows = slice_axis(low, x, axis, first, available)
    outer, inner = math.prod(x.bound[:axis]), math.prod(x.bound[axis + 1 :])
    flat = low.reshape(rows, [outer, available, inner])
    if available < count * step:
        fill = low.const([0], x.dtype)
        padding = [0, 0, 0, count * step - available, 0, 0]
        flat = low.node("pad", [outer, count * step, inner], x.dtype, input=flat, padding=padding, value=fill)
    grid = low.reshape(flat, [outer, count, step, inner])
    return low.reshape(slice_axis(low, grid, 2, 0, 1), _with_size(x.bound, axis, count))
