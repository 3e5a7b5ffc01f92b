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
from edgewright.backends.xnnpack import compute, images, moves
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
    return OpSpec(op, compute.unary(kind or op, **arguments), config=config)


ROWS: tuple[OpSpec, ...] = (
    OpSpec("linear", compute.linear, (constant("weight", "bias"), dynamic_weights), ALL, ACTIVATIONS,
           config="LinearConfig"),
    OpSpec("mm", compute.matmul, (batched,), config="MMConfig"),
    OpSpec("addmm", compute.matmul,
           (constant("self", "mat2"), column_bias, argument_is("alpha", 1), argument_is("beta", 1)), (FLOAT,),
           ACTIVATIONS, config="AddmmConfig"),
    OpSpec("bmm", compute.batch_matmul, (batched,), config="BMMConfig"),
    *(
        OpSpec(op, images.convolution, (constant("weight", "bias"), image_or_sequence, transposed_scales,
                                        dynamic_convolution, dynamic_weights, one_dynamic_sequence), ALL, ACTIVATIONS,
               config="ConvolutionConfig")
        for op in CONVOLUTIONS
    ),
    OpSpec("add", compute.binary("add"), (argument_is("alpha", 1), one_kind), BOTH, ACTIVATIONS,
           config="AddConfig"),
    OpSpec("sub", compute.binary("sub"), (argument_is("alpha", 1), one_kind), BOTH, ACTIVATIONS,
           config="SubConfig"),
    OpSpec("rsub", compute.binary("sub", "other", "self"), (argument_is("alpha", 1), one_kind), BOTH, ACTIVATIONS,
           config="SubConfig"),
    OpSpec("mul", compute.binary("mul"), (one_kind,), BOTH, ACTIVATIONS, config="MulConfig"),
    OpSpec("div", compute.binary("div"), (argument_is("rounding_mode", None),), config="DivConfig"),
    OpSpec("maximum", compute.binary("maximum"), (), config="MaximumConfig"),
    OpSpec("minimum", compute.binary("minimum"), (), config="MinimumConfig"),
    *(
        OpSpec(op, compute.clamp(lambda o, name=op: activation_limits(name, o)), (same_parameters,), BOTH,
               ports={"out": Same("self")}, config=config)
        for op, config in (("relu", "ReLUConfig"), ("hardtanh", "HardtanhConfig"), ("clamp", "ClampConfig"))
    ),
    _unary("abs", config="AbsConfig"), _unary("ceil", config="CeilConfig"), _unary("floor", config="FloorConfig"),
    _unary("neg", config="NegConfig"), _unary("exp", config="ExpConfig"), _unary("log", config="LogConfig"),
    _unary("sqrt", config="SquareRootConfig"), _unary("rsqrt", config="ReciprocalSquareRootConfig"),
    _unary("sin", config="SinConfig"), _unary("cos", config="CosConfig"), _unary("tanh", config="TanhConfig"),
    _unary("sigmoid", config="SigmoidConfig"), _unary("hardswish", config="HardswishConfig"),
    OpSpec("gelu", compute.unary("gelu"), (argument_is("approximate", "none"), dtypes_in("float32")),
           config="GeluConfig"),
    _unary("leaky_relu", config="LeakyReLUConfig", negative_slope="negative_slope"),
    OpSpec("prelu", compute.prelu, (constant("weight"),), config="PreluConfig"),
    OpSpec("elu", compute.unary("elu", alpha="alpha"), (argument_is("scale", 1), argument_is("input_scale", 1)),
           config="ELUConfig"),
    OpSpec("pow", compute.unary("square"), (squares,), config="PowConfig"),
    OpSpec("square", compute.unary("square"), config="PowConfig"),
    OpSpec("softmax", compute.softmax, (has_dims,), config="SoftmaxConfig"),
    OpSpec("amax", images.maximum_over, (extreme_of_images,), config="MaxDimConfig"),
    OpSpec("max_dim", images.maximum_over, (extreme_of_images, first_result), config="MaxDimConfig"),
    OpSpec("max_pool2d", images.max_pool2d, (rank_in("self", 4), window, stride_within_kernel, ceil_mode_static,
                                             first_result, same_parameters), BOTH, config="MaxPool2dConfig"),
    OpSpec("avg_pool2d", images.avg_pool2d, (rank_in("self", 4), window, plain_average), config="AvgPoolingConfig"),
    OpSpec("adaptive_avg_pool2d", images.global_average, (one_pixel,), BOTH, config="AdaptiveAvgPool2dConfig"),
    OpSpec("mean", images.global_average, (over_images,), BOTH, config="MeanDimConfig"),
    OpSpec("upsample_bilinear2d", images.upsample_bilinear2d, (known_size,), config="UpsampleBilinear2dConfig"),
    OpSpec("cat", moves.cat, (several, same_parameters), BOTH, config="CatConfig"),
    OpSpec("stack", moves.stack, (several, one_dynamic, same_parameters), BOTH, config="CatConfig"),
    OpSpec("pixel_shuffle", moves.pixel_shuffle, (rank_in("self", 4), one_dynamic_size, same_parameters), BOTH,
           config="PermuteConfig"),
    OpSpec("permute", moves.permute, (same_parameters,), BOTH, config="PermuteConfig"),
    OpSpec("transpose", moves.permute, (same_parameters,), BOTH, config="PermuteConfig"),
    OpSpec("t", moves.permute, (rank_in("self", 2), same_parameters), BOTH, config="PermuteConfig"),
    OpSpec("expand", moves.same, (no_repeats, same_parameters), BOTH, config="CloneConfig"),
    OpSpec("view", moves.view, (one_dynamic_size, same_parameters), BOTH, config="ViewCopyConfig"),
    OpSpec("unsqueeze", moves.view, (one_dynamic_size, same_parameters), BOTH, config="UnsqueezeCopyConfig"),
    OpSpec("squeeze", moves.view, (one_dynamic_size, same_parameters), BOTH, config="SqueezeCopyConfig"),
    OpSpec("slice", moves.slice_, (plain_slice, known_dimension, same_parameters), BOTH, config="SliceCopyConfig"),
    *(
        OpSpec(op, moves.split, (known_dimension,), config="SliceCopyConfig")
        for op in ("split", "split_with_sizes")
    ),
    OpSpec("select", moves.select, (known_dimension, one_dynamic, same_parameters), BOTH, config="SliceCopyConfig"),
    OpSpec("unbind", moves.select, (known_dimension, one_dynamic), config="SliceCopyConfig"),
    OpSpec("pad", moves.pad, (positive_pads, same_parameters), BOTH, config="ConstantPadConfig"),
    OpSpec("clone", moves.same, (same_type,), BOTH, config="CloneConfig CloneDimOrderConfig"),
    OpSpec("cast", moves.same, (same_type,), config="ToDimOrderCopyConfig"),
    OpSpec("batch_norm", compute.batch_norm, (constant("weight", "bias", "running_mean", "running_var"), first_result),
           absorbs=ACTIVATIONS, config="BatchNormConfig"),
    OpSpec("quantize", compute.convert, (), (STATIC,), config="QuantizedPerTensorConfig QuantizeAffineConfig"),
    OpSpec("dequantize", compute.convert, (), (STATIC,), config="DeQuantizedPerTensorConfig DeQuantizeAffineConfig"),
    OpSpec("convert", compute.convert, (), (DYNAMIC,), config="ChooseQParamsAffineConfig"),
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
