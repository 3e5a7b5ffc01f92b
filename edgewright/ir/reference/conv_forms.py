"""Convolution in the forms models ask for it: without a batch, with padding by name, transposed by name."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgewright.ir.reference.conv import convolution, convolution_shape
from edgewright.ir.reference.dims import Array, Shape
from edgewright.ir.reference.pad import constant_pad
from edgewright.ir.reference.windows import per_axis

Numbers = Sequence[int]


def conv(
    input: Array,
    weight: Array,
    bias: Array | None = None,
    stride: Numbers = (1,),
    padding: Numbers | str = (0,),
    dilation: Numbers = (1,),
    groups: int = 1,
    transposed: bool = False,
    output_padding: Numbers = (0,),
) -> Array:
    """``padding`` is numbers, ``valid`` (none) or ``same`` (as large as the input, the odd one at the end)."""
    if isinstance(padding, str):
        input, padding = _by_name(input, weight, dilation, padding), (0,)
    batched = _batched(input, weight)
    result = convolution(batched, weight, bias, stride, padding, dilation, False, output_padding, groups)
    return result if batched is input else result[0]


def conv_shape(
    input: Array,
    weight: Array,
    bias: Array | None = None,
    stride: Numbers = (1,),
    padding: Numbers | str = (0,),
    dilation: Numbers = (1,),
    groups: int = 1,
    transposed: bool = False,
    output_padding: Numbers = (0,),
) -> Shape:
    if isinstance(padding, str):
        input, padding = _by_name(input, weight, dilation, padding), (0,)
    batched = _batched(input, weight)
    shape = convolution_shape(batched, weight, bias, stride, padding, dilation, False, output_padding, groups)
    return shape if batched is input else shape[1:]


def conv_transpose(
    input: Array,
    weight: Array,
    bias: Array | None = None,
    stride: Numbers = (1,),
    padding: Numbers = (0,),
    output_padding: Numbers = (0,),
    groups: int = 1,
    dilation: Numbers = (1,),
    transposed: bool = True,
) -> Array:
    batched = _batched(input, weight)
    result = convolution(batched, weight, bias, stride, padding, dilation, True, output_padding, groups)
    return result if batched is input else result[0]


def conv_transpose_shape(
    input: Array,
    weight: Array,
    bias: Array | None = None,
    stride: Numbers = (1,),
    padding: Numbers = (0,),
    output_padding: Numbers = (0,),
    groups: int = 1,
    dilation: Numbers = (1,),
    transposed: bool = True,
) -> Shape:
    batched = _batched(input, weight)
    shape = convolution_shape(batched, weight, bias, stride, padding, dilation, True, output_padding, groups)
    return shape if batched is input else shape[1:]


def _batched(input: Array, weight: Array) -> Array:
    return input[None] if input.ndim == weight.ndim - 1 else input


def _by_name(input: Array, weight: Array, dilation: Numbers, padding: str) -> Array:
    if padding not in ("same", "valid"):
        raise ValueError(f"padding must be numbers, 'same' or 'valid', got {padding!r}")
    if padding == "valid":
        return input
    sides: list[int] = []
    steps = per_axis(dilation, weight.ndim - 2, "dilation", 1)
    for kernel, step in zip(reversed(weight.shape[2:]), reversed(steps), strict=True):
        total = step * (kernel - 1)
        sides += [total // 2, total - total // 2]
    return np.asarray(constant_pad(input, sides))
