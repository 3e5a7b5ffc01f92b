"""Op table rows of arithmetic, table functions, softmax and normalizations."""

from __future__ import annotations

from typing import Any

from edgewright.backends.ethos_u import division, elementwise, norm, softmax, variance
from edgewright.backends.ethos_u.dtypes import ACTIVATIONS
from edgewright.backends.ethos_u.elementwise import nonzero_alpha
from edgewright.backends.ethos_u.lookup_table import same_width, table_precision, unary
from edgewright.backends.ethos_u.variance import max_elements, more_than_correction, norm_order, variance_precision
from edgewright.backends.rules import positive_variance
from edgewright.backends.table import STATIC, OpSpec, Rule, constant
from edgewright.ir.ports import INDEX

INT = (STATIC,)

# Functions of one operand: int8 and int16 lookup tables from the reference; in float, TOSA's operator, or '' for none.
_TABLES = {
    "abs": "abs", "acos": "", "acosh": "", "asin": "", "asinh": "", "atan": "", "atanh": "", "cos": "cos", "cosh": "",
    "erf": "erf", "erfinv": "", "exp": "exp", "expm1": "", "log": "log", "log10": "", "log1p": "", "log2": "",
    "neg": "", "rsqrt": "rsqrt", "sin": "sin", "sinc": "", "sinh": "", "sqrt": "", "square": "",
    "tan": "", "leaky_relu": "", "elu": "", "celu": "", "selu": "", "gelu": "", "hardswish": "", "silu": "",
    "mish": "", "softplus": "", "logit": "", "sigmoid": "sigmoid", "hardsigmoid": "", "tanh": "tanh",
}  # fmt: skip

constant_parameters = constant("weight", "bias", "running_mean", "running_var")
_DIVISION = (division.quotient_precision, division.nonzero_divisor)
_REAL = {"weight": INDEX, "bias": INDEX}  # constants that stay float until lowering


def _arithmetic(op: str, lower: Any, *rules: Rule) -> OpSpec:
    """An operator on two tensors, or a tensor and a scalar."""
    return OpSpec(op, lower, (same_width, table_precision, *rules), INT, ACTIVATIONS, numbers=True)


def _norm(op: str, lower: Any, *rules: Rule) -> OpSpec:
    return OpSpec(op, lower, (constant_parameters, *rules), INT, ACTIVATIONS, ports=_REAL)


ROWS: tuple[OpSpec, ...] = (
    _arithmetic("add", elementwise.add_or_compare("add"), nonzero_alpha),
    _arithmetic("sub", elementwise.add_or_compare("sub"), nonzero_alpha),
    _arithmetic("rsub", elementwise.add_or_compare("sub"), nonzero_alpha),
    _arithmetic("mul", elementwise.multiply),
    _arithmetic("div", division.divide, *_DIVISION),
    _arithmetic("floor_divide", division.divide, *_DIVISION),
    _arithmetic("remainder", division.remainder, *_DIVISION, division.int8_remainder),
    _arithmetic("fmod", division.remainder, *_DIVISION, division.int8_remainder),
    _arithmetic("maximum", elementwise.add_or_compare("maximum")),
    _arithmetic("minimum", elementwise.add_or_compare("minimum")),
    _arithmetic("pow", unary(), elementwise.one_tensor),
    *(OpSpec(op, elementwise.clamp, (same_width, elementwise.ordered_bounds), INT) for op in ACTIVATIONS),
    *(OpSpec(op, unary(name), (same_width, table_precision), INT, ACTIVATIONS) for op, name in _TABLES.items()),
    *(OpSpec(op, division.rounding(op), (same_width,), INT) for op in ("ceil", "floor", "round", "trunc")),
    OpSpec("reciprocal", division.reciprocal, (same_width, division.quotient_precision), INT),
    OpSpec("sign", division.sign, (same_width,), INT),
    OpSpec("prelu", elementwise.prelu, (constant_parameters, same_width), INT, ports={"weight": INDEX}),
    OpSpec("glu", elementwise.glu, (same_width,), INT),
    OpSpec("softmax", softmax.softmax, (same_width, softmax.max_axis_size), INT),
    OpSpec("log_softmax", softmax.log_softmax, (same_width, softmax.max_axis_size), INT),
    _norm("layer_norm", norm.layer_norm(True), max_elements),
    _norm("rms_norm", norm.layer_norm(False), max_elements),
    _norm("group_norm", norm.group_norm, max_elements),
    _norm("native_group_norm", norm.group_norm, max_elements),
    _norm("instance_norm", norm.group_norm, max_elements),
    _norm("batch_norm", norm.batch_norm, positive_variance),
    OpSpec("var", variance.variance, (same_width, max_elements, more_than_correction, variance_precision), INT),
    OpSpec("linalg_vector_norm", variance.vector_norm, (same_width, max_elements, norm_order), INT),
)
