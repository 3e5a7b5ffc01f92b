"""Which convolutions XNNPACK runs as a product of pixels: dynamically quantized, each pixel then has its own range."""

from __future__ import annotations

from edgewright.ir.graph import Op


def is_pointwise_gemm(op: Op, channels: tuple[int, int], kernel: tuple[int, ...]) -> bool:
    """``channels``: of input and output. One of each makes a depthwise convolution, whose image has one range."""
    ones = (*kernel, *op.args["stride"], op.args["groups"])
    return all(n == 1 for n in ones) and not any(op.args["padding"]) and channels != (1, 1)


def is_core_pointwise_gemm(op: Op) -> bool:
    """The same of a device graph's ``conv2d``, whose weights are [output, height, width, input]."""
    outputs, *kernel, inputs = op.args["weight"].bound
    return is_pointwise_gemm(op, (inputs, outputs), tuple(kernel))
