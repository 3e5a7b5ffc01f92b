"""Operators supported by Neutron: one row per operator, with its constraints as rules."""

from __future__ import annotations

from typing import Any

from edgewright.backends import rules as common
from edgewright.backends.nxp import INFO, conv, elementwise, movement, pool, rules
from edgewright.backends.nxp.rules import GLOBAL_RULES
from edgewright.backends.table import STATIC, Backend, OpSpec, Rule, argument_is, constant
from edgewright.ir.ports import INDEX, Port, Range, Same, Tied, Weight
from edgewright.lowering.passes.value_storage import CLAMPS

INT = (STATIC,)
UNIT, SIGNED = (
    Range(0, 255 / 256),
    Range(-1, 127 / 128),
)  # scale 1/256 with zero point -128, and scale 1/128 with zero point 0
SELF = Same("self")


def _row(op: str, lower: Any, *checks: Rule, **ports: Port) -> OpSpec:
    return OpSpec(op, lower, checks, INT, ports=ports)


def _fused(op: str, lower: Any, *checks: Rule, numbers: bool = False, **ports: Port) -> OpSpec:
    """A row that can fuse a following activation."""
    return OpSpec(op, lower, checks, INT, CLAMPS, ports=ports, numbers=numbers)


def _movement(lower: Any, *ops: str, extra_rules: tuple[Rule, ...] = (), **options: Any) -> tuple[OpSpec, ...]:
    return tuple(OpSpec(op, lower, (rules.one_qparams, *extra_rules), INT, **options) for op in ops)


_CONVOLUTION = (rules.constant_weights, rules.weight_axis, rules.window_params_fit, rules.kernel_fits)
_POOL = (common.first_output_only, rules.pool_form, rules.pool_fits, rules.one_qparams)
_ADAPTIVE = (rules.divisible, rules.pool_fits, rules.one_qparams)
_PAIR = (rules.one_full_operand,)
_REDUCE = (rules.has_reduced_dims, rules.one_qparams, common.first_output_only, argument_is("dtype", None))

_PRODUCTS = (
    *(_fused(op, conv.convolution, *_CONVOLUTION, rules.groups_fit) for op in ("conv1d", "conv2d")),
    *(
        _fused(op, conv.convolution, *_CONVOLUTION, rules.transposed_conv_fits)
        for op in ("conv_transpose1d", "conv_transpose2d")
    ),
    _fused("linear", conv.linear, rules.constant_weights),
    _fused("addmm", conv.mm, rules.constant_matrix, rules.addmm_form),
    _fused("mm", conv.mm, rules.constant_matrix, mat2=Weight(1)),
    _row("bmm", conv.bmm, rules.symmetric_operands),
)

_ARITHMETIC = (
    _fused("add", elementwise.binary("ADD"), *_PAIR, common.unit_alpha, numbers=True),
    _fused("sub", elementwise.binary("SUB"), *_PAIR, common.unit_alpha, numbers=True),
    _fused("rsub", elementwise.binary("SUB"), *_PAIR, common.unit_alpha, numbers=True),
    _fused("mul", elementwise.binary("MUL"), *_PAIR, numbers=True),
    _fused("div", elementwise.div, rules.constant_divisor, *_PAIR, numbers=True),
    _row("maximum", elementwise.binary("MAXIMUM"), rules.one_qparams, *_PAIR, other=Tied("self"), out=Tied("self")),
    _row("minimum", elementwise.binary("MINIMUM"), rules.one_qparams, *_PAIR, other=Tied("self"), out=Tied("self")),
    _row("neg", elementwise.neg),
    _row("requantize", elementwise.requantize),
)

_FUNCTIONS = (
    _row("relu", elementwise.clamp, rules.constant_limits),
    _row("relu6", elementwise.clamp, rules.constant_limits),
    _row("hardtanh", elementwise.clamp, rules.constant_limits, out=SELF),
    _row("clamp", elementwise.clamp, rules.constant_limits, min=INDEX, max=INDEX, out=SELF),
    _row("abs", elementwise.unary("ABS")),
    _row("exp", elementwise.unary("EXP")),
    _row("log", elementwise.unary("LOG")),
    _row("rsqrt", elementwise.unary("RSQRT"), rules.nonnegative_input),
    _row("hardswish", elementwise.unary("HARD_SWISH"), rules.hardswish_scales),
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
        _row(op, pool.resize(kind), rules.upscale_factor, rules.one_qparams, out=Same(name))
        for op, kind, name in (
            ("upsample_nearest2d", "RESIZE_NEAREST_NEIGHBOR", "input"),
            ("resize_nearest2d", "RESIZE_NEAREST_NEIGHBOR", "self"),
            ("upsample_bilinear2d", "RESIZE_BILINEAR", "input"),
            ("resize_bilinear2d", "RESIZE_BILINEAR", "self"),
        )
    ),
    *(
        _row(op, pool.reduce(kind), *_REDUCE, out=SELF)
        for op, kind in (("mean", "MEAN"), ("sum", "SUM"), ("amax", "REDUCE_MAX"), ("amin", "REDUCE_MIN"))
    ),
)

_MOVES = (
    *_movement(movement.forward_input, "clone"),
    *_movement(movement.forward_input, "expand", extra_rules=(rules.no_broadcast,)),
    OpSpec("dropout", movement.forward_input, (rules.one_qparams,), INT, ports={"out": Same("input")}),
    *_movement(movement.permute, "permute", "transpose", "t"),
    *_movement(movement.view, "view", "reshape", "flatten"),
    *_movement(movement.squeeze, "squeeze", "unsqueeze"),
    *_movement(movement.slice_, "slice", "narrow", "select", extra_rules=(rules.contiguous_slice,)),
    *_movement(movement.pad, "pad", extra_rules=(rules.nonnegative_padding,), no_decompose=True),
    *_movement(
        movement.mirror_pad,
        "pad_by_mode",
        "reflection_pad",
        extra_rules=(rules.reflect_only, rules.nonnegative_padding),
    ),
    *_movement(movement.cat, "cat"),
)

ROWS: tuple[OpSpec, ...] = (*_PRODUCTS, *_ARITHMETIC, *_FUNCTIONS, *_IMAGES, *_MOVES)


BACKEND = Backend(
    INFO,
    ROWS,
    GLOBAL_RULES,
)
