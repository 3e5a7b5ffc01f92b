"""Kernels with a Python scalar as result: sizes, elements, and arithmetic on them."""

from __future__ import annotations

from edgewright.ir.aten.reference import scalars as ref
from edgewright.runtime.kernel import register

for _name, _fn in {
    "add": ref.add,
    "sub": ref.sub,
    "mul": ref.mul,
    "truediv": ref.truediv,
    "floordiv": ref.floordiv,
    "mod": ref.truncmod,
    "neg": ref.neg,
    "eq": ref.eq,
    "lt": ref.lt,
    "le": ref.le,
    "gt": ref.gt,
    "ge": ref.ge,
    "ceil": ref.ceil,
    "round": ref.round,
    "trunc": ref.trunc,
    "sym_float": ref.to_float,
    "sym_int": ref.to_int,
    "sym_ite": ref.if_else,
    "sym_max": ref.maximum,
    "sym_min": ref.minimum,
    "sym_not": ref.not_,
}.items():
    register(f"executorch_prim::{_name}.Scalar", _fn, None)
register("executorch_prim::floordiv.int", ref.truncdiv, None)
register("executorch_prim::mod.int", ref.truncmod, None)
register("aten::sym_size.int", ref.size_of, None)
register("aten::sym_numel", ref.numel_of, None)
register("aten::_local_scalar_dense", ref.item, None)
