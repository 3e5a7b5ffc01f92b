"""Convolution of any rank, its transpose, and the gradients of both.

There are three linear maps: ``_conv_forward``, ``_conv_input_adjoint`` (its adjoint in the input, i.e. transposed
convolution) and ``_conv_weight_adjoint`` (its adjoint in the weight). All loop over taps on ``[batch, group, channel,
...]``: each tap is a batched matrix product, and several taps are gathered into an im2col buffer if it fits
``_COLUMNS``. The functions with the signatures of torch.nn.functional (unbatched, padding by name) follow at the end.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from edgewright.ir.aten.reference.dims import Array, Reach, Shape, numel, per_axis, reach
from edgewright.ir.aten.reference.elementwise import promote_operands
from edgewright.ir.aten.reference.movement import constant_pad

_COLUMNS = 1 << 22  # elements of an im2col buffer that is always acceptable
_CACHED = 1 << 17  # elements of a depthwise block that stays in cache across taps


class _Geometry(NamedTuple):
    stride: Shape
    padding: Shape
    dilation: Shape
    groups: int


Tap = tuple[int, tuple[slice, ...], tuple[slice, ...]]  # tap number, output positions, input elements


def _geometry(
    weight: Array, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], groups: int
) -> _Geometry:
    rank = weight.ndim - 2
    return _Geometry(
        per_axis(stride, rank, "stride", 1),
        per_axis(padding, rank, "padding", 0),
        per_axis(dilation, rank, "dilation", 1),
        groups,
    )


def convolution_shape(
    input: Array,
    weight: Array,
    bias: Array | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Shape:
    if weight.ndim < 3 or input.ndim != weight.ndim or 0 in weight.shape:
        raise ValueError(f"input and weight must have one rank, got {list(input.shape)} and {list(weight.shape)}")
    at = _geometry(weight, stride, padding, dilation, groups)
    inside, outside = (0, 1) if transposed else (1, 0)  # the weight's input and output channel dims
    channels = weight.shape[inside] * (1 if transposed else groups)
    if groups < 1 or input.shape[1] != channels or weight.shape[0] % groups:
        raise ValueError(f"{input.shape[1]} channels do not fit weight {list(weight.shape)} in {groups} groups")
    outputs = weight.shape[outside] * (groups if transposed else 1)
    if bias is not None and bias.shape != (outputs,):
        raise ValueError(f"bias must have shape [{outputs}], got {list(bias.shape)}")
    sizes, spans = input.shape[2:], [d * (k - 1) + 1 for d, k in zip(at.dilation, weight.shape[2:], strict=True)]
    if transposed:
        counts = _transposed_sizes(sizes, spans, at, output_padding)
    else:
        pairs = zip(sizes, spans, at.stride, at.padding, strict=True)
        counts = [(size + 2 * p - span) // s + 1 for size, span, s, p in pairs]
    if any(count < 1 for count in counts):
        raise ValueError(f"the kernel must fit in the padded input, got output size {counts}")
    return (input.shape[0], outputs, *counts)


def _transposed_sizes(
    sizes: Sequence[int], spans: Sequence[int], at: _Geometry, output_padding: Sequence[int]
) -> list[int]:
    extra = per_axis(output_padding, len(sizes), "output_padding", 0)
    if any(e >= max(s, d) for e, s, d in zip(extra, at.stride, at.dilation, strict=True)):
        raise ValueError(f"output_padding must be smaller than stride or dilation, got {list(extra)}")
    rows = zip(sizes, spans, at.stride, at.padding, extra, strict=True)
    return [(size - 1) * s - 2 * p + span + e for size, span, s, p, e in rows]


def convolution(
    input: Array,
    weight: Array,
    bias: Array | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Array:
    shape = convolution_shape(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
    at = _geometry(weight, stride, padding, dilation, groups)
    x, w = promote_operands(input, weight)
    result = (_conv_input_adjoint if transposed else _conv_forward)(x, w, shape, at)
    return result if bias is None else result + bias.astype(x.dtype).reshape(-1, *(1,) * len(at.stride))


def convolution_backward_shape(
    grad_output: Array,
    input: Array,
    weight: Array,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> list[Shape | None]:
    shape = convolution_shape(input, weight, None, stride, padding, dilation, transposed, output_padding, groups)
    if grad_output.shape != shape or len(output_mask) != 3:
        raise ValueError(f"grad_output must have shape {list(shape)}, got {list(grad_output.shape)}")
    shapes = (input.shape, weight.shape, (shape[1],))
    return [s if requested else None for s, requested in zip(shapes, output_mask, strict=True)]


def convolution_backward(
    grad_output: Array,
    input: Array,
    weight: Array,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Array | None, Array | None, Array | None]:
    """Gradients of input, weight and bias; None for those not in ``output_mask``."""
    at = _geometry(weight, stride, padding, dilation, groups)
    gy, x, w = promote_operands(grad_output, input, weight)
    requested = tuple(output_mask)
    return (
        (_conv_forward if transposed else _conv_input_adjoint)(gy, w, x.shape, at) if requested[0] else None,
        _conv_weight_adjoint(*((gy, x) if transposed else (x, gy)), w.shape, at) if requested[1] else None,
        gy.sum(axis=(0, *range(2, gy.ndim))) if requested[2] else None,
    )


def _taps(kernel: Shape, sizes: Shape, counts: Shape, at: _Geometry) -> list[Tap]:
    """The taps that overlap the input; their number is bounded by the weight's size."""
    axes: list[list[Reach | None]] = []
    for k, size, count, s, p, d in zip(kernel, sizes, counts, at.stride, at.padding, at.dilation, strict=True):
        axes.append([reach(size, count, s, t * d - p) for t in range(k)])
    taps: list[Tap] = []
    for number, reaches in enumerate(itertools.product(*axes)):
        hit = [r for r in reaches if r is not None]
        if len(hit) == len(axes):
            taps.append((number, tuple(r[0] for r in hit), tuple(r[1] for r in hit)))
    return taps


def _index_last(key: tuple[slice, ...]) -> tuple[Any, ...]:
    """The index that applies ``key`` to the last dimensions."""
    return (..., *key)


def _by_group(x: Array, groups: int) -> Array:
    return x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])


def _weight_by_group(w: Array, groups: int) -> Array:
    """The weight as ``[tap, group, out, in]``, so that each tap is a stack of matrices."""
    grouped = w.reshape(groups, w.shape[0] // groups, w.shape[1], -1)
    return np.ascontiguousarray(grouped.transpose(3, 0, 1, 2))


def _apply_matrices(matrices: Array, x: Array) -> Array:
    """Apply ``[group, out, in]`` matrices to the channels of ``[batch, group, in, ...]``."""
    if matrices.shape[2] == 1:
        return np.asarray(matrices.reshape(*matrices.shape[:2], *(1,) * (x.ndim - 3)) * x)
    flat = x.reshape(*x.shape[:3], numel(x.shape[3:]))
    if x.itemsize not in flat.strides[-2:]:  # BLAS needs unit stride in one dimension
        flat = np.ascontiguousarray(flat)
    return np.asarray(np.matmul(matrices, flat)).reshape(*x.shape[:2], matrices.shape[1], *x.shape[3:])


def _conv_forward(x: Array, w: Array, shape: Shape, at: _Geometry) -> Array:
    taps = _taps(w.shape[2:], x.shape[2:], shape[2:], at)
    source, matrices = _by_group(x, at.groups), _weight_by_group(w, at.groups)
    result = np.zeros((shape[0], at.groups, shape[1] // at.groups, *shape[2:]), x.dtype)
    if w.shape[1] == 1:
        step = max(1, _CACHED // max(1, numel(shape) // at.groups))
        for g in range(0, at.groups, step):
            part = slice(g, g + step)
            _accumulate(result[:, part], source[:, part], matrices[:, part], taps)
        return result.reshape(shape)
    column = x.shape[0] * x.shape[1] * numel(shape[2:])
    block = max(1, max(_COLUMNS, 4 * (x.size + result.size)) // max(column, 1))
    for i in range(0, len(taps), block):
        _accumulate_block(result, source, matrices, taps[i : i + block])
    return result.reshape(shape)


def _accumulate(result: Array, source: Array, matrices: Array, taps: list[Tap]) -> None:
    for number, positions, elements in taps:
        result[_index_last(positions)] += _apply_matrices(matrices[number], source[_index_last(elements)])


def _accumulate_block(result: Array, source: Array, matrices: Array, taps: list[Tap]) -> None:
    """Several taps in one product: an im2col buffer, zero where a tap reads padding."""
    if len(taps) == 1:
        return _accumulate(result, source, matrices, taps)
    batch, groups, channels = source.shape[:3]
    columns = np.zeros((batch, groups, len(taps), channels, *result.shape[3:]), source.dtype)
    for i, (_, positions, elements) in enumerate(taps):
        columns[:, :, i][_index_last(positions)] = source[_index_last(elements)]
    block = matrices[[number for number, _, _ in taps]].transpose(1, 2, 0, 3)
    matrix = np.ascontiguousarray(block).reshape(groups, block.shape[1], -1)
    result += _apply_matrices(matrix, columns.reshape(batch, groups, len(taps) * channels, *result.shape[3:]))
    return None


def _conv_input_adjoint(y: Array, w: Array, shape: Shape, at: _Geometry) -> Array:
    taps = _taps(w.shape[2:], shape[2:], y.shape[2:], at)
    source, matrices = _by_group(y, at.groups), _weight_by_group(w, at.groups).swapaxes(2, 3)
    result = np.zeros((shape[0], at.groups, shape[1] // at.groups, *shape[2:]), y.dtype)
    for number, positions, elements in taps:
        result[_index_last(elements)] += _apply_matrices(matrices[number], source[_index_last(positions)])
    return result.reshape(shape)


def _conv_weight_adjoint(x: Array, y: Array, shape: Shape, at: _Geometry) -> Array:
    taps = _taps(shape[2:], x.shape[2:], y.shape[2:], at)
    source, target = (np.moveaxis(_by_group(a, at.groups), 0, 2) for a in (x, y))  # [group, channel, batch, ...]
    result = np.zeros((numel(shape[2:]), at.groups, shape[0] // at.groups, shape[1]), x.dtype)
    for number, positions, elements in taps:
        left, right = target[_index_last(positions)], source[_index_last(elements)]
        left, right = (a.reshape(*a.shape[:2], numel(a.shape[2:])) for a in (left, right))
        result[number] = np.matmul(left, right.swapaxes(1, 2))
    return result.transpose(1, 2, 3, 0).reshape(shape)


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
