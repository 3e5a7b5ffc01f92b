"""What ExecuTorch's kernels do not take: operators that only newer releases have, where torch's own decompositions lead
to ``prims``, and arguments that every release rejects or misreads."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch.utils._python_dispatch import _disable_current_modes

from edgewright.frontend.decompose.canonical import dtype_of, rule
from edgewright.frontend.rewriter import Rewriter

aten = torch.ops.aten


@rule(aten.var_mean.correction)
def var_mean(rw: Rewriter, x: fx.Node, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    if rw.is_supported(aten.var_mean.correction):
        return NotImplemented
    mean_dims = list(range(x.meta["val"].dim())) if dim is None else dim
    variance = rw.call(aten.var.correction, x, dim, correction=correction, keepdim=keepdim)
    return [variance, rw.call(aten.mean.dim, x, mean_dims, keepdim)]


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
