"""Lowering of pools, resizing, reductions and softmax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from edgewright.backends.samsung.lower import EnnLowering, result
from edgewright.backends.table import over, pool_arguments
from edgewright.ir.graph import Op, Value

Lower = Callable[[EnnLowering, Op], None]


def _window(kernel: list[int], stride: list[int], pads: list[int]) -> dict[str, Any]:
    height, width = pads[0], pads[2]
    return {
        "kernel_h": kernel[0], "kernel_w": kernel[1], "stride_h": stride[0], "stride_w": stride[1],
        "padding": "EXPLICIT", "explicit_padding": [height, width, height, width],
    }  # fmt: skip


def average(low: EnnLowering, op: Op) -> None:
    kernel, stride, pads, _ = pool_arguments(op)
    counted = bool(op.args.get("count_include_pad", True))
    params = {**_window(kernel, stride, pads), "count_include_pad": counted}
    low.finish(op, "AVGPOOL2D", [low.get(op.args["self"])], **params)


def largest(low: EnnLowering, op: Op) -> None:
    kernel, stride, pads, (dilation_h, dilation_w) = pool_arguments(op)
    params = {**_window(kernel, stride, pads), "dilation_h": dilation_h, "dilation_w": dilation_w}
    low.finish(op, "MAXPOOL2D", [low.get(op.args["self"])], **params)


def adaptive(low: EnnLowering, op: Op) -> None:
    """Windows that are all alike, as a rule sees to: the whole image is a mean."""
    x, out = op.args["self"], result(op)
    if out.bound[2:] == (1, 1):
        low.finish(op, "REDUCEMEAN", [low.get(x)], keep_dims=True, axis=[2, 3])
        return
    window = [n // m for n, m in zip(x.bound[2:], out.bound[2:], strict=True)]
    params = {**_window(window, window, [0] * 4), "count_include_pad": True}
    low.finish(op, "AVGPOOL2D", [low.get(x)], **params)


def reduced(kind: str, told: bool) -> Lower:
    def lower(low: EnnLowering, op: Op) -> None:
        keep = bool(op.args.get("keepdim"))
        low.finish(op, kind, [low.get(op.args["self"])], told=told, keep_dims=keep, axis=over(op))

    return lower


def softmax(kind: str, told: bool) -> Lower:
    def lower(low: EnnLowering, op: Op) -> None:
        low.finish(op, kind, [low.get(op.args["self"])], told=told, axis=int(op.args["dim"]))

    return lower


def shuffle(low: EnnLowering, op: Op) -> None:
    low.move(op, "DEPTH_TO_SPACE", low.get(op.args["self"]), block_size=int(op.args["upscale_factor"]), mode="CRD")


def _image(op: Op) -> Value:
    value: Value = op.args["input" if "input" in op.args else "self"]
    return value


def _factors(op: Op) -> list[float]:
    return [m / n for m, n in zip(result(op).bound[2:], _image(op).bound[2:], strict=True)]


def bilinear(low: EnnLowering, op: Op) -> None:
    corners = bool(op.args["align_corners"])
    params: dict[str, Any] = {"align_corners": corners, "upsampling_factor": _factors(op), "half_pixel_centers": True}
    low.finish(op, "RESIZE_BILINEAR", [low.get(_image(op))], **params)


def nearest(low: EnnLowering, op: Op) -> None:
    params = {"align_corners": False, "upsampling_factor": _factors(op), "half_pixel_centers": True}
    low.move(op, "RESIZE_NEAREST_NEIGHBOR", low.get(_image(op)), **params)
