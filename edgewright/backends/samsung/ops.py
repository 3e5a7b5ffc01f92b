"""Operators supported by Exynos NPUs: one row per operator, with its constraints as rules."""

from __future__ import annotations

from typing import Any

from edgewright.backends import rules as common
from edgewright.backends.samsung import INFO, conv, image, movement, norm, rules
from edgewright.backends.samsung import elementwise as el
from edgewright.backends.table import (
    FLOAT,
    STATIC,
    Backend,
    OpSpec,
    Rounding,
    Rule,
    constant,
    not_empty,
    static_shape,
)
from edgewright.ir.ports import ACT, INDEX, Port, Same
from edgewright.lowering.passes.value_storage import CLAMPS

ANY = (STATIC, FLOAT)
_FLOAT_PARAMS: dict[str, Port] = {"weight": INDEX, "bias": INDEX}  # constants that stay floating point until lowering
_CALIBRATED_OUTPUT: dict[str, Port] = {"out": ACT}  # calibrated output range instead of the op table's fixed range
constant_params = constant("weight", "bias")


def _products() -> tuple[OpSpec, ...]:
    checks = (
        constant_params, rules.all_or_none, rules.weights_match_input, common.batched_images,
        rules.output_padding_within_padding, rules.grouped_transposed_per_tensor,
    )  # fmt: skip
    kinds = ("conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d")
    addmm_rules = (constant("self", "mat2"), rules.all_or_none, rules.unit_alpha_beta, rules.bias_per_column)
    return (
        *(OpSpec(op, conv.convolution, checks, ANY, CLAMPS) for op in kinds),
        OpSpec(
            "linear",
            conv.linear,
            (constant_params, rules.all_or_none, rules.weights_match_input, common.not_scalar),
            ANY,
            CLAMPS,
        ),
        OpSpec("addmm", conv.addmm, addmm_rules, (FLOAT,), CLAMPS),
        OpSpec("mm", conv.mm, (rules.all_or_none, rules.one_quantized_dtype), ANY),
        OpSpec("bmm", conv.bmm, (rules.all_or_none, rules.one_quantized_dtype, common.computed_operand), ANY),
    )


def _element(op: str, lower: Any, *checks: Rule, precisions: tuple[str, ...] = ANY, **options: Any) -> OpSpec:
    return OpSpec(op, lower, (rules.all_or_none, rules.one_quantized_dtype, *checks), precisions, **options)


# ExecuTorch never quantizes these: they are computed in floating point between dequantize and quantize.
_FLOAT_ONLY = ("log", "maximum", "minimum")


def _elements() -> tuple[OpSpec, ...]:
    pair = (common.computed_operand, common.unit_alpha, common.true_division)

    def both(op: str, kind: str, with_quant_dtype: bool, *names: str) -> OpSpec:
        precisions = (FLOAT,) if op in _FLOAT_ONLY else ANY
        checks = (rules.all_or_none, rules.one_quantized_dtype, *pair)
        return OpSpec(op, el.node(kind, with_quant_dtype, *names), checks, precisions, numbers=True)

    def unfused(op: str, kind: str, with_quant_dtype: bool) -> OpSpec:
        ports = _CALIBRATED_OUTPUT if op in ("tanh", "hardsigmoid") else {}
        return _element(
            op, el.node(kind, with_quant_dtype), precisions=(FLOAT,) if op in _FLOAT_ONLY else ANY, ports=ports
        )

    return (
        *(unfused(op, *kind) for op, kind in el.UNARY.items()),
        *(both(op, *kind, "self", "other") for op, kind in el.BINARY.items()),
        both("rsub", "SUB", True, "other", "self"),
        OpSpec("pow", el.power, (common.computed_operand,), (FLOAT,), numbers=True),
        *(_element(op, el.clamp, rules.constant_limits) for op in CLAMPS if op != "relu"),
        _element("leaky_relu", el.leaky_relu),
        _element("prelu", el.prelu, rules.prelu_slopes, ports={"weight": INDEX}),
        *(
            OpSpec(op, el.convert, (common.per_tensor_quantized,), (STATIC,))
            for op in ("quantize", "dequantize", "requantize")
        ),
        OpSpec("cast", el.cast, (rules.enn_dtypes,), (FLOAT,)),
    )


def _images() -> tuple[OpSpec, ...]:
    return (
        _element("max_pool2d", image.max_pool, common.first_output_only, rules.pool_window, no_decompose=True),
        _element("avg_pool2d", image.avg_pool, rules.pool_window, rules.avg_pool_divisor),
        _element("adaptive_avg_pool2d", image.adaptive_avg_pool, rules.divisible_sizes, no_decompose=True),
        _element("mean", image.reduce("REDUCEMEAN", True), rules.reduction),
        _element("sum", image.reduce("REDUCESUM", False), rules.reduction),
        _element("softmax", image.softmax("SOFTMAX", True), common.not_scalar, ports=_CALIBRATED_OUTPUT),
        _element("log_softmax", image.softmax("LOGSOFTMAX", False), common.not_scalar),
        _element("pixel_shuffle", image.pixel_shuffle, common.four_dims),
        *(_element(f"{op}_bilinear2d", image.resize_bilinear, common.exact_scale_factors)
          for op in ("upsample", "resize")),
        *(_element(f"{op}_nearest2d", image.resize_nearest, common.exact_scale_factors, rules.integer_scale_factors)
          for op in ("upsample", "resize")),
    )  # fmt: skip


def _norm(op: str, lower: Any, *checks: Rule) -> OpSpec:
    return OpSpec(
        op, lower, (constant_params, rules.all_or_none, rules.one_quantized_dtype, *checks), ANY, ports=_FLOAT_PARAMS
    )


def _norms() -> tuple[OpSpec, ...]:
    return (
        _norm(
            "batch_norm",
            norm.batch_norm,
            common.constant_statistics,
            common.positive_variance,
            common.first_output_only,
        ),
        _norm("layer_norm", norm.layer_norm, common.last_dim_only, common.first_output_only),
        _norm("rms_norm", norm.rms_norm),
        _norm("group_norm", norm.group_norm),
        _norm("native_group_norm", norm.group_norm, common.first_output_only),
    )


def _movement() -> tuple[OpSpec, ...]:
    lowered = {
        movement.permute: ("permute", "transpose", "t"),
        movement.view: ("view", "reshape", "flatten", "squeeze", "unsqueeze"),
        movement.slice_: ("slice", "narrow"),
        movement.select: ("select",),
    }
    table: dict[str, Port] = {"weight": ACT, "out": Same("weight")}
    several = {movement.split: ("split", "split_with_sizes", "chunk"), movement.unbind: ("unbind",)}
    return (
        *(_element(op, lower, common.not_scalar) for lower, ops in lowered.items() for op in ops),
        *(_element(op, lower, common.not_scalar, precisions=(FLOAT,)) for lower, ops in several.items() for op in ops),
        _element("expand", movement.expand),
        _element("clone", movement.forward_input),
        OpSpec("dropout", movement.forward_input, (rules.all_or_none,), ANY, ports={"out": Same("input")}),
        OpSpec(
            "cat",
            movement.cat,
            (rules.all_or_none, rules.one_quantized_dtype, common.not_scalar, rules.at_most_one_constant),
            ANY,
        ),
        _element("pad", movement.pad, common.not_scalar, rules.zero_padding),
        OpSpec("embedding", movement.embedding, (constant("weight"), rules.all_or_none), ANY, ports=table),
        _element("index", movement.index, common.not_scalar, rules.one_index_tensor),
        _element("index_select", movement.index_select, common.not_scalar, rules.index_rank_1),
        _element("topk", movement.topk, rules.topk_form, precisions=(FLOAT,)),
    )


ROWS: tuple[OpSpec, ...] = (*_products(), *_elements(), *_images(), *_norms(), *_movement())
GLOBAL_RULES: tuple[Rule, ...] = (rules.quantized_storage, rules.element_types, static_shape(), not_empty())

BACKEND = Backend(
    INFO,
    ROWS,
    GLOBAL_RULES,
    precision_notes={FLOAT: "floating point: fp16 on the NPU"},
    rounding=Rounding(real=2.0**-10),
)
