"""Values that are others, seen with other strides: permuted, cut or reshaped without a copy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from edgewright.engine.graph.layout import Border, Layout, Storage
from edgewright.ir.graph import Op

VIEW_KINDS = ("permute", "view", "slice", "clone", "expand")


def restride(shape: Sequence[int], strides: Sequence[int], wanted: Sequence[int], item: int) -> tuple[int, ...] | None:
    """Strides of the same elements in another shape, or None if there are none.

    >>> restride((4, 6), (96, 8), (4, 2, 3), 8)
    (96, 24, 8)
    >>> restride((4, 6), (96, 8), (24,), 8) is None
    True
    """
    runs: list[tuple[int, int]] = []  # elements at equal distances, and that distance
    for n, step in zip(shape, strides, strict=True):
        if runs and n != 1 and runs[-1][1] == n * step:
            runs[-1] = runs[-1][0] * n, step
        elif n != 1:
            runs.append((n, step))
    made: list[int] = []
    for n in reversed(wanted):
        have, step = runs[-1] if runs else (1, item)
        if have % n:
            return None
        made.append(step)
        if n > 1:
            runs[-1:] = [(have // n, step * n)] if have > n else []
    return tuple(reversed(made))


def view_layout(op: Op, layout: Layout) -> tuple[Layout, int] | None:
    """How an operator's result lies if it is what it is made from, and bytes to its first element."""
    out = op.outputs[0]
    assert out is not None
    shape, strides = tuple(int(n) for n in out.bound), layout.strides
    if op.kind == "permute":
        dims = [int(d) for d in op.args["dims"]]
        return _like(layout, shape, [strides[d] for d in dims]), 0
    if op.kind == "slice":
        offset = sum(int(a) * s for a, s in zip(op.args["start"], strides, strict=True))
        return _like(layout, shape, strides), offset
    if op.kind == "expand":
        return replace(layout, shape=shape, strides=broadcast_strides(layout, shape), border=Border()), 0
    made = restride(layout.shape, strides, shape, layout.item)
    return None if made is None else (_like(layout, shape, made), 0)


def broadcast_strides(layout: Layout, shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a tensor that is broadcast to ``shape``."""
    more = len(shape) - len(layout.shape)
    steps = zip((1,) * more + layout.shape, (0,) * more + layout.strides, shape, strict=True)
    return tuple(0 if have == 1 and n != 1 else step for have, step, n in steps)


def producer_layout(op: Op, layout: Layout) -> Layout | None:
    """How an operator's input must lie so that its result lies as ``layout``."""
    shape = tuple(int(n) for n in op.args["self"].bound)
    if op.kind == "permute":
        dims = [int(d) for d in op.args["dims"]]
        return _like(layout, shape, [layout.strides[dims.index(d)] for d in range(len(shape))])
    if op.kind not in ("view", "clone"):
        return None
    made = restride(layout.shape, layout.strides, shape, layout.item)
    return None if made is None else _like(layout, shape, made)


def view_storage(op: Op, home: Storage) -> Storage:
    """The home of the result of an operator that only looks at its input."""
    out, found = op.outputs[0], view_layout(op, home.layout)
    assert out is not None and found is not None
    inside = home.inside or tuple(out.bound[-1:]) != tuple(home.layout.shape[-1:])
    return Storage(out, home.at(found[1]), found[0], home.raw, inside)


def _like(layout: Layout, shape: Sequence[int], strides: Sequence[int]) -> Layout:
    """Dimensions of 1 get the stride that rows at equal distances would have there."""
    made, inner = list(strides), layout.item
    for d in range(len(shape) - 1, -1, -1):
        outer = next((strides[i] for i in range(d - 1, -1, -1) if shape[i] != 1), inner)
        made[d] = outer if shape[d] == 1 else strides[d]
        inner = made[d] * shape[d]
    return replace(layout, shape=tuple(shape), strides=tuple(made), border=Border())
