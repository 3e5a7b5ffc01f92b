"""Pointwise convolutions that are computed as a gemm; dynamically quantized, each pixel is a row with its own scale."""

from __future__ import annotations

from edgewright.ir.graph import Op


def is_pointwise_gemm(op: Op, channels: tuple[int, int], kernel: tuple[int, ...]) -> bool:
    """``channels``: of input and output. One of each is a depthwise convolution, with one scale per image."""
    ones = (*kernel, *op.args["stride"], op.args["groups"])
    return all(n == 1 for n in ones) and not any(op.args["padding"]) and channels != (1, 1)


def is_core_pointwise_gemm(op: Op) -> bool:
    """The same of a device graph's ``conv2d``, whose weights are [output, height, width, input]."""
    outputs, *kernel, inputs = op.args["weight"].bound
    return is_pointwise_gemm(op, (inputs, outputs), tuple(kernel))
