"""What the HTP asks of windows, images and their borders. ``target`` is a ``QnnTarget``."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.backends.rules import rule
from edgewright.backends.table import OK, Rule, pool_arguments, spread
from edgewright.ir.graph import Op


@rule(
    "transposed windows must be without gaps; grouped ones without output padding and with one "
    "scale for all weights; volumes without groups, and with one stride for height and width"
)
def plain_transposed(op: Op, target: Any) -> object:
    if not op.kind.startswith("conv_transpose"):
        return OK
    if any(d != 1 for d in spread(op, "dilation", 1)):
        return f"dilation {op.args['dilation']}"
    if len(op.args["weight"].shape) == 5:
        return _plain_volume(op)
    if op.args.get("groups", 1) == 1:
        return OK
    if any(spread(op, "output_padding", 0)):
        return f"output_padding {op.args['output_padding']}"
    q = op.args["weight"].q
    return "by channel" if q is not None and q.axis is not None else OK


def _plain_volume(op: Op) -> object:
    """Of others the HTP's numbers are wrong."""
    steps, groups = spread(op, "stride", 1), op.args.get("groups", 1)
    return f"groups {groups} of volumes" if groups != 1 else OK if steps[1] == steps[2] else f"strides {steps}"


@rule("windows must be without gaps, no larger than the image, and of images with batch and channels")
def plain_window(op: Op, target: Any) -> object:
    if len(op.args["self"].shape) != 4:
        return f"rank {len(op.args['self'].shape)}"
    kernel, _, _, dilation = pool_arguments(op)
    if any(d != 1 for d in dilation):
        return f"dilation {dilation}"
    return OK if all(k <= n for k, n in zip(kernel, op.args["self"].bound[2:], strict=True)) else f"window {kernel}"


@rule("averages must not be rounded up to hang over the edge, and must divide by the window")
def plain_average(op: Op, target: Any) -> object:
    kernel = pool_arguments(op)[0]
    if op.args.get("ceil_mode"):
        return "ceil_mode"
    divisor = op.args.get("divisor_override")
    return OK if divisor in (None, kernel[0] * kernel[1]) else f"divisor {divisor}"


def even_windows(rank: int) -> Rule:
    @rule(f"sizes must be multiples of those of the result, of {rank} dimensions with batch and channels")
    def checked(op: Op, target: Any) -> object:
        x, out = op.args["self"], op.outputs[0]
        if len(x.shape) != rank or out is None:
            return f"rank {len(x.shape)}"
        pairs = list(zip(x.bound[2:], out.bound[2:], strict=True))
        return OK if all(m and n % m == 0 for n, m in pairs) else x.bound

    return checked


@rule("padding must not be negative, and filled with a number that is stored in the tensor")
def outward(op: Op, target: Any) -> object:
    given, q = list(op.args["pad"]), op.args["self"].q
    value = op.args.get("value") or 0
    if any(p < 0 for p in given):
        return given
    if not np.isfinite(float(value)):
        return value
    if q is None:
        return OK
    ends = [(n - q.zero_point) * q.scale for n in (q.qmin, q.qmax)]
    return OK if ends[0] - q.scale / 2 <= value <= ends[1] + q.scale / 2 else value


@rule("averages over boxes must have batch and channels, divide by the box, and count no padding")
def plain_box(op: Op, target: Any) -> object:
    x, divisor = op.args["self"], op.args.get("divisor_override")
    if len(x.shape) != 5:
        return f"rank {len(x.shape)}"
    if op.args.get("ceil_mode") or divisor is not None:
        return "ceil_mode" if op.args.get("ceil_mode") else f"divisor {divisor}"
    return "padding" if any(op.args.get("padding") or []) and op.args.get("count_include_pad", True) else OK


@rule("bicubic corners may be aligned in 8 bits or real numbers only: the HTP's of 16 bits is wrong")
def free_corners(op: Op, target: Any) -> object:
    q = next(iter(op.inputs())).q
    return "align_corners" if op.args["align_corners"] and q is not None and q.dtype.itemsize > 1 else OK


@rule("samples must be bilinear, or real numbers of the nearest pixel: an integer's rounding would choose another")
def plain_samples(op: Op, target: Any) -> object:
    mode, q = op.args["interpolation_mode"], op.args["input"].q
    return "bicubic" if mode > 1 else "nearest" if mode == 1 and q is not None else OK


@rule("mirrors must be those of the borders, of at most four dimensions, and within the tensor")
def mirrored(op: Op, target: Any) -> object:
    x, mode = op.args["self"], op.args.get("mode", "reflect")
    if mode != "reflect":
        return mode
    given = op.args["pad" if "pad" in op.args else "padding"]
    return f"rank {len(x.shape)}" if not 0 < len(x.shape) < 5 else given if any(p < 0 for p in given) else OK
