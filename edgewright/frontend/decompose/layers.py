"""Decompositions of neural network layers: convolution, normalization, activation, attention, pooling, sorting."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

from edgewright.frontend.decompose.canonical import RULES, Rule, dtype_of, rank_of, rule, to_dtype
from edgewright.frontend.rewriter import Rewriter, is_dynamic

aten = torch.ops.aten

# --------------------------------------------------------------------------------------------- convolutions


def _ntuple(value: Any, rank: int) -> list[int]:
    """One integer per spatial dimension."""
    values = [value] if isinstance(value, int) else list(value)
    return values * rank if len(values) == 1 else values


def _same_padding(rw: Rewriter, x: fx.Node, weight: fx.Node, dilation: list[int]) -> tuple[fx.Node, list[int]]:
    """Resolve padding 'same': an odd total needs an explicit pad at the end."""
    kernel = weight.meta["val"].shape[2:]
    total = [d * (int(k) - 1) for d, k in zip(dilation, kernel, strict=True)]
    if any(t % 2 for t in total):
        pads = [p for t in reversed(total) for p in (0, t % 2)]
        x = rw.call(aten.constant_pad_nd.default, x, pads, 0.0)
    return x, [t // 2 for t in total]


def _make_convolution_rule(rank: int, transposed: bool) -> Rule:
    def lower(
        rw: Rewriter, x: fx.Node, weight: fx.Node, bias: Any = None, stride: Any = 1, padding: Any = 0, *rest: Any
    ) -> Any:
        if transposed:
            padded_args: list[Any] = [*rest, *[0, 1, 1][len(rest) :]]
            output_padding, groups, dilation = padded_args
        else:
            padded_args = [*rest, *[1, 1][len(rest) :]]
            dilation, groups, output_padding = *padded_args, 0
        unbatched = rank_of(x) == rank + 1
        if unbatched:
            x = rw.call(aten.unsqueeze.default, x, 0)
        dilations = _ntuple(dilation, rank)
        if isinstance(padding, str):
            x, padding = (x, [0]) if padding == "valid" else _same_padding(rw, x, weight, dilations)
        out = rw.call(
            aten.convolution.default, x, weight, bias, _ntuple(stride, rank), _ntuple(padding, rank), dilations,
            transposed, _ntuple(output_padding, rank), groups,
        )  # fmt: skip
        return rw.call(aten.squeeze.dim, out, 0) if unbatched else out

    return lower


for _rank in (1, 2, 3):
    for _overload in ("default", "padding"):
        RULES[getattr(getattr(aten, f"conv{_rank}d"), _overload)] = _make_convolution_rule(_rank, False)
RULES[aten.conv_transpose1d.default] = _make_convolution_rule(1, True)
RULES[aten.conv_transpose2d.input] = _make_convolution_rule(2, True)
RULES[aten.conv_transpose3d.input] = _make_convolution_rule(3, True)


# ---------------------------------------------------------------------------------- normalization and activation


@rule(aten.batch_norm.default)
def batch_norm(
    rw: Rewriter, x: fx.Node, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float,
    cudnn: bool = False,
) -> Any:  # fmt: skip
    if training or mean is None or var is None:
        return NotImplemented
    op = aten._native_batch_norm_legit_no_training.default
    return rw.call(op, x, weight, bias, mean, var, momentum, eps)[0]


@rule(aten.layer_norm.default)
def layer_norm(
    rw: Rewriter, x: fx.Node, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn: bool = True
) -> Any:
    return rw.call(aten.native_layer_norm.default, x, shape, weight, bias, eps)[0]


@rule(aten.softmax.int)
def softmax(rw: Rewriter, x: fx.Node, dim: int, dtype: torch.dtype | None = None) -> Any:
    return rw.call(aten._softmax.default, to_dtype(rw, x, dtype), dim, False)


@rule(aten.log_softmax.int)
def log_softmax(rw: Rewriter, x: fx.Node, dim: int, dtype: torch.dtype | None = None) -> Any:
    return rw.call(aten._log_softmax.default, to_dtype(rw, x, dtype), dim, False)


@rule(aten._log_softmax.default)
def log_softmax_float64(rw: Rewriter, x: fx.Node, dim: int, half_to_float: bool) -> Any:
    """The optimized kernels do not support float64, and abort on tensors without elements."""
    if not is_dynamic(x.meta["val"]) and not x.meta["val"].numel():
        return rw.call(aten.clone.default, x)
    if dtype_of(x) != torch.float64 or not rank_of(x):
        return NotImplemented
    shifted = rw.call(aten.sub.Tensor, x, rw.call(aten.amax.default, x, [dim], True))
    total = rw.call(aten.sum.dim_IntList, rw.call(aten.exp.default, shifted), [dim], True)
    return rw.call(aten.sub.Tensor, shifted, rw.call(aten.log.default, total))


@rule(aten.relu6.default)
def relu6(rw: Rewriter, x: fx.Node) -> Any:
    return rw.call(aten.hardtanh.default, x, 0.0, 6.0, val=x.meta["val"])


@rule(aten.silu.default)
def silu(rw: Rewriter, x: fx.Node) -> Any:
    gate = rw.call(aten.sigmoid.default, x, val=x.meta["val"])
    return rw.call(aten.mul.Tensor, x, gate, val=x.meta["val"])


@rule(aten.hardsigmoid.default)
def hardsigmoid(rw: Rewriter, x: fx.Node) -> Any:
    val = x.meta["val"]
    shifted = rw.call(aten.add.Scalar, x, 3.0, val=val)
    clamped = rw.call(aten.hardtanh.default, shifted, 0.0, 6.0, val=val)
    return rw.call(aten.mul.Scalar, clamped, 1 / 6, val=val)


@rule(aten.hardswish.default)
def hardswish(rw: Rewriter, x: fx.Node) -> Any:
    return rw.call(aten.mul.Tensor, x, hardsigmoid(rw, x), val=x.meta["val"])


@rule(aten.scaled_dot_product_attention.default)
def attention(
    rw: Rewriter, query: fx.Node, key: fx.Node, value: fx.Node, mask: Any = None, dropout_p: float = 0.0,
    is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """softmax(q k' * scale + mask) v. A fully masked row gives zeros."""
    if dropout_p or is_causal or enable_gqa or rank_of(query) < 3:
        return NotImplemented
    features = query.meta["val"].shape[-1]
    if not isinstance(features, int):
        return NotImplemented
    scaled = rw.call(aten.mul.Scalar, query, 1 / math.sqrt(features) if scale is None else scale)
    transposed = rw.call(aten.transpose.int, key, -2, -1)
    scores = rw.call(aten.matmul.default, scaled, transposed)
    if mask is not None:
        if dtype_of(mask) == torch.bool:
            return NotImplemented
        scores = rw.call(aten.add.Tensor, scores, mask)
    return rw.call(aten.matmul.default, rw.call(aten._safe_softmax.default, scores, -1), value)


# ------------------------------------------------------------------------------------------------ sorting, pooling


@rule(aten.sort.default, aten.sort.stable)
def sort(rw: Rewriter, x: fx.Node, *args: Any, dim: int = -1, descending: bool = False, stable: Any = None) -> Any:
    """No runtime has a sort kernel: a sort is a top-k of all n elements."""
    rest = [a for a in args if a is not None]
    dim, descending = (*rest, *(dim, descending)[len(rest) :]) if not isinstance(stable, bool) else (dim, descending)
    count = rw.size(x, dim) if rank_of(x) else 1
    values, order = rw.call(aten.topk.default, x, count, dim, descending, True)
    return values, _stable_order(rw, values, order, count, dim) if stable and count != 1 else order


@rule(aten.argsort.default, aten.argsort.stable)
def argsort(rw: Rewriter, x: fx.Node, dim: int = -1, descending: bool = False, *, stable: bool = False) -> Any:
    return sort(rw, x, dim=dim, descending=descending, stable=stable)[1]


def _stable_order(rw: Rewriter, values: fx.Node, order: fx.Node, count: Any, dim: int) -> Any:
    """Indices of sorted values, those of equal values ascending: top-k kernels return them in any order.

    Runs of equal values are numbered from 0. Sorting ``run << 31 | index`` keeps the runs where they are.
    """
    after, before = (rw.call(aten.slice.Tensor, values, dim, *ends, 1) for ends in ((1, count), (0, -1)))
    differs = rw.call(aten.ne.Tensor, after, before)
    if dtype_of(values).is_floating_point:
        nan = rw.call(aten.logical_and.default, *(rw.call(aten.isnan.default, v) for v in (after, before)))
        differs = rw.call(aten.logical_and.default, differs, rw.call(aten.logical_not.default, nan))
    zero = rw.call(aten.mul.Scalar, rw.call(aten.slice.Tensor, order, dim, 0, 1, 1), 0)
    starts = rw.call(aten.cat.default, [zero, to_dtype(rw, differs, torch.int64)], dim)
    runs = rw.call(aten.mul.Scalar, rw.call(aten.cumsum.default, starts, dim), 1 << 31)
    keys, _ = rw.call(aten.topk.default, rw.call(aten.add.Tensor, runs, order), count, dim, False, True)
    return rw.call(aten.sub.Tensor, keys, runs)


@rule(aten.max_pool2d.default)
def max_pool2d(
    rw: Rewriter, x: fx.Node, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil: bool = False
) -> Any:
    op = aten.max_pool2d_with_indices.default
    return rw.call(
        op,
        x,
        _ntuple(kernel, 2),
        list(_ntuple(stride, 2)),
        _ntuple(padding, 2),
        _ntuple(dilation, 2),
        ceil and _adds_windows(x, kernel, stride, padding, dilation),
    )[0]


def _adds_windows(x: fx.Node, kernel: Any, stride: Any, padding: Any, dilation: Any = 1) -> bool:
    """False if ``ceil_mode`` has no effect, because windows end where the image ends; backends reject it."""
    sizes = x.meta["val"].shape[-2:]
    if not all(isinstance(size, int) for size in sizes):
        return True
    steps = stride if isinstance(stride, int) or stride else kernel
    windows = zip(*(_ntuple(n, 2) for n in (kernel, steps, padding, dilation)), strict=True)
    for size, (k, s, p, d) in zip(sizes, windows, strict=True):
        left = (size + 2 * p - d * (k - 1) - 1) % s
        if left and (size + 2 * p - d * (k - 1) - 1 - left) + s < size + p:  # the last window starts in the image
            return True
    return False


@rule(aten.avg_pool2d.default)
def avg_pool2d(
    rw: Rewriter, x: fx.Node, kernel_size: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False, *rest: Any,
    **named: Any,
) -> Any:  # fmt: skip
    if not ceil_mode or _adds_windows(x, kernel_size, stride, padding):
        return NotImplemented
    return rw.call(aten.avg_pool2d.default, x, kernel_size, stride, padding, False, *rest, **named)


@rule(aten.avg_pool1d.default)
def avg_pool1d(
    rw: Rewriter,
    x: fx.Node,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil: bool = False,
    count_include_pad: bool = True,
) -> Any:
    flat = rw.call(aten.unsqueeze.default, x, -2)
    steps = list(_ntuple(stride, 1)) or list(_ntuple(kernel, 1))
    out = rw.call(
        aten.avg_pool2d.default,
        flat,
        [1, *_ntuple(kernel, 1)],
        [1, *steps],
        [0, *_ntuple(padding, 1)],
        ceil,
        count_include_pad,
    )
    return rw.call(aten.squeeze.dim, out, -2)


@rule(aten.std.correction, aten.std.dim, aten.std.default)
def std(rw: Rewriter, x: fx.Node, *args: Any, **kwargs: Any) -> Any:
    if args and isinstance(args[0], bool):  # std.default(unbiased)
        kwargs = {"correction": int(args[0])}
        args = ()
    elif len(args) > 1:  # std.dim(dim, unbiased, keepdim)
        kwargs = {"correction": int(args[1]), "keepdim": args[2] if len(args) > 2 else False}
        args = args[:1]
    variance = rw.call(aten.var.correction, x, args[0] if args else None, **kwargs)
    return rw.call(aten.sqrt.default, variance)


@rule(aten.linear.default)
def linear(rw: Rewriter, x: fx.Node, weight: fx.Node, bias: Any = None) -> Any:
    if rank_of(x) > 1:
        return NotImplemented
    row = rw.call(aten.unsqueeze.default, x, 0)
    return rw.call(aten.squeeze.dim, rw.call(aten.linear.default, row, weight, bias), 0)


@rule(aten.addbmm.default)
def addbmm(rw: Rewriter, x: fx.Node, a: fx.Node, b: fx.Node, *, beta: Any = 1, alpha: Any = 1) -> Any:
    total = rw.call(aten.sum.dim_IntList, rw.call(aten.bmm.default, a, b), [0])
    scaled = x if beta == 1 else rw.call(aten.mul.Scalar, x, beta)
    return rw.call(aten.add.Tensor, scaled, total, alpha=alpha)


@rule(aten.rrelu.default)
def rrelu(rw: Rewriter, x: fx.Node, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, *_: Any) -> Any:
    return NotImplemented if training else rw.call(aten.leaky_relu.default, x, (lower + upper) / 2)


@rule(aten.embedding_bag.default, aten.embedding_bag.padding_idx)
def embedding_bag(
    rw: Rewriter, table: fx.Node, indices: fx.Node, offsets: fx.Node, by_frequency: bool = False, mode: int = 0,
    sparse: bool = False, weights: Any = None, include_last_offset: bool = False, padding: int | None = None,
) -> Any:  # fmt: skip
    """Sum the rows of each bag by a product with the membership matrix. Empty bags are zero."""
    if mode > 1 or include_last_offset or padding is not None:
        return NotImplemented
    rows = rw.call(aten.embedding.default, table, indices)
    if weights is not None:
        rows = rw.call(aten.mul.Tensor, rows, rw.call(aten.unsqueeze.default, weights, -1))
    positions = rw.call(aten.arange.start_step, 0, rw.size(indices, 0), 1, dtype=dtype_of(offsets))
    at_or_after = rw.call(aten.ge.Tensor, positions, rw.call(aten.unsqueeze.default, offsets, -1))
    at_or_after = to_dtype(rw, at_or_after, dtype_of(rows))
    next_bag = rw.call(aten.slice.Tensor, at_or_after, 0, 1, 2**62, 1)
    membership = rw.call(
        aten.sub.Tensor, at_or_after, rw.call(aten.constant_pad_nd.default, next_bag, [0, 0, 0, 1], 0.0)
    )
    out = rw.call(aten.mm.default, membership, rows)
    if mode == 1:
        count = rw.call(aten.sum.dim_IntList, membership, [1], True)
        out = rw.call(aten.div.Tensor, out, rw.call(aten.clamp.default, count, 1.0))
    return [out, None, None, None]


@rule(torch.ops.aten._int_mm.default)
def int_mm(rw: Rewriter, a: fx.Node, b: fx.Node) -> Any:
    """An int8 matrix product with int32 accumulation, which torchao emits for 8-bit linear layers."""
    return rw.call(torch.ops.aten.mm.default, to_dtype(rw, a, torch.int32), to_dtype(rw, b, torch.int32))
