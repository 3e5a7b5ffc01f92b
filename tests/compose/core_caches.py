"""Core steps of language models: rows of caches written and read at a run-time position, and attention over caches.

A graph of these has inputs for queries ``[B, S, H, D]``, rows ``[B, S, G, D]``, caches ``[B, T, G, D]`` and positions.
Positions may lie outside of a cache: they are clamped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from edgewright.ir.graph import Value
from tests.compose.builder import F32, I8, I32
from tests.compose.core import Core, single, step
from tests.compose.draw import Draw
from tests.compose.spec import Step, need

_I64 = np.dtype(np.int64)


def cache_inputs(d: Draw) -> list[Step]:
    """The inputs of a layer of attention: queries, keys, values, their caches, and one or two positions."""
    batch, count = d.weighted({1: 4.0, 2: 1.0}), d.one((1, 1, 1, 2, 3, 7, 17, 33))
    groups, shared, width = d.number(1, 3), d.number(1, 4), d.one((4, 8, 16, 16, 32, 48, 64, 80))
    length = count + d.number(0, 150)
    length = -(-length // 64) * 64 if d.chance(0.4) else length
    rows, cache = [batch, count, groups, width], [batch, length, groups, width]
    position = {"type": d.one(("i64", "i64", "i32")), "shape": d.one(([1], []))}
    shapes = [[batch, count, groups * shared, width], rows, rows, cache, cache]
    return [*({"type": "f32", "shape": list(shape)} for shape in shapes), position]


def cached_layer(d: Draw, apply: Callable[[Step], int]) -> int:
    """The new keys and values written to their caches, and attention over these: reads the first inputs by number."""
    query, keys, values, key_cache, value_cache, position = range(6)
    key = apply({"op": "c_update", "in": [key_cache, keys, position]})
    value = apply({"op": "c_update", "in": [value_cache, values, position]})
    return apply(_attend(d, [query, key, value, position]))


def is_position(v: Value) -> bool:
    return v.q is None and v.dtype in (_I64, I32) and v.bound in ((), (1,))


def _plain(v: Value) -> bool:
    return v.q is None and v.dtype in (F32, I8, _I64, I32)


def _rows_of(rows: Value, cache: Value) -> bool:
    """Whether ``rows`` can be written to dimension 1 of ``cache``."""
    a, b = rows.bound, cache.bound
    return len(a) == len(b) >= 2 and (a[0], *a[2:]) == (b[0], *b[2:]) and a[1] <= b[1]


def _attends(query: Value, key: Value) -> bool:
    q, k = query.bound, key.bound
    return len(q) == len(k) == 4 and (q[0], q[3]) == (k[0], k[3]) and q[2] % k[2] == 0 and q[1] <= k[1]


def _draw(d: Draw, b: Core, fits: tuple[Callable[[Value], bool], ...]) -> list[int] | None:
    """A value for each condition."""
    found = [d.value(b.values, condition) for condition in fits]
    return None if None in found else [at for at in found if at is not None]


def _draw_update(d: Draw, b: Core) -> Step | None:
    at = d.value(b.values, lambda v: _plain(v) and len(v.bound) >= 2)
    if at is None:
        return None
    cache = b.values[at]
    given = _draw(d, b, (lambda v: v.dtype == cache.dtype and v.q is None and _rows_of(v, cache), is_position))
    return None if given is None else {"op": "c_update", "in": [at, *given]}


@step("c_update", _draw_update, 3)
def _update(b: Core, s: Step) -> None:
    cache, rows, position = b.reads(s)
    need(_plain(cache) and rows.q is None and rows.dtype == cache.dtype)
    need(_rows_of(rows, cache) and is_position(position))
    args = {"self": cache, "values": rows, "position": position}
    b.keep(b.op("dynamic_update_slice", args, b.new(cache.bound, cache.dtype)))


def _draw_slice(d: Draw, b: Core) -> Step | None:
    given = _draw(d, b, (lambda v: _plain(v) and len(v.bound) >= 1, is_position))
    if given is None:
        return None
    return {"op": "c_slice", "in": given, "length": d.number(1, min(8, b.values[given[0]].bound[0]))}


@step("c_slice", _draw_slice, 1)
def _slice(b: Core, s: Step) -> None:
    table, position = b.reads(s)
    need(_plain(table) and table.bound and is_position(position) and 1 <= s["length"] <= table.bound[0])
    out = b.new([s["length"], *table.bound[1:]], table.dtype)
    b.keep(b.op("dynamic_slice", {"self": table, "position": position, "length": s["length"]}, out))


def _draw_attention(d: Draw, b: Core) -> Step | None:
    found = _draw(d, b, (lambda v: single(v) and len(v.bound) == 4, is_position))
    if found is None:
        return None
    query, position = found
    key = d.value(b.values, lambda v: single(v) and v is not b.values[query] and _attends(b.values[query], v))
    if key is None:
        return None
    value = d.value(b.values, lambda v: single(v) and v.bound == b.values[key].bound)
    assert value is not None
    return _attend(d, [query, key, value, position])


_MODES = ("causal", "causal", "causal", "open", "mask")  # which keys count


def _attend(d: Draw, operands: list[int]) -> Step:
    return {"op": "c_attention", "in": operands, "kind": d.one(("f32", "f32", "int8")), "mode": d.one(_MODES),
            "scale": d.one((0.3, 0.05)), "seed": d.seed()}  # fmt: skip


@step("c_attention", _draw_attention, 3)
def _attention(b: Core, s: Step) -> None:
    """In floating point, or of rows that are quantized one by one, as they are in caches of int8."""
    query, key, value, position = b.reads(s)
    need(single(query) and single(key) and single(value) and key.bound == value.bound)
    need(_attends(query, key) and is_position(position) and key is not query)
    args: dict[str, Any] = {"scale": float(s["scale"]), "causal": s["mode"] == "causal", "position": position}
    if s["mode"] == "mask":
        kept = b.rng(s).random((query.bound[1], key.bound[1])) < 0.7
        kept[:, 0] = True  # a row that is masked everywhere is NaN
        args["mask"] = b.constant(np.where(kept, 0, -np.inf).astype(np.float32))
    for name, x in (("query", query), ("key", key), ("value", value)):
        args |= {name: x} if s["kind"] == "f32" else _quantized(b, name, x)
    kind = "cached_attention" if s["kind"] == "f32" else "quantized_cached_attention"
    b.keep(b.op(kind, args, b.new(query.bound, F32)))


def _quantized(b: Core, name: str, x: Value) -> dict[str, Value]:
    shape = [*x.bound[:-1], 1]
    return {
        name: b.op("quantize_rows", {"self": x}, b.new(x.bound, I8)),
        f"{name}_scale": b.op("row_scale", {"self": x}, b.new(shape, F32)),
        f"{name}_zero_point": b.op("row_zero_point", {"self": x}, b.new(shape, I8)),
    }


def _draw_rows(d: Draw, b: Core) -> Step | None:
    at = d.value(b.values, lambda v: single(v) and bool(v.bound))
    kind = d.one(("row_scale", "row_zero_point", "quantize_rows"))
    return None if at is None else {"op": "c_rows", "in": [at], "kind": kind}


@step("c_rows", _draw_rows, 1)
def _rows(b: Core, s: Step) -> None:
    x = b.read(s)
    need(single(x) and x.bound)
    shape = x.bound if s["kind"] == "quantize_rows" else [*x.bound[:-1], 1]
    b.keep(b.op(s["kind"], {"self": x}, b.new(shape, F32 if s["kind"] == "row_scale" else I8)))
