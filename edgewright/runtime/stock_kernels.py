"""Kernels of the stock operator list, by family. Importing this module fills the registry."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from edgewright.ir.aten.reference import (
    activations,
    compare,
    conv,
    create,
    distance,
    elementwise,
    fft,
    grid_sample,
    indexing,
    linalg,
    movement,
    norm,
    pad,
    pool,
    quant,
    quant_ops,
    rearrange,
    reduce,
    resample,
    scalars,
    unary,
)
from edgewright.ir.aten.reference.dims import Array, Shape
from edgewright.runtime.kernel import Function, kernel, register, register_signature
from edgewright.runtime.tensor import TensorSlot

# --------------------------------------------------------------------------------------------------------- elementwise


for _name in ("abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "erf", "exp", "expm1",
              "floor", "log", "log10", "log1p", "log2", "neg", "reciprocal", "round", "rsqrt", "sign", "sin", "sinh",
              "sqrt", "tan", "tanh", "trunc"):  # fmt: skip
    register(f"aten::{_name}.out", getattr(unary, _name), create.same_shape)
register("aten::_conj_physical.out", unary.conj, create.same_shape)

for _name in ("add", "sub", "mul", "div"):
    register(f"aten::{_name}.out", getattr(elementwise, _name), elementwise.broadcast_shape)
    register(f"aten::{_name}.Scalar_out", getattr(elementwise, _name), elementwise.broadcast_shape)
register("aten::rsub.Scalar_out", elementwise.rsub, elementwise.broadcast_shape)
register("aten::div.out_mode", elementwise.div, elementwise.broadcast_shape)
register("aten::div.Scalar_mode_out", elementwise.div, elementwise.broadcast_shape)
register("aten::floor_divide.out", elementwise.floor_divide, elementwise.broadcast_shape)
for _name in ("fmod", "remainder"):
    register(f"aten::{_name}.Tensor_out", getattr(elementwise, _name), elementwise.broadcast_shape)
    register(f"aten::{_name}.Scalar_out", getattr(elementwise, _name), elementwise.broadcast_shape)
register("aten::pow.Tensor_Tensor_out", elementwise.pow, elementwise.broadcast_shape)
register("aten::pow.Tensor_Scalar_out", elementwise.pow, elementwise.broadcast_shape)
register("aten::pow.Scalar_out", elementwise.pow, elementwise.broadcast_shape)
for _name in ("atan2", "maximum", "minimum"):
    register(f"aten::{_name}.out", getattr(elementwise, _name), elementwise.broadcast_shape)
register("aten::clamp.out", elementwise.clamp, elementwise.clamp_shape)
register("aten::clamp.Tensor_out", elementwise.clamp, elementwise.clamp_shape)

for _name in ("eq", "ne", "lt", "le", "gt", "ge", "bitwise_and", "bitwise_or", "bitwise_xor"):
    register(f"aten::{_name}.Tensor_out", getattr(compare, _name), elementwise.broadcast_shape)
    register(f"aten::{_name}.Scalar_out", getattr(compare, _name), elementwise.broadcast_shape)
for _name in ("bitwise_left_shift", "bitwise_right_shift"):
    register(f"aten::{_name}.Tensor_out", getattr(compare, _name), elementwise.broadcast_shape)
    register(f"aten::{_name}.Tensor_Scalar_out", getattr(compare, _name), elementwise.broadcast_shape)
for _name in ("bitwise_not", "isinf", "isnan", "logical_not", "logical_and", "logical_or", "logical_xor"):
    register(f"aten::{_name}.out", getattr(compare, _name), elementwise.broadcast_shape)
register("aten::where.self_out", compare.where, elementwise.broadcast_shape)
register("aten::masked_fill.Scalar_out", compare.masked_fill, elementwise.broadcast_shape)


# --------------------------------------------------------------------------------------------------------- activations


for _name in ("relu", "hardtanh", "leaky_relu", "elu", "gelu", "sigmoid", "logit"):
    register(f"aten::{_name}.out", getattr(activations, _name), create.same_shape)
register("aten::glu.out", activations.glu, activations.glu_shape)
register("aten::native_dropout.out", activations.dropout, activations.dropout_shape)


# ---------------------------------------------------------------------------------------- matrix products, convolution


register("aten::mm.out", linalg.mm, linalg.mm_shape)
register("aten::bmm.out", linalg.bmm, linalg.bmm_shape)
register("aten::addmm.out", linalg.addmm, linalg.addmm_shape)
register("aten::linear.out", linalg.linear, linalg.linear_shape)
register("aten::convolution.out", conv.convolution, conv.convolution_shape)
register("aten::convolution_backward.out", conv.convolution_backward, conv.convolution_backward_shape)


# ------------------------------------------------------------------------------------------------------- normalization


register("aten::_softmax.out", norm.softmax, norm.softmax_shape)
register("aten::_log_softmax.out", norm.log_softmax, norm.softmax_shape)
register("aten::native_layer_norm.out", norm.layer_norm, norm.layer_norm_shape)
register("aten::native_group_norm.out", norm.group_norm, norm.group_norm_shape)
register("aten::_native_batch_norm_legit.no_stats_out", norm.batch_norm_training, norm.batch_norm_training_shape)


register("aten::_native_batch_norm_legit_no_training.out", norm.batch_norm_inference, norm.batch_norm_inference_shape)


def _batch_norm_legit_shape(
    input: Array, weight: Any, bias: Any, mean: Array, var: Array, training: bool, momentum: float, eps: float
) -> list[Shape]:
    inference = norm.batch_norm_inference_shape(input, weight, bias, mean, var, momentum, eps)
    return norm.batch_norm_training_shape(input, weight, bias, True, momentum, eps) if training else inference


@kernel("aten::_native_batch_norm_legit.out", _batch_norm_legit_shape)
def _batch_norm_legit(
    input: Array, weight: Any, bias: Any, mean: Array, var: Array, training: bool, momentum: float, eps: float
) -> tuple[Array, Array, Array]:
    """Training updates the running statistics in place."""
    if not training:
        return norm.batch_norm_inference(input, weight, bias, mean, var, momentum, eps)
    results = norm.batch_norm_training(input, weight, bias, True, momentum, eps)
    mean[...], var[...] = norm.running_moments(input, mean, var, momentum)
    return results


# ------------------------------------------------------------------------------------------------ reductions and scans


register("aten::sum.IntList_out", reduce.reduce_sum, reduce.reduction_shape)
register("aten::mean.out", reduce.reduce_mean, reduce.reduction_shape)
register("aten::mean.dtype_out", lambda x, dtype: reduce.reduce_mean(x, dtype=dtype), lambda x, dtype: ())
register("aten::prod.out", lambda x, dtype: reduce.reduce_prod(x, dtype=dtype), lambda x, dtype: ())
register(
    "aten::prod.int_out",
    lambda x, dim, keepdim, dtype: reduce.reduce_prod(x, [dim], keepdim, dtype),
    lambda x, dim, keepdim, dtype: reduce.reduction_shape(x, [dim], keepdim),
)
register("aten::var.correction_out", reduce.variance, reduce.variance_shape)
register("aten::var_mean.correction_out", reduce.var_mean, reduce.var_mean_shape)
register(
    "aten::var.out",
    lambda x, dim, unbiased, keepdim: reduce.variance(x, dim, int(unbiased), keepdim),
    lambda x, dim, unbiased, keepdim: reduce.variance_shape(x, dim, int(unbiased), keepdim),
)
register("aten::any.all_out", reduce.reduce_any, reduce.reduce_any_shape)
register("aten::any.dims_out", reduce.reduce_any, reduce.reduce_any_shape)
register(
    "aten::any.out",
    lambda x, dim, keepdim: reduce.reduce_any(x, [dim], keepdim),
    lambda x, dim, keepdim: reduce.reduce_any_shape(x, [dim], keepdim),
)
register("aten::amax.out", reduce.amax, reduce.extreme_shape)
register("aten::amin.out", reduce.amin, reduce.extreme_shape)
register("aten::max.unary_out", reduce.amax, reduce.extreme_shape)
register("aten::min.unary_out", reduce.amin, reduce.extreme_shape)
register("aten::max.dim_max", reduce.max_dim, reduce.extreme_dim_shape)
register("aten::min.dim_min", reduce.min_dim, reduce.extreme_dim_shape)
register("aten::argmax.out", reduce.argmax, reduce.arg_shape)
register("aten::argmin.out", reduce.argmin, reduce.arg_shape)
register("aten::cumsum.out", reduce.cumsum, reduce.cumsum_shape)
register("aten::topk.values", reduce.topk, reduce.topk_shape)


# ----------------------------------------------------------------------------- pooling, resampling, Fourier transforms


register("aten::max_pool2d_with_indices.out", pool.max_pool2d, pool.max_pool2d_shape)
register(
    "aten::max_pool2d_with_indices_backward.grad_input",
    pool.max_pool2d_backward,
    pool.max_pool2d_backward_shape,
)
register("aten::avg_pool2d.out", pool.avg_pool2d, pool.avg_pool2d_shape)
register("aten::_adaptive_avg_pool2d.out", pool.adaptive_avg_pool2d, pool.adaptive_avg_pool2d_shape)

register("aten::upsample_nearest2d.vec_out", resample.upsample_nearest2d, resample.upsample_nearest2d_shape)
register("aten::upsample_bilinear2d.vec_out", resample.upsample_bilinear2d, resample.upsample_shape)
register("aten::_upsample_bilinear2d_aa.out", resample.upsample_bilinear2d_aa, resample.resize_shape)
register("aten::grid_sampler_2d.out", grid_sample.grid_sampler_2d, grid_sample.grid_sampler_2d_shape)

register("aten::_fft_r2c.out", fft.rfft, fft.rfft_shape)
register("aten::_fft_c2r.out", fft.irfft, fft.irfft_shape)


# --------------------------------------------------------------------------------------------- creation, copies, casts


register("aten::full.out", create.full, create.size_shape)
register("aten::zeros.out", create.zeros, create.size_shape)
register("aten::ones.out", create.ones, create.size_shape)
register("aten::rand.out", create.rand, create.size_shape)
register("aten::randn.out", create.randn, create.size_shape)
register("aten::full_like.out", create.fill, create.fill_shape)
register("aten::fill.Scalar_out", create.fill, create.fill_shape)
register("aten::fill.Tensor_out", create.fill, create.fill_shape)
register("aten::scalar_tensor.out", create.scalar_tensor, create.scalar_tensor_shape)
register("aten::arange.out", lambda end: create.arange(0, end), lambda end: create.arange_shape(0, end))
register("aten::arange.start_out", create.arange, create.arange_shape)

# What an empty tensor holds is undefined; zeros keep it the same from run to run.
register("aten::empty.out", create.zeros, create.size_shape)
register("dim_order_ops::_empty_dim_order.out", create.zeros, create.empty_dim_order_shape)

for _key in ("aten::_to_copy", "aten::alias_copy", "aten::clone", "aten::detach_copy", "aten::lift_fresh_copy",
             "et_copy::_d2h_copy", "et_copy::_h2d_copy"):  # fmt: skip
    register(f"{_key}.out", create.clone, create.same_shape)
register("dim_order_ops::_clone_dim_order.out", create.clone, create.dim_order_shape)
register("dim_order_ops::_to_dim_order_copy.out", create.clone, create.dim_order_shape)
register("aten::copy.out", create.copy, create.copy_shape)
register("aten::view_as_real_copy.out", create.view_as_real, create.view_as_real_shape)


@kernel("aten::copy_", shape=None)
def _copy_in_place(self: Array, src: Array, *_: Any) -> None:
    np.copyto(self, create.copy(self, src))


# ----------------------------------------------------------------------------------- data movement, pairwise distances


register("aten::view_copy.out", movement.view, movement.view_shape)
register("aten::permute_copy.out", movement.permute, movement.permute_shape)
register("aten::transpose_copy.int_out", movement.transpose, movement.transpose_shape)
register("aten::t_copy.out", movement.matrix_transpose, movement.matrix_transpose_shape)
register(
    "aten::squeeze_copy.dim_out",
    lambda x, dim: movement.squeeze(x, [dim]),
    lambda x, dim: movement.squeeze_shape(x, [dim]),
)
register("aten::squeeze_copy.dims_out", movement.squeeze, movement.squeeze_shape)
register("aten::unsqueeze_copy.out", movement.unsqueeze, movement.unsqueeze_shape)
register("aten::expand_copy.out", movement.expand, movement.expand_shape)
register("aten::repeat.out", movement.repeat, movement.repeat_shape)
register("aten::slice_copy.Tensor_out", movement.slice_, movement.slice_shape)
register("aten::narrow_copy.out", movement.narrow, movement.narrow_shape)
register("aten::select_copy.int_out", movement.select, movement.select_shape)
register("aten::flip.out", movement.flip, movement.flip_shape)
register("aten::roll.out", movement.roll, movement.roll_shape)
register("aten::diagonal_copy.out", movement.diagonal, movement.diagonal_shape)
register("aten::tril.out", movement.tril, movement.tril_shape)

register("aten::cat.out", rearrange.cat, rearrange.cat_shape)
register("aten::stack.out", rearrange.stack, rearrange.stack_shape)
register("aten::split_copy.Tensor_out", rearrange.split, rearrange.split_shape)
register("aten::split_with_sizes_copy.out", rearrange.split_with_sizes, rearrange.split_with_sizes_shape)
register("aten::unbind_copy.int_out", rearrange.unbind, rearrange.unbind_shape)
register("aten::as_strided_copy.out", rearrange.as_strided, rearrange.as_strided_shape)
register("aten::unfold_copy.out", rearrange.unfold, rearrange.unfold_shape)
register("aten::pixel_shuffle.out", rearrange.pixel_shuffle, rearrange.pixel_shuffle_shape)
register("aten::pixel_unshuffle.out", rearrange.pixel_unshuffle, rearrange.pixel_unshuffle_shape)

register("aten::constant_pad_nd.out", pad.constant_pad, pad.constant_pad_shape)
for _n in (1, 2, 3):
    register(f"aten::reflection_pad{_n}d.out", pad.reflection_pad, pad.reflection_pad_shape)
    register(f"aten::replication_pad{_n}d.out", pad.replication_pad, pad.replication_pad_shape)

register("aten::_cdist_forward.out", distance.cdist, distance.cdist_shape)
register("aten::_pdist_forward.out", distance.pdist, distance.pdist_shape)


# ------------------------------------------------------------------------------------------- gather, scatter, indexing


register("aten::gather.out", indexing.gather, indexing.gather_shape)
register("aten::scatter.src_out", indexing.scatter, indexing.scatter_shape)
register("aten::scatter.value_out", indexing.scatter, indexing.scatter_shape)
register("aten::scatter_add.out", indexing.scatter_add, indexing.scatter_shape)
register("aten::index_select.out", indexing.index_select, indexing.index_select_shape)
# padding_idx, scale_grad_by_freq and sparse only matter to the gradient.
register(
    "aten::embedding.out",
    lambda weight, indices, *_: indexing.embedding(weight, indices),
    lambda weight, indices, *_: indexing.embedding_shape(weight, indices),
)
register("aten::index.Tensor_out", indexing.index, indexing.index_shape)
register("aten::index_put.out", indexing.index_put, indexing.index_put_shape)
register("aten::select_scatter.out", indexing.select_scatter, indexing.select_scatter_shape)
register("aten::slice_scatter.out", indexing.slice_scatter, indexing.slice_scatter_shape)
register("aten::masked_select.out", indexing.masked_select, indexing.masked_select_shape)
register("aten::masked_scatter.out", indexing.masked_scatter, indexing.masked_scatter_shape)
register("aten::nonzero.out", indexing.nonzero, indexing.nonzero_shape)
register("aten::repeat_interleave.Tensor_out", indexing.repeat_interleave, indexing.repeat_interleave_shape)


@kernel("aten::index_put_", None)
def index_put_(self: Array, indices: Any, values: Array, accumulate: bool) -> None:
    self[...] = indexing.index_put(self, indices, values, accumulate).astype(self.dtype)


# -------------------------------------------------------------------------------------------------------- quantization


_Q = "quantized_decomposed::"

for _overload in ("out", "Tensor_out"):
    register(f"{_Q}quantize_per_tensor.{_overload}", quant.quantize_per_tensor, quant.quantize_per_tensor_shape)
    register(f"{_Q}dequantize_per_tensor.{_overload}", quant.dequantize_per_tensor, quant.dequantize_per_tensor_shape)
register(f"{_Q}quantize_per_channel.out", quant.quantize_per_channel, quant.quantize_per_channel_shape)
register(f"{_Q}dequantize_per_channel.out", quant.dequantize_per_channel, quant.dequantize_per_channel_shape)
register(f"{_Q}quantize_per_token.out", quant.quantize_per_token, quant.quantize_per_token_shape)
register(f"{_Q}dequantize_per_token.out", quant.dequantize_per_token, quant.dequantize_per_token_shape)
register(f"{_Q}choose_qparams.Tensor_out", quant.choose_qparams, quant.choose_qparams_shape)
register(
    f"{_Q}choose_qparams_per_token_asymmetric.out",
    quant.choose_qparams_per_token_asymmetric,
    quant.choose_qparams_per_token_asymmetric_shape,
)

# The same under the operator names of Arm's Cortex-M runtime.
_QDQ_ARGS = "input: Tensor, scale: float, zero_point: int, quant_min: int, quant_max: int, dtype: int, out: Tensor!"
register_signature(
    f"cortex_m::quantize_per_tensor.out({_QDQ_ARGS})", quant.quantize_per_tensor, quant.quantize_per_tensor_shape
)
register_signature(
    f"cortex_m::dequantize_per_tensor.out({_QDQ_ARGS})",
    quant.dequantize_per_tensor,
    quant.dequantize_per_tensor_shape,
)

register(f"{_Q}add.out", quant_ops.quantized_add, quant_ops.quantized_add_shape)
register(f"{_Q}mixed_mm.out", quant_ops.mixed_mm, quant_ops.mixed_mm_shape)
register(f"{_Q}mixed_linear.out", quant_ops.mixed_linear, quant_ops.mixed_linear_shape)


def _call_embedding(fn: Function, bits: int, weight: Any, scales: Any, zero_points: Any, *rest: Any) -> Any:
    """Drop the quantization range and the result's dtype; the indices are the third of the remaining arguments."""
    return fn(weight, scales, zero_points, rest[2], bits)


for _name, _bits in (("byte", 8), ("4bit", 4), ("2bit", 2)):
    for _overload in ("out", "dtype_out"):
        register(
            f"{_Q}embedding_{_name}.{_overload}",
            partial(_call_embedding, quant_ops.quantized_embedding, _bits),
            partial(_call_embedding, quant_ops.quantized_embedding_shape, _bits),
        )


# --------------------------------------------------------------------------------------------------------------- views


def et_view(source: TensorSlot, size: list[int], out: TensorSlot) -> None:
    """Make ``out`` a reshaped view of ``source``."""
    if source.array is None:
        raise ValueError("the viewed tensor has no data")
    out.alias(source.array.reshape(size))


def et_copy_index(target: TensorSlot, source: TensorSlot, index: int) -> None:
    """``target[index] = source``; ``target`` grows to hold slices 0..index."""
    if target.memory is None or source.array is None:
        raise ValueError("both tensors need planned memory")
    if tuple(target.dim_order) != tuple(range(len(target.dim_order))):
        raise ValueError("the target must be contiguous")
    if index < 0:
        raise IndexError(f"index must not be negative; got {index}")
    target.resize((index + 1, *source.array.shape))
    assert target.array is not None
    target.array[index] = source.array


register("executorch_prim::et_view.default", et_view, None, raw=True)
register("executorch_prim::et_copy_index.tensor", et_copy_index, None, raw=True)


# ------------------------------------------------------------------------------------------------------------- scalars


for _name, _fn in {
    "add": scalars.add,
    "sub": scalars.sub,
    "mul": scalars.mul,
    "truediv": scalars.truediv,
    "floordiv": scalars.floordiv,
    "mod": scalars.truncmod,
    "neg": scalars.neg,
    "eq": scalars.eq,
    "lt": scalars.lt,
    "le": scalars.le,
    "gt": scalars.gt,
    "ge": scalars.ge,
    "ceil": scalars.ceil,
    "round": scalars.round,
    "trunc": scalars.trunc,
    "sym_float": scalars.to_float,
    "sym_int": scalars.to_int,
    "sym_ite": scalars.if_else,
    "sym_max": scalars.maximum,
    "sym_min": scalars.minimum,
    "sym_not": scalars.not_,
}.items():
    register(f"executorch_prim::{_name}.Scalar", _fn, None)
register("executorch_prim::floordiv.int", scalars.truncdiv, None)
register("executorch_prim::mod.int", scalars.truncmod, None)
register("aten::sym_size.int", scalars.size_of, None)
register("aten::sym_numel", scalars.numel_of, None)
register("aten::_local_scalar_dense", scalars.item, None)
