"""Kernel calls that reduce dimensions or sum along them, as operators of a device graph."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.ir.dtypes import is_integral, to_numpy
from edgewright.ir.graph import Value
from edgewright.runtime.jit.graph_builder import TYPES, Maker
from edgewright.runtime.jit.registry import Args, otherwise, taken
from edgewright.runtime.jit.typed_elementwise import as_type, finish, name_of
from edgewright.runtime.tensor import TensorSlot

_F32, _I64, _TRUTH = np.dtype(np.float32), np.dtype(np.int64), np.dtype(np.bool_)


def dim_of(x: TensorSlot, dim: Any) -> int | None:
    """A dimension from the beginning, if the tensor has it."""
    rank = len(x.bound)
    return int(dim) % rank if rank and dim is not None and -rank <= dim < rank else None


def gathered(m: Maker, data: Value, dims: Sequence[int], out: TensorSlot) -> Value | None:
    """All that is to be made one, last and in one dimension."""
    kept = [d for d in range(len(data.bound)) if d not in dims]
    order = [*kept, *dims]
    shape = [data.bound[d] for d in order]
    if order != sorted(order):
        data = m.between("permute", shape, {"self": data, "dims": order}, data.dtype)
    count = math.prod(shape[len(kept) :])
    if math.prod(shape[: len(kept)]) != math.prod(out.bound):
        return None
    return m.viewed(data, (*shape[: len(kept)], count))


def reduced(m: Maker, kind: str, data: Value, dims: Sequence[int], out: TensorSlot) -> bool:
    """Of integers, in their type; the result is stored in ``out``'s, or is a truth."""
    rows = gathered(m, data, dims, out)
    if rows is None:
        return False
    args = {"self": rows, "dim": [len(rows.bound) - 1], "keepdim": False}
    made = m.between(kind, rows.bound[:-1], args, data.dtype)
    made = m.viewed(made, out.bound)
    m.macs += math.prod(data.bound)
    return finish(m, "clone" if data.dtype == out.dtype else "cast", out, {"self": made}, out.dtype)


def all_dims(x: TensorSlot, dim: Any, *, empty_is_all: bool = True) -> list[int] | None:
    listed = [dim] if isinstance(dim, int) else list(dim or [])
    if not listed and (empty_is_all or dim is None):
        return list(range(len(x.bound)))
    found = [dim_of(x, d) for d in listed]
    return None if None in found or len(set(found)) < len(found) else sorted(d for d in found if d is not None)


@otherwise("aten::sum.IntList_out", "aten::amax.out", "aten::amin.out", "aten::mean.out")
@taken("aten::prod.int_out", "aten::prod.out", "aten::max.unary_out", "aten::min.unary_out", "aten::mean.dtype_out")
def _reduction(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, out, name = a["self"], outs[0], name_of(a)
    kind = {"max": "amax", "min": "amin"}.get(name, name)
    dims = all_dims(x, a.get("dim"))
    if not m.known(x, out) or m.constant(x) is not None or dims is None or not x.bound:
        return False
    first = x.dtype if a.get("dtype") is None else to_numpy(int(a["dtype"]))
    exact = kind in ("sum", "prod")
    dtype = _I64 if exact and is_integral(first) else first
    if dtype not in TYPES or (kind == "mean" and dtype != _F32):
        return False
    data = as_type(m, x, first)
    data = data if first == dtype else m.between("cast", data.bound, {"self": data}, dtype)
    if dtype != _F32:
        return bool(dims) and reduced(m, kind, data, dims, out)
    made = m.between(kind, [1 if d in dims else n for d, n in enumerate(x.bound)],
                     {"self": data, "dim": dims, "keepdim": True}, _F32)  # fmt: skip
    if math.prod(made.bound) != math.prod(out.bound):
        return False
    return finish(m, "clone" if out.dtype == _F32 else "cast", out, {"self": m.viewed(made, out.bound)}, out.dtype)


@taken("aten::any.out", "aten::any.dims_out", "aten::any.all_out")
def _any(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, out = a["self"], outs[0]
    dims = all_dims(x, a.get("dim"), empty_is_all=False)
    if not m.known(x, out) or m.constant(x) is not None or dims is None or not x.bound:
        return False
    data = as_type(m, x, _TRUTH)
    if not dims:
        return data.bound == out.bound and finish(m, "clone" if out.dtype == _TRUTH else "cast", out,
                                                  {"self": data}, out.dtype)  # fmt: skip
    return reduced(m, "amax", data, dims, out)


@taken("aten::cumsum.out")
def _cumsum(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, out, dim = a["self"], outs[0], dim_of(a["self"], a["dim"])
    first = x.dtype if a["dtype"] is None else to_numpy(int(a["dtype"]))
    if not m.known(x, out) or dim is None or first not in TYPES or m.constant(x) is not None:
        return False
    dtype = _I64 if is_integral(first) else _F32
    data = as_type(m, x, first)
    data = data if first == dtype else m.between("cast", data.bound, {"self": data}, dtype)
    m.macs += math.prod(x.bound)
    return finish(m, "cumsum", out, {"self": data, "dim": dim}, dtype)
