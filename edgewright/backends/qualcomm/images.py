"""Lowering of pools, resizing, reductions and softmax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from edgewright.backends.qualcomm.lower import QnnLowering, result, unsigned
from edgewright.backends.table import over, pool_arguments
from edgewright.ir.graph import Op
from edgewright.passes.layout import NHWC, common_order, last

Lower = Callable[[QnnLowering, Op], None]


def pool(kind: str) -> Lower:
    def lower(low: QnnLowering, op: Op) -> None:
        kernel, stride, pads, _ = pool_arguments(op)
        params: dict[str, Any] = {
            "filter_size": unsigned(kernel), "stride": unsigned(stride),
            "pad_amount": unsigned([pads[:2], pads[2:]]), "rounding_mode": int(bool(op.args.get("ceil_mode"))),
        }  # fmt: skip
        if kind == "PoolAvg2d":
            params["count_pad_for_edges"] = bool(op.args.get("count_include_pad", True))
        low.finish(op, NHWC, kind, [low.get(op.args["self"], NHWC)], **params)

    return lower


def adaptive(low: QnnLowering, op: Op) -> None:
    """Windows that are all alike; a rule sees to it."""
    x, out = op.args["self"], result(op)
    window = unsigned([n // m for n, m in zip(x.bound[2:], out.bound[2:], strict=True)])
    params = {"filter_size": window, "stride": window, "pad_amount": unsigned([[0, 0], [0, 0]])}
    low.finish(op, NHWC, "PoolAvg2d", [low.get(x, NHWC)], **params)


def reduced(kind: str) -> Lower:
    """Over the dimensions named, in whatever order they are held."""

    def lower(low: QnnLowering, op: Op) -> None:
        x = op.args["self"]
        rank = len(x.shape)
        order, dims = common_order(low, op, rank), over(op)
        keep = bool(op.args.get("keepdim"))
        final = order if keep else tuple(d - sum(g < d for g in dims) for d in order if d not in dims)
        axes = unsigned(sorted(order.index(d) for d in dims))
        low.finish(op, final, kind, [low.get(x, order)], axes=axes, keep_dims=keep)

    return lower


def softmax(kind: str) -> Lower:
    """Along the last dimension, which the HTP insists on: the one it is taken over is put there."""

    def lower(low: QnnLowering, op: Op) -> None:
        x = op.args["self"]
        rank = len(x.shape)
        dim = op.args["dim"] % rank
        held = [o for o in low.orders(x) if o[-1] == dim]
        order = held[0] if held else last(dim, rank)
        low.finish(op, order, kind, [low.get(x, order)], axis=rank - 1)

    return lower


def shuffled(kind: str) -> Lower:
    """Between channels and pixels."""

    def lower(low: QnnLowering, op: Op) -> None:
        x, out = op.args["self"], result(op)
        sizes = sorted((x.bound[2:], out.bound[2:]))
        block = unsigned([b // a for a, b in zip(*sizes, strict=True)])
        low.finish(op, NHWC, kind, [low.get(x, NHWC)], block_size=block, mode=1)

    return lower


def nearest(low: QnnLowering, op: Op) -> None:
    x = op.args["input" if "input" in op.args else "self"]
    flags = {"align_corners": False, "half_pixel_centers": False}
    low.finish(op, NHWC, "ResizeNearestNeighbor", [low.get(x, NHWC)], **flags)


def bilinear(low: QnnLowering, op: Op) -> None:
    x = op.args["input" if "input" in op.args else "self"]
    corners = bool(op.args["align_corners"])
    flags = {"align_corners": corners, "half_pixel_centers": not corners}
    low.finish(op, NHWC, "ResizeBilinear", [low.get(x, NHWC)], **flags)
