"""ATen operators that are not decomposed, and operators that are not worth a partition of their own."""

from __future__ import annotations

NO_DECOMPOSE_NAMES = (
    "hardswish.default", "elu.default", "relu6.default", "hardsigmoid.default", "leaky_relu.default", "prelu.default",
    "square.default", "softmax.int", "log_softmax.int", "layer_norm.default", "group_norm.default",
    "instance_norm.default", "rms_norm.default", "pixel_shuffle.default", "pixel_unshuffle.default",
    "channel_shuffle.default", "linear.default", "conv3d.default", "conv3d.padding", "conv_transpose3d.input",
    "adaptive_avg_pool2d.default", "adaptive_avg_pool3d.default", "adaptive_max_pool2d.default", "avg_pool3d.default",
    "upsample_bicubic2d.vec", "grid_sampler.default", "sort.default",
)  # fmt: skip

# Data movement, conversion and constants: a partition of these alone is left on the CPU.
NOT_WORTH_DELEGATING = {
    "permute", "transpose", "t", "view", "reshape", "flatten", "unsqueeze", "squeeze", "expand", "clone", "slice",
    "cat", "dropout", "requantize", "quantize", "dequantize", "cast", "arange", "full", "zeros", "ones",
    "scalar_tensor",
}  # fmt: skip
