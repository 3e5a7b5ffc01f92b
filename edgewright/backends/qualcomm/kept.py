"""Operators that stay whole on their way to a Hexagon processor, and those that alone are not worth the way."""

from __future__ import annotations

import torch

aten = torch.ops.aten

KEPT = (
    aten.hardswish.default, aten.elu.default, aten.relu6.default, aten.hardsigmoid.default, aten.leaky_relu.default,
    aten.prelu.default, aten.square.default, aten.softmax.int, aten.log_softmax.int, aten.layer_norm.default,
    aten.group_norm.default, aten.instance_norm.default, aten.rms_norm.default, aten.pixel_shuffle.default,
    aten.pixel_unshuffle.default, aten.channel_shuffle.default, aten.linear.default, aten.conv3d.default,
    aten.conv_transpose3d.input, aten.adaptive_avg_pool2d.default, aten.adaptive_avg_pool3d.default,
    aten.adaptive_max_pool2d.default, aten.avg_pool3d.default, aten.upsample_bicubic2d.vec, aten.grid_sampler.default,
    aten.sort.default,
)  # fmt: skip

# Movement, conversion and constants.
IDLE = {
    "permute", "transpose", "t", "view", "reshape", "flatten", "unsqueeze", "squeeze", "expand", "clone", "slice",
    "cat", "dropout", "requantize", "quantize", "dequantize", "cast", "arange", "full", "zeros", "ones",
    "scalar_tensor",
}  # fmt: skip
