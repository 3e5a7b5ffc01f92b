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
from edgewright.runtime.infer_shapes import RuntimeInt
from edgewright.runtime.jit.graph_builder import GraphBuilder
from edgewright.runtime.llama_kernels import quantized_sdpa_shape, sdpa_shape, sdpa_with_kv_cache_shape
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


def _position(g: GraphBuilder, start: RuntimeInt | int, cache: TensorSlot, rows: TensorSlot) -> Value | None:
    """The position of ``rows`` in a cache; None if they do not fit."""
    last = cache.bound[1] - rows.bound[1]
    if not isinstance(start, RuntimeInt):
        return g.constant(np.array([start])) if 0 <= start <= last else None
    return None if start.offset or last < 0 else g.scalar(start.index, last + 1)


def _update_cache(g: GraphBuilder, args: Args, outs: Sequence[TensorSlot]) -> bool:
    return _write_rows(g, args["value"], args["cache"], args["start_pos"])


def _are_rows_of(g: GraphBuilder, rows: TensorSlot, cache: TensorSlot) -> bool:
    if not g.supports_same_dtype(rows, cache) or not _is_contiguous(rows, cache) or rows is cache:
        return False
    return len(rows.bound) == 4 and (rows.bound[0], *rows.bound[2:]) == (cache.bound[0], *cache.bound[2:])


def _write_rows(g: GraphBuilder, rows: TensorSlot, cache: TensorSlot, start: RuntimeInt | int) -> bool:
    if not _are_rows_of(g, rows, cache):
        return False
    position = _position(g, start, cache, rows)
    if position is None:
        return False
    old, values = g.get(g.source(cache)), g.get(g.source(rows))
    g.emit("core.dynamic_update_slice", _result(g, cache), self=old, values=values, position=position)
    return True


def _update_cache_with_indices(g: GraphBuilder, args: Args, outs: Sequence[TensorSlot]) -> bool:
    """Rows at indices, those of a ring buffer for example; of one batch, as in language models."""
    rows, cache, indices = args["value"], args["cache"], args["indices"]
    if not _are_rows_of(g, rows, cache) or not g.supports(indices) or not _is_contiguous(indices):
        return False
    if indices.dtype != np.dtype(np.int64) or rows.bound[0] != 1 or indices.bound != rows.bound[:2]:
        return False
    index = g.source(indices)
    g.require_in_range(index, cache.bound[1], wrap=False)
    flat = g.view(g.get(index), rows.bound[1:2])
    operands = {"self": g.get(g.source(cache)), "values": g.get(g.source(rows))}
    g.emit("core.index_put", _result(g, cache), **operands, indices=[None, flat], accumulate=False)
    return True


def _custom_sdpa(g: GraphBuilder, args: Args, outs: Sequence[TensorSlot]) -> bool:
    tensors = [args[name] for name in ("query", "key", "value", "attn_mask")]
    if not g.supports_same_dtype(*(slot for slot in tensors if slot is not None)) or tensors[0].dtype != _F32:
        return False
    _check_operands(sdpa_shape, args)
    return _attend(g, "core.cached_attention", dict(zip(("query", "key", "value"), tensors, strict=False)), args, outs)


def _custom_quantized_sdpa(g: GraphBuilder, args: Args, outs: Sequence[TensorSlot]) -> bool:
    tensors = {
        f"{name}{suffix}": args[f"{name[0]}{parameter}" if parameter else name]
        for name in ("query", "key", "value")
        for suffix, parameter in (("", ""), ("_scale", "_scales"), ("_zero_point", "_zero_points"))
    }
    if args["is_seq_at_dim_2"] or None in tensors.values():
        return False
    types = {slot.dtype for name, slot in tensors.items() if not name.endswith("_scale")}
    scales = {slot.dtype for name, slot in tensors.items() if name.endswith("_scale")}
    if (types, scales) != ({np.dtype(np.int8)}, {_F32}):
        return False
    _check_operands(quantized_sdpa_shape, args)
    return _attend(g, "core.quantized_cached_attention", tensors, args, outs)


def _check_operands(rule: Callable[..., Any], args: Args) -> None:
    """Let the kernel's own function check the operands, by arrays without memory, at position 0."""
    shapes = {
        name: np.broadcast_to(np.zeros((), argument.dtype), argument.bound)
        for name, argument in args.items()
        if isinstance(argument, TensorSlot)
    }
    rule(**{**args, **shapes, "start_pos": 0})


def _attend(
    g: GraphBuilder, kind: str, tensors: Mapping[str, TensorSlot], args: Args, outs: Sequence[TensorSlot]
) -> bool:
    query, key, mask, out = tensors["query"], tensors["key"], args["attn_mask"], outs[0]
    slots = [*tensors.values(), out, *([] if mask is None else [mask])]
    if not g.supports(*slots) or not _is_contiguous(*slots) or (out.bound, out.dtype) != (query.bound, _F32):
        return False
    position = _position(g, args["start_pos"], key, query)
    if position is None:
        return False
    operands = {name: g.get(g.source(slot)) for name, slot in tensors.items()}
    if mask is not None:
        operands["mask"] = g.get(g.source(mask))
    scale = 1 / math.sqrt(query.bound[3]) if args["scale"] is None else args["scale"]
    g.emit(kind, _result(g, out), **operands, position=position, scale=float(scale), causal=bool(args["is_causal"]))
    g.macs += 2 * math.prod(query.bound) * key.bound[1]
    return True


def _sdpa_with_kv_cache(g: GraphBuilder, args: Args, outs: Sequence[TensorSlot]) -> bool:
    """``update_cache`` of keys and values, then ``custom_sdpa``. Everything is checked before anything is lowered."""
    query, caches, rows = args["query"], (args["key_cache"], args["value_cache"]), (args["key"], args["value"])
    tensors = (query, *caches, *rows, outs[0])
    if not g.supports_same_dtype(*tensors) or query.dtype != _F32 or not _is_contiguous(*tensors):
        return False
    if len(set(map(id, (*caches, *rows)))) < 4 or outs[0].bound != query.bound:
        return False
    mask = args["attn_mask"]
    if mask is not None and not (g.supports_same_dtype(query, mask) and _is_contiguous(mask)):
        return False
    _check_operands(sdpa_with_kv_cache_shape, args)
    if _position(g, args["start_pos"], caches[0], query) is None:
        return False
    written = [_write_rows(g, new, cache, args["start_pos"]) for new, cache in zip(rows, caches, strict=True)]
    tensors_of = {"query": query, "key": caches[0], "value": caches[1]}
    return all(written) and _attend(g, "core.cached_attention", tensors_of, args, outs)


_LOWERINGS: dict[str, Callable[[GraphBuilder, Args, Sequence[TensorSlot]], bool]] = {
    "aten::slice_copy.Tensor_out": _slice,
    "llama::update_cache.out": _update_cache,
    "llama::update_cache_with_indices.out": _update_cache_with_indices,
    "llama::custom_sdpa.out": _custom_sdpa,
    "llama::custom_quantized_sdpa.out": _custom_quantized_sdpa,
    "llama::sdpa_with_kv_cache.out": _sdpa_with_kv_cache,
}
