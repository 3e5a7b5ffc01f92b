"""Lowering of pooling, resizing and reductions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.backends.nxp.dialect.table import VALID
from edgewright.backends.nxp.elementwise import Lower
from edgewright.backends.nxp.lower import NeutronLowering, output, zero_point
from edgewright.backends.table import pool_params, reduced_dims
from edgewright.ir.graph import Op, Value
from edgewright.lowering.passes.layout import NHWC, common_order

_INT8_MIN = -128  # padding value of a max pool


def spatial_rank(op: Op) -> int:
    """Number of spatial dimensions: 1 or 2."""
    return 1 if op.kind.endswith("1d") else 2


def pool_window(op: Op) -> tuple[list[int], list[int], list[int]]:
    """Kernel size, stride and symmetric padding of each spatial dimension; 1-D becomes 2-D of height 1."""
    if op.kind.startswith("adaptive"):
        dims = spatial_rank(op)
        sizes = zip(op.args["self"].bound[-dims:], output(op).bound[-dims:], strict=True)
        kernel = [-(-n // max(m, 1)) for n, m in sizes]
        return (kernel, kernel, [0, 0]) if dims == 2 else ([1, *kernel], [1, *kernel], [0, 0])
    kernel, stride, pads, _ = pool_params(op)
    if spatial_rank(op) == 1:
        return [1, kernel[-1]], [1, stride[-1]], [0, pads[-1]]
    return kernel, stride, [pads[0], pads[2]]


def pool(kind: str) -> Lower:
    def lower(low: NeutronLowering, op: Op) -> None:
        x, out, dims = op.args["self"], output(op), spatial_rank(op)
        rank = len(x.shape)
        channel = rank - dims - 1
        order = (*range(channel), *range(channel + 1, rank), channel)
        x_value = low.get(x, order)
        inner = list(x_value.bound[channel:])
        count = int(np.prod(x_value.bound[:channel]))
        image = low.reshape(x_value, [count, *([1] if dims == 1 else []), *inner])
        kernel, stride, pads = pool_window(op)
        pad_value = _INT8_MIN if kind.startswith("MAX") else zero_point(x)
        image = low.pad(image, [(0, 0), *((p, p) for p in pads), (0, 0)], pad_value)
        pooled = low.node(kind, _pooled_shape(image, kernel, stride), out.q, [image], padding=VALID, stride_h=stride[0],
                        stride_w=stride[1], filter_h=kernel[0], filter_w=kernel[1])  # fmt: skip
        low.finish(op, order, low.reshape(pooled, [out.bound[d] for d in order]))

    return lower


def _pooled_shape(image: Value, kernel: Sequence[int], stride: Sequence[int]) -> list[int]:
    n, *size, c = image.bound
    return [n, *((m - k) // s + 1 for m, k, s in zip(size, kernel, stride, strict=True)), c]


def image_input(op: Op) -> Value:
    value: Value = op.args["input"] if "input" in op.args else op.args["self"]
    return value


def resize(kind: str) -> Lower:
    def lower(low: NeutronLowering, op: Op) -> None:
        out, aligned = output(op), bool(op.args.get("align_corners", False))
        smooth = kind == "RESIZE_BILINEAR"
        operands = [low.get(image_input(op), NHWC), low.int_constant(list(out.bound[2:]))]
        shape = [out.bound[d] for d in NHWC]
        options: dict[str, Any] = {"align_corners": aligned, "half_pixel_centers": smooth and not aligned}
        low.finish(op, NHWC, low.node(kind, shape, out.q, operands, **options))

    return lower


def reduce(kind: str) -> Lower:
    """A reduction; axes are mapped to the dimension order of the input."""

    def lower(low: NeutronLowering, op: Op) -> None:
        x, out, dims = op.args["self"], output(op), reduced_dims(op)
        rank = len(x.shape)
        order, keepdim = common_order(low, op, rank), bool(op.args.get("keepdim", False))
        axes = sorted(order.index(d) for d in dims)
        final = order if keepdim else tuple(d - sum(g < d for g in dims) for d in order if d not in dims)
        operands = [low.get(x, order), low.int_constant(axes)]
        reduced = low.node(kind, [out.bound[d] for d in final], out.q, operands, keep_dims=keepdim)
        low.finish(op, final, reduced)

    return lower
