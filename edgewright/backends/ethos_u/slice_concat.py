"""Cutting, joining, repeating and turning tensors: what movement is made of."""

from __future__ import annotations

import math
from collections.abc import Sequence

from edgewright.backends.ethos_u.lower import TosaLowering
from edgewright.ir.graph import Value


def runs(places: Sequence[int]) -> list[tuple[int, int, int]]:
    """Places as few runs: first, how many, and how far apart."""
    found, at = [], 0
    while at < len(places):
        end = at + 1
        step = places[end] - places[at] if end < len(places) else 1
        while end < len(places) and places[end] - places[end - 1] == step:
            end += 1
        if end - at == 2 and step != 1 and end < len(places) and places[end] - places[end - 1] in (0, 1):
            end, step = at + 1, 1  # the second begins a longer run
        found.append((places[at], end - at, step))
        at = end
    return found


def picked(low: TosaLowering, x: Value, axis: int, places: Sequence[int]) -> Value:
    """These places of one dimension, in this order."""
    return joined(low, [_run(low, x, axis, *run) for run in runs(places)], axis)


def joined(low: TosaLowering, parts: Sequence[Value], axis: int) -> Value:
    if len(parts) == 1:
        return parts[0]
    shape = list(parts[0].bound)
    shape[axis] = sum(p.bound[axis] for p in parts)
    return low.node("concat", shape, parts[0].dtype, inputs=list(parts), axis=axis)


def cut(low: TosaLowering, x: Value, axis: int, first: int, count: int) -> Value:
    start = [first if a == axis else 0 for a in range(len(x.bound))]
    return low.sliced(x, start, _with(x.bound, axis, count))


def _with(shape: Sequence[int], axis: int, size: int) -> list[int]:
    return [size if a == axis else s for a, s in enumerate(shape)]


def _run(low: TosaLowering, x: Value, axis: int, first: int, count: int, step: int) -> Value:
    if count == 1 or step == 1:
        return cut(low, x, axis, first, count)
    if step == 0:
        return tiled(low, cut(low, x, axis, first, 1), _with([1] * len(x.bound), axis, count))
    if step < 0:
        return turned(low, _run(low, x, axis, first + (count - 1) * step, count, -step), axis)
    return _apart(low, x, axis, first, count, step)


def tiled(low: TosaLowering, x: Value, times: Sequence[int]) -> Value:
    if all(t == 1 for t in times):
        return x
    shape = [a * b for a, b in zip(x.bound, times, strict=True)]
    return low.node("tile", shape, x.dtype, input=x, multiples=list(times))


def turned(low: TosaLowering, x: Value, axis: int) -> Value:
    """Backwards along one dimension, which U55 and U65 cannot do to the last: so it is never the last."""
    shape = [math.prod(x.bound[:axis]), x.bound[axis], math.prod(x.bound[axis + 1 :])]
    cube = low.reshaped(x, [shape[0], shape[1], 1, shape[2]])
    return low.reshaped(low.node("reverse", cube.bound, x.dtype, input=cube, axis=1), x.bound)


def _apart(low: TosaLowering, x: Value, axis: int, first: int, count: int, step: int) -> Value:
    """Every ``step``-th place: the first column of a table with rows of ``step``."""
    there = min(count * step, x.bound[axis] - first)
    rows = cut(low, x, axis, first, there)
    outer, inner = math.prod(x.bound[:axis]), math.prod(x.bound[axis + 1 :])
    flat = low.reshaped(rows, [outer, there, inner])
    if there < count * step:
        fill = low.tensor([0], x.dtype)
        padding = [0, 0, 0, count * step - there, 0, 0]
        flat = low.node("pad", [outer, count * step, inner], x.dtype, input=flat, padding=padding, value=fill)
    table = low.reshaped(flat, [outer, count, step, inner])
    return low.reshaped(cut(low, table, 2, 0, 1), _with(x.bound, axis, count))
