"""Lowering of calls at a position that is known at run time: slices of tables, caches, attention over caches.

The position is an input of the graph, so one graph serves all positions. Whether it is in range is checked before each
run; if it is not, the original calls run and report it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from edgewright.ir.graph import Value
from edgewright.lowering.passes.layout import identity
from edgewright.runtime.jit.graph_builder import GraphBuilder
from edgewright.runtime.tensor import TensorSlot

Args = Mapping[str, Any]  # of a call, by the names of its signature
_F32 = np.dtype(np.float32)


def lower_moving_call(g: GraphBuilder, key: str, args: Args, outs: Sequence[TensorSlot]) -> bool:
    """Lower a call with arguments that are known at run time; False if that is not possible."""
    lower = _LOWERINGS.get(key)
    return lower is not None and lower(g, args, outs)


def _is_contiguous(*slots: TensorSlot) -> bool:
    return all(slot.dim_order == identity(len(slot.bound)) for slot in slots)


def _result(g: GraphBuilder, slot: TensorSlot) -> Value:
    """The value of the graph that becomes the contents of ``slot``."""
    contents = Value("v", slot.dtype, slot.bound, identity(len(slot.bound)))
    g.bind_result(slot, contents)
    return g.make(contents)


def _slice(g: GraphBuilder, args: Args, outs: Sequence[TensorSlot]) -> bool:
    table, start, end = args["self"], args["start"], args["end"]
    rows = end.offset - start.offset
    supported = g.supports_same_dtype(table, outs[0]) and _is_contiguous(table, outs[0])
    if not supported or args["dim"] != 0 or args["step"] != 1 or start.offset or outs[0].bound[0] != rows:
        return False
    position = g.scalar(start.index, table.bound[0] - rows + 1)
    source = g.get(g.source(table))
    g.emit("core.dynamic_slice", _result(g, outs[0]), self=source, position=position, length=rows)
    return True


def _update_cache(g: GraphBuilder, args: Args, outs: Sequence[TensorSlot]) -> bool:
    rows, cache, start = args["value"], args["cache"], args["start_pos"]
    if not g.supports_same_dtype(rows, cache) or not _is_contiguous(rows, cache) or start.offset or rows is cache:
        return False
    if len(rows.bound) != 4 or (rows.bound[0], *rows.bound[2:]) != (cache.bound[0], *cache.bound[2:]):
        return False
    position = g.scalar(start.index, cache.bound[1] - rows.bound[1] + 1)
    old, values = g.get(g.source(cache)), g.get(g.source(rows))
    g.emit("core.dynamic_update_slice", _result(g, cache), self=old, values=values, position=position)
    return True


def _custom_sdpa(g: GraphBuilder, args: Args, outs: Sequence[TensorSlot]) -> bool:
    query, key, value, mask = (args[name] for name in ("query", "key", "value", "attn_mask"))
    tensors = [slot for slot in (query, key, value, mask, outs[0]) if slot is not None]
    if not g.supports_same_dtype(*tensors) or query.dtype != _F32 or not _is_contiguous(*tensors):
        return False
    if args["start_pos"].offset or outs[0].bound != query.bound:
        return False
    position = g.scalar(args["start_pos"].index, key.bound[1] - query.bound[1] + 1)
    operands = {name: g.get(g.source(args[name])) for name in ("query", "key", "value")}
    if mask is not None:
        operands["mask"] = g.get(g.source(mask))
    width = query.bound[3]
    scale = 1 / math.sqrt(width) if args["scale"] is None else args["scale"]
    g.emit("core.cached_attention", _result(g, outs[0]), **operands, position=position, scale=float(scale),
           causal=bool(args["is_causal"]))  # fmt: skip
    g.macs += 2 * math.prod(query.bound) * key.bound[1]
    return True


_LOWERINGS: dict[str, Callable[[GraphBuilder, Args, Sequence[TensorSlot]], bool]] = {
    "aten::slice_copy.Tensor_out": _slice,
    "llama::update_cache.out": _update_cache,
    "llama::custom_sdpa.out": _custom_sdpa,
}
