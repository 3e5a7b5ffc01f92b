"""Kernel calls that pool and resize images, as operators of a device graph.

A mean of windows and a resized image are sums of neighbours with weights, first along one side and then the other. The
weights are what the kernel itself makes of images that are 0 but for one row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from edgewright.ir.aten.reference import pool, resample
from edgewright.ir.graph import Array, Value
from edgewright.runtime.jit.graph_builder import Maker, new
from edgewright.runtime.jit.registry import Args, taken
from edgewright.runtime.tensor import TensorSlot

_LARGEST = 4096  # of a side: a square of it is what weights are found with
Narrow = Callable[[Array], Any]  # what a kernel makes of images one pixel wide


def bands(narrow: Narrow, size: int) -> dict[str, Value]:
    """Where neighbours start, how many they are, and their weights, for each result along a side."""
    made = np.asarray(narrow(np.eye(size, dtype=np.float32)[None, :, :, None]), np.float32)[0, :, :, 0].T
    used = made != 0
    starts = used.argmax(1)
    counts = np.where(used.any(1), size - used[:, ::-1].argmax(1) - starts, 1)
    taps = int(counts.max())
    columns = np.minimum(starts[:, None] + np.arange(taps), size - 1)
    weights = np.where(np.arange(taps) < counts[:, None], np.take_along_axis(made, columns, 1), 0)
    arrays = {"starts": starts.astype(np.int32), "counts": counts.astype(np.int32), "weights": weights}
    return {name: new(a.shape, np.ascontiguousarray(a)) for name, a in arrays.items()}


def separable(m: Maker, x: TensorSlot, out: TensorSlot, sides: Sequence[Narrow]) -> bool:
    """Along height, then along width."""
    rank = len(x.bound)
    if not m.usable(x, out) or rank not in (3, 4) or m.constant(x) is not None or max(x.bound[-2:]) > _LARGEST:
        return False
    pixels = m.like([x])
    value, dims = (m.pixels(x), (1, 2)) if pixels else (m.planes(x), (rank - 2, rank - 1))
    try:
        found = [bands(narrow, value.bound[d]) for narrow, d in zip(sides, dims, strict=True)]
    except (ValueError, ArithmeticError):
        return False  # the kernel says what is wrong
    if tuple(b["starts"].bound[0] for b in found) != out.bound[-2:]:
        return False
    high = (*value.bound[: dims[0]], out.bound[-2], *value.bound[dims[0] + 1 :])
    between = m.between("bands", high, {"self": value, "dim": dims[0], **found[0]})
    m.add("bands", out, {"self": between, "dim": dims[1], **found[1]}, pixels=pixels)
    m.macs += 4 * math.prod(out.bound)
    return True


def _two(given: Any, default: Any = None) -> list[Any]:
    listed = list(given) if given else list(default or [])
    return listed * 2 if len(listed) == 1 else listed


@taken("aten::avg_pool2d.out")
def _avg_pool(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    kernel = _two(a["kernel_size"])
    stride, padding = _two(a["stride"], kernel), _two(a["padding"])
    divisor = a["divisor_override"]
    if any(len(v) != 2 for v in (kernel, stride, padding)) or divisor == 0:
        return False

    def along(i: int) -> Narrow:
        def narrow(image: Array) -> Any:
            window, step, pads = ([v[i], n] for v, n in ((kernel, 1), (stride, 1), (padding, 0)))
            share = None if divisor is None else 1
            made = pool.avg_pool2d(image, window, step, pads, a["ceil_mode"], a["count_include_pad"], share)
            return made / (divisor if divisor is not None and i == 0 else 1)

        return narrow

    return separable(m, a["self"], outs[0], [along(0), along(1)])


def _averaged(count: int, image: Array) -> Any:
    return pool.adaptive_avg_pool2d(image, [count, 1])


@taken("aten::_adaptive_avg_pool2d.out")
def _adaptive(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    sides = [partial(_averaged, int(n)) for n in _two(a["output_size"])]
    return len(sides) == 2 and separable(m, a["self"], outs[0], sides)


@taken("aten::upsample_bilinear2d.vec_out")
def _bilinear(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    factors = _two(a["scale_factors"]) or [None, None]
    return _resized(m, a["input"], outs[0], resample.resize_bilinear2d, a["align_corners"], factors)


@taken("aten::_upsample_bilinear2d_aa.out")
def _antialiased(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    factors = [a["scales_h"], a["scales_w"]]
    return _resized(m, a["self"], outs[0], resample.upsample_bilinear2d_aa, a["align_corners"], factors)


def _resized(m: Maker, x: TensorSlot, out: TensorSlot, resize: Any, align: bool, factors: Sequence[Any]) -> bool:
    if len(out.bound) != 4 or len(factors) != 2:
        return False

    def along(i: int) -> Narrow:
        return lambda image: resize(image, [out.bound[2 + i], 1], align, factors[i], None)

    return separable(m, x, out, [along(0), along(1)])


@taken("aten::max_pool2d_with_indices.out")
def _max_pool(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    """Where the largest lie is not told: a call of which that is read stays a call."""
    x, out = a["self"], outs[0]
    kernel = _two(a["kernel_size"])
    stride, padding, dilation = _two(a["stride"], kernel), _two(a["padding"]), _two(a["dilation"])
    if not m.usable(x, out) or not m.image(x) or any(len(v) != 2 for v in (kernel, stride, padding, dilation)):
        return False
    if min(*kernel, *stride, *dilation) < 1 or any(not 0 <= 2 * p <= k for p, k in zip(padding, kernel, strict=True)):
        return False
    pads = []
    for i, (size, count) in enumerate(zip(x.bound[2:], out.bound[2:], strict=True)):
        reach = (count - 1) * stride[i] + dilation[i] * (kernel[i] - 1) + 1
        pads += [padding[i], max(reach - size - padding[i], 0)]
    args = {"self": m.pixels(x), "kernel_size": kernel, "stride": stride, "padding": pads, "dilation": dilation}
    m.add("max_pool2d", out, args, pixels=True)
    m.macs += math.prod(out.bound) * kernel[0] * kernel[1]
    return True
