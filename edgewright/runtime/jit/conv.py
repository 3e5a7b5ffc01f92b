"""Lowering of 2-d convolution, batch norm, and matrix products with constant weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.ir.graph import Array
from edgewright.runtime.jit.graph_builder import GraphBuilder, make_value
from edgewright.runtime.jit.registry import Args, lowers
from edgewright.runtime.tensor import TensorSlot


def _pair(numbers: Sequence[int]) -> list[int]:
    return [int(n) for n in numbers] * (2 // len(numbers)) if len(numbers) in (1, 2) else []


@lowers("aten::convolution.out")
def _convolution(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, w, b = a["input"], g.constant(a["weight"]), a["bias"]
    lists = [_pair(a[name]) for name in ("stride", "padding", "dilation")]
    constant = w is not None and w.ndim == 4 and w.dtype == x.dtype and (b is None or g.constant(b) is not None)
    if (
        not (g.supports_float(x, b, *outs) and g.is_image(x) and constant and all(lists))
        or a["transposed"]
        or w is None
    ):
        return False
    (stride, pads, dilation), groups = lists, a["groups"]
    depthwise = groups > 1 and groups == x.bound[1] and w.shape[1] == 1
    filters = w[:, 0].transpose(1, 2, 0)[None] if depthwise else w.transpose(0, 2, 3, 1)
    g.macs += math.prod(outs[0].bound) * math.prod(w.shape[1:])
    args = {
        "input": g.value_nhwc(x),
        "weight": make_value(filters.shape, np.ascontiguousarray(filters)),
        "bias": None if b is None else make_value(b.bound, g.constant(b)),
        "stride": stride,
        "padding": [pads[0], pads[0], pads[1], pads[1]],
        "dilation": dilation,
        "groups": groups,
        "output_padding": [0, 0],
    }
    g.emit_to("depthwise_conv2d" if depthwise else "conv2d", outs[0], args, nhwc=True)
    return True


@lowers("aten::_native_batch_norm_legit_no_training.out")
def _batch_norm(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    """Fold the batch norm into the weights and bias of the convolution that produces its input."""
    x, slots = a["input"], [a[n] for n in ("weight", "bias", "running_mean", "running_var")]
    values = [g.constant(s) for s in slots]
    if not g.supports_float(x, outs[0], *slots) or any(
        v is None and s is not None for v, s in zip(values, slots, strict=True)
    ):
        return False
    if not (g.is_image(x) and g.is_bound(x) and g.has_single_reader(x)):
        return False
    conv_out = g.value_nhwc(x)
    op = g.producers.get(conv_out)
    mean, variance = values[2], values[3]
    if op is None or op.kind not in ("conv2d", "depthwise_conv2d") or mean is None or variance is None:
        return False
    factor = (1 if values[0] is None else values[0]) / np.sqrt(variance + np.float32(a["eps"]))
    shift = (0 if values[1] is None else values[1]) - mean * factor
    weight, bias = op.args["weight"], op.args["bias"]
    scale = factor if op.kind == "depthwise_conv2d" else factor[:, None, None, None]
    op.args["weight"] = make_value(weight.bound, (weight.data * scale).astype(np.float32))
    op.args["bias"] = make_value(
        factor.shape, (shift if bias is None else bias.data * factor + shift).astype(np.float32)
    )
    g.bind(outs[0], conv_out, nhwc=True)
    return True


def _emit_linear(
    g: GraphBuilder, x: TensorSlot, w: Array | None, bias: Any, out: TensorSlot, *, transposed: bool
) -> bool:
    if w is None or w.ndim != 2 or not g.supports_float(x, out) or w.dtype != x.dtype or len(x.bound) < 1:
        return False
    columns = w.shape[1] if transposed else w.shape[0]
    if bias is not None and bias.shape != (columns,):
        return False
    g.macs += math.prod(x.bound) * columns
    bias_value = None if bias is None else make_value(bias.shape, np.ascontiguousarray(bias))
    weight = make_value(w.shape, np.ascontiguousarray(w))
    g.emit_to("linear", out, {"input": g.value(x), "weight": weight, "bias": bias_value, "transposed": transposed})
    return True


@lowers("aten::addmm.out")
def _addmm(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    bias = g.constant(a["self"])
    if bias is None or a["beta"] != 1 or a["alpha"] != 1:
        return False
    return _emit_linear(g, a["mat1"], g.constant(a["mat2"]), bias, outs[0], transposed=True)


@lowers("aten::mm.out")
def _mm(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    return _emit_linear(g, a["self"], g.constant(a["mat2"]), None, outs[0], transposed=True)


@lowers("aten::linear.out")
def _linear(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    bias = g.constant(a["bias"])
    if a["bias"] is not None and bias is None:
        return False
    return _emit_linear(g, a["input"], g.constant(a["weight"]), bias, outs[0], transposed=False)
