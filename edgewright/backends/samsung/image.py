"""Lowering of pooling, resizing, reductions and softmax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from edgewright.backends.samsung.lower import EnnLowering, output
from edgewright.backends.table import pool_params, reduced_dims
from edgewright.ir.graph import Op, Value

Lower = Callable[[EnnLowering, Op], None]


def _window_params(kernel: list[int], stride: list[int], pads: list[int]) -> dict[str, Any]:
    height, width = pads[0], pads[2]
    return {
        "kernel_h": kernel[0], "kernel_w": kernel[1], "stride_h": stride[0], "stride_w": stride[1],
        "padding": "EXPLICIT", "explicit_padding": [height, width, height, width],
    }  # fmt: skip


def avg_pool(low: EnnLowering, op: Op) -> None:
    kernel, stride, pads, _ = pool_params(op)
    include_pad = bool(op.args.get("count_include_pad", True))
    params = {**_window_params(kernel, stride, pads), "count_include_pad": include_pad}
    low.finish(op, "AVGPOOL2D", [low.get(op.args["self"])], **params)


def max_pool(low: EnnLowering, op: Op) -> None:
    kernel, stride, pads, (dilation_h, dilation_w) = pool_params(op)
    params = {**_window_params(kernel, stride, pads), "dilation_h": dilation_h, "dilation_w": dilation_w}
    low.finish(op, "MAXPOOL2D", [low.get(op.args["self"])], **params)


def adaptive_avg_pool(low: EnnLowering, op: Op) -> None:
    """A rule ensures equal windows. Output size 1x1 is a mean, any other an average pool."""
    x, out = op.args["self"], output(op)
    if out.bound[2:] == (1, 1):
        low.finish(op, "REDUCEMEAN", [low.get(x)], keep_dims=True, axis=[2, 3])
        return
    window = [n // m for n, m in zip(x.bound[2:], out.bound[2:], strict=True)]
    params = {**_window_params(window, window, [0] * 4), "count_include_pad": True}
    low.finish(op, "AVGPOOL2D", [low.get(x)], **params)


def reduce(kind: str, with_quant_dtype: bool) -> Lower:
    def lower(low: EnnLowering, op: Op) -> None:
        keepdim = bool(op.args.get("keepdim"))
        low.finish(
            op,
            kind,
            [low.get(op.args["self"])],
            with_quant_dtype=with_quant_dtype,
            keep_dims=keepdim,
            axis=reduced_dims(op),
        )

    return lower


def softmax(kind: str, with_quant_dtype: bool) -> Lower:
    def lower(low: EnnLowering, op: Op) -> None:
        low.finish(op, kind, [low.get(op.args["self"])], with_quant_dtype=with_quant_dtype, axis=int(op.args["dim"]))

    return lower


def pixel_shuffle(low: EnnLowering, op: Op) -> None:
    low.move(op, "DEPTH_TO_SPACE", low.get(op.args["self"]), block_size=int(op.args["upscale_factor"]), mode="CRD")


def _image_input(op: Op) -> Value:
    value: Value = op.args["input" if "input" in op.args else "self"]
    return value


def _scale_factors(op: Op) -> list[float]:
    return [m / n for m, n in zip(output(op).bound[2:], _image_input(op).bound[2:], strict=True)]


def resize_bilinear(low: EnnLowering, op: Op) -> None:
    corners = bool(op.args["align_corners"])
    params: dict[str, Any] = {
        "align_corners": corners,
        "upsampling_factor": _scale_factors(op),
        "half_pixel_centers": True,
    }
    low.finish(op, "RESIZE_BILINEAR", [low.get(_image_input(op))], **params)


def resize_nearest(low: EnnLowering, op: Op) -> None:
    params = {"align_corners": False, "upsampling_factor": _scale_factors(op), "half_pixel_centers": True}
    low.move(op, "RESIZE_NEAREST_NEIGHBOR", low.get(_image_input(op)), **params)
