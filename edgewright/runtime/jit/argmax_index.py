"""Kernel calls that find the best along a dimension, or read and write at several lists of places, as operators of a
device graph."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.ir.graph import Value
from edgewright.runtime.jit.gather import given
from edgewright.runtime.jit.graph_builder import Maker, new
from edgewright.runtime.jit.reduce import dim_of
from edgewright.runtime.jit.registry import WHOLE, Args, otherwise, taken
from edgewright.runtime.jit.typed_elementwise import as_type, name_of
from edgewright.runtime.tensor import TensorSlot

_I64, _TRUTH = np.dtype(np.int64), np.dtype(np.bool_)


# ------------------------------------------------------------------------------------------------ where the best are


@taken("aten::argmax.out", "aten::argmin.out")
def _place(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, dim, out = a["self"], a["dim"], outs[0]
    if not m.known(x, out) or out.dtype != _I64 or m.constant(x) is not None or not x.bound:
        return False
    data, axis = m.planes(x), dim_of(x, dim)
    if dim is None:
        data, axis = m.viewed(data, (math.prod(x.bound),)), 0
    if axis is None:
        return False
    kept = [1 if d == axis else n for d, n in enumerate(data.bound)]
    found = m.between(name_of(a), kept, {"self": data, "dim": axis, "keepdim": True}, _I64)
    m.macs += math.prod(x.bound)
    m.add("view", out, {"self": found, "size": list(out.bound)})
    return True


WHOLE |= {"aten::max.dim_max", "aten::min.dim_min", "aten::topk.values"}


def picked(m: Maker, x: TensorSlot, dim: int, places: Value, outs: Sequence[TensorSlot]) -> bool:
    """The elements at places along a dimension, and the places."""
    args = {"self": m.planes(x), "dim": dim, "index": places, "sparse_grad": False}
    best = m.between("gather", places.bound, args, x.dtype)
    for out, value in zip(outs, (best, places), strict=True):
        if math.prod(out.bound) != math.prod(value.bound):
            return False
        m.add("view", out, {"self": value, "size": list(out.bound)})
    m.macs += math.prod(x.bound)
    return True


@taken("aten::max.dim_max", "aten::min.dim_min")
def _extreme(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, dim = a["self"], dim_of(a["self"], a["dim"])
    if not m.alike(x, outs[0]) or dim is None or outs[1].dtype != _I64 or m.constant(x) is not None:
        return False
    kept = [1 if d == dim else n for d, n in enumerate(x.bound)]
    kind = "argmax" if name_of(a) == "max" else "argmin"
    places = m.between(kind, kept, {"self": m.planes(x), "dim": dim, "keepdim": True}, _I64)
    return picked(m, x, dim, places, outs)


@taken("aten::topk.values")
def _topk(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, dim = a["self"], dim_of(a["self"], a["dim"])
    if not m.alike(x, outs[0]) or dim is None or outs[1].dtype != _I64 or not 0 < a["k"] <= x.bound[dim]:
        return False
    kept = [a["k"] if d == dim else n for d, n in enumerate(x.bound)]
    if m.constant(x) is not None:
        return False
    args = {"self": m.planes(x), "k": int(a["k"]), "dim": dim, "largest": bool(a["largest"])}
    return picked(m, x, dim, m.between("topk_places", kept, args, _I64), outs)


# ----------------------------------------------------------------------------------------------------- single places


@taken("aten::gather.out", "aten::scatter.src_out", "aten::scatter.value_out", "aten::scatter_add.out")
def _spots(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, index, dim, name = a["self"], a["index"], dim_of(a["self"], a["dim"]), name_of(a)
    if not m.alike(x, outs[0]) or dim is None or len(index.bound) != len(x.bound) or m.constant(x) is not None:
        return False
    places = given(m, index, x.bound[dim], wrap=False)
    others = [n <= have for d, (n, have) in enumerate(zip(index.bound, x.bound, strict=True)) if d != dim]
    if places is None or not all(others):
        return False
    args: dict[str, Any] = {"self": m.planes(x), "dim": dim, "index": places}
    if name == "gather":
        args["sparse_grad"] = False
    elif "value" in a:
        value = as_type(m, a["value"], x.dtype).data
        assert value is not None
        args["src"] = new(index.bound, np.full(index.bound, value))
    else:
        source = a["src"]
        if not m.alike(x, source) or any(n > have for n, have in zip(index.bound, source.bound, strict=True)):
            return False
        args["src"] = m.planes(source)
    m.macs += math.prod(index.bound)
    m.add("gather" if name == "gather" else name.removesuffix("_value"), outs[0], args)
    return True


@taken("aten::index_select.out")
def _index_select(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, dim = a["self"], dim_of(a["self"], a["dim"])
    if not m.alike(x, outs[0]) or dim is None or len(a["index"].bound) > 1 or m.constant(x) is not None:
        return False
    places = given(m, a["index"], x.bound[dim], wrap=False)
    if places is None:
        return False
    listed = m.viewed(places, outs[0].bound[dim : dim + 1])
    m.add("index_select", outs[0], {"self": m.planes(x), "dim": dim, "index": listed})
    return True


# ------------------------------------------------------------------------------------------- several lists of places


def one_list(m: Maker, x: TensorSlot, indices: Sequence[Any]) -> tuple[Value, int, Value] | None:
    """Lists of places in neighbouring dimensions as one, in those dimensions made one: data, dimension, places."""
    named = [(d, i) for d, i in enumerate(indices) if i is not None]
    if not named or any(i.dtype.kind == "b" or i.dtype == np.uint8 for _, i in named):
        return None
    first, last = named[0][0], named[-1][0]
    if last - first != len(named) - 1 or last >= len(x.bound):
        return None
    shape = np.broadcast_shapes(*(i.bound for _, i in named))
    total: Value | None = None
    for d, slot in named:
        size = x.bound[d]
        held = given(m, slot, size, wrap=True)
        if held is None:
            return None
        places = _counted(m, held, size)
        if total is None:
            total = places
        else:
            scaled = m.between("mul", total.bound, {"self": total, "other": _number(size)}, _I64)
            both = np.broadcast_shapes(total.bound, places.bound)
            total = m.between("add", both, {"self": scaled, "other": places}, _I64)
    assert total is not None
    if total.bound != shape:
        return None
    sizes = (*x.bound[:first], math.prod(x.bound[first : last + 1]), *x.bound[last + 1 :])
    return m.viewed(m.planes(x), sizes), first, total


def _counted(m: Maker, places: Value, size: int) -> Value:
    """Places from the beginning, in 64 bits."""
    if places.data is not None:
        return new(places.bound, np.asarray(places.data.astype(np.int64) % size))
    if places.dtype != _I64:
        places = m.between("cast", places.bound, {"self": places}, _I64)
    below = m.between("lt", places.bound, {"self": places, "other": _number(0)}, _TRUTH)
    wrapped = m.between("add", places.bound, {"self": places, "other": _number(size)}, _I64)
    return m.between("where", places.bound, {"condition": below, "self": wrapped, "other": places}, _I64)


def _number(n: int) -> Value:
    return new((), np.asarray(n, np.int64))


@otherwise("aten::index.Tensor_out")
def _index(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x = a["self"]
    found = one_list(m, x, a["indices"]) if m.alike(x, outs[0]) and m.constant(x) is None else None
    if found is None:
        return False
    data, dim, places = found
    m.add("index", outs[0], {"self": data, "indices": [places if d == dim else None for d in range(dim + 1)]})
    return True


@otherwise("aten::index_put.out")
def _index_put(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, values = a["self"], a["values"]
    if not m.alike(x, values, outs[0]) or a["accumulate"] or m.constant(x) is not None:
        return False
    if _is_mask(a["indices"], x) and math.prod(values.bound) == 1:
        chosen = m.viewed(m.planes(values), ())
        mask = m.planes(a["indices"][0])
        mask = m.viewed(mask, (*mask.bound, *(1,) * (len(x.bound) - len(mask.bound))))
        m.add("where", outs[0], {"condition": mask, "self": chosen, "other": m.planes(x)})
        return True
    found = one_list(m, x, a["indices"])
    if found is None:
        return False
    data, dim, places = found
    shape = (*data.bound[:dim], *places.bound, *data.bound[dim + 1 :])
    rows = m.planes(values)
    if rows.bound != shape:
        if len(rows.bound) > len(shape):
            return False
        args = {"self": rows, "size": list(shape), "implicit": False}
        rows = m.between("expand", shape, args, x.dtype)
    indices = [places if d == dim else None for d in range(dim + 1)]
    args = {"self": data, "indices": indices, "values": rows, "accumulate": False}
    made = m.between("index_put", data.bound, args, x.dtype)
    m.add("view", outs[0], {"self": made, "size": list(outs[0].bound)})
    return True


def _is_mask(indices: Sequence[Any], x: TensorSlot) -> bool:
    mask = indices[0] if len(indices) == 1 else None
    truth = isinstance(mask, TensorSlot) and mask.dtype == _TRUTH and not mask.dynamic
    return truth and mask is not None and bool(mask.bound) and mask.bound == x.bound[: len(mask.bound)]
