"""Kernels of portable programs of which some call runs in numpy, and why; names without ``::`` are of ``aten``."""

from __future__ import annotations

LEFT = {
    "numbers and names of memory, not tensors": """
        _local_scalar_dense sym_numel sym_size.int executorch_prim::add.Scalar executorch_prim::ceil.Scalar
        executorch_prim::eq.Scalar executorch_prim::et_copy_index.tensor executorch_prim::et_view.default
        executorch_prim::floordiv.Scalar executorch_prim::floordiv.int executorch_prim::ge.Scalar
        executorch_prim::gt.Scalar executorch_prim::le.Scalar executorch_prim::lt.Scalar
        executorch_prim::mod.Scalar executorch_prim::mod.int executorch_prim::mul.Scalar
        executorch_prim::neg.Scalar executorch_prim::round.Scalar executorch_prim::sub.Scalar
        executorch_prim::sym_float.Scalar executorch_prim::sym_int.Scalar executorch_prim::sym_ite.Scalar
        executorch_prim::sym_max.Scalar executorch_prim::sym_min.Scalar executorch_prim::sym_not.Scalar
        executorch_prim::truediv.Scalar executorch_prim::trunc.Scalar
    """,
    "how large the result is, only its contents say": "masked_select.out nonzero.out repeat_interleave.Tensor_out",
    "complex numbers": "_conj_physical.out _fft_c2r.out _fft_r2c.out view_as_real_copy.out",
    "random numbers": "native_dropout.out rand.out randn.out",
    "gradients and statistics: training is not run here": """
        _native_batch_norm_legit.no_stats_out _native_batch_norm_legit.out convolution_backward.out
        max_pool2d_with_indices_backward.grad_input
    """,
    "parameters in double precision": """
        quantized_decomposed::choose_qparams.Tensor_out
        quantized_decomposed::choose_qparams_per_token_asymmetric.out quantized_decomposed::dequantize_per_token.out
        quantized_decomposed::dequantize_per_tensor.Tensor_out
    """,
    "scales of rows that are computed: XNNPACK takes such products whole": """
        quantized_decomposed::quantize_per_token.out quantized_decomposed::mixed_linear.out
        quantized_decomposed::mixed_mm.out quantized_decomposed::add.out
    """,
    "integers only: products, means and extremes of windows, resized pixels": """
        addmm.out bmm.out linear.out mm.out avg_pool2d.out max_pool2d_with_indices.out _upsample_bilinear2d_aa.out
        upsample_bilinear2d.vec_out
    """,
    "volumes only": "convolution.out",
    "places by a mask, in dimensions that are apart, or added to": "index.Tensor_out index_put.out index_put_",
    "memory of images with their channels last, as it lies": "as_strided_copy.out",
    "a tensor in another type or shape: others are named": "copy_",
    "single numbers only": """
        gather.out index_select.out repeat.out scatter.value_out sum.IntList_out unfold_copy.out
    """,
    "all of a dimension cut off, or a piece of nothing": "constant_pad_nd.out split_with_sizes_copy.out",
    "distances between points, and what a mask lets through: no network that was looked at has them": """
        _cdist_forward.out _pdist_forward.out masked_scatter.out
    """,
}

# The same of calls with reals of 16 bits.
HALVES = {
    "how large the result is, only its contents say": "masked_select.out nonzero.out",
    "random numbers": "native_dropout.out",
    "statistics: training is not run here": "_native_batch_norm_legit.no_stats_out _native_batch_norm_legit.out",
    "places by a mask": "index_put_ masked_scatter.out",
    "made when the program is loaded, or written where it is asked for": """
        arange.out arange.start_out fill.Scalar_out full.out full_like.out ones.out scalar_tensor.out zeros.out
    """,
    "two types in one call": "_native_batch_norm_legit_no_training.out native_layer_norm.out mean.dtype_out",
    "scales of rows that are computed": "quantized_decomposed::mixed_linear.out quantized_decomposed::mixed_mm.out",
}
