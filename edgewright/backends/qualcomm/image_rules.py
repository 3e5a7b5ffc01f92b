"""Constraints of convolution, pooling, resizing and padding on the HTP. ``target`` is a ``QnnTarget``."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.backends.rules import rule
from edgewright.backends.table import OK, Rule, conv_argument, pool_params
from edgewright.ir.graph import Op


@rule(
    "transposed convolutions must have dilation 1; grouped ones no output padding and per-tensor weights; 3-D ones one "
    "group and the same stride for height and width"
)
def conv_transpose_params(op: Op, target: Any) -> object:
    if not op.kind.startswith("conv_transpose"):
        return OK
    if any(d != 1 for d in conv_argument(op, "dilation", 1)):
        return f"dilation {op.args['dilation']}"
    if len(op.args["weight"].shape) == 5:
        return _conv_transpose3d_params(op)
    if op.args.get("groups", 1) == 1:
        return OK
    if any(conv_argument(op, "output_padding", 0)):
        return f"output_padding {op.args['output_padding']}"
    q = op.args["weight"].q
    return "per channel" if q is not None and q.axis is not None else OK


def _conv_transpose3d_params(op: Op) -> object:
    """The HTP's results are wrong for others."""
    steps, groups = conv_argument(op, "stride", 1), op.args.get("groups", 1)
    return f"{groups} groups in 3-D" if groups != 1 else OK if steps[1] == steps[2] else f"strides {steps}"


@rule("the input of pooling must be NCHW, dilation 1, and the window not larger than the image")
def pool_window(op: Op, target: Any) -> object:
    if len(op.args["self"].shape) != 4:
        return f"rank {len(op.args['self'].shape)}"
    kernel, _, _, dilation = pool_params(op)
    if any(d != 1 for d in dilation):
        return f"dilation {dilation}"
    return OK if all(k <= n for k, n in zip(kernel, op.args["self"].bound[2:], strict=True)) else f"window {kernel}"


@rule("average pooling must have ceil_mode False and divide by the window size")
def avg_pool_divisor(op: Op, target: Any) -> object:
    kernel = pool_params(op)[0]
    if op.args.get("ceil_mode"):
        return "ceil_mode"
    divisor = op.args.get("divisor_override")
    return OK if divisor in (None, kernel[0] * kernel[1]) else f"divisor {divisor}"


def uniform_windows(rank: int) -> Rule:
    @rule(f"the input must have rank {rank}, with sizes that are multiples of the output size")
    def checked(op: Op, target: Any) -> object:
        x, out = op.args["self"], op.outputs[0]
        if len(x.shape) != rank or out is None:
            return f"rank {len(x.shape)}"
        pairs = list(zip(x.bound[2:], out.bound[2:], strict=True))
        return OK if all(m and n % m == 0 for n, m in pairs) else x.bound

    return checked


@rule("padding must not be negative, and its value must be representable in the tensor")
def padding_value(op: Op, target: Any) -> object:
    padding, q = list(op.args["pad"]), op.args["self"].q
    value = op.args.get("value") or 0
    if any(p < 0 for p in padding):
        return padding
    if not np.isfinite(float(value)):
        return value
    if q is None:
        return OK
    ends = [(n - q.zero_point) * q.scale for n in (q.qmin, q.qmax)]
    return OK if ends[0] - q.scale / 2 <= value <= ends[1] + q.scale / 2 else value


@rule("the input of 3-D average pooling must be NCDHW, the divisor the window size, and padding not counted")
def avg_pool3d_params(op: Op, target: Any) -> object:
    x, divisor = op.args["self"], op.args.get("divisor_override")
    if len(x.shape) != 5:
        return f"rank {len(x.shape)}"
    if op.args.get("ceil_mode") or divisor is not None:
        return "ceil_mode" if op.args.get("ceil_mode") else f"divisor {divisor}"
    return "padding" if any(op.args.get("padding") or []) and op.args.get("count_include_pad", True) else OK


@rule("bicubic resizing of 16-bit tensors must have align_corners False: the HTP's result is wrong otherwise")
def bicubic_corners(op: Op, target: Any) -> object:
    q = next(iter(op.inputs())).q
    return "align_corners" if op.args["align_corners"] and q is not None and q.dtype.itemsize > 1 else OK


@rule("grid sampling must be bilinear, or nearest in floating point: rounding a quantized grid selects other pixels")
def grid_sample_mode(op: Op, target: Any) -> object:
    mode, q = op.args["interpolation_mode"], op.args["input"].q
    return "bicubic" if mode > 1 else "nearest" if mode == 1 and q is not None else OK


@rule("padding mode must be reflect, with rank at most 4 and no negative padding")
def reflect_padding(op: Op, target: Any) -> object:
    x, mode = op.args["self"], op.args.get("mode", "reflect")
    if mode != "reflect":
        return mode
    padding = op.args["pad" if "pad" in op.args else "padding"]
    return f"rank {len(x.shape)}" if not 0 < len(x.shape) < 5 else padding if any(p < 0 for p in padding) else OK
