"""Lowering of 1-d, 2-d and transposed convolutions, batch norm, and matrix products with constant weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.ir.graph import Array, Value
from edgewright.runtime.jit.graph_builder import GraphBuilder, make_value
from edgewright.runtime.jit.registry import Args, lowers, lowers_fallback
from edgewright.runtime.tensor import TensorSlot


def _pair(numbers: Sequence[int]) -> list[int]:
    return [int(n) for n in numbers] * (2 // len(numbers)) if len(numbers) in (1, 2) else []


@lowers("aten::convolution.out")
def _convolution(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, w, b = a["input"], g.constant_data(a["weight"]), a["bias"]
    lists = [_pair(a[name]) for name in ("stride", "padding", "dilation")]
    constant = w is not None and w.ndim == 4 and w.dtype == x.dtype and (b is None or g.constant_data(b) is not None)
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
        "bias": None if b is None else make_value(b.bound, g.constant_data(b)),
        "stride": stride,
        "padding": [pads[0], pads[0], pads[1], pads[1]],
        "dilation": dilation,
        "groups": groups,
        "output_padding": [0, 0],
    }
    g.emit_to("core.depthwise_conv2d" if depthwise else "core.conv2d", outs[0], args, nhwc=True)
    return True


@lowers("aten::_native_batch_norm_legit_no_training.out")
def _batch_norm(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    """Fold the batch norm into the weights and bias of the convolution that produces its input."""
    x, slots = a["input"], [a[n] for n in ("weight", "bias", "running_mean", "running_var")]
    values = [g.constant_data(s) for s in slots]
    if not g.supports_float(x, outs[0], *slots) or any(
        v is None and s is not None for v, s in zip(values, slots, strict=True)
    ):
        return False
    if not (g.is_image(x) and g.is_bound(x) and g.has_single_reader(x)):
        return False
    conv_out = g.value_nhwc(x)
    op = g.producers.get(conv_out)
    mean, variance = values[2], values[3]
    if op is None or op.kind not in ("core.conv2d", "core.depthwise_conv2d") or mean is None or variance is None:
        return False
    factor = (1 if values[0] is None else values[0]) / np.sqrt(variance + np.float32(a["eps"]))
    shift = (0 if values[1] is None else values[1]) - mean * factor
    weight, bias = op.args["weight"], op.args["bias"]
    scale = factor if op.kind == "core.depthwise_conv2d" else factor[:, None, None, None]
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
    g.emit_to("core.linear", out, {"input": g.value(x), "weight": weight, "bias": bias_value, "transposed": transposed})
    return True


@lowers("aten::addmm.out")
def _addmm(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    bias = g.constant_data(a["self"])
    if bias is None or a["beta"] != 1 or a["alpha"] != 1:
        return False
    return _emit_linear(g, a["mat1"], g.constant_data(a["mat2"]), bias, outs[0], transposed=True)


@lowers("aten::mm.out")
def _mm(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    return _emit_linear(g, a["self"], g.constant_data(a["mat2"]), None, outs[0], transposed=True)


@lowers("aten::linear.out")
def _linear(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    bias = g.constant_data(a["bias"])
    if a["bias"] is not None and bias is None:
        return False
    return _emit_linear(g, a["input"], g.constant_data(a["weight"]), bias, outs[0], transposed=False)


_TO_NHWC, _TO_NCHW = (0, 2, 3, 1), (0, 3, 1, 2)


def _height_width(numbers: Sequence[int], rank: int, default: int) -> list[int]:
    """Arguments for height and width; a sequence is an image of height 1."""
    result = [int(n) for n in numbers]
    result = result * rank if len(result) == 1 else result
    return [default] * (2 - len(result)) + result


def weights_ohwi(w: Array, groups: int, transposed: bool) -> Array:
    """Weights as [output channels, height, width, input channels per group]."""
    if not transposed:
        return w.transpose(0, 2, 3, 1)
    inputs, out_per_group, high, wide = w.shape
    grouped = w.reshape(groups, inputs // groups, out_per_group, high, wide).transpose(0, 2, 3, 4, 1)
    return grouped.reshape(groups * out_per_group, high, wide, inputs // groups)


@lowers_fallback("aten::convolution.out")
def _convolution_1d_or_transposed(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, w, b, out = a["input"], g.constant_data(a["weight"]), a["bias"], outs[0]
    rank = len(x.bound) - 2
    constant = (
        w is not None and w.dtype == x.dtype and w.ndim == rank + 2 and (b is None or g.constant_data(b) is not None)
    )
    if not (g.supports_float(x, b, out) and constant and rank in (1, 2)) or w is None or g.constant_data(x) is not None:
        return False
    groups, transposed = int(a["groups"]), bool(a["transposed"])
    channels = w.shape[1] * groups if transposed else w.shape[0]
    if groups < 1 or w.shape[0] % groups or out.bound[:2] != (x.bound[0], channels):
        return False
    stride, dilation = (_height_width(a[name], rank, 1) for name in ("stride", "dilation"))
    pads, output_padding = (_height_width(a[name], rank, 0) for name in ("padding", "output_padding"))
    if any(e >= s for e, s in zip(output_padding, stride, strict=True)):
        return False  # beyond a stride: left to the kernel
    image = _nhwc_input(g, x, rank)
    data = np.ascontiguousarray(weights_ohwi(w.reshape(*w.shape[:2], -1, w.shape[-1]), groups, transposed))
    args = {
        "input": image, "weight": make_value(data.shape, data),
        "bias": None if b is None else make_value(b.bound, g.constant_data(b)),
        "stride": stride, "dilation": dilation, "groups": groups, "padding": [pads[0], pads[0], pads[1], pads[1]],
        "output_padding": output_padding if transposed else [0, 0],
    }  # fmt: skip
    shape = (x.bound[0], *((1,) if rank == 1 else ()), *out.bound[2:], channels)
    g.macs += math.prod(out.bound) * math.prod(w.shape[1:])
    result = g.emit_core("core.conv_transpose2d" if transposed else "core.conv2d", shape, args)
    if rank == 2:
        g.bind(out, result, nhwc=True)
    else:
        nchw = g.emit_core("core.permute", tuple(shape[d] for d in _TO_NCHW), {"self": result, "dims": list(_TO_NCHW)})
        g.emit_to("core.view", out, {"self": nchw, "size": list(out.bound)})
    return True


def _nhwc_input(g: GraphBuilder, x: TensorSlot, rank: int) -> Value:
    """The input in NHWC; a sequence becomes an image of height 1."""
    if rank == 2:
        return g.value_nhwc(x)
    planes = g.view(g.value(x), (*x.bound[:2], 1, x.bound[2]))
    return g.emit_core(
        "core.permute", tuple(planes.bound[d] for d in _TO_NHWC), {"self": planes, "dims": list(_TO_NHWC)}
    )
