"""Operators supported by the HTP: one row per operator, with its constraints as rules."""

from __future__ import annotations

from typing import Any

from edgewright.backends import rules as common
from edgewright.backends.qualcomm import INFO, conv, image, indexing, movement, norms, rules, sort_topk
from edgewright.backends.qualcomm import elementwise as el
from edgewright.backends.qualcomm.dialect.elementwise import FUNCTIONS
from edgewright.backends.table import (
    FLOAT,
    STATIC,
    Backend,
    OpSpec,
    Rounding,
    Rule,
    constant,
    max_rank,
    not_empty,
    static_shape,
)
from edgewright.ir.ports import ACT, INDEX, Same
from edgewright.lowering.passes.value_storage import CLAMPS

ANY = (STATIC, FLOAT)
_FLOAT_PORTS = {"weight": INDEX, "bias": INDEX}  # constants that stay floating point until lowering
constant_weights = constant("weight", "bias")


def _convolutions() -> tuple[OpSpec, ...]:
    equal = (constant_weights, rules.all_or_none, rules.equal_bit_width)
    checks = (*equal, common.batched_images, rules.conv_transpose_params)
    kinds = ("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
    return (
        *(OpSpec(op, conv.convolution, checks, ANY, CLAMPS) for op in kinds),
        OpSpec("linear", conv.linear, (*equal, common.not_scalar), ANY, CLAMPS),
        OpSpec("mm", conv.matmul, (rules.all_or_none,), ANY),
        OpSpec("bmm", conv.matmul, (rules.all_or_none,), ANY),
    )


def _spec(op: str, lower: Any, *checks: Rule, precisions: tuple[str, ...] = ANY, **options: Any) -> OpSpec:
    return OpSpec(op, lower, (rules.all_or_none, *checks), precisions, **options)


_UNARY_RULES = {
    "log": (rules.log_bit_width,),
    "round": (rules.round_decimals,),
}


def _elementwise() -> tuple[OpSpec, ...]:
    of_one = {op: kind for op, kind in FUNCTIONS.items() if op != "asin"}
    return (
        *(_spec(op, el.elementwise(kind), *_UNARY_RULES.get(op, ())) for op, kind in of_one.items()),
        _spec("asin", el.elementwise(FUNCTIONS["asin"]), precisions=(STATIC,)),
        *(_spec(op, el.clamp, rules.scalar_limits) for op in CLAMPS),
        _spec("elu", el.elu, rules.elu_scales),
        _spec("hardsigmoid", el.hardsigmoid),
        _spec("leaky_relu", el.leaky_relu),
        _spec("reciprocal", el.reciprocal),
        _spec("square", el.square),
        *(_binary(op, el.elementwise(kind, "self", "other")) for op, kind in el.BINARY.items()),
        *(_binary(op, el.extremum(kind)) for op, kind in el.EXTREMA.items()),
        _binary("rsub", el.elementwise("ElementWiseSubtract", "other", "self")),
        _binary("pow", el.power, rules.supported_exponent),
        _binary("floor_divide", el.floor_divide, precisions=(FLOAT,)),
        _spec("prelu", el.prelu, constant("weight"), ports={"weight": INDEX}),
        *(_comparison(op, kind) for op, kind in el.COMPARE.items()),
        OpSpec("logical_not", el.elementwise("ElementWiseNot"), (rules.bool_operands,), (FLOAT,)),
        OpSpec(
            "isinf",
            el.float_predicate("IsInf", detect_negative=True, detect_positive=True),
            (rules.float_operands,),
            (FLOAT,),
        ),
        OpSpec("isnan", el.float_predicate("IsNan"), (rules.float_operands,), (FLOAT,)),
        _spec(
            "where",
            el.elementwise("ElementWiseSelect", "condition", "self", "other"),
            common.computed_operand,
            numbers=True,
        ),
        _spec("masked_fill", el.masked_fill, common.computed_operand, numbers=True),
        OpSpec("cast", el.cast, (), (FLOAT,), trivial=True),
        *(OpSpec(op, el.constant, (), (FLOAT,)) for op in rules.CONSTANT_OPS),
        *(
            OpSpec(op, el.convert, (common.per_tensor_quantized,), (STATIC,))
            for op in ("quantize", "dequantize", "requantize")
        ),
    )


def _binary(op: str, lower: Any, *extra_rules: Rule, precisions: tuple[str, ...] = ANY) -> OpSpec:
    checks = (
        rules.all_or_none,
        rules.equal_operands,
        rules.equal_bit_width,
        common.computed_operand,
        common.unit_alpha,
        common.true_division,
        *extra_rules,
    )
    return OpSpec(op, lower, checks, precisions, CLAMPS, numbers=True)


def _comparison(op: str, kind: str) -> OpSpec:
    lower = el.elementwise(kind, "self", "other")
    if op.startswith(("logical", "bitwise")):
        return OpSpec(op, lower, (common.computed_operand, rules.bool_operands), (FLOAT,))
    return _spec(op, lower, common.computed_operand, numbers=True)


def _image_ops() -> tuple[OpSpec, ...]:
    average = (rules.all_or_none, rules.pool_window, rules.avg_pool_divisor)
    factors, prefixes = (common.exact_scale_factors,), ("upsample", "resize")
    inside = {"out": Same("input")}  # outputs are within the input's range; sharing its scale measured more accurate
    reductions = {"mean": "ReduceMean", "sum": "ReduceSum", "amax": "ReduceMax", "amin": "ReduceMin"}
    return (
        _spec("max_pool2d", image.pool("PoolMax2d"), common.first_output_only, rules.pool_window),
        OpSpec("avg_pool2d", image.pool("PoolAvg2d"), average, ANY),
        _spec("adaptive_avg_pool2d", image.adaptive_pool("PoolAvg2d"), rules.uniform_windows(4), no_decompose=True),
        _spec("adaptive_avg_pool3d", image.adaptive_pool("PoolAvg3d"), rules.uniform_windows(5)),
        _spec(
            "adaptive_max_pool2d",
            image.adaptive_pool("PoolMax2d"),
            rules.uniform_windows(4),
            common.first_output_only,
        ),
        _spec("avg_pool3d", image.avg_pool3d, rules.avg_pool3d_params),
        *(
            _spec(op, image.reduction(kind), rules.equal_bit_width, rules.reduced_types)
            for op, kind in reductions.items()
        ),
        _spec("softmax", image.softmax, common.not_scalar),
        _spec("log_softmax", image.log_softmax, common.not_scalar),
        _spec("pixel_shuffle", image.pixel_shuffle("DepthToSpace"), common.four_dims),
        _spec("pixel_unshuffle", image.pixel_shuffle("SpaceToDepth"), common.four_dims),
        *(_spec(f"{prefix}_nearest2d", image.nearest, *factors) for prefix in prefixes),
        _spec("upsample_bilinear2d", image.bilinear, *factors, ports=inside),
        _spec("resize_bilinear2d", image.bilinear, *factors, ports={"out": Same("self")}),
        *(_spec(f"{prefix}_bicubic2d", image.bicubic, *factors, rules.bicubic_corners) for prefix in prefixes),
        _spec("channel_shuffle", image.channel_shuffle),
        _spec("grid_sampler_2d", image.grid_sample, rules.grid_sample_mode, ports=inside),
        _spec("grid_sampler_3d", image.grid_sample, rules.grid_sample_mode, precisions=(STATIC,), ports=inside),
    )


def _norm(op: str, lower: Any, *checks: Rule) -> OpSpec:
    return OpSpec(op, lower, (constant_weights, rules.all_or_none, *checks), ANY, ports=_FLOAT_PORTS)


def _norms() -> tuple[OpSpec, ...]:
    return (
        _norm(
            "batch_norm",
            norms.batch_norm,
            common.constant_statistics,
            common.positive_variance,
            common.first_output_only,
        ),
        _norm("layer_norm", norms.layer_norm, common.last_dim_only, common.first_output_only),
        _norm("rms_norm", norms.rms_norm, common.last_dim_only),
        _norm("group_norm", norms.group_norm, common.four_dims),
        _norm("instance_norm", norms.instance_norm, rules.instance_statistics),
        _norm("native_group_norm", norms.group_norm, common.four_dims, common.first_output_only),
    )


def _data_movement() -> tuple[OpSpec, ...]:
    lowered = {
        movement.alias: ("clone",),
        movement.permute: ("permute", "transpose", "t"),
        movement.view: ("view", "reshape", "flatten", "squeeze", "unsqueeze"),
        movement.slices: ("narrow", "select", "split", "split_with_sizes", "chunk", "unbind"),
        movement.flip: ("flip",),
        movement.roll: ("roll",),
        movement.stack: ("stack",),
        movement.tile: ("expand", "repeat"),
    }
    return (
        *(_spec(op, lower, common.not_scalar) for lower, ops in lowered.items() for op in ops),
        _spec("slice", movement.slices, common.not_scalar, trivial=True),
        _spec("cat", movement.cat, common.not_scalar, trivial=True),
        OpSpec("dropout", movement.alias, (rules.all_or_none,), ANY, ports={"out": Same("input")}),
        _spec("pad", movement.pad, common.not_scalar, rules.padding_value),
        *(_spec(op, movement.pad, rules.reflect_padding) for op in ("reflection_pad", "pad_by_mode")),
    )


def _indexing() -> tuple[OpSpec, ...]:
    """Operators that compute indices, and gather and scatter."""
    ranked = (common.not_scalar,)
    read = {"gather": indexing.gather, "index_select": indexing.index_select}
    return (
        _spec("argmax", sort_topk.arg_reduce("Argmax"), *ranked),
        _spec("argmin", sort_topk.arg_reduce("Argmin"), *ranked),
        _spec("max_dim", sort_topk.reduce_with_index("ReduceMax", "Argmax"), *ranked),
        _spec("min_dim", sort_topk.reduce_with_index("ReduceMin", "Argmin"), *ranked),
        _spec("topk", sort_topk.top_k, *ranked),
        _spec("sort", sort_topk.top_k, *ranked, rules.unstable_sort),
        _spec("cumsum", sort_topk.cumulative_sum, *ranked, rules.equal_types),
        _spec("embedding", indexing.embedding, rules.constant_table, ports={"weight": ACT, "out": Same("weight")}),
        *(_spec(op, lower, *ranked) for op, lower in read.items()),
        _spec("index", indexing.index, rules.adjacent_indices),
        _spec("index_put", indexing.index_put, rules.adjacent_indices),
        *(_spec(op, indexing.scatter, *ranked) for op in ("scatter", "scatter_value")),
        *(_spec(op, indexing.slice_scatter, *ranked) for op in ("slice_scatter", "select_scatter")),
    )


ROWS: tuple[OpSpec, ...] = (
    *_convolutions(),
    *_elementwise(),
    *_image_ops(),
    *_norms(),
    *_data_movement(),
    *_indexing(),
)
COMMON_RULES: tuple[Rule, ...] = (
    rules.float_allowed, rules.quantization_scheme, rules.plain_types, rules.integer_results, rules.int64_range,
    static_shape(), not_empty(), max_rank(5),
)  # fmt: skip

# Operators that ExecuTorch supports on this processor and that have no row here.
ABSENT = {
    "copy": "only the shape of its first operand counts, and the compiler drops an input that no node reads",
    "custom_op": "operators of custom op packages are compiled by the package's tools",
    "full_like": "only the shape of its operand counts, and the compiler drops an input that no node reads",
    "hadamard_transform": "an operator of ExecuTorch, which its passes insert into models",
    "index_put with accumulate": "the compiler crashes on floating point, and integer sums are wrong",
    "rand": "on the CPU, the same seed gives the same numbers",
    "randn": "on the CPU, the same seed gives the same numbers",
    "scatter_add": "floating point is rejected, and integer sums are wrong",
    "scatter_reduce": "floating point is rejected, and integer sums and products are wrong",
    "skip_ops": "not an operator: one of several results, which the importer reads",
}

BACKEND = Backend(
    INFO,
    ROWS,
    COMMON_RULES,
    precision_notes={FLOAT: "fp16, and integers and bool that are not quantized"},
    absent=ABSENT,
    # The error of complete networks corresponds to up to 33 quantization steps per operator for 16-bit integers (with
    # 16-bit weights), and to a relative error of 2**-9 for fp16 (softmax). The bound is twice that.
    rounding=Rounding(int16=64, real=2.0**-8),
    equal_widths=True,
)
