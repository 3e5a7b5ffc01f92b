"""Lowering of pooling, resizing, reductions and softmax."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.backends.qualcomm.lower import QnnLowering, as_uint32, output_of
from edgewright.backends.table import pool_params, reduced_dims
from edgewright.ir.graph import Op, QParams, Value
from edgewright.lowering.passes.layout import NHWC, Order, common_order, order_with_last

NDHWC = (0, 2, 3, 4, 1)
Lower = Callable[[QnnLowering, Op], None]


def pool(kind: str) -> Lower:
    def lower(low: QnnLowering, op: Op) -> None:
        kernel, stride, pads, _ = pool_params(op)
        params: dict[str, Any] = {
            "filter_size": as_uint32(kernel), "stride": as_uint32(stride),
            "pad_amount": as_uint32([pads[:2], pads[2:]]), "rounding_mode": int(bool(op.args.get("ceil_mode"))),
        }  # fmt: skip
        if kind == "PoolAvg2d":
            params["count_pad_for_edges"] = bool(op.args.get("count_include_pad", True))
        low.finish(op, NHWC, kind, [low.get(op.args["self"], NHWC)], **params)

    return lower


def adaptive_pool(kind: str) -> Lower:
    """Adaptive pooling with equal windows, which a rule ensures."""

    def lower(low: QnnLowering, op: Op) -> None:
        x, out = op.args["self"], output_of(op)
        order = (0, *range(2, len(x.shape)), 1)
        window = as_uint32([n // m for n, m in zip(x.bound[2:], out.bound[2:], strict=True)])
        params = {"filter_size": window, "stride": window, "pad_amount": as_uint32([[0, 0]] * len(window))}
        low.finish(op, order, kind, [low.get(x, order)], **params)

    return lower


def avg_pool3d(low: QnnLowering, op: Op) -> None:
    """3-D average pooling. Padding is never counted; a rule excludes padding that would be."""
    kernel, stride, pads = pool3d_arguments(op)
    params = {
        "filter_size": as_uint32(kernel), "stride": as_uint32(stride), "pad_amount": as_uint32([[p, p] for p in pads]),
        "rounding_mode": 0, "count_pad_for_edges": False,
    }  # fmt: skip
    low.finish(op, NDHWC, "PoolAvg3d", [low.get(op.args["self"], NDHWC)], **params)


def pool3d_arguments(op: Op) -> tuple[list[int], list[int], list[int]]:
    """Kernel size, stride and padding of a 3-D pool."""

    def three(name: str, default: list[int]) -> list[int]:
        source_int16 = list(op.args.get(name) or default)
        return source_int16 * 3 if len(source_int16) == 1 else source_int16

    kernel = three("kernel_size", [1])
    return kernel, three("stride", kernel), three("padding", [0])


def reduction(kind: str) -> Lower:
    """A reduction; axes are mapped to the dimension order of the input."""

    def lower(low: QnnLowering, op: Op) -> None:
        x = op.args["self"]
        rank = len(x.shape)
        order, dims = common_order(low, op, rank), reduced_dims(op)
        keepdim = bool(op.args.get("keepdim"))
        final = order if keepdim else tuple(d - sum(g < d for g in dims) for d in order if d not in dims)
        axes = as_uint32(sorted(order.index(d) for d in dims))
        low.finish(op, final, kind, [low.get(x, order)], axes=axes, keep_dims=keepdim)

    return lower


def order_with_dim_last(low: QnnLowering, op: Op) -> Order:
    """A dimension order with the operator's dimension last, as the HTP requires."""
    x = op.args["self"]
    rank = len(x.shape)
    dim = op.args["dim"] % rank
    source = [o for o in low.orders(x) if o[-1] == dim]
    return source[0] if source else order_with_last(dim, rank)


def softmax(low: QnnLowering, op: Op) -> None:
    order = order_with_dim_last(low, op)
    low.finish(op, order, "Softmax", [low.get(op.args["self"], order)], axis=len(order) - 1)


def log_softmax(low: QnnLowering, op: Op) -> None:
    """8-bit log-softmax is computed in 16 bits: the HTP's 8-bit operator is off by two steps."""
    order = order_with_dim_last(low, op)
    source, result = low.get(op.args["self"], order), low.make(output_of(op), order)
    source_int16, wide = as_int16(source), as_int16(result)
    if wide is None or source_int16 is None:
        low.node("LogSoftmax", [source], result, axis=len(order) - 1)
        return
    steps = low.temporary(result.bound, wide)
    low.node("LogSoftmax", [low.requantize_like(source, source_int16)], steps, axis=len(order) - 1)
    low.node("Convert", [steps], result)


def as_int16(value: Value) -> Value | None:
    """The 16-bit equivalent of an 8-bit value, at 1/256 of its scale; None for other types."""
    q = value.q
    if q is None or q.dtype.itemsize > 1:
        return None
    assert isinstance(q.scale, float) and isinstance(q.zero_point, int)
    q16 = QParams(q.scale / 256, q.zero_point * 256, np.dtype(np.uint16), 0, 65535)
    return replace(value, q=q16, dtype=q16.dtype, data=None)


def pixel_shuffle(kind: str) -> Lower:
    """Pixel shuffle or unshuffle."""

    def lower(low: QnnLowering, op: Op) -> None:
        x, out = op.args["self"], output_of(op)
        sizes = sorted((x.bound[2:], out.bound[2:]))
        block = as_uint32([b // a for a, b in zip(*sizes, strict=True)])
        low.finish(op, NHWC, kind, [low.get(x, NHWC)], block_size=block, mode=1)

    return lower


def channel_shuffle(low: QnnLowering, op: Op) -> None:
    """Channel shuffle."""
    x = op.args["self"]
    order = common_order(low, op, len(x.shape))
    params = {"num_groups": int(op.args["groups"]), "axis": order.index(1)}
    low.finish(op, order, "ChannelShuffle", [low.get(x, order)], **params)


def grid_sample(low: QnnLowering, op: Op) -> None:
    """Grid sampling; the grid keeps its layout."""
    x, order = op.args["input"], (0, *range(2, len(op.args["input"].shape)), 1)
    params = {
        "align_corners": bool(op.args["align_corners"]), "mode": int(op.args["interpolation_mode"]),
        "padding_mode": int(op.args["padding_mode"]),
    }  # fmt: skip
    low.finish(op, order, "GridSample", [low.get(x, order), low.get(op.args["grid"])], **params)


def bicubic(low: QnnLowering, op: Op) -> None:
    x = op.args["input" if "input" in op.args else "self"]
    mode = 2 if op.args["align_corners"] else 1
    params = {"exclude_outside": False, "transformation_mode": mode, "interpolation_mode": 2, "cubic_coeff": -0.75}
    low.finish(op, NHWC, "Resize", [low.get(x, NHWC)], **params)


def nearest(low: QnnLowering, op: Op) -> None:
    x = op.args["input" if "input" in op.args else "self"]
    flags = {"align_corners": False, "half_pixel_centers": False}
    low.finish(op, NHWC, "ResizeNearestNeighbor", [low.get(x, NHWC)], **flags)


def bilinear(low: QnnLowering, op: Op) -> None:
    x = op.args["input" if "input" in op.args else "self"]
    corners = bool(op.args["align_corners"])
    flags = {"align_corners": corners, "half_pixel_centers": not corners}
    low.finish(op, NHWC, "ResizeBilinear", [low.get(x, NHWC)], **flags)
