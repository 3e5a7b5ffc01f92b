"""Operators supported by the HTP: one row per operator, with its constraints as rules."""

from __future__ import annotations

from typing import Any

from edgewright.backends import rules as common
from edgewright.backends.qualcomm import conv, image, image_rules, indexing, movement, norms, rules, sort_topk
from edgewright.backends.qualcomm import elementwise as el
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

ANY = (STATIC, FLOAT)
ACTIVATIONS = ("relu", "relu6", "hardtanh", "clamp")
_REAL = {"weight": INDEX, "bias": INDEX}  # constants that stay floating point until lowering
fixed = constant("weight", "bias")


def _products() -> tuple[OpSpec, ...]:
    checks = (fixed, rules.all_or_none, common.batched_images, image_rules.plain_transposed)
    kinds = ("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
    return (
        *(OpSpec(op, conv.convolution, checks, ANY, ACTIVATIONS) for op in kinds),
        OpSpec("linear", conv.linear, (fixed, rules.all_or_none, common.not_scalar), ANY, ACTIVATIONS),
        OpSpec("mm", conv.matmul, (rules.all_or_none,), ANY),
        OpSpec("bmm", conv.matmul, (rules.all_or_none,), ANY),
    )


def _element(op: str, lower: Any, *checks: Rule, precisions: tuple[str, ...] = ANY, **more: Any) -> OpSpec:
    return OpSpec(op, lower, (rules.all_or_none, *checks), precisions, **more)


_OF_ONE = {
    "log": (rules.narrow,),
    "round": (rules.whole_numbers,),
}


def _elements() -> tuple[OpSpec, ...]:
    of_one = {op: kind for op, kind in el.UNARY.items() if op != "asin"}
    return (
        *(_element(op, el.of(kind), *_OF_ONE.get(op, ())) for op, kind in of_one.items()),
        _element("asin", el.of(el.UNARY["asin"]), precisions=(STATIC,)),
        *(_element(op, el.limits, rules.number_limits) for op in ACTIVATIONS),
        _element("elu", el.elu, rules.plain_elu),
        _element("hardsigmoid", el.hardsigmoid),
        _element("leaky_relu", el.leaky_relu),
        _element("reciprocal", el.reciprocal),
        _element("square", el.square),
        *(_pair(op, el.of(kind, "self", "other")) for op, kind in el.BINARY.items()),
        _pair("rsub", el.of("ElementWiseSubtract", "other", "self")),
        _pair("pow", el.power, rules.known_powers),
        _pair("floor_divide", el.floor_divide, precisions=(FLOAT,)),
        _element("prelu", el.prelu, constant("weight"), ports={"weight": INDEX}),
        *(_compared(op, kind) for op, kind in el.COMPARE.items()),
        OpSpec("logical_not", el.of("ElementWiseNot"), (rules.truths,), (FLOAT,)),
        OpSpec("isinf", el.is_wild("IsInf", detect_negative=True, detect_positive=True), (rules.real,), (FLOAT,)),
        OpSpec("isnan", el.is_wild("IsNan"), (rules.real,), (FLOAT,)),
        _element(
            "where", el.of("ElementWiseSelect", "condition", "self", "other"), common.computed_operand, numbers=True
        ),
        _element("masked_fill", el.masked_fill, common.computed_operand, numbers=True),
        OpSpec("cast", el.cast, (), (FLOAT,)),
        *(OpSpec(op, el.made_now, (), (FLOAT,)) for op in rules.MADE),
        *(
            OpSpec(op, el.convert, (common.per_tensor_quantized,), (STATIC,))
            for op in ("quantize", "dequantize", "requantize")
        ),
    )


def _pair(op: str, lower: Any, *more: Rule, precisions: tuple[str, ...] = ANY) -> OpSpec:
    checks = (
        rules.all_or_none,
        rules.one_width,
        common.computed_operand,
        common.unit_alpha,
        common.true_division,
        *more,
    )
    return OpSpec(op, lower, checks, precisions, ACTIVATIONS, numbers=True)


def _compared(op: str, kind: str) -> OpSpec:
    lower = el.of(kind, "self", "other")
    if op.startswith(("logical", "bitwise")):
        return OpSpec(op, lower, (common.computed_operand, rules.truths), (FLOAT,))
    return _element(op, lower, common.computed_operand, numbers=True)


def _images() -> tuple[OpSpec, ...]:
    average = (rules.all_or_none, image_rules.plain_window, image_rules.plain_average)
    factors, both = (common.exact_scale_factors,), ("upsample", "resize")
    inside = {"out": Same("input")}  # outputs are within the input's range; sharing its scale measured more accurate
    reductions = {"mean": "ReduceMean", "sum": "ReduceSum", "amax": "ReduceMax", "amin": "ReduceMin"}
    return (
        _element("max_pool2d", image.pool("PoolMax2d"), common.first_output_only, image_rules.plain_window),
        OpSpec("avg_pool2d", image.pool("PoolAvg2d"), average, ANY),
        _element("adaptive_avg_pool2d", image.adaptive("PoolAvg2d"), image_rules.even_windows(4)),
        _element("adaptive_avg_pool3d", image.adaptive("PoolAvg3d"), image_rules.even_windows(5)),
        _element(
            "adaptive_max_pool2d", image.adaptive("PoolMax2d"), image_rules.even_windows(4), common.first_output_only
        ),
        _element("avg_pool3d", image.volume, image_rules.plain_box),
        *(_element(op, image.reduced(kind), rules.reduces) for op, kind in reductions.items()),
        _element("softmax", image.softmax, common.not_scalar),
        _element("log_softmax", image.log_softmax, common.not_scalar),
        _element("pixel_shuffle", image.shuffled("DepthToSpace"), common.four_dims),
        _element("pixel_unshuffle", image.shuffled("SpaceToDepth"), common.four_dims),
        *(_element(f"{how}_nearest2d", image.nearest, *factors) for how in both),
        _element("upsample_bilinear2d", image.bilinear, *factors, ports=inside),
        _element("resize_bilinear2d", image.bilinear, *factors, ports={"out": Same("self")}),
        *(_element(f"{how}_bicubic2d", image.bicubic, *factors, image_rules.free_corners) for how in both),
        _element("channel_shuffle", image.dealt),
        _element("grid_sampler_2d", image.sampled, image_rules.plain_samples, ports=inside),
        _element("grid_sampler_3d", image.sampled, image_rules.plain_samples, precisions=(STATIC,), ports=inside),
    )


def _norm(op: str, lower: Any, *checks: Rule) -> OpSpec:
    return OpSpec(op, lower, (fixed, rules.all_or_none, *checks), ANY, ports=_REAL)


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
        _norm("instance_norm", norms.instance_norm, rules.own_statistics),
        _norm("native_group_norm", norms.group_norm, common.four_dims, common.first_output_only),
    )


def _moves() -> tuple[OpSpec, ...]:
    lowered = {
        movement.same: ("clone",),
        movement.permute: ("permute", "transpose", "t"),
        movement.view: ("view", "reshape", "flatten", "squeeze", "unsqueeze"),
        movement.part: ("slice", "narrow", "select", "split", "split_with_sizes", "chunk", "unbind"),
        movement.flip: ("flip",),
        movement.cat: ("cat",),
        movement.stack: ("stack",),
        movement.tile: ("expand", "repeat"),
    }
    return (
        *(_element(op, lower, common.not_scalar) for lower, ops in lowered.items() for op in ops),
        OpSpec("dropout", movement.same, (rules.all_or_none,), ANY, ports={"out": Same("input")}),
        _element("pad", movement.pad, common.not_scalar, image_rules.outward),
        *(_element(op, movement.pad, image_rules.mirrored) for op in ("reflection_pad", "pad_by_mode")),
    )


def _places() -> tuple[OpSpec, ...]:
    """Operators that compute indices, and gather and scatter."""
    ranked = (common.not_scalar,)
    read = {"gather": indexing.gather, "index_select": indexing.index_select}
    return (
        _element("argmax", sort_topk.place("Argmax"), *ranked),
        _element("argmin", sort_topk.place("Argmin"), *ranked),
        _element("max_dim", sort_topk.extreme("ReduceMax", "Argmax"), *ranked),
        _element("min_dim", sort_topk.extreme("ReduceMin", "Argmin"), *ranked),
        _element("topk", sort_topk.best, *ranked),
        _element("sort", sort_topk.best, *ranked, rules.unstable),
        _element("cumsum", sort_topk.running_sum, *ranked, rules.same_kind),
        _element("embedding", indexing.embedding, rules.known_table, ports={"weight": ACT, "out": Same("weight")}),
        *(_element(op, lower, *ranked) for op, lower in read.items()),
        _element("index", indexing.index, rules.neighbours),
        _element("index_put", indexing.index_put, rules.neighbours),
        *(_element(op, indexing.scatter, *ranked) for op in ("scatter", "scatter_value")),
        *(_element(op, indexing.written_slice, *ranked) for op in ("slice_scatter", "select_scatter")),
    )


ROWS: tuple[OpSpec, ...] = (*_products(), *_elements(), *_images(), *_norms(), *_moves(), *_places())
EVERYWHERE: tuple[Rule, ...] = (
    rules.real_numbers_allowed, rules.storage, rules.plain, rules.fits, static_shape(), not_empty(), max_rank(5),
)  # fmt: skip

# Operators that ExecuTorch supports on this processor and that have no row here.
ABSENT = {
    "copy": "only the shape of its first operand counts, and the compiler drops an input that no node reads",
    "custom_op": "operators of packages of one's own are compiled by their owner's tools",
    "full_like": "only the shape of its operand counts, and the compiler drops an input that no node reads",
    "hadamard_transform": "an operator of stock's own, which stock's passes put into models",
    "index_put with accumulate": "of real numbers the compiler crashes, and of integers the sums are wrong",
    "rand": "the CPU's numbers are the same every time for the same seed",
    "randn": "the CPU's numbers are the same every time for the same seed",
    "scatter_add": "real numbers are refused, and the sums of integers are wrong",
    "scatter_reduce": "real numbers are refused, and the sums and products of integers are wrong",
    "skip_ops": "no operator: one of several results, which the importer reads",
}

BACKEND = Backend(
    "qualcomm",
    ROWS,
    EVERYWHERE,
    id="QnnBackend",
    title="Qualcomm AI Engine Direct",
    meanings={FLOAT: "fp16, and integers and bool that are not quantized"},
    absent=ABSENT,
    # Whole networks are as far from exact results as if 16-bit integers were off by up to 33 steps an operator
    # (weights of 16 bits), and real numbers, which have 16 bits, by 2**-9 (softmax). Twice that is the bound.
    rounding=Rounding(int16=64, real=2.0**-8),
    summary="Hexagon processors (HTP) of Snapdragon and other SoCs, compiled by QNN; the host runs its emulator.",
)
