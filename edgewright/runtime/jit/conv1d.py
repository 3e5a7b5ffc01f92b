"""Lowering of 1-d and transposed convolutions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from edgewright.ir.graph import Array, Value
from edgewright.runtime.jit.graph_builder import GraphBuilder, make_value
from edgewright.runtime.jit.registry import Args, lowers_fallback
from edgewright.runtime.tensor import TensorSlot

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
def _convolution(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, w, b, out = a["input"], g.constant(a["weight"]), a["bias"], outs[0]
    rank = len(x.bound) - 2
    constant = w is not None and w.dtype == x.dtype and w.ndim == rank + 2 and (b is None or g.constant(b) is not None)
    if not (g.supports_float(x, b, out) and constant and rank in (1, 2)) or w is None or g.constant(x) is not None:
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
        "bias": None if b is None else make_value(b.bound, g.constant(b)),
        "stride": stride, "dilation": dilation, "groups": groups, "padding": [pads[0], pads[0], pads[1], pads[1]],
        "output_padding": output_padding if transposed else [0, 0],
    }  # fmt: skip
    shape = (x.bound[0], *((1,) if rank == 1 else ()), *out.bound[2:], channels)
    g.macs += math.prod(out.bound) * math.prod(w.shape[1:])
    result = g.emit("conv_transpose2d" if transposed else "conv2d", shape, args)
    if rank == 2:
        g.bind(out, result, nhwc=True)
    else:
        nchw = g.emit("permute", tuple(shape[d] for d in _TO_NCHW), {"self": result, "dims": list(_TO_NCHW)})
        g.emit_to("view", out, {"self": nchw, "size": list(out.bound)})
    return True


def _nhwc_input(g: GraphBuilder, x: TensorSlot, rank: int) -> Value:
    """The input in NHWC; a sequence becomes an image of height 1."""
    if rank == 2:
        return g.value_nhwc(x)
    planes = g.view(g.value(x), (*x.bound[:2], 1, x.bound[2]))
    return g.emit("permute", tuple(planes.bound[d] for d in _TO_NHWC), {"self": planes, "dims": list(_TO_NHWC)})
