"""QNN's operators on places that tensors name, and on the best elements of a dimension, as the engine's."""

from __future__ import annotations

import numpy as np

from edgewright.engine.dialects.qnn_moves import give, moved
from edgewright.engine.dialects.qnn_rewrite import QnnRewrite, alike, constant, ends, real, result, rule, some
from edgewright.ir.graph import Op, Value


def _places(index: Value) -> bool:
    return index.q is None and str(index.dtype) in ("int32", "int64") and some(index)


def _stripped(made: QnnRewrite, op: Op, *values: Value) -> list[Value] | None:
    """What is stored, in the result's scale, as integers or real numbers that stand for themselves."""
    found = []
    for value in values:
        x = moved(made, op, value)
        x = None if x is None else made.bare(op, x)
        if x is None:
            return None
        found.append(x)
    return found


def _dressed(made: QnnRewrite, op: Op, x: Value) -> bool:
    """The result is what is stored."""
    return give(made, op, x, result(op))


@rule("Gather")
def _gather(made: QnnRewrite, op: Op) -> bool:
    source, index = op.args["inputs"]
    found, axis = _stripped(made, op, source) if _places(index) else None, int(op.args["axis"])
    if found is None:
        return False
    x, flat = found[0], made.view(op, index, (int(np.prod(index.bound, dtype=np.int64)),))
    shape = [flat.bound[0] if d == axis else n for d, n in enumerate(x.bound)]
    return _dressed(made, op, made.then("index_select", op, x, shape, self=x, dim=axis, index=flat))


@rule("GatherElements")
def _gather_elements(made: QnnRewrite, op: Op) -> bool:
    (source, index), out = ends(op)
    found = _stripped(made, op, source) if _places(index) else None
    if found is None or found[0].constant:
        return False
    last = made.then("gather", op, found[0], out.bound, self=found[0], dim=int(op.args["axis"]), index=index)
    return _dressed(made, op, last)


@rule("ScatterElements")
def _scatter_elements(made: QnnRewrite, op: Op) -> bool:
    (source, index, updates), out = ends(op)
    found = _stripped(made, op, source, updates) if _places(index) and not op.args["reduction"] else None
    if found is None:
        return False
    x, src = found
    last = made.then("scatter", op, x, out.bound, self=x, dim=int(op.args["axis"]), index=index, src=src)
    return _dressed(made, op, last)


@rule("ScatterNd")
def _scatter_nd(made: QnnRewrite, op: Op) -> bool:
    """Rows of a matrix at the places that indices name, seen as one dimension."""
    (source, index, updates), out = ends(op)
    named = index.bound[-1] if index.bound else 0
    if not _places(index) or op.args["reduction"] or named == 0 or (named > 1 and index.data is None):
        return False
    found = _stripped(made, op, source, updates)
    if found is None:
        return False
    sizes = out.bound[:named]
    if index.data is not None:
        parts = np.moveaxis(index.data, -1, 0).astype(np.int64).reshape(named, -1)
        if any((p < -n).any() or (p >= n).any() for p, n in zip(parts, sizes, strict=True)):
            return False
        listed = np.zeros(parts.shape[1], np.int64)
        for part, n in zip(parts, sizes, strict=True):
            listed = listed * n + part % n
        places = constant("places", listed)
    else:
        places = made.view(op, index, (int(np.prod(index.bound)),))
    inner = int(np.prod(out.bound[named:], dtype=np.int64))
    x = made.view(op, found[0], (int(np.prod(sizes)), inner))
    rows = made.view(op, found[1], (places.bound[0], inner))
    last = made.then("index_put", op, x, x.bound, self=x, indices=[places], values=rows, accumulate=False)
    return _dressed(made, op, last)


# ------------------------------------------------------------------------------------------------- best of a dimension


@rule("Argmax", "Argmin")
def _best(made: QnnRewrite, op: Op) -> bool:
    (x,), out = ends(op)
    given = made.half(op, x) if real(x) else made.bare(op, x)
    if given is None or given.constant or not some(x, out) or not x.bound:
        return False
    places = made.temporary(out, out.bound, dtype=np.dtype(np.int64))
    made.emit("argmax" if op.kind.endswith("Argmax") else "argmin", op, places, self=given, dim=int(op.args["axis"]),
              keepdim=bool(op.args["keep_dims"]))  # fmt: skip
    made.emit("cast", op, out, self=places)
    return True


@rule("TopK")
def _top_k(made: QnnRewrite, op: Op) -> bool:
    x, (best, places) = op.args["inputs"][0], op.outputs
    if best is not None and not alike(x, best):
        return False
    given = made.half(op, x) if real(x) else made.bare(op, x)
    if given is None or given.constant or not some(x) or not x.bound:
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
        if real(x):
            made.halves[id(best)] = best
    return True
