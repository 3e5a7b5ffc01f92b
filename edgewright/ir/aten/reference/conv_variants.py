"""Convolution with the signatures of torch.nn.functional: unbatched, with padding by name, transposed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from edgewright.ir.aten.reference.conv import convolution, convolution_shape
from edgewright.ir.aten.reference.dims import Array
from edgewright.ir.aten.reference.pad import constant_pad
from edgewright.ir.aten.reference.windows import per_axis

Numbers = Sequence[int]


def _conv(
    compute: Callable[..., Any], input: Array, weight: Array, bias: Array | None = None, stride: Numbers = (1,),
    padding: Numbers | str = (0,), dilation: Numbers = (1,), groups: int = 1, transposed: bool = False,
    output_padding: Numbers = (0,),
) -> Any:  # fmt: skip
    """``padding`` is numbers, ``valid`` (none) or ``same`` (the result has the input's size; an odd element is added at
    the end)."""
    if isinstance(padding, str):
        input, padding = _same_padding(input, weight, dilation, padding), (0,)
    return _add_batch_dim(compute, input, weight, bias, stride, padding, dilation, False, output_padding, groups)


def _conv_transpose(
    compute: Callable[..., Any], input: Array, weight: Array, bias: Array | None = None, stride: Numbers = (1,),
    padding: Numbers = (0,), output_padding: Numbers = (0,), groups: int = 1, dilation: Numbers = (1,),
    transposed: bool = True,
) -> Any:  # fmt: skip
    return _add_batch_dim(compute, input, weight, bias, stride, padding, dilation, True, output_padding, groups)


def _add_batch_dim(compute: Callable[..., Any], input: Array, weight: Array, *rest: Any) -> Any:
    """Run an unbatched image as a batch of one; ``compute`` returns the result or its shape."""
    if input.ndim != weight.ndim - 1:
        return compute(input, weight, *rest)
    result = compute(input[None], weight, *rest)
    return result[1:] if isinstance(result, tuple) else result[0]


conv, conv_shape = partial(_conv, convolution), partial(_conv, convolution_shape)
conv_transpose = partial(_conv_transpose, convolution)
conv_transpose_shape = partial(_conv_transpose, convolution_shape)


def _same_padding(input: Array, weight: Array, dilation: Numbers, padding: str) -> Array:
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
