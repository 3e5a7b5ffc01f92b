"""QNN's operators on places that tensors name, and on the best elements of a dimension, as the engine's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from edgewright.engine.dialects.qnn_move import emit_result, movable_input
from edgewright.engine.dialects.qnn_rewrite import (
    QnnRewrite,
    element_count,
    io_of,
    is_float32,
    make_constant,
    non_empty,
    result_of,
    rule,
    same_type,
)
from edgewright.ir.core.index_bounds import OutOfRangePolicy
from edgewright.ir.graph import Array, Op, Value
from edgewright.ir.qnn.execute import subject_of, zero_of


def _places(index: Value) -> bool:
    return index.q is None and str(index.dtype) in ("int32", "int64") and non_empty(index)


def _stripped(made: QnnRewrite, op: Op, *values: Value) -> list[Value] | None:
    """What is stored, in the result's scale, as integers or real numbers that stand for themselves."""
    found = []
    for value in values:
        x = movable_input(made, op, value)
        x = None if x is None else made.bare(op, x)
        if x is None:
            return None
        found.append(x)
    return found


def _dressed(made: QnnRewrite, op: Op, x: Value) -> bool:
    """The result is what is stored."""
    return emit_result(made, op, x, result_of(op))


@rule("Gather")
def _gather(made: QnnRewrite, op: Op) -> bool:
    source, index = op.args["inputs"]
    found, axis = _stripped(made, op, source) if _places(index) else None, int(op.args["axis"])
    if found is None:
        return False
    x, flat = found[0], made.view(op, index, (element_count(index.bound),))
    shape = [flat.bound[0] if d == axis else n for d, n in enumerate(x.bound)]
    outside = OutOfRangePolicy(subject_of(op))
    last = made.then("index_select", op, x, shape, self=x, dim=axis, index=flat, outside=outside)
    return _dressed(made, op, last)


@rule("GatherElements")
def _gather_elements(made: QnnRewrite, op: Op) -> bool:
    (source, index), out = io_of(op)
    found = _stripped(made, op, source) if _places(index) else None
    if found is None or found[0].constant:
        return False
    args = {"dim": int(op.args["axis"]), "index": index, "outside": OutOfRangePolicy(number=zero_of(out))}
    return _dressed(made, op, made.then("gather", op, found[0], out.bound, self=found[0], **args))


@rule("ScatterElements")
def _scatter_elements(made: QnnRewrite, op: Op) -> bool:
    (source, index, updates), out = io_of(op)
    found = _stripped(made, op, source, updates) if _places(index) and not op.args["reduction"] else None
    if found is None:
        return False
    x, src = found
    args = {"dim": int(op.args["axis"]), "index": index, "outside": OutOfRangePolicy()}
    return _dressed(made, op, made.then("scatter", op, x, out.bound, self=x, src=src, **args))


@rule("ScatterNd")
def _scatter_nd(made: QnnRewrite, op: Op) -> bool:
    """Rows of a matrix at the places that indices name, seen as one dimension."""
    (source, index, updates), out = io_of(op)
    named = index.bound[-1] if index.bound else 0
    if not _places(index) or op.args["reduction"] or named == 0:
        return False
    found = _stripped(made, op, source, updates)
    if found is None:
        return False
    sizes = out.bound[:named]
    places = _listed(index.data, sizes) if index.data is not None else _computed(made, op, index, sizes)
    inner = element_count(out.bound[named:])
    x = made.view(op, found[0], (element_count(sizes), inner))
    rows = made.view(op, found[1], (places.bound[0], inner))
    args = {"indices": [places], "values": rows, "accumulate": False, "outside": OutOfRangePolicy()}
    return _dressed(made, op, made.then("index_put", op, x, x.bound, self=x, **args))


def _listed(data: Array, sizes: Sequence[int]) -> Value:
    """Places of several dimensions, which are known, as those of one; -1 where there is none."""
    parts = np.moveaxis(data, -1, 0).astype(np.int64).reshape(len(sizes), -1)
    flat, inside = np.zeros(parts.shape[1], np.int64), np.ones(parts.shape[1], bool)
    for part, n in zip(parts, sizes, strict=True):
        flat, inside = flat * n + part, inside & (part >= 0) & (part < n)
    return make_constant("places", np.where(inside, flat, -1))


def _computed(made: QnnRewrite, op: Op, index: Value, sizes: Sequence[int]) -> Value:
    """The same of places that only the run knows."""
    rows, named = element_count(index.bound) // len(sizes), len(sizes)
    flat = made.view(op, index, (rows, named))
    if named == 1:
        return made.view(op, flat, (rows,))
    wide = replace(index, dtype=np.dtype(np.int64), data=None)
    flat = made.then("cast", op, wide, flat.bound, self=flat) if index.dtype != wide.dtype else flat
    shape, total, inside = (rows, 1), None, None

    def both(kind: str, a: Value, b: Value, like: Value = wide) -> Value:
        return made.then(kind, op, like, shape, self=a, other=b)

    truth, nothing = replace(wide, dtype=np.dtype(bool)), make_constant("nothing", np.asarray([0], np.int64))
    for d, n in enumerate(sizes):
        part, size = made.cut(op, flat, [0, d], shape), make_constant("size", np.asarray([n], np.int64))
        there = both("logical_and", both("ge", part, nothing, truth), both("lt", part, size, truth), truth)
        inside = there if inside is None else both("logical_and", inside, there, truth)
        total = part if total is None else both("add", both("mul", total, size), part)
    outside = make_constant("outside", np.asarray([-1], np.int64))
    chosen = made.then("where", op, wide, shape, condition=inside, self=total, other=outside)
    return made.view(op, chosen, (rows,))


# ------------------------------------------------------------------------------------------------- best of a dimension


@rule("Argmax", "Argmin")
def _best(made: QnnRewrite, op: Op) -> bool:
    (x,), out = io_of(op)
    given = made.half(op, x) if is_float32(x) else made.bare(op, x)
    if given is None or given.constant or not non_empty(x, out) or not x.bound:
        return False
    places = made.temporary(out, out.bound, dtype=np.dtype(np.int64))
    made.emit("argmax" if op.kind.endswith("Argmax") else "argmin", op, places, self=given, dim=int(op.args["axis"]),
              keepdim=bool(op.args["keep_dims"]))  # fmt: skip
    made.emit("cast", op, out, self=places)
    return True


@rule("TopK")
def _top_k(made: QnnRewrite, op: Op) -> bool:
    x, (best, places) = op.args["inputs"][0], op.outputs
    if best is not None and not same_type(x, best):
        return False
    given = made.half(op, x) if is_float32(x) else made.bare(op, x)
    if given is None or given.constant or not non_empty(x) or not x.bound:
        return False
    last, k = len(x.bound) - 1, int(op.args["k"])
    shape = (*x.bound[:-1], k)
    found = Value(f"{x.name}_places", np.dtype(np.int64), shape, tuple(range(len(shape))))
    made.emit("topk_places", op, found, self=given, k=k, dim=last, largest=bool(op.args["largest"]))
    if places is not None:
        made.emit("cast", op, places, self=found)
    if best is not None:
        picked_ = made.then("gather", op, given, shape, self=given, dim=last, index=found)
        made.finish_as(op, picked_, best)
    return True
