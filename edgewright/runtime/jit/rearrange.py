"""Kernel calls that put elements in other places by rules of their own, as operators of a device graph.

Their arguments are those of the op table's rows, which say where each element comes from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.runtime.jit.graph_builder import Maker, new
from edgewright.runtime.jit.move import sliced
from edgewright.runtime.jit.registry import Args, otherwise, taken
from edgewright.runtime.jit.typed_elementwise import as_type
from edgewright.runtime.tensor import TensorSlot

_ROWS = {
    "flip.out": "flip", "roll.out": "roll", "repeat.out": "repeat", "unfold_copy.out": "unfold",
    "as_strided_copy.out": "as_strided", "diagonal_copy.out": "diagonal", "pixel_shuffle.out": "pixel_shuffle",
    "pixel_unshuffle.out": "pixel_unshuffle", "upsample_nearest2d.vec_out": "upsample_nearest2d",
    **{f"{name}{n}d.out": name for name in ("reflection_pad", "replication_pad") for n in (1, 2, 3)},
}  # fmt: skip


def _numbers(given: Any) -> Any:
    return [n.item() if hasattr(n, "item") else n for n in given] if isinstance(given, list | tuple) else given


@taken(*(f"aten::{name}" for name in _ROWS))
def _moved(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x = a["input"] if "input" in a else a["self"]
    if not m.alike(x, outs[0]) or m.constant(x) is not None or not x.bound:
        return False
    if "as_strided" in a["key"] and x.dim_order != tuple(range(len(x.bound))):  # it reads memory as it lies
        return False
    name = _ROWS[a["key"].partition("::")[2]]
    args = {n: m.planes(v) if v is x else _numbers(v) for n, v in a.items() if n != "key"}
    if name == "roll" and not args["dims"]:  # as if there were one dimension
        flat, kept = (math.prod(x.bound),), {"size": list(outs[0].bound)}
        line = m.between("view", flat, {"self": m.planes(x), "size": list(flat)}, x.dtype)
        m.add("view", outs[0], {"self": m.between(name, flat, {**args, "self": line, "dims": [0]}, x.dtype), **kept})
        return True
    m.add(name, outs[0], args)
    return True


@otherwise("aten::slice_copy.Tensor_out")
def _stepped(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    """A slice with steps is a view of dense memory."""
    x, rank = a["self"], len(a["self"].bound)
    if not m.alike(x, outs[0]) or not rank or not -rank <= a["dim"] < rank or a["step"] < 1:
        return False
    dim = a["dim"] % rank
    start, end, step = slice(a["start"], a["end"], a["step"]).indices(x.bound[dim])
    if end <= start or m.constant(x) is not None:
        return False
    strides = [math.prod(x.bound[d + 1 :]) for d in range(rank)]
    offset = start * strides[dim]
    strides[dim] *= step
    args = {"size": list(outs[0].bound), "stride": strides, "storage_offset": offset}
    m.add("as_strided", outs[0], {"self": m.planes(x), **args})
    return True


@taken("aten::narrow_copy.out")
def _narrowed(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    size = a["self"].bound[a["dim"]] if -len(a["self"].bound) <= a["dim"] < len(a["self"].bound) else 0
    start = a["start"] + (size if a["start"] < 0 else 0)
    if not 0 <= start <= start + a["length"] <= size:
        return False
    return sliced(m, {**a, "start": start, "end": start + a["length"], "step": 1}, outs)


@otherwise("aten::cat.out", "aten::stack.out")
def _mixed(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    """Tensors of several types, in that of the result."""
    given, out = list(a["tensors"]), outs[0]
    stacked, rank = "stack" in a["key"], len(out.bound)
    if not all(isinstance(x, TensorSlot) for x in given) or not m.known(*given, out) or not -rank <= a["dim"] < rank:
        return False
    if len({x.dtype for x in given}) == 1 or any(len(x.bound) != rank - stacked for x in given):
        return False
    dim, parts = a["dim"] % rank, [as_type(m, x, out.dtype) for x in given]
    if any(p.data is not None for p in parts):
        return False
    if stacked:
        sizes = [[*p.bound[:dim], 1, *p.bound[dim:]] for p in parts]
        parts = [m.between("view", s, {"self": p, "size": s}, out.dtype) for p, s in zip(parts, sizes, strict=True)]
    m.add("cat", out, {"tensors": parts, "dim": dim})
    return True


@taken("aten::constant_pad_nd.out")
def _padded(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    """What is cut off first, then what is put around."""
    x, widths = a["self"], [int(n) for n in a["pad"]]
    rank = len(x.bound)
    if not m.alike(x, outs[0]) or len(widths) % 2 or len(widths) > 2 * rank or m.constant(x) is not None or not rank:
        return False
    pairs = [(0, 0)] * (rank - len(widths) // 2) + [*zip(widths[-2::-2], widths[-1::-2], strict=True)]
    lengths = [n + min(a, 0) + min(b, 0) for n, (a, b) in zip(x.bound, pairs, strict=True)]
    value = as_type(m, a["value"], x.dtype).data
    exact = value is not None and float(np.float32(value)) == float(value)
    if min(lengths) <= 0 or not (exact or np.isnan(float(a["value"]))):
        return False
    data = m.planes(x)
    if tuple(lengths) != x.bound:
        start = [max(-low, 0) for low, _ in pairs]
        data = m.between("slice", lengths, {"self": data, "start": start, "length": lengths}, x.dtype)
    before, after = ([max(p[i], 0) for p in pairs] for i in (0, 1))
    kind, more = ("pad", {"before": before, "after": after, "value": float(a["value"])})
    if not any((*before, *after)):
        kind, more = "clone", {}
    m.add(kind, outs[0], {"self": data, **more})
    return True


@taken("aten::tril.out")
def _lower_half(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, rank = a["self"], len(a["self"].bound)
    if not m.alike(x, outs[0]) or rank < 2 or m.constant(x) is not None:
        return False
    kept = np.tril(np.ones(x.bound[-2:], np.bool_), max(-(1 << 31), min(int(a["diagonal"]), 1 << 31)))
    args = {"condition": new(kept.shape, kept), "self": m.planes(x), "other": as_type(m, 0, x.dtype)}
    m.add("where", outs[0], args)
    return True


@taken("aten::copy.out")
def _copied(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    """``src`` in the shape and type of ``self``."""
    x, source, out = a["self"], a["src"], outs[0]
    if not m.known(x, source, out) or x.bound != out.bound or m.constant(source) is not None:
        return False
    held = as_type(m, source, x.dtype)
    if held.bound != out.bound:
        size = list(out.bound)
        held = m.between("expand", size, {"self": held, "size": size, "implicit": False}, held.dtype)
    m.add("cast" if held.dtype != out.dtype else "clone", out, {"self": held})
    return True


@taken("aten::fill.Tensor_out")
def _filled(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    """One number everywhere."""
    x, value, out = a["self"], a["value"], outs[0]
    if not m.alike(x, out) or not m.known(value) or math.prod(value.bound) != 1 or m.constant(value) is not None:
        return False
    held = as_type(m, value, out.dtype)
    flat = m.between("view", (1,), {"self": held, "size": [1]}, out.dtype)
    size = list(out.bound) or [1]
    whole = m.between("expand", size, {"self": flat, "size": size, "implicit": False}, out.dtype)
    m.add("view", out, {"self": whole, "size": list(out.bound)})
    return True
