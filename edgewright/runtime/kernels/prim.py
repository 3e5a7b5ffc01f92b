"""Rows of the operators whose result is a Python number: sizes, elements, and arithmetic on them."""

from __future__ import annotations

from edgewright.ir.aten.reference import scalars as ref
from edgewright.runtime.registry import row

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
    row(f"executorch_prim::{_name}.Scalar", _fn, None)
row("executorch_prim::floordiv.int", ref.truncdiv, None)
row("executorch_prim::mod.int", ref.truncmod, None)
row("aten::sym_size.int", ref.size_of, None)
row("aten::sym_numel", ref.numel_of, None)
row("aten::_local_scalar_dense", ref.item, None)
