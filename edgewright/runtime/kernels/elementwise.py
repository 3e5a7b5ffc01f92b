"""Elementwise kernels: unary functions, arithmetic, comparison, logic, bitwise operators."""

from __future__ import annotations

from edgewright.ir.aten.reference import compare, copies, unary
from edgewright.ir.aten.reference import elementwise as ref
from edgewright.runtime.kernel import register

for _name in ("abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "erf", "exp", "expm1",
              "floor", "log", "log10", "log1p", "log2", "neg", "reciprocal", "round", "rsqrt", "sign", "sin", "sinh",
              "sqrt", "tan", "tanh", "trunc"):  # fmt: skip
    register(f"aten::{_name}.out", getattr(unary, _name), copies.same_shape)
register("aten::_conj_physical.out", unary.conj, copies.same_shape)

for _name in ("add", "sub", "mul", "div"):
    register(f"aten::{_name}.out", getattr(ref, _name), ref.broadcast_shape)
    register(f"aten::{_name}.Scalar_out", getattr(ref, _name), ref.broadcast_shape)
register("aten::rsub.Scalar_out", ref.rsub, ref.broadcast_shape)
register("aten::div.out_mode", ref.div, ref.broadcast_shape)
register("aten::div.Scalar_mode_out", ref.div, ref.broadcast_shape)
register("aten::floor_divide.out", ref.floor_divide, ref.broadcast_shape)
for _name in ("fmod", "remainder"):
    register(f"aten::{_name}.Tensor_out", getattr(ref, _name), ref.broadcast_shape)
    register(f"aten::{_name}.Scalar_out", getattr(ref, _name), ref.broadcast_shape)
register("aten::pow.Tensor_Tensor_out", ref.pow, ref.broadcast_shape)
register("aten::pow.Tensor_Scalar_out", ref.pow, ref.broadcast_shape)
register("aten::pow.Scalar_out", ref.pow, ref.broadcast_shape)
for _name in ("atan2", "maximum", "minimum"):
    register(f"aten::{_name}.out", getattr(ref, _name), ref.broadcast_shape)
register("aten::clamp.out", ref.clamp, ref.clamp_shape)
register("aten::clamp.Tensor_out", ref.clamp, ref.clamp_shape)

for _name in ("eq", "ne", "lt", "le", "gt", "ge", "bitwise_and", "bitwise_or", "bitwise_xor"):
    register(f"aten::{_name}.Tensor_out", getattr(compare, _name), ref.broadcast_shape)
    register(f"aten::{_name}.Scalar_out", getattr(compare, _name), ref.broadcast_shape)
for _name in ("bitwise_left_shift", "bitwise_right_shift"):
    register(f"aten::{_name}.Tensor_out", getattr(compare, _name), ref.broadcast_shape)
    register(f"aten::{_name}.Tensor_Scalar_out", getattr(compare, _name), ref.broadcast_shape)
for _name in ("bitwise_not", "isinf", "isnan", "logical_not", "logical_and", "logical_or", "logical_xor"):
    register(f"aten::{_name}.out", getattr(compare, _name), ref.broadcast_shape)
register("aten::where.self_out", compare.where, ref.broadcast_shape)
register("aten::masked_fill.Scalar_out", compare.masked_fill, ref.broadcast_shape)
