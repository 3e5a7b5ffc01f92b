"""Lowering of static data movement (flip, roll, pad, strided slice ...) to operators of the op table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.runtime.jit.graph_builder import GraphBuilder, make_value
from edgewright.runtime.jit.move import lower_slice
from edgewright.runtime.jit.registry import Args, lowers, lowers_fallback
from edgewright.runtime.jit.typed_elementwise import emit_cast
from edgewright.runtime.tensor import TensorSlot

_OP_NAMES = {
    "flip.out": "flip", "roll.out": "roll", "repeat.out": "repeat", "unfold_copy.out": "unfold",
    "as_strided_copy.out": "as_strided", "diagonal_copy.out": "diagonal", "pixel_shuffle.out": "pixel_shuffle",
    "pixel_unshuffle.out": "pixel_unshuffle", "upsample_nearest2d.vec_out": "upsample_nearest2d",
    **{f"{name}{n}d.out": name for name in ("reflection_pad", "replication_pad") for n in (1, 2, 3)},
}  # fmt: skip


def _to_python(argument: Any) -> Any:
    if not isinstance(argument, list | tuple):
        return argument
    return [n.item() if isinstance(n, np.generic | np.ndarray) else n for n in argument]


@lowers(*(f"aten::{name}" for name in _OP_NAMES))
def _rearrange(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x = a["input"] if "input" in a else a["self"]
    if not g.supports_same_dtype(x, outs[0]) or g.constant_data(x) is not None or not x.bound:
        return False
    if "as_strided" in a["key"] and x.dim_order != tuple(range(len(x.bound))):  # it reads raw memory
        return False
    name = _OP_NAMES[a["key"].partition("::")[2]]
    args = {n: g.value(v) if v is x else _to_python(v) for n, v in a.items() if n != "key"}
    if name == "roll" and not args["dims"]:  # rolls the flattened tensor
        flat, size = (math.prod(x.bound),), {"size": list(outs[0].bound)}
        flattened = g.emit_core("core.view", flat, {"self": g.value(x), "size": list(flat)}, x.dtype)
        g.emit_to(
            "core.view",
            outs[0],
            {"self": g.emit_core(f"core.{name}", flat, {**args, "self": flattened, "dims": [0]}, x.dtype), **size},
        )
        return True
    g.emit_to(f"core.{name}", outs[0], args)
    return True


@lowers_fallback("aten::slice_copy.Tensor_out")
def _strided_slice(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    """A slice with a step, as ``as_strided``."""
    x, rank = a["self"], len(a["self"].bound)
    if not g.supports_same_dtype(x, outs[0]) or not rank or not -rank <= a["dim"] < rank or a["step"] < 1:
        return False
    dim = a["dim"] % rank
    start, end, step = slice(a["start"], a["end"], a["step"]).indices(x.bound[dim])
    if end <= start or g.constant_data(x) is not None:
        return False
    strides = [math.prod(x.bound[d + 1 :]) for d in range(rank)]
    offset = start * strides[dim]
    strides[dim] *= step
    args = {"size": list(outs[0].bound), "stride": strides, "storage_offset": offset}
    g.emit_to("core.as_strided", outs[0], {"self": g.value(x), **args})
    return True


@lowers("aten::narrow_copy.out")
def _narrow(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    size = a["self"].bound[a["dim"]] if -len(a["self"].bound) <= a["dim"] < len(a["self"].bound) else 0
    start = a["start"] + (size if a["start"] < 0 else 0)
    if not 0 <= start <= start + a["length"] <= size:
        return False
    return lower_slice(g, {**a, "start": start, "end": start + a["length"], "step": 1}, outs)


@lowers_fallback("aten::cat.out", "aten::stack.out")
def _cat_mixed_dtypes(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    """``cat`` and ``stack`` of several dtypes, cast to that of the result."""
    operands, out = list(a["tensors"]), outs[0]
    stacked, rank = "stack" in a["key"], len(out.bound)
    if (
        not all(isinstance(x, TensorSlot) for x in operands)
        or not g.supports(*operands, out)
        or not -rank <= a["dim"] < rank
    ):
        return False
    if len({x.dtype for x in operands}) == 1 or any(len(x.bound) != rank - stacked for x in operands):
        return False
    dim, parts = a["dim"] % rank, [emit_cast(g, x, out.dtype) for x in operands]
    if any(p.data is not None for p in parts):
        return False
    if stacked:
        sizes = [[*p.bound[:dim], 1, *p.bound[dim:]] for p in parts]
        parts = [
            g.emit_core("core.view", s, {"self": p, "size": s}, out.dtype) for p, s in zip(parts, sizes, strict=True)
        ]
    g.emit_to("core.cat", out, {"tensors": parts, "dim": dim})
    return True


@lowers("aten::constant_pad_nd.out")
def _constant_pad(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    """Negative padding crops first; positive padding follows."""
    x, widths = a["self"], [int(n) for n in a["pad"]]
    rank = len(x.bound)
    if (
        not g.supports_same_dtype(x, outs[0])
        or len(widths) % 2
        or len(widths) > 2 * rank
        or g.constant_data(x) is not None
        or not rank
    ):
        return False
    pairs = [(0, 0)] * (rank - len(widths) // 2) + [*zip(widths[-2::-2], widths[-1::-2], strict=True)]
    lengths = [n + min(a, 0) + min(b, 0) for n, (a, b) in zip(x.bound, pairs, strict=True)]
    value = emit_cast(g, a["value"], x.dtype).data
    exact = value is not None and float(np.float32(value)) == float(value)
    if min(lengths) <= 0 or not (exact or np.isnan(float(a["value"]))):
        return False
    data = g.value(x)
    if tuple(lengths) != x.bound:
        start = [max(-low, 0) for low, _ in pairs]
        data = g.emit_core("core.slice", lengths, {"self": data, "start": start, "length": lengths}, x.dtype)
    before, after = ([max(p[i], 0) for p in pairs] for i in (0, 1))
    kind, attrs = ("core.pad", {"before": before, "after": after, "value": float(a["value"])})
    if not any((*before, *after)):
        kind, attrs = "core.clone", {}
    g.emit_to(kind, outs[0], {"self": data, **attrs})
    return True


@lowers("aten::tril.out")
def _tril(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, rank = a["self"], len(a["self"].bound)
    if not g.supports_same_dtype(x, outs[0]) or rank < 2 or g.constant_data(x) is not None:
        return False
    mask = np.tril(np.ones(x.bound[-2:], np.bool_), max(-(1 << 31), min(int(a["diagonal"]), 1 << 31)))
    args = {"condition": make_value(mask.shape, mask), "self": g.value(x), "other": emit_cast(g, 0, x.dtype)}
    g.emit_to("core.where", outs[0], args)
    return True


@lowers("aten::copy.out")
def _copy(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    """``src`` in the shape and type of ``self``."""
    x, source, out = a["self"], a["src"], outs[0]
    if not g.supports(x, source, out) or x.bound != out.bound or g.constant_data(source) is not None:
        return False
    result = emit_cast(g, source, x.dtype)
    if result.bound != out.bound:
        size = list(out.bound)
        result = g.emit_core("core.expand", size, {"self": result, "size": size, "implicit": False}, result.dtype)
    g.emit_to("core.cast" if result.dtype != out.dtype else "core.clone", out, {"self": result})
    return True


@lowers("aten::fill.Tensor_out")
def _fill(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    """A one-element tensor broadcast to the result."""
    x, value, out = a["self"], a["value"], outs[0]
    if (
        not g.supports_same_dtype(x, out)
        or not g.supports(value)
        or math.prod(value.bound) != 1
        or g.constant_data(value) is not None
    ):
        return False
    scalar = emit_cast(g, value, out.dtype)
    flat = g.emit_core("core.view", (1,), {"self": scalar, "size": [1]}, out.dtype)
    size = list(out.bound) or [1]
    filled = g.emit_core("core.expand", size, {"self": flat, "size": size, "implicit": False}, out.dtype)
    g.emit_to("core.view", out, {"self": filled, "size": list(out.bound)})
    return True
