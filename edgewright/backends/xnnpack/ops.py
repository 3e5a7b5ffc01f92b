"""Operators supported by XNNPACK: one row per operator, with the constraints of its nodes as rules.

Most rows have the operator's usual lowering to core (``lowering/aten_to_core``). The others choose one that uses a node
of XNNPACK's.
"""

from __future__ import annotations

from typing import Any

from edgewright.backends.rules import exact_scale_factors
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
    ordered_bounds,
    requant_range,
    same_dtype,
    same_qparams,
    since,
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
from edgewright.lowering.aten_to_core import LOWERINGS, elementwise, image, move, quantized
from edgewright.lowering.passes.value_storage import CLAMPS

BOTH, ALL = (FLOAT, STATIC), (FLOAT, STATIC, DYNAMIC)


def _row(op: str, *arguments: Any, **options: Any) -> OpSpec:
    """A row with the operator's usual lowering to core."""
    return OpSpec(op, LOWERINGS[op], *arguments, **options)


ROWS: tuple[OpSpec, ...] = (
    _row("linear", (constant("weight", "bias"), dynamic_weights), ALL, CLAMPS, config="LinearConfig"),
    _row("mm", (matmul_rank,), config="MMConfig"),
    _row("addmm", (constant("self", "mat2"), bias_per_column, argument_is("alpha", 1), argument_is("beta", 1)),
         (FLOAT,), CLAMPS, config="AddmmConfig"),
    _row("bmm", (matmul_rank,), config="BMMConfig"),
    *(
        _row(op, (constant("weight", "bias"), conv_rank, transposed_conv_scales, dynamic_convolution, dynamic_weights,
                  one_dynamic_sequence), ALL, CLAMPS, config="ConvolutionConfig")
        for op in CONVOLUTIONS
    ),
    *(
        _row(op, (argument_is("alpha", 1), all_or_none_quantized), BOTH, CLAMPS, config=config)
        for op, config in (("add", "AddConfig"), ("sub", "SubConfig"), ("rsub", "SubConfig"))
    ),
    _row("mul", (all_or_none_quantized,), BOTH, CLAMPS, config="MulConfig"),
    _row("div", (argument_is("rounding_mode", None),), config="DivConfig"),
    *(
        _row(op, (same_qparams,), BOTH, ports={"out": Same("self")}, config=config)
        for op, config in (("relu", "ReLUConfig"), ("hardtanh", "HardtanhConfig"))
    ),
    _row("clamp", (same_qparams, ordered_bounds), BOTH, ports={"out": Same("self")}, config="ClampConfig"),
    *(
        _row({"SquareRoot": "sqrt", "ReciprocalSquareRoot": "rsqrt", "Pow": "square"}.get(name, name.lower()),
             config=f"{name}Config")
        for name in ("Maximum", "Minimum", "Abs", "Ceil", "Floor", "Neg", "Exp", "Log", "SquareRoot",
                     "ReciprocalSquareRoot", "Tanh", "Sigmoid", "Hardswish", "Pow")
    ),
    *(_row(op, (since("1.1"),), config=config) for op, config in (("sin", "SinConfig"), ("cos", "CosConfig"))),
    _row("gelu", (argument_is("approximate", "none"), dtypes_in("float32")), config="GeluConfig"),
    OpSpec("leaky_relu", elementwise.unary("core.leaky_relu", {"negative_slope": "negative_slope"}),
           config="LeakyReLUConfig"),
    _row("prelu", (constant("weight"),), config="PreluConfig"),
    OpSpec("elu", elementwise.unary("core.elu", {"alpha": "alpha"}),
           (argument_is("scale", 1), argument_is("input_scale", 1)), config="EluConfig"),
    OpSpec("pow", elementwise.unary("core.square"), (exponent_two,), config="PowConfig"),
    _row("softmax", (not_scalar,), config="SoftmaxConfig"),
    OpSpec("amax", image.pool_extent, (static_spatial_dims,), config="MaxDimConfig"),
    OpSpec("max_dim", image.pool_extent, (static_spatial_dims, first_output_only), config="MaxDimConfig"),
    _row("max_pool2d", (rank_in("self", 4), kernel_above_one, stride_within_kernel, ceil_mode_static, first_output_only,
                        same_qparams), BOTH, config="MaxPool2dConfig"),
    OpSpec("avg_pool2d", image.pool_average, (rank_in("self", 4), kernel_above_one, avg_pool_divisor),
           config="AvgPoolingConfig"),
    OpSpec("adaptive_avg_pool2d", image.pool_global, (global_pool_only,), BOTH, config="AdaptiveAvgPool2dConfig"),
    OpSpec("mean", image.pool_global, (spatial_mean,), BOTH, config="MeanDimConfig"),
    OpSpec("upsample_bilinear2d", image.resize_bilinear, (static_output_size, exact_scale_factors),
           config="UpsampleBilinear2dConfig"),
    _row("cat", (two_or_more, same_qparams), BOTH, config="CatConfig"),
    _row("stack", (two_or_more, at_most_one_dynamic_dim, same_qparams), BOTH, config="CatConfig", trivial=True),
    OpSpec("pixel_shuffle", move.pixel_shuffle, (rank_in("self", 4), one_dynamic_output_dim, same_qparams), BOTH,
           config="PermuteConfig", trivial=True),
    _row("permute", (same_qparams,), BOTH, config="PermuteConfig"),
    _row("transpose", (same_qparams,), BOTH, config="PermuteConfig"),
    _row("t", (rank_in("self", 2), same_qparams), BOTH, config="PermuteConfig"),
    _row("expand", (no_broadcast, same_qparams), BOTH, config="CloneConfig"),
    *(
        _row(op, (one_dynamic_output_dim, same_qparams), BOTH, config=config)
        for op, config in (("view", "ViewCopyConfig"), ("unsqueeze", "UnsqueezeCopyConfig"),
                           ("squeeze", "SqueezeCopyConfig"))
    ),
    _row("slice", (unit_step_slice, static_dimension, same_qparams), BOTH, config="SliceCopyConfig", trivial=True),
    _row("split", (static_dimension,), config="SliceCopyConfig", trivial=True),
    _row("split_with_sizes", (static_dimension,), config="SliceCopyConfig", trivial=True),
    _row("select", (static_dimension, at_most_one_dynamic_dim, same_qparams), BOTH, config="SliceCopyConfig",
         trivial=True),
    _row("unbind", (static_dimension, at_most_one_dynamic_dim), config="SliceCopyConfig", trivial=True),
    _row("pad", (nonnegative_padding, same_qparams), BOTH, config="ConstantPadConfig"),
    _row("clone", (same_dtype,), BOTH, config="CloneConfig CloneDimOrderConfig"),
    _row("cast", (same_dtype,), config="ToDimOrderCopyConfig", trivial=True),
    _row("batch_norm", (constant("weight", "bias", "running_mean", "running_var"), first_output_only), absorbs=CLAMPS,
         config="BatchNormConfig"),
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
