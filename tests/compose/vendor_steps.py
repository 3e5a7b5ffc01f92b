"""Steps that all vendors' dialects have, on the words of ``Vendor``."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from edgewright.ir.graph import Array, Value
from tests.compose.draw import Draw
from tests.compose.spec import Step, need
from tests.compose.vendor import Geometry, Vendor, draw_q, macs, step


def _some(d: Draw, b: Vendor, fits: Callable[[Value], bool], make: Callable[[int], Step]) -> Step | None:
    at = d.value(b.values, fits)
    return None if at is None else make(at)


def _image(d: Draw, b: Vendor, make: Callable[[int], Step]) -> Step | None:
    return _some(d, b, b.image, make)


def _bias(b: Vendor, s: Step, channels: int, scale: float) -> Array:
    return np.asarray(b.rng(s).standard_normal(channels) * 0.3 * scale)


def _window(d: Draw) -> dict[str, Any]:
    k = d.weighted({1: 4.0, 3: 5.0, 5: 1.0, 2: 0.6, 7: 0.3})
    kernel = [k, k] if d.chance(0.85) else [d.one((1, 2, 3)), d.one((1, 3, 5))]
    padding = [n for k in kernel for n in ((k - 1) // 2, k // 2)]
    if d.chance(0.2):
        padding = [d.number(0, max(0, k - 1)) if d.chance(0.5) else 0 for k in kernel for _ in range(2)]
    return {"kernel": kernel, "padding": padding, "stride": d.one(([1, 1], [1, 1], [2, 2], [1, 2])),
            "dilation": [1, 1] if d.chance(0.9) else [2, 2]}  # fmt: skip


def _geometry(s: Step, groups: int = 1) -> Geometry:
    kernel, stride, dilation = (tuple(s[n]) for n in ("kernel", "stride", "dilation"))
    need(min(*kernel, *stride, *dilation) > 0)
    return Geometry(kernel, stride, tuple(s["padding"]), dilation, groups)  # type: ignore[arg-type]


@step("conv2d", lambda d, b: _image(d, b, lambda at: {
    "op": "conv2d", "in": [at], "channels": d.channels() if d.chance(0.7) else b.channels(b.values[at]), "groups": 1,
    **_window(d), "act": d.one((None, None, *b.acts)), "per_channel": d.chance(0.8), "q": draw_q(d),
    "seed": d.seed()}))  # fmt: skip
def _conv(b: Vendor, s: Step) -> None:
    x = b.read(s)
    need(b.image(x) and s["channels"] > 0)
    groups, channels, inputs = s["groups"], s["channels"], b.channels(x)
    need(inputs % groups == 0 and channels % groups == 0)
    g = _geometry(s, groups)
    sizes, depth = g.sizes(b.hw(x)), math.prod(g.kernel) * inputs // groups
    macs(math.prod(sizes) * x.bound[0] * channels * depth)
    w, scales = b.weights(x, (channels, *g.kernel, inputs // groups), depth, s)
    out = b.result(x, scales, b.picture(x.bound[0], sizes, channels), depth, s)
    _finish(b, s, b.emit_conv(x, w, scales, _bias(b, s, channels, 1.0), g, out, deep=False))


def _finish(b: Vendor, s: Step, made: Value) -> None:
    if s.get("act"):
        made = b.emit_act(s["act"], made, b.moved(made, made.bound))
    b.keep(made)


@step("depthwise", lambda d, b: _image(d, b, lambda at: {
    "op": "depthwise", "in": [at], **_window(d), "act": d.one((None, None, *b.acts)), "per_channel": d.chance(0.8),
    "q": draw_q(d), "seed": d.seed()}))  # fmt: skip
def _depthwise(b: Vendor, s: Step) -> None:
    x = b.read(s)
    need(b.image(x))
    channels = b.channels(x)
    g = _geometry(s, channels)
    sizes, depth = g.sizes(b.hw(x)), math.prod(g.kernel)
    macs(math.prod(sizes) * x.bound[0] * channels * depth)
    w, scales = b.weights(x, (channels, *g.kernel), depth, s)
    out = b.result(x, scales, b.picture(x.bound[0], sizes, channels), depth, s)
    filters = np.ascontiguousarray(w.transpose(1, 2, 0)[None])
    _finish(b, s, b.emit_conv(x, filters, scales, _bias(b, s, channels, 1.0), g, out, deep=True))


@step("transposed", lambda d, b: _image(d, b, lambda at: {
    "op": "transposed", "in": [at], "channels": d.channels(), "kernel": d.one(([2, 2], [3, 3], [2, 3])),
    "stride": d.one(([2, 2], [2, 2], [1, 2])), "padding": [0, 0, 0, 0], "dilation": [1, 1],
    "per_channel": d.chance(0.8), "q": draw_q(d), "seed": d.seed()}))  # fmt: skip
def _transposed(b: Vendor, s: Step) -> None:
    x = b.read(s)
    need(b.image(x) and s["channels"] > 0)
    g = _geometry(s)
    sizes = [(n - 1) * st + k for n, st, k in zip(b.hw(x), g.stride, g.kernel, strict=True)]
    depth = b.channels(x) * math.prod(g.kernel)
    macs(math.prod(b.hw(x)) * x.bound[0] * s["channels"] * depth)
    w, scales = b.weights(x, (s["channels"], *g.kernel, b.channels(x)), depth, s)
    out = b.result(x, scales, b.picture(x.bound[0], sizes, s["channels"]), b.channels(x), s)
    b.keep(b.emit_transposed(x, w, scales, _bias(b, s, s["channels"], 1.0), g, out))


@step(
    "linear",
    lambda d, b: _some(
        d,
        b,
        lambda v: len(v.bound) >= 2,
        lambda at: {
            "op": "linear",
            "in": [at],
            "channels": d.channels(),
            "per_channel": False,
            "q": draw_q(d),
            "seed": d.seed(),
        },
    ),
)
def _linear(b: Vendor, s: Step) -> None:
    x = b.read(s)
    need(len(x.bound) >= 2 and s["channels"] > 0)
    depth = x.bound[-1]
    macs(math.prod(x.bound) * s["channels"])
    w, scales = b.weights(x, (s["channels"], depth), depth, s)
    out = b.result(x, scales, (*x.bound[:-1], s["channels"]), depth, s)
    b.keep(b.emit_linear(x, w, scales, _bias(b, s, s["channels"], 1.0), out))


def _draw_matmul(d: Draw, b: Vendor) -> Step | None:
    left = d.value(b.values, lambda v: 3 <= len(v.bound) <= 4)
    if left is None:
        return None
    x = b.values[left]
    right = d.value(b.values, lambda v: v.dtype == x.dtype and v.bound[:-2] == x.bound[:-2] and
                    v.bound[-2] == x.bound[-1])  # fmt: skip
    return None if right is None else {"op": "matmul", "in": [left, right], "q": draw_q(d)}


@step("matmul", _draw_matmul)
def _matmul(b: Vendor, s: Step) -> None:
    x, y = b.reads(s)
    need(len(x.bound) == len(y.bound) >= 3 and x.bound[:-2] == y.bound[:-2] and x.bound[-1] == y.bound[-2])
    need(x.dtype == y.dtype)
    shape = (*x.bound[:-1], y.bound[-1])
    macs(math.prod(shape) * x.bound[-1])
    scale = b.unit(x) * b.unit(y) * math.sqrt(x.bound[-1]) * 40 if b.quantized(x) else 1.0
    b.keep(b.emit_matmul(x, y, b.like(x, shape, scale, s)))


# ------------------------------------------------------------------------------------------------------- elements


def _broadcasts(x: Value, y: Value) -> bool:
    try:
        return len(np.broadcast_shapes(x.bound, y.bound)) <= 4 and len(x.bound) == len(y.bound)
    except ValueError:
        return False


def _draw_binary(d: Draw, b: Vendor) -> Step | None:
    first = d.value(b.values, lambda v: True)
    if first is None:
        return None
    x = b.values[first]
    second = d.value(b.values, lambda v: v.dtype == x.dtype and _broadcasts(x, v))
    pair = [first, second] if d.chance(0.5) else [second, first]
    return None if second is None else {"op": "binary", "in": pair, "kind": d.one(b.binaries), "q": draw_q(d)}


@step("binary", _draw_binary)
def _binary(b: Vendor, s: Step) -> None:
    x, y, kind = *b.reads(s), s["kind"]
    need(x.dtype == y.dtype and _broadcasts(x, y) and kind in b.binaries)
    shape = np.broadcast_shapes(x.bound, y.bound)
    if not b.quantized(x):
        out = b.made(shape, x.dtype, None)
    elif kind in ("maximum", "minimum"):
        need(b.quant(x) == b.quant(y))
        out = b.moved(x, shape)
    else:
        first, second = b.unit(x), b.unit(y)
        out = b.like(x, shape, first * second * 40 if kind == "mul" else float(np.hypot(first, second)), s)
    b.keep(b.emit_binary(kind, x, y, out))


def _draw_function(d: Draw, b: Vendor) -> Step | None:
    at = d.value(b.values, lambda v: True)
    if at is None:
        return None
    kinds = b.functions if b.quantized(b.values[at]) else b.real_functions
    return {"op": "function", "in": [at], "kind": d.one(kinds), "q": draw_q(d)} if kinds else None


@step("function", _draw_function)
def _function(b: Vendor, s: Step) -> None:
    x, kind = b.read(s), s["kind"]
    need(kind in (b.functions if b.quantized(x) else b.real_functions))
    b.keep(b.emit_function(kind, x, b.like(x, x.bound, 0.015, s)))


@step("act", lambda d, b: _some(d, b, lambda v: True, lambda at: {"op": "act", "in": [at], "kind": d.one(b.acts)}))
def _act(b: Vendor, s: Step) -> None:
    x = b.read(s)
    need(s["kind"] in b.acts)
    b.keep(b.emit_act(s["kind"], x, b.moved(x, x.bound)))


@step("softmax", lambda d, b: _some(d, b, lambda v: len(v.bound) >= 2, lambda at: {"op": "softmax", "in": [at]}))
def _softmax(b: Vendor, s: Step) -> None:
    x = b.read(s)
    need(len(x.bound) >= 2)
    b.keep(b.emit_softmax(x, b.like(x, x.bound, 1 / 256, {"q": (1.0, -128)})))


def _draw_convert(d: Draw, b: Vendor) -> Step | None:
    return _some(d, b, lambda v: True, lambda at: {
        "op": "convert", "in": [at], "to": d.one(tuple(b.types)), "q": draw_q(d)})  # fmt: skip


@step("convert", _draw_convert)
def _convert(b: Vendor, s: Step) -> None:
    x, target = b.read(s), np.dtype(b.types[s["to"]])
    factor, zero = s["q"]
    scale = (b.unit(x) if b.quantized(x) else 0.02) * factor
    q = None if target.kind == "f" else b.q_of(target, scale, int(zero))
    need(q is not None or b.quantized(x))
    b.keep(b.emit_convert(x, b.made(x.bound, target, q)))


@step("norm", lambda d, b: _some(d, b, lambda v: len(v.bound) >= 2 and v.bound[-1] > 1, lambda at: {
    "op": "norm", "in": [at], "kind": d.one(("layer", "rms", "group")), "q": draw_q(d), "seed": d.seed()}))  # fmt: skip
def _norm(b: Vendor, s: Step) -> None:
    x, rng = b.read(s), b.rng(s)
    need(len(x.bound) >= 2 and x.bound[-1] > 1)
    need(s["kind"] != "group" or (b.image(x) and math.prod(b.hw(x)) > 1), "a group of several pixels")
    size = b.channels(x) if s["kind"] == "group" else x.bound[-1]
    factors = [rng.uniform(0.5, 1.5, size).astype(np.float32), rng.normal(size=size).astype(np.float32)]
    b.keep(b.emit_norm(s["kind"], x, factors, b.like(x, x.bound, 0.03, s)))


# ---------------------------------------------------------------------------------------------------------- moves


@step("gather", lambda d, b: _some(d, b, lambda v: len(v.bound) == 3, lambda at: {
    "op": "gather", "in": [at], "count": d.number(1, 6), "seed": d.seed()}))  # fmt: skip
def _gather(b: Vendor, s: Step) -> None:
    x = b.read(s)
    need(len(x.bound) == 3 and s["count"] > 0)
    places = b.rng(s).integers(0, x.bound[1], s["count"]).astype(np.int32)
    b.keep(b.emit_gather(x, places, b.moved(x, (x.bound[0], s["count"], x.bound[2]))))


def _draw_cat(d: Draw, b: Vendor) -> Step | None:
    at = d.value(b.values, lambda v: True)
    if at is None:
        return None
    x = b.values[at]
    dim = b.last(x) if d.chance(0.7) else d.number(0, len(x.bound) - 1)
    parts = [at]
    for _ in range(d.number(1, 3)):
        more = d.value(b.values, lambda v: _joins(b, x, v, dim))
        parts += [] if more is None else [more]
    d.random.shuffle(parts)
    return {"op": "cat", "in": parts, "dim": dim}


def _joins(b: Vendor, x: Value, y: Value, dim: int) -> bool:
    rest = lambda v: (*v.bound[:dim], *v.bound[dim + 1 :])  # noqa: E731
    return len(x.bound) == len(y.bound) > dim and x.dtype == y.dtype and rest(x) == rest(y)


@step("cat", _draw_cat)
def _cat(b: Vendor, s: Step) -> None:
    values, dim = b.reads(s), s["dim"]
    x = values[0]
    need(len(values) >= 2 and all(_joins(b, x, v, dim) for v in values))
    parts = [_same_scale(b, x, v) for v in values]
    shape = list(x.bound)
    shape[dim] = sum(v.bound[dim] for v in values)
    b.keep(b.emit_cat(parts, dim, b.moved(x, shape)))


def _same_scale(b: Vendor, x: Value, v: Value) -> Value:
    if not b.quantized(x) or b.quant(x) == b.quant(v):
        return v
    return b.emit_convert(v, b.moved(x, v.bound))


def _draw_slice(d: Draw, b: Vendor) -> Step | None:
    at = d.value(b.values, lambda v: max(v.bound) > 1)
    if at is None:
        return None
    shape = b.values[at].bound
    dim = d.one([k for k, n in enumerate(shape) if n > 1] + [b.last(b.values[at])])
    start = d.number(0, shape[dim] - 1)
    half = shape[dim] // 2
    if half and d.chance(0.5):
        return {"op": "slice", "in": [at], "dim": dim, "start": d.one((0, shape[dim] - half)), "length": half}
    return {"op": "slice", "in": [at], "dim": dim, "start": start, "length": d.number(1, shape[dim] - start)}


@step("slice", _draw_slice)
def _slice(b: Vendor, s: Step) -> None:
    x, dim = b.read(s), s["dim"]
    need(dim < len(x.bound) and s["start"] >= 0 and s["length"] > 0 and s["start"] + s["length"] <= x.bound[dim])
    starts, lengths = [0] * len(x.bound), list(x.bound)
    starts[dim], lengths[dim] = s["start"], s["length"]
    b.keep(b.emit_slice(x, starts, lengths, b.moved(x, lengths)))


def _draw_permute(d: Draw, b: Vendor) -> Step | None:
    at = d.value(b.values, lambda v: len(v.bound) > 1)
    if at is None:
        return None
    dims = list(range(len(b.values[at].bound)))
    d.random.shuffle(dims)
    return {"op": "permute", "in": [at], "dims": dims}


@step("permute", _draw_permute)
def _permute(b: Vendor, s: Step) -> None:
    x, dims = b.read(s), s["dims"]
    need(sorted(dims) == list(range(len(x.bound))))
    b.keep(b.emit_permute(x, dims, b.moved(x, [x.bound[k] for k in dims])))


def _draw_reshape(d: Draw, b: Vendor) -> Step | None:
    at = d.value(b.values, lambda v: True)
    if at is None:
        return None
    shape = list(b.values[at].bound)
    how = d.one(("flat", "rows", "join", "split", "image"))
    if how == "flat":
        shape = [shape[0], math.prod(shape[1:])]
    elif how == "rows" and len(shape) == 4:
        shape = [shape[0], shape[1] * shape[2], shape[3]]
    elif how == "join" and len(shape) > 2:
        k = d.number(0, len(shape) - 2)
        shape[k : k + 2] = [shape[k] * shape[k + 1]]
    elif how == "image" and len(shape) == 3:
        shape = [shape[0], 1, shape[1], shape[2]]
    elif len(shape) < 4:
        factor = next((f for f in (4, 3, 2) if shape[-1] % f == 0), 1)
        shape[-1:] = [factor, shape[-1] // factor]
    return {"op": "reshape", "in": [at], "shape": shape}


@step("reshape", _draw_reshape)
def _reshape(b: Vendor, s: Step) -> None:
    x = b.read(s)
    need(math.prod(x.bound) == math.prod(s["shape"]) and len(s["shape"]) >= 2)
    b.keep(b.emit_reshape(x, s["shape"], b.moved(x, s["shape"])))


def _draw_pad(d: Draw, b: Vendor) -> Step | None:
    at = d.value(b.values, lambda v: len(v.bound) > 1)
    if at is None:
        return None
    rank = len(b.values[at].bound)
    before, after = [0] * rank, [0] * rank
    k = d.number(1, rank - 1)
    before[k], after[k] = d.number(0, 2), d.number(0, 2)
    return {"op": "pad", "in": [at], "before": before, "after": after}


@step("pad", _draw_pad)
def _pad(b: Vendor, s: Step) -> None:
    x = b.read(s)
    need(len(s["before"]) == len(x.bound))
    shape = [n + p + r for n, p, r in zip(x.bound, s["before"], s["after"], strict=True)]
    b.keep(b.emit_pad(x, s["before"], s["after"], b.moved(x, shape)))


# -------------------------------------------------------------------------------------------------------- windows


@step(
    "pool",
    lambda d, b: _image(
        d,
        b,
        lambda at: {
            "op": "pool",
            "in": [at],
            "kind": d.one(("max", "avg")),
            "kernel": d.one(([2, 2], [3, 3], [3, 2])),
            "stride": d.one(([1, 1], [2, 2])),
            "padding": d.one(([0, 0, 0, 0], [1, 1, 1, 1])),
            "dilation": [1, 1],
        },
    ),
)
def _pool(b: Vendor, s: Step) -> None:
    x = b.read(s)
    need(b.image(x))
    g = _geometry(s)
    need(max(g.padding[:2]) < g.kernel[0] and max(g.padding[2:]) < g.kernel[1])
    sizes = g.sizes(b.hw(x))
    out = b.moved(x, b.picture(x.bound[0], sizes, b.channels(x)))
    b.keep(b.emit_pool(s["kind"], x, g, out))


def _draw_reduce(d: Draw, b: Vendor) -> Step | None:
    at = d.value(b.values, lambda v: len(v.bound) >= 2)
    if at is None:
        return None
    x = b.values[at]
    spatial = [k for k in range(1, len(x.bound)) if k != b.last(x)] or [1]
    axes = spatial if d.chance(0.6) else [d.number(1, len(x.bound) - 1)]
    return {"op": "reduce", "in": [at], "kind": d.one(("mean", "sum", "max")), "axes": axes, "keep": d.chance(0.7),
            "q": draw_q(d)}  # fmt: skip


@step("reduce", _draw_reduce)
def _reduce(b: Vendor, s: Step) -> None:
    x, axes = b.read(s), s["axes"]
    need(axes and max(axes) < len(x.bound) and len(set(axes)) == len(axes))
    shape = [1 if k in axes else n for k, n in enumerate(x.bound) if s["keep"] or k not in axes]
    need(len(shape) >= 1)
    count = math.prod(x.bound[k] for k in axes)
    scale = 1.0
    if b.quantized(x) and s["kind"] != "max":
        scale = b.unit(x) * (0.3 if s["kind"] == "mean" else math.sqrt(count))
    out = b.moved(x, shape) if s["kind"] == "max" else b.like(x, shape, scale, s)
    b.keep(b.emit_reduce(s["kind"], x, axes, bool(s["keep"]), out))


@step("resize", lambda d, b: _image(d, b, lambda at: {
    "op": "resize", "in": [at], "mode": d.one(("nearest", "bilinear"))}))  # fmt: skip
def _resize(b: Vendor, s: Step) -> None:
    x = b.read(s)
    need(b.image(x))
    out = b.moved(x, b.picture(x.bound[0], [2 * n for n in b.hw(x)], b.channels(x)))
    b.keep(b.emit_resize(s["mode"], x, out))
