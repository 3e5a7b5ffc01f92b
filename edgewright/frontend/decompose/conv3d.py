"""Decompositions of 3-d convolution and pooling into 2-d operators: no device runtime has 3-d kernels.

Also adaptive max pooling with windows of different sizes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from edgewright.frontend.decompose.canonical import rank_of, rule
from edgewright.frontend.decompose.layers import _ntuple
from edgewright.frontend.rewriter import Rewriter, is_dynamic

aten = torch.ops.aten


@rule(aten.convolution.default)
def convolution(
    rw: Rewriter, x: fx.Node, weight: fx.Node, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,
    output_padding: Any, groups: int,
) -> Any:  # fmt: skip
    """A sum, over the kernel's depth, of 2-d convolutions with depth folded into the batch."""
    if rank_of(x) != 5 or not _is_static(x):
        return NotImplemented
    stride, padding, dilation, output_pads = (_ntuple(v, 3) for v in (stride, padding, dilation, output_padding))
    kernel = int(weight.meta["val"].shape[2])
    slices = rw.call(aten.permute.default, x, [0, 2, 1, 3, 4])  # batch, depth, channels, height, width
    extent, step = dilation[0] * (kernel - 1), stride[0]
    before = after = padding[0]
    if transposed:
        slices = _dilate_depth(rw, slices, step)
        before, after, step = extent - before, extent - after + output_pads[0], 1
    if before or after:
        slices = rw.call(aten.constant_pad_nd.default, slices, [0, 0, 0, 0, 0, 0, before, after], 0.0)
    depth = (rw.size(slices, 1) - extent - 1) // step + 1
    total = None
    for k in range(kernel):
        start = k * dilation[0]
        part = rw.call(aten.slice.Tensor, slices, 1, start, start + (depth - 1) * step + 1, step)
        flat = rw.call(aten.view.default, part, [-1, *rw.shape(part)[2:]])
        kernel_plane = rw.call(aten.select.int, weight, 2, kernel - 1 - k if transposed else k)
        product = rw.call(
            aten.convolution.default, flat, kernel_plane, bias if k == 0 else None, stride[1:], padding[1:],
            dilation[1:], transposed, output_pads[1:], groups,
        )  # fmt: skip
        total = product if total is None else rw.call(aten.add.Tensor, total, product)
    assert total is not None  # the kernel's depth is at least 1
    out = rw.call(aten.view.default, total, [-1, depth, *rw.shape(total)[1:]])
    return rw.call(aten.permute.default, out, [0, 2, 1, 3, 4])


def _dilate_depth(rw: Rewriter, slices: fx.Node, step: int) -> Any:
    """Insert ``step - 1`` zero slices between neighbors, as a transposed convolution of this stride does."""
    if step == 1:
        return slices
    _, depth, *rest = rw.shape(slices)
    padded = rw.call(aten.unsqueeze.default, slices, 2)
    padded = rw.call(aten.constant_pad_nd.default, padded, [0, 0, 0, 0, 0, 0, 0, step - 1], 0.0)
    interleaved = rw.call(aten.view.default, padded, [-1, depth * step, *rest])
    return rw.call(aten.slice.Tensor, interleaved, 1, 0, (depth - 1) * step + 1, 1)


def _is_static(x: fx.Node) -> bool:
    """True if every size except the batch is static."""
    return all(isinstance(size, int) for size in x.meta["val"].shape[1:])


def _pool_separably(rw: Rewriter, x: fx.Node, pool_plane: Any, pool_depth: Any) -> Any:
    """Apply ``pool_plane`` over height and width, then ``pool_depth`` with depth as the height of a 2-d tensor."""
    batched = rank_of(x) == 5
    c, d, h, w = rw.shape(x)[-4:]
    planes = pool_plane(rw.call(aten.view.default, x, [-1, c * d, h, w]))
    height, width = rw.shape(planes)[2:]
    out = pool_depth(rw.call(aten.view.default, planes, [-1, c, d, height * width]))
    shape = [c, rw.size(out, 2), height, width]
    return rw.call(aten.view.default, out, [-1, *shape] if batched else shape)


@rule(aten.max_pool3d.default)
def max_pool3d(
    rw: Rewriter, x: fx.Node, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil: bool = False
) -> Any:
    if not _is_static(x):
        return NotImplemented
    k, p, d = (_ntuple(v, 3) for v in (kernel, padding, dilation))
    s = _ntuple(stride, 3) if stride else k
    op = aten.max_pool2d.default
    return _pool_separably(
        rw,
        x,
        lambda v: rw.call(op, v, k[1:], s[1:], p[1:], d[1:], ceil),
        lambda v: rw.call(op, v, [k[0], 1], [s[0], 1], [p[0], 0], [d[0], 1], ceil),
    )


@rule(aten.avg_pool3d.default)
def avg_pool3d(
    rw: Rewriter, x: fx.Node, kernel: Any, stride: Any = (), padding: Any = 0, ceil: bool = False,
    count_include_pad: bool = True, divisor: int | None = None,
) -> Any:  # fmt: skip
    if not _is_static(x):
        return NotImplemented
    k, p = _ntuple(kernel, 3), _ntuple(padding, 3)
    s = _ntuple(stride, 3) if stride else k
    op, first = aten.avg_pool2d.default, None if divisor is None else 1
    return _pool_separably(
        rw,
        x,
        lambda v: rw.call(op, v, k[1:], s[1:], p[1:], ceil, count_include_pad, first),
        lambda v: rw.call(op, v, [k[0], 1], [s[0], 1], [p[0], 0], ceil, count_include_pad, divisor),
    )


@rule(aten.adaptive_avg_pool3d.default, aten._adaptive_avg_pool3d.default)
def adaptive_avg_pool3d(rw: Rewriter, x: fx.Node, size: Any) -> Any:
    if not _is_static(x):
        return NotImplemented
    size = _ntuple(size, 3)
    op = aten._adaptive_avg_pool2d.default
    return _pool_separably(
        rw, x, lambda v: rw.call(op, v, size[1:]), lambda v: rw.call(op, v, [size[0], size[1] * size[2]])
    )


@rule(aten.adaptive_max_pool2d.default)
def adaptive_max_pool2d(rw: Rewriter, x: fx.Node, size: Any) -> Any:
    """One reduction per window; windows of equal size are a regular max pooling."""
    if is_dynamic(x.meta["val"]):
        return NotImplemented
    (height, width), (rows, columns) = rw.shape(x)[-2:], _ntuple(size, 2)
    if height % rows == 0 and width % columns == 0:
        kernel = [height // rows, width // columns]
        return rw.call(aten.max_pool2d_with_indices.default, x, kernel, kernel)
    windows = [
        _pool_window(rw, x, _window_bounds(i, rows, height), _window_bounds(j, columns, width))
        for i in range(rows)
        for j in range(columns)
    ]
    shape = [*rw.shape(x)[:-2], rows, columns]
    return [
        rw.call(aten.view.default, rw.call(aten.cat.default, list(part), -1), shape)
        for part in zip(*windows, strict=True)
    ]


def _window_bounds(index: int, count: int, size: int) -> tuple[int, int]:
    return index * size // count, -(-(index + 1) * size // count)


def _pool_window(rw: Rewriter, x: fx.Node, rows: tuple[int, int], columns: tuple[int, int]) -> tuple[Any, Any]:
    """The maximum of a window and its flat index in the plane."""
    part = rw.call(aten.slice.Tensor, rw.call(aten.slice.Tensor, x, -2, *rows), -1, *columns)
    width = columns[1] - columns[0]
    flat = rw.call(aten.view.default, part, [*rw.shape(x)[:-2], (rows[1] - rows[0]) * width])
    value, index = rw.call(aten.max.dim, flat, -1, True)
    row = rw.call(aten.div.Scalar_mode, index, width, rounding_mode="floor")
    column = rw.call(aten.sub.Tensor, index, rw.call(aten.mul.Scalar, row, width))
    start = rows[0] * rw.size(x, -1) + columns[0]
    index = rw.call(aten.add.Tensor, rw.call(aten.mul.Scalar, row, rw.size(x, -1)), column)
    return value, rw.call(aten.add.Scalar, index, start)
