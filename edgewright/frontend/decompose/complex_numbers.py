"""Complex operands that ExecuTorch's kernels do not take."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from edgewright.frontend.rewriter import Rewriter

aten = torch.ops.aten
# Operators whose kernels take complex numbers in every release. Others reject them when the method runs, some only in
# older releases; conversions between complex types give wrong numbers. Arithmetic is of tensors of one type.
_COMPLEX_ARITHMETIC = frozenset({aten.add.Tensor, aten.bmm.default, aten.mul.Tensor, aten.sub.Tensor})
_COMPLEX = _COMPLEX_ARITHMETIC | frozenset({
    aten._conj_physical.default, aten._fft_c2r.default, aten.abs.default, aten.alias_copy.default,
    aten.as_strided_copy.default, aten.cat.default, aten.clone.default, aten.detach_copy.default,
    aten.diagonal_copy.default, aten.embedding.default, aten.expand_copy.default, aten.index.Tensor,
    aten.index_select.default, aten.lift_fresh_copy.default, aten.narrow_copy.default, aten.permute_copy.default,
    aten.pixel_shuffle.default, aten.pixel_unshuffle.default, aten.repeat.default, aten.select_copy.int,
    aten.slice_copy.Tensor, aten.squeeze_copy.dim, aten.squeeze_copy.dims, aten.sum.dim_IntList, aten.t_copy.default,
    aten.transpose_copy.int, aten.unsqueeze_copy.default, aten.view_as_real_copy.default, aten.view_copy.default,
})  # fmt: skip


def check_operands(rw: Rewriter, op: Any, args: Any) -> None:
    """Raise if a call has complex operands that its kernel does not take: the error would only come on the device."""
    values = [a.meta["val"] for a in pytree.tree_leaves(args) if isinstance(a, fx.Node)]
    dtypes = {value.dtype for value in values if isinstance(value, torch.Tensor)}
    if not any(dtype.is_complex for dtype in dtypes):
        return
    has_others = len(values) != len(args) or len(dtypes) > 1
    if op not in _COMPLEX or (op in _COMPLEX_ARITHMETIC and has_others):
        _reject(rw, op)


def check_cast(rw: Rewriter, x: fx.Node, dtype: torch.dtype) -> None:
    """Raise for a conversion from or to complex numbers."""
    if x.meta["val"].is_complex() or dtype.is_complex:
        _reject(rw, aten._to_copy.default)


def _reject(rw: Rewriter, op: Any) -> None:
    if rw.strict:
        raise rw.unsupported(op, "takes real numbers only in ExecuTorch's runtime: compute with the two parts")
