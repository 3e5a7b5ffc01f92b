"""Core steps of the op table: what programs run beside delegates, on real numbers, integers and truth values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from edgewright.ir.graph import Value
from tests.compose.builder import F32, I32
from tests.compose.core import Core, single, step
from tests.compose.draw import Draw
from tests.compose.spec import Step, need

I64, BOOL = np.dtype(np.int64), np.dtype(np.bool_)
_COMPARED = ("eq", "ne", "lt", "le", "gt", "ge")
_BITS = ("bitwise_and", "bitwise_or", "bitwise_xor")
_CASTS = {"f32": F32, "i32": I32, "i64": I64, "bool": BOOL}


def whole(v: Value) -> bool:
    return v.q is None and v.dtype in (I32, I64)


def truth(v: Value) -> bool:
    return v.q is None and v.dtype == BOOL


def typed(v: Value) -> bool:
    return single(v) or whole(v) or truth(v)


def _number(v: Value) -> bool:
    return single(v) or whole(v)


def _exact(b: Core, v: Value) -> bool:
    """Of which the engine has the very elements: what is chosen by comparing them is then the same."""
    return whole(v) or truth(v) or v in b.graph.inputs or v in b.values[: len(b.graph.inputs)]


def _given(b: Core, v: Value) -> bool:
    """Whether a value is an input: no operator makes it."""
    return not any(v is out for op in b.graph.ops for out in op.outputs)


def _broadcasts(*values: Value) -> bool:
    try:
        return len(np.broadcast_shapes(*(v.bound for v in values))) <= 5
    except ValueError:
        return False


def _one(
    d: Draw, b: Core, fits: Callable[[Value], bool], make: Callable[[Value], dict[str, Any]], op: str
) -> Step | None:
    at = d.value(b.values, fits)
    return None if at is None else {"op": op, "in": [at], **make(b.values[at])}


def _pair(
    d: Draw, b: Core, fits: Callable[[Value], bool], make: Callable[[Value], dict[str, Any]], op: str
) -> Step | None:
    first = d.value(b.values, fits)
    if first is None:
        return None
    x = b.values[first]
    second = d.value(b.values, lambda v: fits(v) and v.dtype == x.dtype and _broadcasts(x, v))
    return None if second is None else {"op": op, "in": [first, second], **make(x)}


@step(
    "t_binary",
    lambda d, b: _pair(
        d,
        b,
        _number,
        lambda x: {"kind": d.one(("add", "sub", "mul", "maximum", "minimum", *(_BITS if whole(x) else ())))},
        "t_binary",
    ),
    2,
)
def _binary(b: Core, s: Step) -> None:
    x, y = b.reads(s)
    need(_number(x) and x.dtype == y.dtype and _broadcasts(x, y) and not (s["kind"] in _BITS and single(x)))
    b.keep(b.op(s["kind"], {"self": x, "other": y}, b.new(np.broadcast_shapes(x.bound, y.bound), x.dtype)))


@step("t_compare", lambda d, b: _pair(d, b, lambda v: _number(v) and _exact(b, v),
                                      lambda x: {"kind": d.one(_COMPARED)}, "t_compare"), 1.5)  # fmt: skip
def _compare(b: Core, s: Step) -> None:
    x, y = b.reads(s)
    need(_number(x) and x.dtype == y.dtype and _broadcasts(x, y) and _exact(b, x) and _exact(b, y))
    b.keep(b.op(s["kind"], {"self": x, "other": y}, b.new(np.broadcast_shapes(x.bound, y.bound), BOOL)))


@step("t_logic", lambda d, b: _pair(d, b, truth, lambda x: {
    "kind": d.one(("logical_and", "logical_or", "logical_xor"))}, "t_logic"), 1)  # fmt: skip
def _logic(b: Core, s: Step) -> None:
    x, y = b.reads(s)
    need(truth(x) and truth(y) and _broadcasts(x, y))
    b.keep(b.op(s["kind"], {"self": x, "other": y}, b.new(np.broadcast_shapes(x.bound, y.bound), BOOL)))


def _draw_where(d: Draw, b: Core) -> Step | None:
    which = d.value(b.values, truth)
    if which is None:
        return None
    c = b.values[which]
    first = d.value(b.values, lambda v: _number(v) and _broadcasts(c, v))
    if first is None:
        return None
    x = b.values[first]
    second = d.value(b.values, lambda v: v.dtype == x.dtype and v.q is None and _broadcasts(c, x, v))
    return None if second is None else {"op": "t_where", "in": [which, first, second]}


@step("t_where", _draw_where, 1.5)
def _where(b: Core, s: Step) -> None:
    c, x, y = b.reads(s)
    need(truth(c) and _number(x) and x.dtype == y.dtype and y.q is None and _broadcasts(c, x, y))
    shape = np.broadcast_shapes(c.bound, x.bound, y.bound)
    b.keep(b.op("where", {"condition": c, "self": x, "other": y}, b.new(shape, x.dtype)))


@step("t_cast", lambda d, b: _one(d, b, lambda v: typed(v) and (not single(v) or _exact(b, v)), lambda x: {
    "to": d.one(tuple(_CASTS))}, "t_cast"), 1)  # fmt: skip
def _cast(b: Core, s: Step) -> None:
    x, target = b.read(s), _CASTS[s["to"]]
    need(typed(x) and x.dtype != target and (not single(x) or _exact(b, x)))
    b.keep(b.op("cast", {"self": x}, b.new(x.bound, target)))


# ---------------------------------------------------------------------------------------------------- reductions


def _draw_reduce(d: Draw, b: Core) -> Step | None:
    at = d.value(b.values, lambda v: _number(v) and len(v.bound) >= 1)
    if at is None:
        return None
    x, rank = b.values[at], len(b.values[at].bound)
    kinds = ("sum", "mean", "amax", "amin") if single(x) else ("amax", "amin", *(("sum",) if x.dtype == I64 else ()))
    dims = sorted(d.random.sample(range(rank), d.number(1, rank))) if single(x) else [d.number(0, rank - 1)]
    return {"op": "t_reduce", "in": [at], "kind": d.one(kinds), "dims": dims, "keep": d.chance(0.6)}


@step("t_reduce", _draw_reduce, 2)
def _reduce(b: Core, s: Step) -> None:
    x, dims = b.read(s), s["dims"]
    need(_number(x) and dims and max(dims) < len(x.bound) and len(set(dims)) == len(dims))
    need(single(x) or (len(dims) == 1 and s["kind"] != "mean" and (s["kind"] != "sum" or x.dtype == I64)))
    shape = [1 if k in dims else n for k, n in enumerate(x.bound) if s["keep"] or k not in dims]
    args = {"self": x, "dim": list(dims), "keepdim": bool(s["keep"])}
    b.keep(b.op(s["kind"], args, b.new(shape, x.dtype)))


@step("t_cumsum", lambda d, b: _one(d, b, lambda v: (single(v) or v.dtype == I64) and v.bound != (), lambda x: {
    "dim": d.number(0, len(x.bound) - 1)}, "t_cumsum"), 0.7)  # fmt: skip
def _cumsum(b: Core, s: Step) -> None:
    x = b.read(s)
    need((single(x) or x.dtype == I64) and s["dim"] < len(x.bound))
    b.keep(b.op("cumsum", {"self": x, "dim": s["dim"]}, b.new(x.bound, x.dtype)))


@step("t_argmax", lambda d, b: _one(d, b, lambda v: _number(v) and _exact(b, v) and v.bound != (), lambda x: {
    "kind": d.one(("argmax", "argmin")), "dim": d.number(0, len(x.bound) - 1)}, "t_argmax"), 0.8)  # fmt: skip
def _argmax(b: Core, s: Step) -> None:
    x, dim = b.read(s), s["dim"]
    need(_number(x) and _exact(b, x) and dim < len(x.bound))
    shape = [1 if k == dim else n for k, n in enumerate(x.bound)]
    b.keep(b.op(s["kind"], {"self": x, "dim": dim, "keepdim": True}, b.new(shape, I64)))


@step("t_topk", lambda d, b: _one(d, b, lambda v: _number(v) and _exact(b, v) and v.bound != (), lambda x: {
    "dim": d.number(0, len(x.bound) - 1), "k": d.number(1, 3), "largest": d.chance(0.7)}, "t_topk"), 0.5)  # fmt: skip
def _topk(b: Core, s: Step) -> None:
    """The best along a dimension: where they are, and then the elements."""
    x, dim = b.read(s), s["dim"]
    need(_number(x) and _exact(b, x) and dim < len(x.bound) and s["k"] <= x.bound[dim])
    shape = [s["k"] if k == dim else n for k, n in enumerate(x.bound)]
    args = {"self": x, "k": s["k"], "dim": dim, "largest": bool(s["largest"])}
    places = b.op("topk_indices", args, b.new(shape, I64))
    found = b.new(shape, x.dtype)
    b.keep(b.op("gather", {"self": x, "dim": dim, "index": places}, found))


# ------------------------------------------------------------------------------------------------- moves and lists


@step("t_expand", lambda d, b: _one(d, b, lambda v: typed(v) and 1 in v.bound, lambda x: {
    "sizes": [d.number(1, 4) if n == 1 else n for n in x.bound]}, "t_expand"), 1)  # fmt: skip
def _expand(b: Core, s: Step) -> None:
    x, shape = b.read(s), s["sizes"]
    need(typed(x) and len(shape) == len(x.bound))
    need(all(n in (1, m) for n, m in zip(x.bound, shape, strict=True)))
    b.keep(b.op("expand", {"self": x, "size": list(shape)}, b.new(shape, x.dtype)))


def _draw_rearrange(d: Draw, b: Core) -> Step | None:
    at = d.value(b.values, lambda v: typed(v) and v.bound != ())
    if at is None:
        return None
    rank = len(b.values[at].bound)
    kind, dim = d.one(("flip", "roll", "repeat")), d.number(0, rank - 1)
    return {"op": "t_rearrange", "in": [at], "kind": kind, "dim": dim, "by": d.number(1, 3)}


@step("t_rearrange", _draw_rearrange, 1)
def _rearrange(b: Core, s: Step) -> None:
    x, dim, by = b.read(s), s["dim"], s["by"]
    need(typed(x) and dim < len(x.bound))
    shape, args = list(x.bound), {"self": x}
    if s["kind"] == "flip":
        args |= {"dims": [dim]}  # type: ignore[dict-item]
    elif s["kind"] == "roll":
        args |= {"shifts": [by], "dims": [dim]}  # type: ignore[dict-item]
    else:
        shape[dim] *= by
        args |= {"repeats": [by if k == dim else 1 for k in range(len(shape))]}  # type: ignore[dict-item]
    b.keep(b.op(s["kind"], args, b.new(shape, x.dtype)))


@step("t_select", lambda d, b: _one(d, b, lambda v: typed(v) and v.bound != (), lambda x: {
    "dim": d.number(0, len(x.bound) - 1), "count": d.number(1, 5), "seed": d.seed()}, "t_select"), 1)  # fmt: skip
def _select(b: Core, s: Step) -> None:
    """Rows along a dimension, by a constant list."""
    x, dim = b.read(s), s["dim"]
    need(typed(x) and dim < len(x.bound))
    index = b.constant(b.rng(s).integers(0, x.bound[dim], s["count"]).astype(np.int64))
    shape = [s["count"] if k == dim else n for k, n in enumerate(x.bound)]
    b.keep(b.op("index_select", {"self": x, "dim": dim, "index": index}, b.new(shape, x.dtype)))


@step("t_scatter", lambda d, b: _one(d, b, lambda v: _number(v) and v.bound != (), lambda x: {
    "dim": d.number(0, len(x.bound) - 1), "kind": d.one(("scatter_add", "index_put")), "seed": d.seed()},
    "t_scatter"), 0.7)  # fmt: skip
def _scatter(b: Core, s: Step) -> None:
    """Half of a tensor's own elements, added or written at places of a constant list."""
    x, dim, rng = b.read(s), s["dim"], b.rng(s)
    need(_number(x) and dim < len(x.bound))
    count = max(1, x.bound[dim] // 2)
    part = [count if k == dim else n for k, n in enumerate(x.bound)]
    source = b.op("slice", {"self": x, "start": [0] * len(part), "length": part}, b.new(part, x.dtype))
    out = b.new(x.bound, x.dtype)
    if s["kind"] == "scatter_add":
        index = b.constant(rng.integers(0, x.bound[dim], part).astype(np.int64))
        b.keep(b.op("scatter_add", {"self": x, "dim": dim, "index": index, "src": source}, out))
        return
    b.keep(_put(b, s, x, source, out))


def _put(b: Core, s: Step, x: Value, rows: Value, out: Value) -> Value:
    """Rows written at different places along a dimension."""
    dim = s["dim"]
    places = b.constant(b.rng(s).permutation(x.bound[dim])[: rows.bound[dim]].astype(np.int64))
    indices = [places if k == dim else None for k in range(dim + 1)]
    return b.op("index_put", {"self": x, "indices": indices, "values": rows, "accumulate": False}, out)


@step("t_update", lambda d, b: _one(d, b, lambda v: _number(v) and v.bound != () and _given(b, v), lambda x: {
    "dim": d.number(0, len(x.bound) - 1), "seed": d.seed()}, "t_update"), 1)  # fmt: skip
def _update(b: Core, s: Step) -> None:
    """Rows of an input overwritten, as those of a key-value cache are: in place, if nothing reads it later."""
    x, dim = b.read(s), s["dim"]
    need(_number(x) and _given(b, x) and dim < len(x.bound))
    part = [max(1, n // 2) if k == dim else n for k, n in enumerate(x.bound)]
    rows = b.constant(b.rng(s).integers(-9, 9, part).astype(x.dtype))
    b.keep(_put(b, s, x, rows, b.new(x.bound, x.dtype)))


@step("t_bands", lambda d, b: _one(d, b, lambda v: single(v) and v.bound != (), lambda x: {
    "dim": d.number(0, len(x.bound) - 1), "count": d.number(1, 9), "seed": d.seed()}, "t_bands"), 0.6)  # fmt: skip
def _bands(b: Core, s: Step) -> None:
    """Sums of neighbours along a dimension, as resizing has them."""
    x, dim, rng = b.read(s), s["dim"], b.rng(s)
    need(single(x) and dim < len(x.bound) and s["count"] > 0)
    size, width = x.bound[dim], min(3, x.bound[dim])
    counts = rng.integers(1, width + 1, s["count"])
    starts = rng.integers(0, size - counts + 1)
    held = {"starts": starts.astype(np.int64), "counts": counts.astype(np.int64),
            "weights": rng.uniform(-1, 1, (s["count"], width)).astype(np.float32)}  # fmt: skip
    shape = [s["count"] if k == dim else n for k, n in enumerate(x.bound)]
    args = {"self": x, "dim": dim, **{name: b.constant(data) for name, data in held.items()}}
    b.keep(b.op("separable_resize", args, b.new(shape, F32)))


@step("t_norm", lambda d, b: _one(d, b, lambda v: single(v) and v.bound != () and v.bound[-1] > 1, lambda x: {
    "kind": d.one(("layer_norm", "rms_norm", "group_norm")), "seed": d.seed()}, "t_norm"), 1)  # fmt: skip
def _norm(b: Core, s: Step) -> None:
    x, kind, rng = b.read(s), s["kind"], b.rng(s)
    need(single(x) and x.bound and x.bound[-1] > 1)
    out = b.new(x.bound, F32)
    if kind == "group_norm":
        need(len(x.bound) >= 3 and math.prod(x.bound[2:]) > 1)
        groups = 2 if x.bound[1] % 2 == 0 else 1
        factors = [b.constant(rng.uniform(0.5, 1.5, x.bound[1]).astype(np.float32)) for _ in range(2)]
        b.keep(
            b.op(kind, {"input": x, "num_groups": groups, "weight": factors[0], "bias": factors[1], "eps": 1e-2}, out)
        )
        return
    factors = [b.constant(rng.uniform(0.5, 1.5, x.bound[-1]).astype(np.float32)) for _ in range(2)]
    args: dict[str, Any] = {"input": x, "normalized_shape": [x.bound[-1]], "weight": factors[0], "eps": 1e-2}
    b.keep(b.op(kind, {**args, **({"bias": factors[1]} if kind == "layer_norm" else {})}, out))
