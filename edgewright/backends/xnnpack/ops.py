"""What XNNPACK takes: one row per operator, with the limits of its nodes as rules."""

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
from edgewright.backends.xnnpack import lower_image, lower_math, lower_move
from edgewright.backends.xnnpack.rules import (
    CONVOLUTIONS,
    batched,
    blocks,
    ceil_mode_static,
    column_bias,
    dynamic_convolution,
    dynamic_weights,
    extreme_of_images,
    first_result,
    has_dims,
    image_or_sequence,
    int8,
    known_dimension,
    known_numbers,
    known_size,
    near_scales,
    no_repeats,
    one_dynamic,
    one_dynamic_sequence,
    one_dynamic_size,
    one_kind,
    one_pixel,
    over_images,
    plain_average,
    plain_slice,
    positive_pads,
    same_parameters,
    same_type,
    several,
    some_rank,
    squares,
    stride_within_kernel,
    transposed_scales,
    window,
)
from edgewright.ir.ports import Same
from edgewright.lowering.passes.value_storage import activation_limits

ACTIVATIONS = ("relu", "hardtanh", "clamp")


BOTH, ALL = (FLOAT, STATIC), (FLOAT, STATIC, DYNAMIC)


def _unary(op: str, kind: str = "", config: str = "", **arguments: str) -> OpSpec:
    return OpSpec(op, lower_math.unary(kind or op, **arguments), config=config)


ROWS: tuple[OpSpec, ...] = (
    OpSpec("linear", lower_math.linear, (constant("weight", "bias"), dynamic_weights), ALL, ACTIVATIONS,
           config="LinearConfig"),
    OpSpec("mm", lower_math.matmul, (batched,), config="MMConfig"),
    OpSpec("addmm", lower_math.matmul,
           (constant("self", "mat2"), column_bias, argument_is("alpha", 1), argument_is("beta", 1)), (FLOAT,),
           ACTIVATIONS, config="AddmmConfig"),
    OpSpec("bmm", lower_math.batch_matmul, (batched,), config="BMMConfig"),
    *(
        OpSpec(op, lower_image.convolution, (constant("weight", "bias"), image_or_sequence, transposed_scales,
                                        dynamic_convolution, dynamic_weights, one_dynamic_sequence), ALL, ACTIVATIONS,
               config="ConvolutionConfig")
        for op in CONVOLUTIONS
    ),
    OpSpec("add", lower_math.binary("add"), (argument_is("alpha", 1), one_kind), BOTH, ACTIVATIONS,
           config="AddConfig"),
    OpSpec("sub", lower_math.binary("sub"), (argument_is("alpha", 1), one_kind), BOTH, ACTIVATIONS,
           config="SubConfig"),
    OpSpec("rsub", lower_math.binary("sub", "other", "self"), (argument_is("alpha", 1), one_kind), BOTH, ACTIVATIONS,
           config="SubConfig"),
    OpSpec("mul", lower_math.binary("mul"), (one_kind,), BOTH, ACTIVATIONS, config="MulConfig"),
    OpSpec("div", lower_math.binary("div"), (argument_is("rounding_mode", None),), config="DivConfig"),
    OpSpec("maximum", lower_math.binary("maximum"), (), config="MaximumConfig"),
    OpSpec("minimum", lower_math.binary("minimum"), (), config="MinimumConfig"),
    *(
        OpSpec(op, lower_math.clamp(lambda o, name=op: activation_limits(name, o)), (same_parameters,), BOTH,
               ports={"out": Same("self")}, config=config)
        for op, config in (("relu", "ReLUConfig"), ("hardtanh", "HardtanhConfig"), ("clamp", "ClampConfig"))
    ),
    _unary("abs", config="AbsConfig"), _unary("ceil", config="CeilConfig"), _unary("floor", config="FloorConfig"),
    _unary("neg", config="NegConfig"), _unary("exp", config="ExpConfig"), _unary("log", config="LogConfig"),
    _unary("sqrt", config="SquareRootConfig"), _unary("rsqrt", config="ReciprocalSquareRootConfig"),
    _unary("sin", config="SinConfig"), _unary("cos", config="CosConfig"), _unary("tanh", config="TanhConfig"),
    _unary("sigmoid", config="SigmoidConfig"), _unary("hardswish", config="HardswishConfig"),
    OpSpec("gelu", lower_math.unary("gelu"), (argument_is("approximate", "none"), dtypes_in("float32")),
           config="GeluConfig"),
    _unary("leaky_relu", config="LeakyReLUConfig", negative_slope="negative_slope"),
    OpSpec("prelu", lower_math.prelu, (constant("weight"),), config="PreluConfig"),
    OpSpec("elu", lower_math.unary("elu", alpha="alpha"), (argument_is("scale", 1), argument_is("input_scale", 1)),
           config="ELUConfig"),
    OpSpec("pow", lower_math.unary("square"), (squares,), config="PowConfig"),
    OpSpec("square", lower_math.unary("square"), config="PowConfig"),
    OpSpec("softmax", lower_math.softmax, (has_dims,), config="SoftmaxConfig"),
    OpSpec("amax", lower_image.maximum_over, (extreme_of_images,), config="MaxDimConfig"),
    OpSpec("max_dim", lower_image.maximum_over, (extreme_of_images, first_result), config="MaxDimConfig"),
    OpSpec("max_pool2d", lower_image.max_pool2d, (rank_in("self", 4), window, stride_within_kernel, ceil_mode_static,
                                             first_result, same_parameters), BOTH, config="MaxPool2dConfig"),
    OpSpec("avg_pool2d", lower_image.avg_pool2d, (rank_in("self", 4), window, plain_average),
           config="AvgPoolingConfig"),
    OpSpec("adaptive_avg_pool2d", lower_image.global_average, (one_pixel,), BOTH, config="AdaptiveAvgPool2dConfig"),
    OpSpec("mean", lower_image.global_average, (over_images,), BOTH, config="MeanDimConfig"),
    OpSpec("upsample_bilinear2d", lower_image.upsample_bilinear2d, (known_size,), config="UpsampleBilinear2dConfig"),
    OpSpec("cat", lower_move.cat, (several, same_parameters), BOTH, config="CatConfig"),
    OpSpec("stack", lower_move.stack, (several, one_dynamic, same_parameters), BOTH, config="CatConfig"),
    OpSpec("pixel_shuffle", lower_move.pixel_shuffle, (rank_in("self", 4), one_dynamic_size, same_parameters), BOTH,
           config="PermuteConfig"),
    OpSpec("permute", lower_move.permute, (same_parameters,), BOTH, config="PermuteConfig"),
    OpSpec("transpose", lower_move.permute, (same_parameters,), BOTH, config="PermuteConfig"),
    OpSpec("t", lower_move.permute, (rank_in("self", 2), same_parameters), BOTH, config="PermuteConfig"),
    OpSpec("expand", lower_move.same, (no_repeats, same_parameters), BOTH, config="CloneConfig"),
    OpSpec("view", lower_move.view, (one_dynamic_size, same_parameters), BOTH, config="ViewCopyConfig"),
    OpSpec("unsqueeze", lower_move.view, (one_dynamic_size, same_parameters), BOTH, config="UnsqueezeCopyConfig"),
    OpSpec("squeeze", lower_move.view, (one_dynamic_size, same_parameters), BOTH, config="SqueezeCopyConfig"),
    OpSpec("slice", lower_move.slice_, (plain_slice, known_dimension, same_parameters), BOTH, config="SliceCopyConfig"),
    *(
        OpSpec(op, lower_move.split, (known_dimension,), config="SliceCopyConfig")
        for op in ("split", "split_with_sizes")
    ),
    OpSpec("select", lower_move.select, (known_dimension, one_dynamic, same_parameters), BOTH,
           config="SliceCopyConfig"),
    OpSpec("unbind", lower_move.select, (known_dimension, one_dynamic), config="SliceCopyConfig"),
    OpSpec("pad", lower_move.pad, (positive_pads, same_parameters), BOTH, config="ConstantPadConfig"),
    OpSpec("clone", lower_move.same, (same_type,), BOTH, config="CloneConfig CloneDimOrderConfig"),
    OpSpec("cast", lower_move.same, (same_type,), config="ToDimOrderCopyConfig"),
    OpSpec("batch_norm", lower_math.batch_norm,
           (constant("weight", "bias", "running_mean", "running_var"), first_result),
           absorbs=ACTIVATIONS, config="BatchNormConfig"),
    OpSpec("quantize", lower_math.convert, (), (STATIC,), config="QuantizedPerTensorConfig QuantizeAffineConfig"),
    OpSpec("dequantize", lower_math.convert, (), (STATIC,), config="DeQuantizedPerTensorConfig DeQuantizeAffineConfig"),
    OpSpec("convert", lower_math.convert, (), (DYNAMIC,), config="ChooseQParamsAffineConfig"),
)  # fmt: skip

BACKEND = Backend(
    "xnnpack",
    ROWS,
    (
        dtypes_in("float32", "float16"),
        one_dtype(),
        int8,
        blocks,
        near_scales,
        not_empty(),
        some_rank,
        known_numbers,
        max_rank(6),
    ),
    id="XnnpackBackend",
    title="XNNPACK",
    summary="Any Arm or x86 CPU. Stock runtimes (Android, iOS, Python) carry XNNPACK; here its blobs run without it.",
)
