"""Core steps that move elements, and windows: pools, resizing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from edgewright.ir.graph import Value
from tests.compose.builder import F32
from tests.compose.core import (
    Core,
    arithmetic,
    byte,
    draw_limits,
    draw_q,
    image,
    out_q,
    plain,
    real,
    scale_of,
    single,
    step,
)
from tests.compose.draw import Draw
from tests.compose.spec import Step, need


def _some(v: Value) -> bool:
    return plain(v) and 1 <= len(v.bound) <= 5


def _draw_permute(d: Draw, b: Core) -> Step | None:
    at = d.value(b.values, lambda v: _some(v) and len(v.bound) > 1)
    if at is None:
        return None
    rank = len(b.values[at].bound)
    dims = list(range(rank))
    if rank == 4 and d.chance(0.5):
        dims = d.one(([0, 3, 1, 2], [0, 2, 3, 1], [0, 2, 1, 3]))
    else:
        d.random.shuffle(dims)
    return {"op": "permute", "in": [at], "dims": dims}


@step("permute", _draw_permute, 2)
def _permute(b: Core, s: Step) -> None:
    x, dims = b.read(s), s["dims"]
    need(plain(x) and sorted(dims) == list(range(len(x.bound))))
    out = b.new([x.bound[k] for k in dims], x.dtype, x.q)
    b.keep(b.op("permute", {"self": x, "dims": list(dims)}, out))


def _draw_view(d: Draw, b: Core) -> Step | None:
    at = d.value(b.values, _some)
    if at is None:
        return None
    shape = list(b.values[at].bound)
    how = d.one(("join", "split", "flat", "pixels", "image"))
    if how == "join" and len(shape) > 1:
        k = d.number(0, len(shape) - 2)
        shape[k : k + 2] = [shape[k] * shape[k + 1]]
    elif how == "split" and len(shape) < 5:
        k = d.number(0, len(shape) - 1)
        factor = next((f for f in d.one(((2, 3), (4, 2), (1,))) if shape[k] % f == 0), 1)
        shape[k : k + 1] = [factor, shape[k] // factor] if d.chance(0.5) else [shape[k] // factor, factor]
    elif how == "flat":
        shape = [shape[0], math.prod(shape[1:])]
    elif how == "pixels" and len(shape) == 4:
        shape = [shape[0], shape[1] * shape[2], shape[3]]
    elif how == "image" and len(shape) in (2, 3):
        shape = [shape[0], 1, math.prod(shape[1:-1]), shape[-1]]
    return {"op": "view", "in": [at], "shape": shape}


@step("view", _draw_view, 2)
def _view(b: Core, s: Step) -> None:
    x = b.read(s)
    need(plain(x) and math.prod(x.bound) == math.prod(s["shape"]) and s["shape"])
    b.keep(b.op("view", {"self": x, "size": list(s["shape"])}, b.new(s["shape"], x.dtype, x.q)))


def _draw_slice(d: Draw, b: Core) -> Step | None:
    at = d.value(b.values, lambda v: _some(v) and max(v.bound) > 1)
    if at is None:
        return None
    shape = b.values[at].bound
    dim = d.one([k for k, n in enumerate(shape) if n > 1] + [len(shape) - 1])
    if d.chance(0.5):  # one of equal parts
        parts = 2 if shape[dim] % 2 == 0 else 3 if shape[dim] % 3 == 0 else 1
        length = shape[dim] // parts
        return {"op": "slice", "in": [at], "dim": dim, "start": d.number(0, parts - 1) * length, "length": length}
    start = d.number(0, shape[dim] - 1)
    return {"op": "slice", "in": [at], "dim": dim, "start": start, "length": d.number(1, shape[dim] - start)}


@step("slice", _draw_slice, 2.5)
def _slice(b: Core, s: Step) -> None:
    x, dim = b.read(s), s["dim"]
    need(plain(x) and dim < len(x.bound) and s["start"] >= 0 and s["length"] > 0)
    need(s["start"] + s["length"] <= x.bound[dim])
    starts, lengths = [0] * len(x.bound), list(x.bound)
    starts[dim], lengths[dim] = s["start"], s["length"]
    b.keep(b.op("slice", {"self": x, "start": starts, "length": lengths}, b.new(lengths, x.dtype, x.q)))


def joinable(x: Value, y: Value, dim: int) -> bool:
    rest = lambda v: (*v.bound[:dim], *v.bound[dim + 1 :])  # noqa: E731
    return len(x.bound) == len(y.bound) and x.dtype == y.dtype and rest(x) == rest(y) and plain(x) and plain(y)


def _draw_cat(d: Draw, b: Core) -> Step | None:
    at = d.value(b.values, _some)
    if at is None:
        return None
    x = b.values[at]
    dim = len(x.bound) - 1 if d.chance(0.7) else d.number(0, len(x.bound) - 1)
    parts = [at]
    for _ in range(d.number(1, 3)):
        more = d.value(b.values, lambda v: joinable(x, v, dim) and (v.q is None) == (x.q is None))
        parts += [] if more is None else [more]
    d.random.shuffle(parts)
    return {"op": "cat", "in": parts, "dim": dim, "q": draw_q(d)}


@step("cat", _draw_cat, 3)
def _cat(b: Core, s: Step) -> None:
    """Bytes of other scales than the first one's are converted before, as quantized graphs have it."""
    values, dim = b.reads(s), s["dim"]
    x = values[0]
    need(
        all(plain(v) and dim < len(v.bound) and joinable(x, v, dim) and (v.q is None) == (x.q is None) for v in values)
    )
    parts = [v if v.q == x.q else b.op("convert", {"self": v}, b.new(v.bound, q=x.q)) for v in values]
    shape = list(x.bound)
    shape[dim] = sum(v.bound[dim] for v in values)
    need(2 <= len(parts) <= 5)
    b.keep(b.op("cat", {"tensors": parts, "dim": dim}, b.new(shape, x.dtype, x.q)))


def _draw_pad(d: Draw, b: Core) -> Step | None:
    at = d.value(b.values, lambda v: _some(v) and arithmetic(v))
    if at is None:
        return None
    rank = len(b.values[at].bound)
    before, after = [0] * rank, [0] * rank
    for _ in range(d.number(1, 2)):
        k = d.number(0, rank - 1)
        before[k], after[k] = d.number(0, 2), d.number(0, 2)
    return {"op": "pad", "in": [at], "before": before, "after": after, "value": d.one((0.0, 0.0, 0.5, -1.0))}


@step("pad", _draw_pad, 1)
def _pad(b: Core, s: Step) -> None:
    x = b.read(s)
    need(arithmetic(x) and len(s["before"]) == len(x.bound))
    shape = [n + p + r for n, p, r in zip(x.bound, s["before"], s["after"], strict=True)]
    args = {"self": x, "before": list(s["before"]), "after": list(s["after"]), "value": s["value"]}
    b.keep(b.op("pad", args, b.new(shape, x.dtype, x.q)))


@step("shuffle", lambda d, b: None if (at := d.value(b.values, lambda v: _some(v) and v.bound[-1] % 2 == 0)) is None
      else {"op": "shuffle", "in": [at], "groups": 2}, 1)  # fmt: skip
def _shuffle(b: Core, s: Step) -> None:
    """Channels of several groups, one of each in turn."""
    x, groups = b.read(s), s["groups"]
    need(_some(x) and x.bound[-1] % groups == 0 and len(x.bound) <= 4)
    each = x.bound[-1] // groups
    rank = len(x.bound)
    apart = b.op("view", {"self": x, "size": [*x.bound[:-1], groups, each]},
                 b.new([*x.bound[:-1], groups, each], x.dtype, x.q))  # fmt: skip
    dims = [*range(rank - 1), rank, rank - 1]
    turned = b.op("permute", {"self": apart, "dims": dims}, b.new([*x.bound[:-1], each, groups], x.dtype, x.q))
    b.keep(b.op("view", {"self": turned, "size": list(x.bound)}, b.new(x.bound, x.dtype, x.q)))


# -------------------------------------------------------------------------------------------------------- windows


def _draw_pool(d: Draw, b: Core) -> Step | None:
    kind = d.one(("max_pool2d", "max_pool2d", "avg_pool2d"))
    at = d.value(b.values, lambda v: image(v) and (real(v) or (byte(v) and kind == "max_pool2d")))
    if at is None:
        return None
    kernel = d.one(([2, 2], [3, 3], [3, 3], [5, 5], [1, 2], [3, 2]))
    padding = [k // 2 for k in kernel for _ in range(2)] if d.chance(0.6) else [0, 0, 0, 0]
    stride = d.one(([1, 1], [2, 2], [2, 2], [2, 1]))
    limits = draw_limits(d) if kind == "avg_pool2d" or not byte(b.values[at]) else None
    return {"op": "pool", "kind": kind, "in": [at], "kernel": kernel, "stride": stride, "padding": padding,
            "limits": limits}  # fmt: skip


@step("pool", _draw_pool, 1.5)
def _pool(b: Core, s: Step) -> None:
    x, kind, pads, kernel = b.read(s), s["kind"], s["padding"], s["kernel"]
    need(image(x) and (real(x) or (byte(x) and kind == "max_pool2d")))
    need(all(p < k for p, k in zip((max(pads[:2]), max(pads[2:])), kernel, strict=True)), "a window sees a pixel")
    sizes = [(n + p + r - k) // st + 1 for n, p, r, k, st in
             zip(x.bound[1:3], pads[::2], pads[1::2], kernel, s["stride"], strict=True)]  # fmt: skip
    need(min(sizes) > 0)
    need(all((m - 1) * st < n + p for m, st, n, p in zip(sizes, s["stride"], x.bound[1:3], pads[::2], strict=True)))
    args: dict[str, Any] = {"self": x, "kernel_size": list(kernel), "stride": list(s["stride"]), "padding": list(pads)}
    if kind == "max_pool2d":
        args["dilation"] = [1, 1]
    out = b.new((x.bound[0], *sizes, x.bound[3]), x.dtype, x.q)
    b.keep(b.op(kind, {**args, **b.limits(s.get("limits"), out)}, out))


@step("global_pool", lambda d, b: None if (at := d.value(b.values, lambda v: image(v) and arithmetic(v))) is None
      else {"op": "global_pool", "in": [at], "q": draw_q(d), "limits": draw_limits(d)}, 0.6)  # fmt: skip
def _global_pool(b: Core, s: Step) -> None:
    x = b.read(s)
    need(image(x) and arithmetic(x))
    q = out_q(x, scale_of(x) * 0.3, s) if byte(x) else None
    out = b.new((x.bound[0], 1, 1, x.bound[3]), x.dtype, q)
    b.keep(b.op("global_avg_pool2d", {"self": x, **b.limits(s.get("limits"), out)}, out))


def _draw_resize(d: Draw, b: Core) -> Step | None:
    at = d.value(b.values, lambda v: image(v) and single(v))
    if at is None:
        return None
    size = [n * 2 for n in b.values[at].bound[1:3]] if d.chance(0.6) else [d.number(1, 9), d.number(1, 9)]
    return {"op": "resize", "in": [at], "size": size, "corners": d.chance(0.4)}


@step("resize", _draw_resize, 0.6)
def _resize(b: Core, s: Step) -> None:
    x = b.read(s)
    need(image(x) and single(x) and min(s["size"]) > 0)
    out = b.new((x.bound[0], *s["size"], x.bound[3]), F32)
    args = {"input": x, "output_size": list(s["size"]), "align_corners": bool(s["corners"])}
    b.keep(b.op("upsample_bilinear2d", args, out))


def elements(v: Value) -> int:
    return int(np.prod(v.bound, dtype=np.int64))
