"""Rows: one per operator that Neutron takes, with its limits as rules."""

from __future__ import annotations

from typing import Any

from edgewright.backends import rules as common
from edgewright.backends.nxp import conv, elementwise, movement, pool, rules
from edgewright.backends.nxp import rules_images as images
from edgewright.backends.table import STATIC, OpSpec, Rule, argument_is, constant
from edgewright.ir.ports import INDEX, Port, Range, Same, Tied, Weight

INT = (STATIC,)
ACTIVATIONS = ("relu", "relu6", "hardtanh", "clamp")
UNIT, SIGNED = Range(0, 255 / 256), Range(-1, 127 / 128)  # 1/256 with -128, and 1/128 with 0
SELF = Same("self")


def _row(op: str, lower: Any, *rules: Rule, **ports: Port) -> OpSpec:
    return OpSpec(op, lower, rules, INT, ports=ports)


def _fused(op: str, lower: Any, *rules: Rule, numbers: bool = False, **ports: Port) -> OpSpec:
    """With an activation behind it."""
    return OpSpec(op, lower, rules, INT, ACTIVATIONS, ports=ports, numbers=numbers)


def _moves(lower: Any, *ops: str, more: tuple[Rule, ...] = ()) -> tuple[OpSpec, ...]:
    return tuple(OpSpec(op, lower, (rules.one_scale, *more), INT) for op in ops)


_CONVOLUTION = (rules.fixed_weights, rules.weight_axis, rules.steps_fit, rules.taps_fit)
_POOL = (common.values_only, images.plain_pool, images.pool_fits, rules.one_scale)
_ADAPTIVE = (images.divisible, images.pool_fits, rules.one_scale)
_PAIR = (rules.broadcasts,)
_REDUCED = (images.has_dims, rules.one_scale, common.values_only, argument_is("dtype", None))

_PRODUCTS = (
    *(_fused(op, conv.convolution, *_CONVOLUTION, rules.groups_fit) for op in ("conv1d", "conv2d")),
    *(
        _fused(op, conv.convolution, *_CONVOLUTION, rules.transposed_fits)
        for op in ("conv_transpose1d", "conv_transpose2d")
    ),
    _fused("linear", conv.linear, rules.fixed_weights),
    _fused("addmm", conv.mm, rules.fixed_matrix, rules.plain_product),
    _fused("mm", conv.mm, rules.fixed_matrix, mat2=Weight(1)),
    _row("bmm", conv.bmm, rules.centred_pair),
)

_ARITHMETIC = (
    _fused("add", elementwise.binary("ADD"), *_PAIR, common.no_alpha, numbers=True),
    _fused("sub", elementwise.binary("SUB"), *_PAIR, common.no_alpha, numbers=True),
    _fused("rsub", elementwise.binary("SUB"), *_PAIR, common.no_alpha, numbers=True),
    _fused("mul", elementwise.binary("MUL"), *_PAIR, numbers=True),
    _fused("div", elementwise.divided, rules.fixed_divisor, *_PAIR, numbers=True),
    _row("maximum", elementwise.binary("MAXIMUM"), rules.one_scale, *_PAIR, other=Tied("self"), out=Tied("self")),
    _row("minimum", elementwise.binary("MINIMUM"), rules.one_scale, *_PAIR, other=Tied("self"), out=Tied("self")),
    _row("neg", elementwise.negated),
    _row("requantize", elementwise.requantized),
)

_FUNCTIONS = (
    _row("relu", elementwise.limited, rules.known_limits),
    _row("relu6", elementwise.limited, rules.known_limits),
    _row("hardtanh", elementwise.limited, rules.known_limits, out=SELF),
    _row("clamp", elementwise.limited, rules.known_limits, min=INDEX, max=INDEX, out=SELF),
    _row("abs", elementwise.unary("ABS")),
    _row("exp", elementwise.unary("EXP")),
    _row("log", elementwise.unary("LOG")),
    _row("rsqrt", elementwise.unary("RSQRT"), rules.not_negative),
    _row("hardswish", elementwise.unary("HARD_SWISH"), rules.swish_scales),
    _row("leaky_relu", elementwise.unary("LEAKY_RELU", alpha="negative_slope")),
    _row("prelu", elementwise.prelu, constant("weight"), weight=INDEX),
    _row("sigmoid", elementwise.unary("LOGISTIC"), rules.unit_range, out=UNIT),
    _row("tanh", elementwise.unary("TANH"), rules.signed_range, out=SIGNED),
    _row("softmax", elementwise.softmax, rules.unit_range, rules.softmax_fits, out=UNIT),
)

_IMAGES = (
    *(_row(op, pool.pool("MAX_POOL_2D"), *_POOL, out=SELF) for op in ("max_pool1d", "max_pool2d")),
    *(_row(op, pool.pool("AVERAGE_POOL_2D"), *_POOL, out=SELF) for op in ("avg_pool1d", "avg_pool2d")),
    *(
        _row(op, pool.pool("AVERAGE_POOL_2D"), *_ADAPTIVE, out=SELF)
        for op in ("adaptive_avg_pool1d", "adaptive_avg_pool2d")
    ),
    *(
        _row(op, pool.resize(kind), images.grows, rules.one_scale, out=Same(name))
        for op, kind, name in (
            ("upsample_nearest2d", "RESIZE_NEAREST_NEIGHBOR", "input"),
            ("resize_nearest2d", "RESIZE_NEAREST_NEIGHBOR", "self"),
            ("upsample_bilinear2d", "RESIZE_BILINEAR", "input"),
            ("resize_bilinear2d", "RESIZE_BILINEAR", "self"),
        )
    ),
    *(
        _row(op, pool.reduced(kind), *_REDUCED, out=SELF)
        for op, kind in (("mean", "MEAN"), ("sum", "SUM"), ("amax", "REDUCE_MAX"), ("amin", "REDUCE_MIN"))
    ),
)

_MOVES = (
    *_moves(movement.same, "clone"),
    *_moves(movement.same, "expand", more=(images.same_shape,)),
    OpSpec("dropout", movement.same, (rules.one_scale,), INT, ports={"out": Same("input")}),
    *_moves(movement.permute, "permute", "transpose", "t"),
    *_moves(movement.view, "view", "reshape", "flatten"),
    *_moves(movement.squeeze, "squeeze", "unsqueeze"),
    *_moves(movement.part, "slice", "narrow", "select", more=(images.neighbours,)),
    *_moves(movement.pad, "pad", more=(images.grows_only,)),
    *_moves(movement.mirror, "pad_by_mode", "reflection_pad", more=(images.mirrored, images.grows_only)),
    *_moves(movement.cat, "cat"),
)

ROWS: tuple[OpSpec, ...] = (*_PRODUCTS, *_ARITHMETIC, *_FUNCTIONS, *_IMAGES, *_MOVES)
