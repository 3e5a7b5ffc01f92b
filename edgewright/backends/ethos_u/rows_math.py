"""Rows of arithmetic, of functions by table, of softmax and of the normalisations."""

from __future__ import annotations

from typing import Any

from edgewright.backends.ethos_u import division, elementwise, norm, softmax, variance
from edgewright.backends.ethos_u.dtypes import ACTIVATIONS
from edgewright.backends.ethos_u.elementwise import some_alpha
from edgewright.backends.ethos_u.lookup_table import one_width, smooth, unary
from edgewright.backends.ethos_u.variance import known_order, not_too_many, spare, spread_enough
from edgewright.backends.rules import rooted_statistics
from edgewright.backends.table import STATIC, OpSpec, Rule, constant
from edgewright.ir.ports import INDEX

INT = (STATIC,)

# By TOSA's name for it in floating point, if it has one.
_TABLES = {
    "abs": "abs", "acos": "", "acosh": "", "asin": "", "asinh": "", "atan": "", "atanh": "", "cos": "cos", "cosh": "",
    "erf": "erf", "erfinv": "", "exp": "exp", "expm1": "", "log": "log", "log10": "", "log1p": "", "log2": "",
    "neg": "", "rsqrt": "rsqrt", "sin": "sin", "sinh": "", "sqrt": "", "square": "",
    "tan": "", "leaky_relu": "", "elu": "", "celu": "", "selu": "", "gelu": "", "hardswish": "", "silu": "",
    "mish": "", "softplus": "", "logit": "", "sigmoid": "sigmoid", "hardsigmoid": "", "tanh": "tanh",
}  # fmt: skip

known = constant("weight", "bias", "running_mean", "running_var")
_DIVISION = (division.reached, division.some_divisor)
_REAL = {"weight": INDEX, "bias": INDEX}  # constants that stay real numbers until they are lowered


def _arithmetic(op: str, lower: Any, *rules: Rule) -> OpSpec:
    """Of two tensors, or of one and a number."""
    return OpSpec(op, lower, (one_width, smooth, *rules), INT, ACTIVATIONS, numbers=True)


def _norm(op: str, lower: Any, *rules: Rule) -> OpSpec:
    return OpSpec(op, lower, (known, *rules), INT, ACTIVATIONS, ports=_REAL)


ROWS: tuple[OpSpec, ...] = (
    _arithmetic("add", elementwise.sums("add"), some_alpha),
    _arithmetic("sub", elementwise.sums("sub"), some_alpha),
    _arithmetic("rsub", elementwise.sums("sub"), some_alpha),
    _arithmetic("mul", elementwise.product),
    _arithmetic("div", division.divide, *_DIVISION),
    _arithmetic("floor_divide", division.divide, *_DIVISION),
    _arithmetic("remainder", division.remainder, *_DIVISION, division.narrow_pair),
    _arithmetic("fmod", division.remainder, *_DIVISION, division.narrow_pair),
    _arithmetic("maximum", elementwise.sums("maximum")),
    _arithmetic("minimum", elementwise.sums("minimum")),
    _arithmetic("pow", unary(), elementwise.one_tensor),
    *(OpSpec(op, elementwise.limited, (one_width, elementwise.in_turn), INT) for op in ACTIVATIONS),
    *(OpSpec(op, unary(name), (one_width, smooth), INT, ACTIVATIONS) for op, name in _TABLES.items()),
    *(OpSpec(op, division.to_whole(op), (one_width,), INT) for op in ("ceil", "floor", "round", "trunc")),
    OpSpec("reciprocal", division.reciprocal, (one_width, division.reached), INT),
    OpSpec("sign", division.sign, (one_width,), INT),
    OpSpec("prelu", elementwise.prelu, (known, one_width), INT, ports={"weight": INDEX}),
    OpSpec("glu", elementwise.glu, (one_width,), INT),
    OpSpec("softmax", softmax.softmax, (one_width, softmax.short_axis), INT),
    OpSpec("log_softmax", softmax.log_softmax, (one_width, softmax.short_axis), INT),
    _norm("layer_norm", norm.last_dims(True), not_too_many),
    _norm("rms_norm", norm.last_dims(False), not_too_many),
    _norm("group_norm", norm.groups, not_too_many),
    _norm("native_group_norm", norm.groups, not_too_many),
    _norm("instance_norm", norm.groups, not_too_many),
    _norm("batch_norm", norm.batch_norm, rooted_statistics),
    OpSpec("var", variance.variance, (one_width, not_too_many, spare, spread_enough), INT),
    OpSpec("linalg_vector_norm", variance.vector_norm, (one_width, not_too_many, known_order), INT),
)
