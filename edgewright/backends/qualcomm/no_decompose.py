"""Operators of ATen that stay whole on their way to a Hexagon processor, and those that alone are not worth it."""

from __future__ import annotations

WHOLE = (
    "hardswish.default", "elu.default", "relu6.default", "hardsigmoid.default", "leaky_relu.default", "prelu.default",
    "square.default", "softmax.int", "log_softmax.int", "layer_norm.default", "group_norm.default",
    "instance_norm.default", "rms_norm.default", "pixel_shuffle.default", "pixel_unshuffle.default",
    "channel_shuffle.default", "linear.default", "conv3d.default", "conv3d.padding", "conv_transpose3d.input",
    "adaptive_avg_pool2d.default", "adaptive_avg_pool3d.default", "adaptive_max_pool2d.default", "avg_pool3d.default",
    "upsample_bicubic2d.vec", "grid_sampler.default", "sort.default",
)  # fmt: skip

# Movement, conversion and constants.
IDLE = {
    "permute", "transpose", "t", "view", "reshape", "flatten", "unsqueeze", "squeeze", "expand", "clone", "slice",
    "cat", "dropout", "requantize", "quantize", "dequantize", "cast", "arange", "full", "zeros", "ones",
    "scalar_tensor",
}  # fmt: skip
