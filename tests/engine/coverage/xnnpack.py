"""XNNPACK's nodes that run in numpy, and why."""

from __future__ import annotations

_MULTIPLIED = "several filters for each channel: no network that was looked at has them"
_SPREAD = "a transposed convolution whose filters have gaps: no network that was looked at has one"
_NARROW = "groups of fewer than 16 channels of bytes: kernels store whole vectors"
_WHOLE = "an image that is quantized as a whole when it comes: only rows and pixels are"
LEFT = {
    "real depthwise_conv2d": _MULTIPLIED,
    "real depthwise_conv2d_no_bias": _MULTIPLIED,
    "real depthwise_conv2d_fp16": _MULTIPLIED,
    "bytes depthwise_conv2d_by_tensor": _MULTIPLIED,
    "bytes depthwise_conv2d_by_channel": _MULTIPLIED,
    "real conv_transpose2d": _SPREAD,
    "real conv_transpose2d_no_bias": _SPREAD,
    "real conv_transpose2d_fp16": _SPREAD,
    "bytes conv_transpose2d_by_tensor": _SPREAD,
    "bytes conv_transpose2d_by_channel": _SPREAD,
    "bytes conv_transpose2d_grouped_by_tensor": _NARROW,
    "bytes conv2d_grouped_by_tensor": _NARROW,
    "bytes conv2d_grouped_by_channel": _NARROW,
    "rows conv2d_8": _WHOLE,
    "rows conv2d_grouped_8": _WHOLE,
}
