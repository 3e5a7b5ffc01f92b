"""What an Exynos NPU takes: one row per operator, with its limits as rules."""

from __future__ import annotations

from typing import Any

from edgewright.backends import rules as common
from edgewright.backends.samsung import conv, image, movement, norm, rules
from edgewright.backends.samsung import elementwise as el
from edgewright.backends.table import FLOAT, STATIC, Backend, OpSpec, Rounding, Rule, constant, not_empty, static_shape
from edgewright.ir.ports import ACT, INDEX, Port, Same

ANY = (STATIC, FLOAT)
ACTIVATIONS = ("relu", "relu6", "hardtanh", "clamp")
_REAL: dict[str, Port] = {"weight": INDEX, "bias": INDEX}  # constants that stay real numbers until they are lowered
_FOUND: dict[str, Port] = {"out": ACT}  # ranges that calibration finds, where the op table has fixed ones
fixed = constant("weight", "bias")


def _products() -> tuple[OpSpec, ...]:
    checks = (
        fixed, rules.all_or_none, rules.stored_weights, common.whole_images, rules.within_padding, rules.grouped_scale,
    )  # fmt: skip
    kinds = ("conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d")
    added = (constant("self", "mat2"), rules.all_or_none, rules.unscaled, rules.column_bias)
    return (
        *(OpSpec(op, conv.convolution, checks, ANY, ACTIVATIONS) for op in kinds),
        OpSpec(
            "linear",
            conv.linear,
            (fixed, rules.all_or_none, rules.stored_weights, common.has_dims),
            ANY,
            ACTIVATIONS,
        ),
        OpSpec("addmm", conv.addmm, added, (FLOAT,), ACTIVATIONS),
        OpSpec("mm", conv.mm, (rules.all_or_none, rules.one_type), ANY),
        OpSpec("bmm", conv.bmm, (rules.all_or_none, rules.one_type, common.some_tensor), ANY),
    )


def _element(
    op: str, lower: Any, *checks: Rule, precisions: tuple[str, ...] = ANY, ports: dict[str, Port] | None = None
) -> OpSpec:
    return OpSpec(op, lower, (rules.all_or_none, rules.one_type, *checks), precisions, ports=ports or {})


# Stock never quantizes these: they are computed as real numbers between conversions.
_ONLY_REAL = ("log", "maximum", "minimum")


def _elements() -> tuple[OpSpec, ...]:
    pair = (common.some_tensor, common.no_alpha, common.true_division)

    def both(op: str, kind: str, told: bool, *names: str) -> OpSpec:
        precisions = (FLOAT,) if op in _ONLY_REAL else ANY
        checks = (rules.all_or_none, rules.one_type, *pair)
        return OpSpec(op, el.of(kind, told, *names), checks, precisions, numbers=True)

    def alone(op: str, kind: str, told: bool) -> OpSpec:
        ports = _FOUND if op in ("tanh", "hardsigmoid") else {}
        return _element(op, el.of(kind, told), precisions=(FLOAT,) if op in _ONLY_REAL else ANY, ports=ports)

    return (
        *(alone(op, *kind) for op, kind in el.UNARY.items()),
        *(both(op, *kind, "self", "other") for op, kind in el.BINARY.items()),
        both("rsub", "SUB", True, "other", "self"),
        OpSpec("pow", el.power, (common.some_tensor,), (FLOAT,), numbers=True),
        *(_element(op, el.limits, rules.number_limits) for op in ("relu6", "hardtanh", "clamp")),
        _element("leaky_relu", el.leaky_relu),
        _element("prelu", el.prelu, rules.slopes, ports={"weight": INDEX}),
        *(OpSpec(op, el.convert, (common.known,), (STATIC,)) for op in ("quantize", "dequantize", "requantize")),
        OpSpec("cast", el.cast, (rules.known_types,), (FLOAT,)),
    )


def _images() -> tuple[OpSpec, ...]:
    return (
        _element("max_pool2d", image.largest, common.values_only, rules.plain_window),
        _element("avg_pool2d", image.average, rules.plain_window, rules.plain_average),
        _element("adaptive_avg_pool2d", image.adaptive, rules.even_windows),
        _element("mean", image.reduced("REDUCEMEAN", True), rules.reduces),
        _element("sum", image.reduced("REDUCESUM", False), rules.reduces),
        _element("softmax", image.softmax("SOFTMAX", True), common.has_dims, ports=_FOUND),
        _element("log_softmax", image.softmax("LOGSOFTMAX", False), common.has_dims),
        _element("pixel_shuffle", image.shuffle, common.four_dims),
        *(_element(f"{op}_bilinear2d", image.bilinear, common.true_factors) for op in ("upsample", "resize")),
        *(_element(f"{op}_nearest2d", image.nearest, common.true_factors, rules.whole_factors)
          for op in ("upsample", "resize")),
    )  # fmt: skip


def _norm(op: str, lower: Any, *checks: Rule) -> OpSpec:
    return OpSpec(op, lower, (fixed, rules.all_or_none, rules.one_type, *checks), ANY, ports=_REAL)


def _norms() -> tuple[OpSpec, ...]:
    return (
        _norm("batch_norm", norm.batch_norm, common.fixed_statistics, common.rooted_statistics, common.values_only),
        _norm("layer_norm", norm.layer_norm, common.last_only, common.values_only),
        _norm("rms_norm", norm.rms_norm),
        _norm("group_norm", norm.group_norm),
        _norm("native_group_norm", norm.group_norm, common.values_only),
    )


def _moves() -> tuple[OpSpec, ...]:
    lowered = {
        movement.permute: ("permute", "transpose", "t"),
        movement.view: ("view", "reshape", "flatten", "squeeze", "unsqueeze"),
        movement.part: ("slice", "narrow"),
        movement.select: ("select",),
    }
    table: dict[str, Port] = {"weight": ACT, "out": Same("weight")}
    several = {movement.split: ("split", "split_with_sizes", "chunk"), movement.unbind: ("unbind",)}
    return (
        *(_element(op, lower, common.has_dims) for lower, ops in lowered.items() for op in ops),
        *(_element(op, lower, common.has_dims, precisions=(FLOAT,)) for lower, ops in several.items() for op in ops),
        _element("expand", movement.expand),
        _element("clone", movement.same),
        OpSpec("dropout", movement.same, (rules.all_or_none,), ANY, ports={"out": Same("input")}),
        OpSpec("cat", movement.cat, (rules.all_or_none, rules.one_type, common.has_dims, rules.one_constant), ANY),
        _element("pad", movement.pad, common.has_dims, rules.zeros_outward),
        OpSpec("embedding", movement.embedding, (constant("weight"), rules.all_or_none), ANY, ports=table),
        _element("index", movement.index, common.has_dims, rules.one_index),
        _element("index_select", movement.index_select, common.has_dims, rules.listed_places),
        _element("topk", movement.topk, rules.plain_topk, precisions=(FLOAT,)),
    )


ROWS: tuple[OpSpec, ...] = (*_products(), *_elements(), *_images(), *_norms(), *_moves())
EVERYWHERE: tuple[Rule, ...] = (rules.storage, rules.plain, static_shape(), not_empty())

BACKEND = Backend(
    "samsung",
    ROWS,
    EVERYWHERE,
    id="EnnBackend",
    title="Samsung Exynos",
    meanings={FLOAT: "floating point: held in 16 bits on the NPU"},
    rounding=Rounding(real=2.0**-10),
    summary="NPUs of Exynos 2500 and 2600, through Samsung's AI LiteCore; ENN's graph runs here from the host twin.",
)
