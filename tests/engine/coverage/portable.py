"""Kernels of portable programs of which some call runs in numpy, and why; names without ``::`` are of ``aten``."""

from __future__ import annotations

LEFT = {
    "numbers, not tensors": """
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
    "no kernel yet": """
        _adaptive_avg_pool2d.out _cdist_forward.out _conj_physical.out _fft_c2r.out _fft_r2c.out
        _log_softmax.out _native_batch_norm_legit.no_stats_out _native_batch_norm_legit.out _pdist_forward.out
        _softmax.out _to_copy.out _upsample_bilinear2d_aa.out abs.out acos.out acosh.out add.Scalar_out add.out
        addmm.out alias_copy.out amax.out amin.out any.all_out any.dims_out any.out arange.out arange.start_out
        argmax.out argmin.out as_strided_copy.out asin.out asinh.out atan.out atan2.out atanh.out avg_pool2d.out
        bitwise_and.Scalar_out bitwise_and.Tensor_out bitwise_left_shift.Tensor_Scalar_out
        bitwise_left_shift.Tensor_out bitwise_not.out bitwise_or.Scalar_out bitwise_or.Tensor_out
        bitwise_right_shift.Tensor_Scalar_out bitwise_right_shift.Tensor_out bitwise_xor.Scalar_out
        bitwise_xor.Tensor_out bmm.out cat.out ceil.out clamp.Tensor_out clamp.out clone.out constant_pad_nd.out
        convolution.out convolution_backward.out copy.out copy_ cos.out cosh.out cumsum.out detach_copy.out
        diagonal_copy.out div.Scalar_mode_out div.Scalar_out div.out div.out_mode elu.out embedding.out
        empty.out eq.Scalar_out eq.Tensor_out erf.out exp.out expand_copy.out expm1.out fill.Scalar_out
        fill.Tensor_out flip.out floor.out floor_divide.out fmod.Scalar_out fmod.Tensor_out full.out
        full_like.out gather.out ge.Scalar_out ge.Tensor_out gelu.out glu.out grid_sampler_2d.out gt.Scalar_out
        gt.Tensor_out hardtanh.out index.Tensor_out index_put.out index_put_ index_select.out isinf.out
        isnan.out le.Scalar_out le.Tensor_out leaky_relu.out lift_fresh_copy.out linear.out log.out log10.out
        log1p.out log2.out logical_and.out logical_not.out logical_or.out logical_xor.out logit.out
        lt.Scalar_out lt.Tensor_out masked_fill.Scalar_out masked_scatter.out masked_select.out max.dim_max
        max.unary_out max_pool2d_with_indices.out max_pool2d_with_indices_backward.grad_input maximum.out
        mean.dtype_out mean.out min.dim_min min.unary_out minimum.out mm.out mul.Scalar_out mul.out
        narrow_copy.out native_dropout.out ne.Scalar_out ne.Tensor_out neg.out nonzero.out ones.out
        permute_copy.out pixel_shuffle.out pixel_unshuffle.out pow.Scalar_out pow.Tensor_Scalar_out
        pow.Tensor_Tensor_out prod.int_out prod.out rand.out randn.out reciprocal.out reflection_pad1d.out
        reflection_pad2d.out reflection_pad3d.out relu.out remainder.Scalar_out remainder.Tensor_out repeat.out
        repeat_interleave.Tensor_out replication_pad1d.out replication_pad2d.out replication_pad3d.out roll.out
        round.out rsqrt.out rsub.Scalar_out scalar_tensor.out scatter.src_out scatter.value_out scatter_add.out
        select_copy.int_out select_scatter.out sigmoid.out sign.out sin.out sinh.out slice_copy.Tensor_out
        slice_scatter.out split_copy.Tensor_out split_with_sizes_copy.out sqrt.out squeeze_copy.dim_out
        squeeze_copy.dims_out stack.out sub.Scalar_out sub.out sum.IntList_out t_copy.out tan.out tanh.out
        topk.values transpose_copy.int_out tril.out trunc.out unbind_copy.int_out unfold_copy.out
        unsqueeze_copy.out upsample_bilinear2d.vec_out upsample_nearest2d.vec_out var.correction_out var.out
        var_mean.correction_out view_as_real_copy.out view_copy.out where.self_out zeros.out
        dim_order_ops::_clone_dim_order.out dim_order_ops::_empty_dim_order.out
        dim_order_ops::_to_dim_order_copy.out et_copy::_d2h_copy.out et_copy::_h2d_copy.out
        quantized_decomposed::add.out quantized_decomposed::choose_qparams.Tensor_out
        quantized_decomposed::choose_qparams_per_token_asymmetric.out
        quantized_decomposed::dequantize_per_channel.out quantized_decomposed::dequantize_per_tensor.Tensor_out
        quantized_decomposed::dequantize_per_tensor.out quantized_decomposed::dequantize_per_token.out
        quantized_decomposed::embedding_2bit.dtype_out quantized_decomposed::embedding_2bit.out
        quantized_decomposed::embedding_4bit.dtype_out quantized_decomposed::embedding_4bit.out
        quantized_decomposed::embedding_byte.dtype_out quantized_decomposed::embedding_byte.out
        quantized_decomposed::mixed_linear.out quantized_decomposed::mixed_mm.out
        quantized_decomposed::quantize_per_channel.out quantized_decomposed::quantize_per_tensor.Tensor_out
        quantized_decomposed::quantize_per_tensor.out quantized_decomposed::quantize_per_token.out
    """,
}
