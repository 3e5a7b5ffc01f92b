"""What ExecuTorch's kernels do not take: operators that only newer releases have, where torch's own decompositions lead
to ``prims``, and arguments that every release rejects or misreads."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils._python_dispatch import _disable_current_modes

from edgewright.frontend.decompose.canonical import dtype_of, rank_of, rule
from edgewright.frontend.rewriter import Rewriter, is_dynamic

aten = torch.ops.aten


@rule(aten.var_mean.correction)
def var_mean(rw: Rewriter, x: fx.Node, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    if rw.is_supported(aten.var_mean.correction):
        return NotImplemented
    mean_dims = list(range(x.meta["val"].dim())) if dim is None else dim
    variance = rw.call(aten.var.correction, x, dim, correction=correction, keepdim=keepdim)
    return [variance, rw.call(aten.mean.dim, x, mean_dims, keepdim)]


@rule(aten._adaptive_avg_pool2d.default)
def adaptive_average(rw: Rewriter, x: fx.Node, size: Any) -> Any:
    """torch's decomposition keeps the windows of the example's sizes: dynamic ones must not reach it."""
    value = x.meta["val"]
    dynamic = [dim for dim in (-2, -1) if not isinstance(value.shape[dim], int)]
    if rw.is_supported(aten._adaptive_avg_pool2d.default) or not dynamic:
        return NotImplemented
    if any(size[dim] != 1 for dim in dynamic):
        raise rw.unsupported(aten._adaptive_avg_pool2d.default, "has windows that depend on a dynamic size")
    mean = rw.call(aten.mean.dim, x, dynamic, True)
    return mean if len(dynamic) == 2 else rw.call(aten._adaptive_avg_pool2d.default, mean, size)


@rule(aten.bitwise_left_shift.Tensor_Scalar, aten.bitwise_left_shift.Tensor)
def left_shift(rw: Rewriter, x: fx.Node, count: Any) -> Any:
    if rw.is_supported(aten.bitwise_left_shift.Tensor) or not _is_plain_count(x, count):
        return NotImplemented
    return rw.call(aten.mul.Scalar, x, 1 << count)


@rule(aten.bitwise_right_shift.Tensor_Scalar, aten.bitwise_right_shift.Tensor)
def right_shift(rw: Rewriter, x: fx.Node, count: Any) -> Any:
    """An arithmetic shift rounds down. Kernels divide wide integers through doubles, so only narrow ones are exact."""
    if rw.is_supported(aten.bitwise_right_shift.Tensor) or not _is_plain_count(x, count):
        return NotImplemented
    if dtype_of(x).itemsize > 4:
        return NotImplemented
    return rw.call(aten.div.Scalar_mode, x, 1 << count, rounding_mode="floor")


@rule(aten.narrow_copy.default)
def narrow(rw: Rewriter, x: fx.Node, dim: int, start: Any, length: Any) -> Any:
    """The kernel takes no start that counts from the end (1.0 reads in front of the tensor), and no such dimension."""
    value = x.meta["val"]
    size = value.shape[dim]
    from_end = isinstance(start, int) and start < 0 and isinstance(size, int)
    if dim >= 0 and not from_end:
        return NotImplemented
    return rw.call(aten.narrow_copy.default, x, dim % value.dim(), start + size if from_end else start, length)


@rule(aten.expand_copy.default)
def expand(rw: Rewriter, x: fx.Node, size: Any, *, implicit: bool = False) -> Any:
    """``implicit`` says where the call came from, not what it does; the kernel rejects it."""
    return rw.call(aten.expand_copy.default, x, size) if implicit else NotImplemented


@rule(aten.cumsum.default, aten.sum.dim_IntList)
def sum_without_dimensions(rw: Rewriter, x: fx.Node, dim: Any, *rest: Any, dtype: Any = None) -> Any:
    """The kernels take no number without dimensions: one rejects it, the other aborts in newer releases."""
    if rank_of(x) or (not dim and isinstance(dim, list)):
        return NotImplemented
    whole = torch.int64 if not dtype_of(x).is_floating_point and not dtype_of(x).is_complex else dtype_of(x)
    return rw.call(aten._to_copy.default, x, dtype=dtype or whole)


@rule(aten.unfold_copy.default)
def unfold_without_dimensions(rw: Rewriter, x: fx.Node, dim: int, size: int, step: int) -> Any:
    """The one window of a number without dimensions; the kernel aborts."""
    if rank_of(x):
        return NotImplemented
    return rw.call(aten.slice_copy.Tensor, rw.call(aten.view.default, x, [1]), 0, 0, size)


# Kernels of reductions that abort on tensors without elements; those of prod and any only in the oldest release.


@rule(aten.amax.default, aten.amin.default)
def extreme_of_nothing(rw: Rewriter, x: fx.Node, dim: Any = (), keepdim: bool = False) -> Any:
    return _of_nothing(rw, aten.amax.default, 0, x, dim, keepdim)


@rule(aten.prod.dim_int)
def product_of_nothing(rw: Rewriter, x: fx.Node, dim: int, keepdim: bool = False, *, dtype: Any = None) -> Any:
    return _of_nothing(rw, aten.prod.dim_int, 1, x, dim, keepdim, dtype=dtype)


@rule(aten.any.dim)
def any_of_nothing(rw: Rewriter, x: fx.Node, dim: int, keepdim: bool = False) -> Any:
    return _of_nothing(rw, aten.any.dim, False, x, dim, keepdim)


def _of_nothing(rw: Rewriter, op: Any, neutral: Any, x: fx.Node, *args: Any, **kwargs: Any) -> Any:
    """A constant in place of a reduction of a tensor that never has elements."""
    if is_dynamic(x.meta["val"]) or x.meta["val"].numel():
        return NotImplemented
    result = rw.fake(op, (x, *args), kwargs)
    return rw.call(aten.full.default, list(result.shape), neutral, dtype=result.dtype)


@rule(aten.index.Tensor)
def negative_constant_indices(rw: Rewriter, x: fx.Node, indices: Any) -> Any:
    """Release 1.0.0 takes no indices that count from the end; constant ones need not."""
    sizes, changed, first = x.meta["val"].shape, list(indices), 0
    for position, index in enumerate(indices):
        value = rw.constants.value(index) if isinstance(index, fx.Node) else None
        size = sizes[first] if first < len(sizes) else None
        first += index.meta["val"].dim() if isinstance(index, fx.Node) and dtype_of(index) == torch.bool else 1
        if value is None or value.dtype not in (torch.int32, torch.int64) or not isinstance(size, int):
            continue
        with unset_fake_temporarily():
            positive = torch.where(value < 0, value + size, value)
            if rw.add_constant is not None and not torch.equal(positive, value):
                changed[position] = rw.add_constant(positive)
    return NotImplemented if changed == list(indices) else rw.call(aten.index.Tensor, x, changed)


@rule(aten._upsample_bilinear2d_aa.default)
def antialiased_resize(
    rw: Rewriter, x: fx.Node, output_size: Any, align_corners: bool, scales_h: Any = None, scales_w: Any = None
) -> Any:
    """Each side as a product with a constant matrix."""
    image = x.meta["val"]
    sizes = [*image.shape[-2:], *output_size]
    static = all(isinstance(size, int) for size in sizes)
    if rw.is_supported(aten._upsample_bilinear2d_aa.default) or not static or rw.add_constant is None:
        return NotImplemented
    rows, columns = (
        _resize_matrix(size, out, align_corners, scale).to(image.dtype)
        for size, out, scale in zip(sizes[:2], sizes[2:], (scales_h, scales_w), strict=True)
    )
    high = rw.call(aten.matmul.default, rw.add_constant(rows), x)
    return rw.call(aten.matmul.default, high, rw.add_constant(columns.T.contiguous()))


def _resize_matrix(size: int, out: int, align_corners: bool, scale: float | None) -> torch.Tensor:
    """What the operator makes of unit vectors: a row of weights for each element of the result."""
    with _disable_current_modes():
        unit = torch.eye(size, dtype=torch.float64).view(1, 1, size, size)
        resized: torch.Tensor = aten._upsample_bilinear2d_aa.default(unit, [out, size], align_corners, scale, None)
        return resized[0, 0]


def _is_plain_count(x: fx.Node, count: Any) -> bool:
    """Whether two to the power of the count is a positive number of the tensor's type."""
    dtype = dtype_of(x)
    if dtype == torch.bool or not isinstance(count, int):
        return False
    return count >= 0 and (1 << count) <= torch.iinfo(dtype).max
