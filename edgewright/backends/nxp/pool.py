"""Lowering of pools, resizing and reductions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.backends.nxp.elementwise import Lower
from edgewright.backends.nxp.lower import NeutronLowering, result, zero_of
from edgewright.backends.table import over, pool_arguments
from edgewright.ir.graph import Op, Value
from edgewright.ir.tflite.table import VALID
from edgewright.lowering.passes.layout import NHWC, common_order

_LEAST = -128  # smaller than nothing else: what a largest element is padded with


def spatial(op: Op) -> int:
    """1 for sequences, 2 for images."""
    return 1 if op.kind.endswith("1d") else 2


def window(op: Op) -> tuple[list[int], list[int], list[int]]:
    """Window, step and padding before (and after) of each dimension; a sequence is an image one pixel high."""
    if op.kind.startswith("adaptive"):
        dims = spatial(op)
        sizes = zip(op.args["self"].bound[-dims:], result(op).bound[-dims:], strict=True)
        kernel = [-(-n // max(m, 1)) for n, m in sizes]
        return (kernel, kernel, [0, 0]) if dims == 2 else ([1, *kernel], [1, *kernel], [0, 0])
    kernel, stride, pads, _ = pool_arguments(op)
    if spatial(op) == 1:
        return [1, kernel[-1]], [1, stride[-1]], [0, pads[-1]]
    return kernel, stride, [pads[0], pads[2]]


def pool(kind: str) -> Lower:
    def lower(low: NeutronLowering, op: Op) -> None:
        x, out, dims = op.args["self"], result(op), spatial(op)
        rank = len(x.shape)
        channel = rank - dims - 1
        order = (*range(channel), *range(channel + 1, rank), channel)
        held = low.get(x, order)
        inner = list(held.bound[channel:])
        count = int(np.prod(held.bound[:channel]))
        image = low.reshaped(held, [count, *([1] if dims == 1 else []), *inner])
        kernel, stride, pads = window(op)
        border = _LEAST if kind.startswith("MAX") else zero_of(x)
        image = low.padded(image, [(0, 0), *((p, p) for p in pads), (0, 0)], border)
        made = low.node(kind, _pooled(image, kernel, stride), out.q, [image], padding=VALID, stride_h=stride[0],
                        stride_w=stride[1], filter_h=kernel[0], filter_w=kernel[1])  # fmt: skip
        low.finish(op, order, low.reshaped(made, [out.bound[d] for d in order]))

    return lower


def _pooled(image: Value, kernel: Sequence[int], stride: Sequence[int]) -> list[int]:
    n, *size, c = image.bound
    return [n, *((m - k) // s + 1 for m, k, s in zip(size, kernel, stride, strict=True)), c]


def image_of(op: Op) -> Value:
    value: Value = op.args["input"] if "input" in op.args else op.args["self"]
    return value


def resize(kind: str) -> Lower:
    def lower(low: NeutronLowering, op: Op) -> None:
        out, aligned = result(op), bool(op.args.get("align_corners", False))
        smooth = kind == "RESIZE_BILINEAR"
        operands = [low.get(image_of(op), NHWC), low.numbers(list(out.bound[2:]))]
        shape = [out.bound[d] for d in NHWC]
        options: dict[str, Any] = {"align_corners": aligned, "half_pixel_centers": smooth and not aligned}
        low.finish(op, NHWC, low.node(kind, shape, out.q, operands, **options))

    return lower


def reduced(kind: str) -> Lower:
    """Along dimensions, wherever they are held."""

    def lower(low: NeutronLowering, op: Op) -> None:
        x, out, dims = op.args["self"], result(op), over(op)
        rank = len(x.shape)
        order, keep = common_order(low, op, rank), bool(op.args.get("keepdim", False))
        axes = sorted(order.index(d) for d in dims)
        final = order if keep else tuple(d - sum(g < d for g in dims) for d in order if d not in dims)
        operands = [low.get(x, order), low.numbers(axes)]
        made = low.node(kind, [out.bound[d] for d in final], out.q, operands, keep_dims=keep)
        low.finish(op, final, made)

    return lower
