"""Reads and writes at a position that is known at run time, and attention over a cache of keys and values.

``position`` is a tensor of one integer. As in XLA's ``DynamicSlice`` it is clamped, so that no position reaches outside
the tensor; callers that must report such a position check it first.
"""

from __future__ import annotations

import math

import numpy as np

from edgewright.ir.core.evaluation import EvaluationContext
from edgewright.ir.core.table import REAL, Shape, ShapeOf, define, integer, require
from edgewright.ir.dialect import FLAG
from edgewright.ir.graph import Array, Op

_MAX_SCORES = 1 << 22  # attention scores that exist at a time


def clamped_position(ex: EvaluationContext, op: Op, last: int) -> int:
    """The operator's position, from 0 to ``last``."""
    return min(max(int(np.asarray(ex.raw(op.args["position"])).reshape(())), 0), last)


def _require_position(op: Op, shape_of: ShapeOf) -> None:
    require(math.prod(shape_of(op.args["position"])) == 1, "the position must be one integer")


# -------------------------------------------------------------------------------------------------------------- slices


def _dynamic_slice(ex: EvaluationContext, op: Op) -> Array:
    array: Array = ex.raw(op.args["self"])
    length = op.args["length"]
    start = clamped_position(ex, op, len(array) - length)
    return np.array(array[start : start + length])


def _dynamic_slice_shape(op: Op, shape_of: ShapeOf) -> Shape:
    shape, length = shape_of(op.args["self"]), op.args["length"]
    _require_position(op, shape_of)
    require(bool(shape) and length <= shape[0], "the slice must fit the first dimension")
    return (length, *shape[1:])


define("dynamic_slice", "`length` slices of the first dimension, from a position on that is known at run time",
       "self position", "M= index -> M=", _dynamic_slice_shape, _dynamic_slice, {"length": integer(1)})  # fmt: skip


def _dynamic_update_slice(ex: EvaluationContext, op: Op) -> Array:
    values: Array = ex.raw(op.args["values"])
    result = np.array(ex.raw(op.args["self"]))
    count = values.shape[1]
    start = clamped_position(ex, op, result.shape[1] - count)
    result[:, start : start + count] = values
    return result


def _dynamic_update_slice_shape(op: Op, shape_of: ShapeOf) -> Shape:
    shape, rows = tuple(shape_of(op.args["self"])), tuple(shape_of(op.args["values"]))
    _require_position(op, shape_of)
    same = len(shape) == len(rows) >= 2 and (shape[0], *shape[2:]) == (rows[0], *rows[2:])
    require(same and rows[1] <= shape[1], "values must agree with the tensor except in dimension 1, and fit it")
    return shape


define("dynamic_update_slice",
       "a copy with `values` written to dimension 1, from a position on that is known at run time",
       "self values position", "N= N= index -> N=", _dynamic_update_slice_shape, _dynamic_update_slice)  # fmt: skip

# ----------------------------------------------------------------------------------------------------------- attention


def attend(
    query: Array, key: Array, value: Array, start: int, mask: Array | None, causal: bool, factor: np.float32
) -> Array:
    """``softmax(factor * query @ key.T + mask) @ value`` of queries [B, S, H, D] over keys and values [B, T, G, D]; a
    head of keys serves H / G heads of queries.

    Without a mask the first ``start + S`` keys count; a causal query at position p sees keys 0..p. A mask is added to
    the scores of all T keys. A row that is masked everywhere is NaN.
    """
    count, heads = query.shape[1:3]
    length = key.shape[1] if mask is not None else start + count
    block = max(_MAX_SCORES // max(heads * length, 1), 1)
    result = np.empty(query.shape, np.float32)
    for batch in range(len(query)):
        keys, values = (cached[batch, :length].astype(np.float32, copy=False) for cached in (key, value))
        for first in range(0, count, block):
            rows = slice(first, min(first + block, count))
            added = None if mask is None else mask[rows]
            if causal:
                positions = start + np.arange(rows.start, rows.stop)
                added = np.where(np.arange(length) <= positions[:, None], np.float32(0), np.float32(-np.inf))
            result[batch, rows] = _attend_rows(query[batch, rows], keys, values, added, factor)
    return result


def _attend_rows(query: Array, keys: Array, values: Array, mask: Array | None, factor: np.float32) -> Array:
    """Attention of queries [S, H, D] to float32 keys and values [T, G, D].

    Narrow types are widened for the products and the softmax; the weights are rounded to the query's type.
    """
    count, heads, width = query.shape
    groups = keys.shape[1]
    by_group = query.astype(np.float32).reshape(count, groups, heads // groups, width).transpose(1, 2, 0, 3)
    scores = np.matmul(by_group, keys.transpose(1, 2, 0)[:, None]) * factor
    if mask is not None:
        scores += mask
    weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
    weights /= weights.sum(-1, keepdims=True)
    weights = weights.astype(query.dtype, copy=False).astype(np.float32, copy=False)
    attended: Array = np.matmul(weights, values.transpose(1, 0, 2)[:, None])
    return attended.transpose(2, 0, 1, 3).reshape(query.shape)


def _cached_attention(ex: EvaluationContext, op: Op) -> Array:
    query, key, value = (ex.raw(op.args[name]) for name in ("query", "key", "value"))
    mask = None if op.args.get("mask") is None else ex.raw(op.args["mask"])
    start = clamped_position(ex, op, key.shape[1] - query.shape[1])
    with np.errstate(all="ignore"):
        return attend(query, key, value, start, mask, op.args["causal"], np.float32(op.args["scale"]))


def cached_attention_shape(op: Op, shape_of: ShapeOf) -> Shape:
    """The rules of queries, keys, values, position and mask; the result has the queries' shape."""
    query, key, value = (tuple(shape_of(op.args[name])) for name in ("query", "key", "value"))
    _require_position(op, shape_of)
    require(len(query) == len(key) == 4 and key == value, "queries, keys and values must have four dimensions")
    require((query[0], query[3]) == (key[0], key[3]), "queries and keys must agree in batch and width")
    require(key[2] > 0 and query[2] % key[2] == 0, "key heads must divide query heads")
    require(query[1] <= key[1], "queries must fit the cache")
    mask = op.args.get("mask")
    require(mask is None or tuple(shape_of(mask)) == (query[1], key[1]), "a mask must have a row for each query")
    require(mask is None or not op.args["causal"], "a mask must not be causal")
    return query


define("cached_attention",
       "attention of queries [B, S, H, D] over the first `position` + S keys and values of caches [B, T, G, D]; with a"
       " mask [S, T], over all of them",
       "query key value position mask?", "f32 f32 f32 index f32? -> f32", cached_attention_shape, _cached_attention,
       {"scale": REAL, "causal": FLAG},
       size=lambda op, shape_of: math.prod(shape_of(op.args["query"])[:3]) * shape_of(op.args["key"])[1])  # fmt: skip
