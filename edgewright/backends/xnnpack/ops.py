"""Operators supported by XNNPACK: one row per operator, with the constraints of its nodes as rules."""

from __future__ import annotations

from edgewright.backends.table import (
    DYNAMIC,
    FLOAT,
    STATIC,
    Backend,
    OpSpec,
    argument_is,
    constant,
    dtypes_in,
    max_rank,
    not_empty,
    one_dtype,
    rank_in,
)
from edgewright.backends.xnnpack import INFO
from edgewright.backends.xnnpack.rules import (
    CONVOLUTIONS,
    all_or_none_quantized,
    at_most_one_dynamic_dim,
    avg_pool_divisor,
    bias_per_column,
    ceil_mode_static,
    conv_rank,
    dynamic_convolution,
    dynamic_weights,
    exponent_two,
    first_output_only,
    global_pool_only,
    int4_blocks,
    int8,
    kernel_above_one,
    matmul_rank,
    no_broadcast,
    no_scalar_outputs,
    nonnegative_padding,
    not_scalar,
    one_dynamic_output_dim,
    one_dynamic_sequence,
    requant_range,
    same_dtype,
    same_qparams,
    spatial_mean,
    static_dimension,
    static_output_size,
    static_scalars,
    static_spatial_dims,
    stride_within_kernel,
    transposed_conv_scales,
    two_or_more,
    unit_step_slice,
)
from edgewright.ir.ports import Same
from edgewright.lowering.aten_to_core import LOWERINGS, elementwise, image, move, norm, products, quantized
from edgewright.lowering.passes.value_storage import CLAMPS

BOTH, ALL = (FLOAT, STATIC), (FLOAT, STATIC, DYNAMIC)


def _unary(op: str, config: str, **arguments: str) -> OpSpec:
    return OpSpec(op, elementwise.unary(f"core.{op}", arguments), config=config)


ROWS: tuple[OpSpec, ...] = (
    OpSpec("linear", products.linear, (constant("weight", "bias"), dynamic_weights), ALL, CLAMPS,
           config="LinearConfig"),
    OpSpec("mm", products.matmul, (matmul_rank,), config="MMConfig"),
    OpSpec("addmm", products.matmul,
           (constant("self", "mat2"), bias_per_column, argument_is("alpha", 1), argument_is("beta", 1)),
           (FLOAT,), CLAMPS, config="AddmmConfig"),
    OpSpec("bmm", products.batch_matmul, (matmul_rank,), config="BMMConfig"),
    *(
        OpSpec(op, products.convolution, (constant("weight", "bias"), conv_rank, transposed_conv_scales,
                                        dynamic_convolution, dynamic_weights, one_dynamic_sequence), ALL, CLAMPS,
               config="ConvolutionConfig")
        for op in CONVOLUTIONS
    ),
    OpSpec("add", LOWERINGS["add"], (argument_is("alpha", 1), all_or_none_quantized), BOTH, CLAMPS,
           config="AddConfig"),
    OpSpec("sub", LOWERINGS["sub"], (argument_is("alpha", 1), all_or_none_quantized), BOTH, CLAMPS,
           config="SubConfig"),
    OpSpec("rsub", LOWERINGS["rsub"], (argument_is("alpha", 1), all_or_none_quantized),
           BOTH, CLAMPS, config="SubConfig"),
    OpSpec("mul", LOWERINGS["mul"], (all_or_none_quantized,), BOTH, CLAMPS, config="MulConfig"),
    OpSpec("div", LOWERINGS["div"], (argument_is("rounding_mode", None),), config="DivConfig"),
    OpSpec("maximum", LOWERINGS["maximum"], (), config="MaximumConfig"),
    OpSpec("minimum", LOWERINGS["minimum"], (), config="MinimumConfig"),
    *(
        OpSpec(op, elementwise.clamp, (same_qparams,), BOTH,
               ports={"out": Same("self")}, config=config)
        for op, config in (("relu", "ReLUConfig"), ("hardtanh", "HardtanhConfig"), ("clamp", "ClampConfig"))
    ),
    _unary("abs", "AbsConfig"), _unary("ceil", "CeilConfig"), _unary("floor", "FloorConfig"),
    _unary("neg", "NegConfig"), _unary("exp", "ExpConfig"), _unary("log", "LogConfig"),
    _unary("sqrt", "SquareRootConfig"), _unary("rsqrt", "ReciprocalSquareRootConfig"),
    _unary("sin", "SinConfig"), _unary("cos", "CosConfig"), _unary("tanh", "TanhConfig"),
    _unary("sigmoid", "SigmoidConfig"), _unary("hardswish", "HardswishConfig"),
    OpSpec("gelu", elementwise.unary("core.gelu"), (argument_is("approximate", "none"), dtypes_in("float32")),
           config="GeluConfig"),
    _unary("leaky_relu", "LeakyReLUConfig", negative_slope="negative_slope"),
    OpSpec("prelu", elementwise.prelu, (constant("weight"),), config="PreluConfig"),
    OpSpec("elu", elementwise.unary("core.elu", {"alpha": "alpha"}),
           (argument_is("scale", 1), argument_is("input_scale", 1)), config="ELUConfig"),
    OpSpec("pow", elementwise.unary("core.square"), (exponent_two,), config="PowConfig"),
    OpSpec("square", elementwise.unary("core.square"), config="PowConfig"),
    OpSpec("softmax", norm.softmax, (not_scalar,), config="SoftmaxConfig"),
    OpSpec("amax", image.pool_extent, (static_spatial_dims,), config="MaxDimConfig"),
    OpSpec("max_dim", image.pool_extent, (static_spatial_dims, first_output_only), config="MaxDimConfig"),
    OpSpec("max_pool2d", image.max_pool2d,
           (rank_in("self", 4), kernel_above_one, stride_within_kernel, ceil_mode_static, first_output_only,
            same_qparams), BOTH, config="MaxPool2dConfig"),
    OpSpec("avg_pool2d", image.pool_average, (rank_in("self", 4), kernel_above_one, avg_pool_divisor),
           config="AvgPoolingConfig"),
    OpSpec("adaptive_avg_pool2d", image.pool_global, (global_pool_only,), BOTH,
           config="AdaptiveAvgPool2dConfig"),
    OpSpec("mean", image.pool_global, (spatial_mean,), BOTH, config="MeanDimConfig"),
    OpSpec("upsample_bilinear2d", image.resize_bilinear, (static_output_size,),
           config="UpsampleBilinear2dConfig"),
    OpSpec("cat", move.cat, (two_or_more, same_qparams), BOTH, config="CatConfig"),
    OpSpec("stack", move.stack, (two_or_more, at_most_one_dynamic_dim, same_qparams), BOTH, config="CatConfig",
           trivial=True),
    OpSpec("pixel_shuffle", move.pixel_shuffle, (rank_in("self", 4), one_dynamic_output_dim, same_qparams), BOTH,
           config="PermuteConfig", trivial=True),
    OpSpec("permute", move.permute, (same_qparams,), BOTH, config="PermuteConfig"),
    OpSpec("transpose", move.permute, (same_qparams,), BOTH, config="PermuteConfig"),
    OpSpec("t", move.permute, (rank_in("self", 2), same_qparams), BOTH, config="PermuteConfig"),
    OpSpec("expand", move.forward_input, (no_broadcast, same_qparams), BOTH, config="CloneConfig"),
    OpSpec("view", move.view, (one_dynamic_output_dim, same_qparams), BOTH, config="ViewCopyConfig"),
    OpSpec("unsqueeze", move.view, (one_dynamic_output_dim, same_qparams), BOTH, config="UnsqueezeCopyConfig"),
    OpSpec("squeeze", move.view, (one_dynamic_output_dim, same_qparams), BOTH, config="SqueezeCopyConfig"),
    OpSpec("slice", move.slice_, (unit_step_slice, static_dimension, same_qparams), BOTH,
           config="SliceCopyConfig", trivial=True),
    *(
        OpSpec(op, move.split, (static_dimension,), config="SliceCopyConfig", trivial=True)
        for op in ("split", "split_with_sizes")
    ),
    OpSpec("select", move.select, (static_dimension, at_most_one_dynamic_dim, same_qparams), BOTH,
           config="SliceCopyConfig", trivial=True),
    OpSpec("unbind", move.select, (static_dimension, at_most_one_dynamic_dim), config="SliceCopyConfig",
           trivial=True),
    OpSpec("pad", move.pad, (nonnegative_padding, same_qparams), BOTH, config="ConstantPadConfig"),
    OpSpec("clone", move.forward_input, (same_dtype,), BOTH, config="CloneConfig CloneDimOrderConfig"),
    OpSpec("cast", move.forward_input, (same_dtype,), config="ToDimOrderCopyConfig", trivial=True),
    OpSpec("batch_norm", products.batch_norm,
           (constant("weight", "bias", "running_mean", "running_var"), first_output_only),
           absorbs=CLAMPS, config="BatchNormConfig"),
    OpSpec("quantize", quantized.convert, (), (STATIC,), config="QuantizedPerTensorConfig QuantizeAffineConfig"),
    OpSpec("dequantize", quantized.convert, (), (STATIC,), config="DeQuantizedPerTensorConfig DeQuantizeAffineConfig"),
    OpSpec("convert", quantized.convert, (), (DYNAMIC,), config="ChooseQParamsAffineConfig"),
)  # fmt: skip

BACKEND = Backend(
    INFO,
    ROWS,
    (
        dtypes_in("float32", "float16"),
        one_dtype(),
        int8,
        int4_blocks,
        requant_range,
        not_empty(),
        no_scalar_outputs,
        static_scalars,
        max_rank(6),
    ),
)
