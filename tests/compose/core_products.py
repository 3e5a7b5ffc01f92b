"""Core steps with weights: convolutions, linear layers, and products of two matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.ir.dtypes import bfloat16
from edgewright.ir.graph import QParams, Value
from tests.compose.builder import F32, I8, MOST_MACS
from tests.compose.core import (
    Core,
    arithmetic,
    bias_of,
    byte,
    draw_limits,
    draw_q,
    dynamic,
    fits_macs,
    image,
    int_weights,
    out_q,
    real,
    scale_of,
    step,
    weights_of,
)
from tests.compose.draw import Draw
from tests.compose.spec import Step, need


def _result(b: Core, x: Value, wq: QParams | None, shape: Sequence[int], depth: int, s: Step) -> Value:
    """The output of a product of ``x``: real numbers, or bytes whose scale fits sums of ``depth`` products."""
    if not byte(x):
        return b.new(shape, F32 if dynamic(x) else x.dtype)
    assert wq is not None
    scale = scale_of(x) * float(np.mean(np.asarray(wq.scale))) * math.sqrt(depth) * 90
    return b.new(shape, q=out_q(x, scale, s))


def _weight(b: Core, x: Value, shape: Sequence[int], axis: int, depth: int, s: Step) -> Value:
    """Filters as the input's type asks for them; dynamically quantized inputs have integer ones of ``bits``."""
    rng = b.rng(s)
    if not byte(x) and not dynamic(x):
        return b.constant(weights_of(rng, shape, depth).astype(x.dtype))
    if s.get("bits", 8) == 4:
        return _four_bits(b, rng, shape, s.get("block"), depth)
    data, q = int_weights(rng, shape, axis, depth, bool(s.get("per_channel", True)) or dynamic(x))
    return b.constant(data, q)


def _four_bits(b: Core, rng: np.random.Generator, shape: Sequence[int], block: int | None, depth: int) -> Value:
    count = shape[0] * (shape[-1] // block if block else 1)
    scales = np.asarray((rng.random(count) + 0.3) * 0.3 / math.sqrt(depth), np.float32)
    if block:
        scales = scales.astype(bfloat16).astype(np.float32)
    q = QParams(tuple(scales.tolist()), 0, I8, -8, 7, 0, block)
    return b.constant(rng.integers(-8, 8, shape).astype(np.int8), q)


# --------------------------------------------------------------------------------------------------- convolutions


def _window(d: Draw, size: Sequence[int]) -> dict[str, Any]:
    """A kernel that fits the image, mostly square, padded to keep the size."""
    k = d.weighted({1: 4.0, 3: 5.0, 5: 1.5, 2: 0.7, 7: 0.5, 4: 0.3})
    kernel = [k, k] if d.chance(0.85) else [d.one((1, 2, 3, 5)), d.one((1, 2, 3, 5))]
    dilation = [1, 1] if d.chance(0.9) else [d.number(1, 2), d.number(1, 3)]
    reach = [dd * (kk - 1) for dd, kk in zip(dilation, kernel, strict=True)]
    padding = [reach[0] // 2, reach[0] - reach[0] // 2, reach[1] // 2, reach[1] - reach[1] // 2]
    if d.chance(0.2):
        padding = [d.number(0, max(1, kernel[0] - 1)) if d.chance(0.5) else 0 for _ in range(4)]
    stride = [1, 1] if d.chance(0.7) else [d.number(1, 2), d.number(1, 3)] if d.chance(0.3) else [2, 2]
    return {"kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation}


def _convolved(v: Value) -> bool:
    """An image; a dynamically quantized one has one scale for all of its pixels."""
    return image(v) and (arithmetic(v) or (dynamic(v) and _axis(v) == -3))


def _axis(v: Value) -> int | None:
    return None if v.q is None else v.q.axis


def _draw_conv(d: Draw, b: Core) -> Step | None:
    at = d.value(b.values, _convolved)
    if at is None:
        return None
    x = b.values[at]
    window = _window(d, x.bound[1:3])
    channels = d.channels() if d.chance(0.7) else x.bound[3]
    groups = next((g for g in (2, 3, 4) if x.bound[3] % g == 0), 1) if d.chance(0.08) else 1
    channels = -(-channels // groups) * groups
    return {"op": "conv2d", "in": [at], "channels": channels, "groups": groups, **window, "bias": d.chance(0.8),
            "limits": draw_limits(d), "per_channel": d.chance(0.8), "q": draw_q(d), "seed": d.seed()}  # fmt: skip


@step("conv2d", _draw_conv, 4)
def _conv(b: Core, s: Step) -> None:
    x = b.read(s)
    need(_convolved(x))
    groups, channels, inputs = s["groups"], s["channels"], x.bound[3]
    need(groups >= 1 and inputs % groups == 0 and channels % groups == 0 and channels > 0, "groups divide channels")
    size = _sizes(x, s)
    _convolve(b, x, "conv2d", s, (channels, *s["kernel"], inputs // groups), 0, (x.bound[0], *size, channels))


def _sizes(x: Value, s: Step) -> list[int]:
    pads = s["padding"]
    sizes = [(n + p + r - dd * (k - 1) - 1) // st + 1 for n, p, r, dd, k, st in
             zip(x.bound[1:3], pads[::2], pads[1::2], s["dilation"], s["kernel"], s["stride"],
                 strict=True)]  # fmt: skip
    need(min(sizes) > 0 and min(s["stride"]) > 0, "the window fits")
    return sizes


def _convolve(b: Core, x: Value, kind: str, s: Step, shape: Sequence[int], axis: int, out: Sequence[int]) -> None:
    depth = math.prod(shape[1:]) if axis == 0 else math.prod(shape[1:3])
    fits_macs(math.prod(out) * depth, MOST_MACS * b.times)
    weight = _weight(b, x, shape, axis, depth, s)
    made = _result(b, x, weight.q, out, depth, s)
    bias = bias_of(b, b.rng(s), shape[axis], x, weight.q) if s["bias"] else None
    args = {"input": x, "weight": weight, "bias": bias, "stride": list(s["stride"]), "padding": list(s["padding"]),
            "dilation": list(s["dilation"]), "groups": s["groups"],
            "output_padding": s.get("extra", [0, 0])}  # fmt: skip
    b.keep(b.op(kind, {**args, **b.limits(s.get("limits"), made)}, made))


def _draw_depthwise(d: Draw, b: Core) -> Step | None:
    at = d.value(b.values, lambda v: image(v) and arithmetic(v))
    if at is None:
        return None
    window = _window(d, b.values[at].bound[1:3])
    return {"op": "depthwise", "in": [at], **window, "times": 2 if d.chance(0.06) else 1, "bias": d.chance(0.8),
            "limits": draw_limits(d), "per_channel": d.chance(0.8), "q": draw_q(d), "seed": d.seed()}  # fmt: skip


@step("depthwise", _draw_depthwise, 3)
def _depthwise(b: Core, s: Step) -> None:
    x = b.read(s)
    need(image(x) and arithmetic(x))
    channels = x.bound[3] * s["times"]
    s = {**s, "groups": x.bound[3]}
    _convolve(b, x, "depthwise_conv2d", s, (1, *s["kernel"], channels), 3, (x.bound[0], *_sizes(x, s), channels))


def _draw_transposed(d: Draw, b: Core) -> Step | None:
    at = d.value(b.values, lambda v: image(v) and arithmetic(v))
    if at is None:
        return None
    kernel = [d.one((1, 2, 3, 4)), d.one((2, 3))]
    stride = [2, 2] if d.chance(0.7) else [d.number(1, 3), d.number(1, 2)]
    padding = [0, 0, 0, 0] if d.chance(0.6) else d.one(([1, 1, 1, 1], [0, 1, 0, 1], [1, 1, 0, 0], [0, 0, 0, 1]))
    extra = [d.number(0, stride[0] - 1), d.number(0, stride[1] - 1)] if d.chance(0.2) else [0, 0]
    groups = 2 if b.values[at].bound[3] % 2 == 0 and d.chance(0.15) else 1
    return {"op": "transposed", "in": [at], "kernel": kernel, "stride": stride, "padding": padding, "extra": extra,
            "dilation": [1, 1] if d.chance(0.9) else [1, 2], "groups": groups, "channels": d.channels() * groups,
            "bias": d.chance(0.8), "limits": draw_limits(d), "per_channel": groups == 1 and d.chance(0.8),
            "q": draw_q(d), "seed": d.seed()}  # fmt: skip


@step("transposed", _draw_transposed, 0.7)
def _transposed(b: Core, s: Step) -> None:
    x = b.read(s)
    need(image(x) and arithmetic(x))
    groups, channels = s["groups"], s["channels"]
    need(x.bound[3] % groups == 0 and channels % groups == 0 and channels > 0)
    need(all(0 <= e < st for e, st in zip(s["extra"], s["stride"], strict=True)))
    pads = s["padding"]
    sizes = [(n - 1) * st + dd * (k - 1) + 1 + e - p - r for n, st, dd, k, e, p, r in
             zip(x.bound[1:3], s["stride"], s["dilation"], s["kernel"], s["extra"], pads[::2], pads[1::2],
                 strict=True)]  # fmt: skip
    need(min(sizes) > 0)
    shape = (channels, *s["kernel"], x.bound[3] // groups)
    _convolve(b, x, "conv_transpose2d", s, shape, 0, (x.bound[0], *sizes, channels))


# ------------------------------------------------------------------------------------------------------- matrices


def _multiplied(v: Value) -> bool:
    return 1 <= len(v.bound) <= 5 and (arithmetic(v) or (dynamic(v) and _axis(v) == -1))


def _draw_linear(d: Draw, b: Core) -> Step | None:
    at = d.value(b.values, _multiplied)
    if at is None:
        return None
    x = b.values[at]
    made: Step = {"op": "linear", "in": [at], "channels": d.channels(), "transposed": d.chance(0.15),
                  "bias": d.chance(0.8), "limits": draw_limits(d), "q": draw_q(d), "seed": d.seed()}  # fmt: skip
    if dynamic(x) and d.chance(0.4):
        made |= {"bits": 4, "transposed": False}
        blocks = [n for n in (32, 64) if x.bound[-1] % n == 0]
        if blocks and d.chance(0.6):
            made["block"] = d.one(blocks)
    if byte(x):
        made |= {"per_channel": not made["transposed"] and d.chance(0.8)}
    return made


@step("linear", _draw_linear, 2)
def _linear(b: Core, s: Step) -> None:
    x = b.read(s)
    need(_multiplied(x))
    if s.get("bits", 8) == 4:
        need(dynamic(x) and (s.get("block") is None or x.bound[-1] % s["block"] == 0))
    depth, channels, transposed = x.bound[-1], s["channels"], bool(s.get("transposed"))
    need(channels > 0 and not (transposed and dynamic(x)))
    out = (*x.bound[:-1], channels)
    fits_macs(math.prod(out) * depth, MOST_MACS * b.times)
    weight = _weight(b, x, (depth, channels) if transposed else (channels, depth), int(transposed), depth, s)
    made = _result(b, x, weight.q, out, depth, s)
    bias = bias_of(b, b.rng(s), channels, x, weight.q) if s["bias"] else None
    args = {"input": x, "weight": weight, "bias": bias, "transposed": transposed}
    b.keep(b.op("linear", {**args, **b.limits(s.get("limits"), made)}, made))


def _draw_bmm(d: Draw, b: Core) -> Step | None:
    left = d.value(b.values, lambda v: real(v) and 3 <= len(v.bound) <= 4)
    if left is None:
        return None
    x = b.values[left]
    right = d.value(b.values, lambda v: v.dtype == x.dtype and real(v) and v.bound[:-2] == x.bound[:-2]
                    and x.bound[-1] in v.bound[-2:])  # fmt: skip
    if right is None:
        return None
    flip = b.values[right].bound[-2] != x.bound[-1] or (b.values[right].bound[-1] == x.bound[-1] and d.chance(0.5))
    return {"op": "bmm", "in": [left, right], "flip": flip}


@step("bmm", _draw_bmm, 1)
def _bmm(b: Core, s: Step) -> None:
    x, y = b.reads(s)
    need(real(x) and real(y) and x.dtype == y.dtype and len(x.bound) == len(y.bound) >= 3)
    if s["flip"]:
        rank = len(y.bound)
        dims = [*range(rank - 2), rank - 1, rank - 2]
        y = b.op("permute", {"self": y, "dims": dims}, b.new([y.bound[k] for k in dims], y.dtype))
    need(x.bound[:-2] == y.bound[:-2] and x.bound[-1] == y.bound[-2])
    out = (*x.bound[:-1], y.bound[-1])
    fits_macs(math.prod(out) * x.bound[-1], MOST_MACS)
    scaled = b.op("bmm", {"self": x, "other": y}, b.new(out, x.dtype))
    share = b.constant(np.asarray(1 / math.sqrt(x.bound[-1]), x.dtype))
    b.keep(b.op("mul", {"self": scaled, "other": share}, b.new(out, x.dtype)))


def _draw_rows(d: Draw, b: Core) -> Step | None:
    at = d.value(b.values, lambda v: v.q is None and v.dtype == F32 and 1 <= len(v.bound) <= 4)
    if at is None:
        return None
    shape = b.values[at].bound
    return {"op": "quantize_rows", "in": [at], "axis": -3 if len(shape) == 4 and d.chance(0.6) else -1}


@step("quantize_rows", _draw_rows, 2)
def _rows(b: Core, s: Step) -> None:
    """One scale per row (or image) found at run time; only products read it."""
    x = b.read(s)
    need(x.q is None and x.dtype == F32 and len(x.bound) >= -s["axis"])
    q = QParams(1.0, 0, I8, -128, 127, axis=s["axis"], dynamic="per_token")
    b.keep(b.op("convert", {"self": x}, b.new(x.bound, q=q)))
