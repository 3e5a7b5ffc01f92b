"""Convolutions of images, batch norms and matrix products as operators of a device graph."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.ir.graph import Array
from edgewright.runtime.jit.graph_builder import Maker, new
from edgewright.runtime.jit.registry import Args, taken
from edgewright.runtime.tensor import TensorSlot


def _pair(numbers: Sequence[int]) -> list[int]:
    return [int(n) for n in numbers] * (2 // len(numbers)) if len(numbers) in (1, 2) else []


@taken("aten::convolution.out")
def _convolution(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, w, b = a["input"], m.constant(a["weight"]), a["bias"]
    lists = [_pair(a[name]) for name in ("stride", "padding", "dilation")]
    known = w is not None and w.ndim == 4 and w.dtype == x.dtype and (b is None or m.constant(b) is not None)
    if not (m.usable(x, b, *outs) and m.image(x) and known and all(lists)) or a["transposed"] or w is None:
        return False
    (stride, pads, dilation), groups = lists, a["groups"]
    depthwise = groups > 1 and groups == x.bound[1] and w.shape[1] == 1
    filters = w[:, 0].transpose(1, 2, 0)[None] if depthwise else w.transpose(0, 2, 3, 1)
    m.macs += math.prod(outs[0].bound) * math.prod(w.shape[1:])
    args = {
        "input": m.pixels(x),
        "weight": new(filters.shape, np.ascontiguousarray(filters)),
        "bias": None if b is None else new(b.bound, m.constant(b)),
        "stride": stride,
        "padding": [pads[0], pads[0], pads[1], pads[1]],
        "dilation": dilation,
        "groups": groups,
        "output_padding": [0, 0],
    }
    m.add("depthwise_conv2d" if depthwise else "conv2d", outs[0], args, pixels=True)
    return True


@taken("aten::_native_batch_norm_legit_no_training.out")
def _batch_norm(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    """Into the filters before it, which is where it costs nothing."""
    x, given = a["input"], [a[n] for n in ("weight", "bias", "running_mean", "running_var")]
    values = [m.constant(s) for s in given]
    if not m.usable(x, outs[0], *given) or any(v is None and s is not None for v, s in zip(values, given, strict=True)):
        return False
    if not (m.image(x) and m.is_made(x) and m.only_reader(x)):
        return False
    made = m.pixels(x)
    op = m.makers.get(made)
    mean, variance = values[2], values[3]
    if op is None or op.kind not in ("conv2d", "depthwise_conv2d") or mean is None or variance is None:
        return False
    factor = (1 if values[0] is None else values[0]) / np.sqrt(variance + np.float32(a["eps"]))
    shift = (0 if values[1] is None else values[1]) - mean * factor
    weight, bias = op.args["weight"], op.args["bias"]
    spread = factor if op.kind == "depthwise_conv2d" else factor[:, None, None, None]
    op.args["weight"] = new(weight.bound, (weight.data * spread).astype(np.float32))
    op.args["bias"] = new(factor.shape, (shift if bias is None else bias.data * factor + shift).astype(np.float32))
    m.bind(outs[0], made, pixels=True)
    return True


def _product(m: Maker, x: TensorSlot, w: Array | None, bias: Any, out: TensorSlot, *, turned: bool) -> bool:
    if w is None or w.ndim != 2 or not m.usable(x, out) or w.dtype != x.dtype or len(x.bound) < 1:
        return False
    columns = w.shape[1] if turned else w.shape[0]
    if bias is not None and bias.shape != (columns,):
        return False
    m.macs += math.prod(x.bound) * columns
    added = None if bias is None else new(bias.shape, np.ascontiguousarray(bias))
    weight = new(w.shape, np.ascontiguousarray(w))
    m.add("linear", out, {"input": m.planes(x), "weight": weight, "bias": added, "transposed": turned})
    return True


@taken("aten::addmm.out")
def _addmm(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    bias = m.constant(a["self"])
    if bias is None or a["beta"] != 1 or a["alpha"] != 1:
        return False
    return _product(m, a["mat1"], m.constant(a["mat2"]), bias, outs[0], turned=True)


@taken("aten::mm.out")
def _mm(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    return _product(m, a["self"], m.constant(a["mat2"]), None, outs[0], turned=True)


@taken("aten::linear.out")
def _linear(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    bias = m.constant(a["bias"])
    if a["bias"] is not None and bias is None:
        return False
    return _product(m, a["input"], m.constant(a["weight"]), bias, outs[0], turned=False)
