"""Strided views: permute, slice, reshape and expand without a copy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from edgewright.engine.graph.layout import Border, Layout, Storage
from edgewright.ir.graph import Op

VIEW_KINDS = ("core.permute", "core.view", "core.slice", "core.clone", "core.expand", "core.bitcast")


def restride(
    shape: Sequence[int], strides: Sequence[int], new_shape: Sequence[int], item: int
) -> tuple[int, ...] | None:
    """The strides of a reshape without a copy, or None if it needs one.

    >>> restride((4, 6), (96, 8), (4, 2, 3), 8)
    (96, 24, 8)
    >>> restride((4, 6), (96, 8), (24,), 8) is None
    True
    """
    runs: list[tuple[int, int]] = []  # (count, stride) of maximal equidistant runs
    for n, step in zip(shape, strides, strict=True):
        if runs and n != 1 and runs[-1][1] == n * step:
            runs[-1] = runs[-1][0] * n, step
        elif n != 1:
            runs.append((n, step))
    new_strides: list[int] = []
    for n in reversed(new_shape):
        count, step = runs[-1] if runs else (1, item)
        if count % n:
            return None
        new_strides.append(step)
        if n > 1:
            runs[-1:] = [(count // n, step * n)] if count > n else []
    return tuple(reversed(new_strides))


def view_layout(op: Op, layout: Layout) -> tuple[Layout, int] | None:
    """The layout of a view of its operand, and the byte offset of its first element; None if it needs a copy."""
    out = op.outputs[0]
    assert out is not None
    shape, strides = tuple(int(n) for n in out.bound), layout.strides
    if op.kind == "core.permute":
        dims = [int(d) for d in op.args["dims"]]
        return _without_border(layout, shape, [strides[d] for d in dims]), 0
    if op.kind == "core.slice":
        offset = sum(int(a) * s for a, s in zip(op.args["start"], strides, strict=True))
        return _without_border(layout, shape, strides), offset
    if op.kind == "core.expand":
        return replace(layout, shape=shape, strides=broadcast_strides(layout, shape), border=Border()), 0
    new_strides = restride(layout.shape, strides, shape, layout.item)
    return None if new_strides is None else (_without_border(layout, shape, new_strides), 0)


def broadcast_strides(layout: Layout, shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a tensor that is broadcast to ``shape``."""
    more = len(shape) - len(layout.shape)
    steps = zip((1,) * more + layout.shape, (0,) * more + layout.strides, shape, strict=True)
    return tuple(0 if have == 1 and n != 1 else step for have, step, n in steps)


def producer_layout(op: Op, layout: Layout) -> Layout | None:
    """The layout an operator's input must have for its result to have ``layout``; None if there is none."""
    shape = tuple(int(n) for n in op.args["self"].bound)
    if op.kind == "core.permute":
        dims = [int(d) for d in op.args["dims"]]
        return _without_border(layout, shape, [layout.strides[dims.index(d)] for d in range(len(shape))])
    if op.kind not in ("core.view", "core.clone", "core.bitcast"):
        return None
    new_strides = restride(layout.shape, layout.strides, shape, layout.item)
    return None if new_strides is None else _without_border(layout, shape, new_strides)


def view_storage(op: Op, storage: Storage) -> Storage:
    """The storage of a view."""
    out, view = op.outputs[0], view_layout(op, storage.layout)
    assert out is not None and view is not None
    inside = storage.inside or tuple(out.bound[-1:]) != tuple(storage.layout.shape[-1:])
    return Storage(out, storage.at(view[1]), view[0], storage.raw, inside)


def _without_border(layout: Layout, shape: Sequence[int], strides: Sequence[int]) -> Layout:
    """A layout without a border. Dimensions of size 1 get the stride of a dense layout around them."""
    new_strides, inner = list(strides), layout.item
    for d in range(len(shape) - 1, -1, -1):
        outer = next((strides[i] for i in range(d - 1, -1, -1) if shape[i] != 1), inner)
        new_strides[d] = outer if shape[d] == 1 else strides[d]
        inner = new_strides[d] * shape[d]
    return replace(layout, shape=tuple(shape), strides=tuple(new_strides), border=Border())
