"""Core steps element by element: functions, arithmetic, conversions; and softmax."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.ir.graph import Value
from tests.compose.builder import F16, F32, I8, Builder
from tests.compose.core import (
    TYPES,
    Core,
    arithmetic,
    byte,
    byte_q,
    draw_limits,
    draw_q,
    image,
    like,
    out_q,
    plain,
    real,
    scale_of,
    single,
    step,
)
from tests.compose.draw import Draw
from tests.compose.spec import Step, need

# Functions that keep values of moderate size; what needs a domain is led into it first.
PLAIN = ("sigmoid", "tanh", "abs", "neg", "sin", "cos", "hardswish", "gelu", "square", "floor", "ceil")
GUARDED = ("exp", "log", "sqrt", "rsqrt")


def number(b: Builder, value: float, dtype: Any = F32) -> Value:
    return b.constant(np.asarray(value, dtype))


def _draw_unary(d: Draw, b: Core) -> Step | None:
    at = d.value(b.values, real)
    if at is None:
        return None
    kind = d.one((*PLAIN[:9], *PLAIN[:9], *PLAIN[9:], *GUARDED, "leaky_relu", "elu", "prelu"))
    return {"op": "unary", "in": [at], "kind": kind, "seed": d.seed()}


@step("unary", _draw_unary, 3)
def _unary(b: Core, s: Step) -> None:
    x, kind = b.read(s), s["kind"]
    need(real(x))
    if kind in GUARDED:
        x = _guard(b, x, kind)
    out = b.new(x.bound, x.dtype)
    args: dict[str, Any] = {"self": x}
    if kind == "leaky_relu":
        args["negative_slope"] = 0.125
    elif kind == "elu":
        args["alpha"] = 0.75
    elif kind == "prelu":
        need(x.bound)
        args["weight"] = b.constant((b.rng(s).standard_normal(x.bound[-1]) * 0.3).astype(x.dtype))
    b.keep(b.op(kind, args, out))


def _guard(b: Core, x: Value, kind: str) -> Value:
    """Into the domain of a function, and where it is not steep."""
    if kind == "exp":
        return b.op("clamp", {"self": x, "limits": (-4.0, 2.0)}, b.new(x.bound, x.dtype))
    positive = b.op("abs", {"self": x}, b.new(x.bound, x.dtype))
    return b.op("add", {"self": positive, "other": number(b, 0.5, x.dtype)}, b.new(x.bound, x.dtype))


# ----------------------------------------------------------------------------------------------------- arithmetic


def _draw_binary(d: Draw, b: Core) -> Step | None:
    first = d.value(b.values, arithmetic)
    if first is None:
        return None
    x = b.values[first]
    second = d.value(b.values, lambda v: like(x)(v) and _broadcasts(x, v))
    if second is None:
        return None
    kinds = ("add", "add", "sub", "mul") if byte(x) else ("add", "add", "sub", "mul", "maximum", "minimum", "div")
    pair = [first, second] if d.chance(0.5) else [second, first]
    return {"op": "binary", "in": pair, "kind": d.one(kinds), "limits": draw_limits(d), "q": draw_q(d)}


def _broadcasts(x: Value, y: Value) -> bool:
    try:
        return len(np.broadcast_shapes(x.bound, y.bound)) <= 5
    except ValueError:
        return False


@step("binary", _draw_binary, 3)
def _binary(b: Core, s: Step) -> None:
    x, y = b.reads(s)
    need(arithmetic(x) and like(x)(y) and _broadcasts(x, y))
    shape, kind = np.broadcast_shapes(x.bound, y.bound), s["kind"]
    if byte(x):
        need(kind in ("add", "sub", "mul"))
        first, second = scale_of(x), scale_of(y)
        scale = first * second * 40 if kind == "mul" else float(np.hypot(first, second))
        out = b.new(shape, q=out_q(x, scale, s))
    else:
        y = _guard(b, y, "log") if kind == "div" else y
        out = b.new(shape, x.dtype)
    limits = b.limits(s.get("limits"), out) if kind not in ("maximum", "minimum") else {}
    b.keep(b.op(kind, {"self": x, "other": y, **limits}, out))


def _draw_with_constant(d: Draw, b: Core) -> Step | None:
    at = d.value(b.values, lambda v: arithmetic(v) and v.bound != ())
    if at is None:
        return None
    kinds = ("add", "sub", "mul") if byte(b.values[at]) else ("add", "sub", "mul", "maximum", "minimum")
    shape = d.one(("number", "row", "whole")) if not byte(b.values[at]) else d.one(("row", "whole"))
    return {"op": "with_constant", "in": [at], "kind": d.one(kinds), "shape": shape, "flip": d.chance(0.3),
            "limits": draw_limits(d), "q": draw_q(d), "seed": d.seed()}  # fmt: skip


@step("with_constant", _draw_with_constant, 1)
def _with_constant(b: Core, s: Step) -> None:
    x, kind, rng = b.read(s), s["kind"], b.rng(s)
    need(arithmetic(x) and x.bound)
    shape = {"number": (), "row": x.bound[-1:], "whole": x.bound}[s["shape"]]
    if byte(x):
        need(kind in ("add", "sub", "mul"))
        q = byte_q(0.02, 5, x.dtype)
        other = b.constant(rng.integers(q.qmin, q.qmax + 1, shape).astype(q.dtype), q)
        scale = scale_of(x) * scale_of(other) * 40 if kind == "mul" else float(np.hypot(scale_of(x), 0.02))
        out = b.new(x.bound, q=out_q(x, scale, s))
    else:
        other, out = b.constant(rng.standard_normal(shape).astype(x.dtype)), b.new(x.bound, x.dtype)
    pair = (other, x) if s["flip"] else (x, other)
    limits = b.limits(s.get("limits"), out) if kind not in ("maximum", "minimum") else {}
    b.keep(b.op(kind, {"self": pair[0], "other": pair[1], **limits}, out))


@step("clamp", lambda d, b: _draw_one(d, b, "clamp", limits=d.one(("relu", "relu6", "clip"))), 1.5)
def _clamp(b: Core, s: Step) -> None:
    x = b.read(s)
    need(arithmetic(x))
    out = b.new(x.bound, x.dtype, x.q)
    b.keep(b.op("clamp", {"self": x, **b.limits(s["limits"], out)}, out))


@step("clone", lambda d, b: _draw_one(d, b, "clone"), 0.4)
def _clone(b: Core, s: Step) -> None:
    x = b.read(s)
    need(plain(x))
    b.keep(b.op("clone", {"self": x}, b.new(x.bound, x.dtype, x.q)))


def _draw_one(d: Draw, b: Core, kind: str, **attributes: Any) -> Step | None:
    at = d.value(b.values, plain)
    return None if at is None else {"op": kind, "in": [at], **attributes}


@step("softmax", lambda d, b: None if (at := d.value(b.values, lambda v: real(v) and v.bound != ())) is None
      else {"op": "softmax", "in": [at]}, 0.6)  # fmt: skip
def _softmax(b: Core, s: Step) -> None:
    x = b.read(s)
    need(real(x) and x.bound)
    b.keep(b.op("softmax", {"self": x}, b.new(x.bound, x.dtype)))


# ---------------------------------------------------------------------------------------------------- conversions


def _draw_convert(d: Draw, b: Core) -> Step | None:
    at = d.value(b.values, arithmetic)
    if at is None:
        return None
    x = b.values[at]
    targets = ("f32", "i8") if byte(x) else ("i8", "i8", "f16") if single(x) else ("f32",)
    return {"op": "convert", "in": [at], "to": d.one(targets), "q": draw_q(d)}


@step("convert", _draw_convert, 2)
def _convert(b: Core, s: Step) -> None:
    x, target = b.read(s), TYPES[s["to"]]
    need(arithmetic(x) and not (byte(x) and target == F16) and not (x.dtype == F16 and target != F32))
    if target in (F32, F16):
        out = b.new(x.bound, target)
    else:
        out = b.new(x.bound, q=out_q(Value("", I8), scale_of(x) if byte(x) else 0.02, s))
    b.keep(b.op("convert", {"self": x}, out))


def _draw_table(d: Draw, b: Core) -> Step | None:
    at = d.value(b.values, byte)
    if at is None:
        return None
    kinds = [d.one((*PLAIN, "leaky_relu", "elu")) for _ in range(d.number(1, 2))]
    return {"op": "table", "in": [at], "kinds": kinds, "q": draw_q(d)}


@step("table", _draw_table, 1.5)
def _table(b: Core, s: Step) -> None:
    """Functions of bytes: converted, computed as real numbers, and back."""
    x = b.read(s)
    need(byte(x))
    real_ = b.op("convert", {"self": x}, b.new(x.bound))
    for kind in s["kinds"]:
        more = {"leaky_relu": {"negative_slope": 0.125}, "elu": {"alpha": 0.75}}.get(kind, {})
        real_ = b.op(kind, {"self": real_, **more}, b.new(x.bound))
    b.keep(b.op("convert", {"self": real_}, b.new(x.bound, q=out_q(x, 0.015, s))))


def _draw_gate(d: Draw, b: Core) -> Step | None:
    at = d.value(b.values, lambda v: image(v) and arithmetic(v))
    return None if at is None else {"op": "gate", "in": [at], "q": draw_q(d), "seed": d.seed()}


@step("gate", _draw_gate, 1)
def _gate(b: Core, s: Step) -> None:
    """A global mean that multiplies its own image."""
    x = b.read(s)
    need(image(x) and arithmetic(x))
    shape = (x.bound[0], 1, 1, x.bound[3])
    q = out_q(x, scale_of(x) * 0.3, s) if byte(x) else None
    mean = b.op("global_avg_pool2d", {"self": x}, b.new(shape, x.dtype, q))
    gate = b.op("convert", {"self": mean}, b.new(shape)) if byte(x) else mean
    gate = b.op("sigmoid", {"self": gate}, b.new(shape, F32 if byte(x) else x.dtype))
    if byte(x):
        gate = b.op("convert", {"self": gate}, b.new(shape, q=byte_q(1 / 256, -128, x.dtype)))
        out = b.new(x.bound, q=out_q(x, scale_of(x) * 0.6, s))
    else:
        out = b.new(x.bound, x.dtype)
    b.keep(b.op("mul", {"self": x, "other": gate}, out))
