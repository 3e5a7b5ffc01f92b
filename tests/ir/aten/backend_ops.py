"""The operators each backend takes, by the names their own lists have.

Layout-changing copies that only exist beside ExecuTorch (``dim_order_ops``) are ``clone`` and ``_to_copy`` here.
"""

from __future__ import annotations

_Q = "quantized_decomposed."


def _overloads(text: str) -> list[str]:
    """``abs`` is ``aten.abs.default``; other namespaces are written out."""
    named = [name if "." in name else f"{name}.default" for name in text.split()]
    return [name if name.count(".") > 1 else f"aten.{name}" for name in named]


XNNPACK = _overloads(f"""
    linear addmm mm convolution bmm add.Tensor sub.Tensor mul.Tensor div.Tensor maximum minimum relu hardtanh clamp abs
    ceil floor neg exp log sqrt rsqrt sin cos tanh sigmoid hardswish leaky_relu gelu elu prelu pow.Tensor_Scalar
    _softmax max_pool2d avg_pool2d mean.dim max.dim cat constant_pad_nd permute_copy view_copy unsqueeze_copy
    slice_copy.Tensor clone _to_copy upsample_bilinear2d.vec _native_batch_norm_legit_no_training
    {_Q}quantize_per_tensor.default {_Q}dequantize_per_tensor.default torchao.quantize_affine.default
    torchao.dequantize_affine.default torchao.choose_qparams_affine.default {_Q}quantize_per_token.default
    {_Q}dequantize_per_token.default {_Q}choose_qparams_per_token_asymmetric.default {_Q}choose_qparams.tensor
    {_Q}quantize_per_channel.default {_Q}dequantize_per_channel.default
""")

ETHOS_U = _overloads(f"""
    __lshift__.Scalar _adaptive_avg_pool2d abs acos acosh add.Tensor alias_copy amax amin any any.dim any.dims
    arange.start_step argmax asin asinh atan atanh bitwise_and.Scalar bitwise_and.Tensor bitwise_left_shift.Tensor
    bitwise_not bitwise_or.Scalar bitwise_or.Tensor bitwise_xor.Scalar bitwise_xor.Tensor bmm cat ceil celu clamp.Tensor
    clamp constant_pad_nd copy cos cosh cumsum detach_copy div.Tensor_mode elu eq.Scalar eq.Tensor erf erfinv exp
    expand_copy expm1 eye flip floor full full_like ge.Scalar ge.Tensor gelu gt.Scalar gt.Tensor hardsigmoid hardswish
    hardtanh le.Scalar le.Tensor leaky_relu linear linspace log log10 log1p logical_and logical_not logical_or
    logical_xor lt.Scalar lt.Tensor masked_fill.Scalar maximum mean.dim minimum mm mul.Tensor neg pad permute_copy
    pow.Tensor_Scalar pow.Tensor_Tensor reciprocal relu remainder.Scalar remainder.Tensor repeat round rsqrt
    scalar_tensor select_copy.int selu sigmoid sign silu sin sinh split_copy.Tensor split_with_sizes_copy
    squeeze_copy.dims sub.Tensor tan tanh unsqueeze_copy view_copy {_Q}dequantize_per_channel.default
    {_Q}dequantize_per_tensor.default {_Q}quantize_per_channel.default {_Q}quantize_per_tensor.default
    _log_softmax _native_batch_norm_legit_no_training _softmax add.Scalar addmm div.Scalar div.Tensor floor_divide glu
    logit mean mul.Scalar native_group_norm native_layer_norm ne.Scalar ne.Tensor slice_scatter sqrt sub.Scalar
    var.correction var.dim
    convolution conv_transpose2d.input avg_pool2d max_pool2d max_pool2d_with_indices sum.dim_IntList slice_copy.Tensor
    upsample_nearest2d.vec upsample_bilinear2d.vec where.self gather index.Tensor index_select index_put embedding
    as_strided_copy unfold_copy max.dim min.dim bitwise_right_shift.Tensor __rshift__.Scalar _to_copy clone sym_size.int
    grid_sampler_2d scatter.src scatter.value scatter_add select_scatter reflection_pad1d reflection_pad2d
    reflection_pad3d
""")

QUALCOMM = _overloads(f"""
    abs asin atan ceil cos exp floor log neg round rsqrt sign sin sqrt reciprocal logical_not isinf isnan elu gelu
    hardsigmoid hardswish hardtanh clamp relu sigmoid tanh copy _to_copy {_Q}quantize_per_tensor.default
    {_Q}quantize_per_channel.default {_Q}dequantize_per_tensor.default {_Q}dequantize_per_tensor.tensor
    {_Q}dequantize_per_channel.default
    add.Tensor sub.Tensor mul.Tensor div.Tensor maximum minimum pow.Tensor_Tensor floor_divide eq.Tensor ne.Tensor
    gt.Tensor ge.Tensor lt.Tensor le.Tensor bitwise_and.Tensor logical_and bitwise_or.Tensor bitwise_xor.Tensor
    where.self prelu amax amin max.dim min.dim mean.dim sum.dim_IntList argmax argmin cumsum topk sort
    view_copy squeeze_copy.dims squeeze.dims unsqueeze_copy permute_copy expand_copy repeat cat stack unbind.int
    split_with_sizes split_with_sizes_copy slice_copy.Tensor select.int select_copy.int flip slice_scatter
    constant_pad_nd reflection_pad1d reflection_pad2d channel_shuffle pixel_shuffle pixel_unshuffle
    embedding index.Tensor index_select gather scatter.src scatter.value scatter_add scatter_reduce.two index_put
    linear matmul mm bmm convolution avg_pool2d adaptive_avg_pool2d adaptive_max_pool2d max_pool2d_with_indices
    avg_pool3d _adaptive_avg_pool3d _native_batch_norm_legit_no_training _native_batch_norm_legit.no_stats instance_norm
    native_group_norm native_layer_norm rms_norm _softmax _safe_softmax _log_softmax upsample_bicubic2d.vec
    upsample_bilinear2d.default upsample_bilinear2d.vec upsample_nearest2d.default upsample_nearest2d.vec
    grid_sampler_2d grid_sampler_3d arange.start_step full full_like scalar_tensor rand rand_like randn randn_like
    cdist linalg_vector_norm square narrow rsub.Scalar scaled_dot_product_attention chunk masked_fill.Scalar
    conv1d conv2d conv3d conv_transpose1d conv_transpose2d.input conv_transpose3d.input zeros ones expand_as reshape
    flatten.using_ints
""")

NXP = _overloads(f"""
    abs _adaptive_avg_pool2d add.Tensor sub.Tensor addmm mm amax amin avg_pool2d bmm cat clamp hardtanh clone
    constant_pad_nd pad convolution exp log rsqrt hardswish leaky_relu max_pool2d_with_indices maximum minimum mean.dim
    sum.dim_IntList mul.Tensor neg permute_copy prelu relu sigmoid tanh slice_copy.Tensor _softmax
    upsample_bilinear2d.vec upsample_nearest2d.vec view_copy split.Tensor squeeze.dim unsqueeze div.Tensor conv1d
    avg_pool1d max_pool1d dropout flatten.using_ints transpose.int conv2d.padding batch_norm linear relu6
    {_Q}quantize_per_tensor.default {_Q}dequantize_per_tensor.default {_Q}dequantize_per_channel.default
""")

SAMSUNG = _overloads(f"""
    add.Tensor sub.Tensor mul.Tensor div.Tensor maximum minimum pow.Tensor_Tensor convolution linear bmm avg_pool2d
    max_pool2d max_pool2d_with_indices mean.dim sum.dim_IntList relu hardtanh clamp leaky_relu prelu hardswish
    hardsigmoid gelu sigmoid tanh log sqrt rsqrt sin cos _softmax _safe_softmax _log_softmax
    _native_batch_norm_legit_no_training layer_norm native_group_norm rms_norm cat expand_copy view_copy
    squeeze_copy.dims unsqueeze_copy permute_copy slice_copy.Tensor select_copy.int split_with_sizes_copy
    constant_pad_nd embedding index.Tensor topk pixel_shuffle upsample_bilinear2d.vec upsample_nearest2d.vec _to_copy
    {_Q}quantize_per_tensor.default {_Q}quantize_per_channel.default {_Q}dequantize_per_tensor.default
    {_Q}dequantize_per_channel.default addmm add.Scalar sub.Scalar mul.Scalar div.Scalar pow.Tensor_Scalar clone
    as_strided_copy
""")

BACKENDS = {"xnnpack": XNNPACK, "ethos-u": ETHOS_U, "qualcomm": QUALCOMM, "nxp": NXP, "samsung": SAMSUNG}
