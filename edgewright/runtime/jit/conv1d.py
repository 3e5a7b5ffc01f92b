"""Convolutions of sequences, and transposed ones, as operators of a device graph."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from edgewright.ir.graph import Array, Value
from edgewright.runtime.jit.graph_builder import Maker, new
from edgewright.runtime.jit.registry import Args, otherwise
from edgewright.runtime.tensor import TensorSlot

_TO_PIXELS, _TO_PLANES = (0, 2, 3, 1), (0, 3, 1, 2)


def _two(numbers: Sequence[int], rank: int, alone: int) -> list[int]:
    """Of height and width; a sequence is an image of one row."""
    listed = [int(n) for n in numbers]
    listed = listed * rank if len(listed) == 1 else listed
    return [alone] * (2 - len(listed)) + listed


def filters_of(w: Array, groups: int, transposed: bool) -> Array:
    """Output channels, height, width, input channels of a group."""
    if not transposed:
        return w.transpose(0, 2, 3, 1)
    inputs, each, high, wide = w.shape
    parts = w.reshape(groups, inputs // groups, each, high, wide).transpose(0, 2, 3, 4, 1)
    return parts.reshape(groups * each, high, wide, inputs // groups)


@otherwise("aten::convolution.out")
def _convolution(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, w, b, out = a["input"], m.constant(a["weight"]), a["bias"], outs[0]
    rank = len(x.bound) - 2
    known = w is not None and w.dtype == x.dtype and w.ndim == rank + 2 and (b is None or m.constant(b) is not None)
    if not (m.usable(x, b, out) and known and rank in (1, 2)) or w is None or m.constant(x) is not None:
        return False
    groups, transposed = int(a["groups"]), bool(a["transposed"])
    channels = w.shape[1] * groups if transposed else w.shape[0]
    if groups < 1 or w.shape[0] % groups or out.bound[:2] != (x.bound[0], channels):
        return False
    stride, dilation = (_two(a[name], rank, 1) for name in ("stride", "dilation"))
    pads, extra = (_two(a[name], rank, 0) for name in ("padding", "output_padding"))
    if any(e >= s for e, s in zip(extra, stride, strict=True)):
        return False  # more than a stride: a kernel has it
    image = _image(m, x, rank)
    data = np.ascontiguousarray(filters_of(w.reshape(*w.shape[:2], -1, w.shape[-1]), groups, transposed))
    args = {
        "input": image, "weight": new(data.shape, data), "bias": None if b is None else new(b.bound, m.constant(b)),
        "stride": stride, "dilation": dilation, "groups": groups, "output_padding": extra if transposed else [0, 0],
        "padding": [pads[0], pads[0], pads[1], pads[1]],
    }  # fmt: skip
    shape = (x.bound[0], *((1,) if rank == 1 else ()), *out.bound[2:], channels)
    m.macs += math.prod(out.bound) * math.prod(w.shape[1:])
    made = m.between("conv_transpose2d" if transposed else "conv2d", shape, args)
    if rank == 2:
        m.bind(out, made, pixels=True)
    else:
        turned = m.between("permute", tuple(shape[d] for d in _TO_PLANES), {"self": made, "dims": list(_TO_PLANES)})
        m.add("view", out, {"self": turned, "size": list(out.bound)})
    return True


def _image(m: Maker, x: TensorSlot, rank: int) -> Value:
    """With channels last; a sequence has one row."""
    if rank == 2:
        return m.pixels(x)
    planes = m.viewed(m.planes(x), (*x.bound[:2], 1, x.bound[2]))
    return m.between("permute", tuple(planes.bound[d] for d in _TO_PIXELS), {"self": planes, "dims": list(_TO_PIXELS)})
