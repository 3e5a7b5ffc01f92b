"""Elementwise arithmetic: unary and binary functions."""

from __future__ import annotations

from collections.abc import Callable

from edgewright.ir.aten.ops.row_builders import define_composite, define_idempotent, define_op
from edgewright.ir.aten.reference import create, unary
from edgewright.ir.aten.reference import elementwise as ref
from edgewright.ir.ports import ACT

for _name in ("abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "erf", "exp", "expm1",
              "floor", "log", "log10", "log1p", "log2", "neg", "reciprocal", "round", "rsqrt", "sign", "sin", "sinh",
              "sqrt", "tan", "trunc"):  # fmt: skip
    define_op(_name, f"{_name}.default", getattr(unary, _name), create.same_shape)
for _name in ("erfinv", "sinc", "square"):
    define_composite(_name, f"{_name}.default", getattr(unary, _name), create.same_shape)


def _binary(name: str, aten: str, define: Callable[..., None] = define_op) -> None:
    define(name, aten, getattr(ref, name), ref.broadcast_shape, self=ACT, other=ACT, out=ACT)


for _name in ("add", "sub", "rsub", "mul", "fmod", "remainder"):
    _binary(_name, f"{_name}.Tensor {_name}.Scalar")
_binary("div", "div.Tensor div.Scalar div.Tensor_mode div.Scalar_mode")
_binary("floor_divide", "floor_divide.default floor_divide.Scalar", define_composite)
_binary("maximum", "maximum.default max.other", define_idempotent)
_binary("minimum", "minimum.default min.other", define_idempotent)
_binary("atan2", "atan2.default")
define_op(
    "pow",
    "pow.Tensor_Scalar pow.Tensor_Tensor pow.Scalar",
    ref.pow,
    ref.broadcast_shape,
    self=ACT,
    exponent=ACT,
    out=ACT,
)
define_op("clamp", "clamp.default clamp.Tensor", ref.clamp, ref.clamp_shape, self=ACT, min=ACT, max=ACT, out=ACT)
