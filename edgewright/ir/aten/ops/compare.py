"""Comparison, logic, bitwise operators and selection. Bools have no scale."""

from __future__ import annotations

from edgewright.ir.aten.ops.row_builders import define_idempotent, define_op
from edgewright.ir.aten.reference import elementwise as ref
from edgewright.ir.aten.reference.elementwise import broadcast_shape
from edgewright.ir.ports import ACT, INDEX

for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    _overloads = f"{_name}.Tensor {_name}.Scalar"
    define_op(_name, _overloads, getattr(ref, _name), broadcast_shape, self=ACT, other=ACT, out=INDEX)

_IDEMPOTENT = ("logical_and", "logical_or", "bitwise_and", "bitwise_or")

for _name in ("logical_and", "logical_or", "logical_xor"):
    _define = define_idempotent if _name in _IDEMPOTENT else define_op
    _define(_name, f"{_name}.default", getattr(ref, _name), broadcast_shape, self=INDEX, other=INDEX, out=INDEX)

for _name, _overloads in {
    "bitwise_and": "bitwise_and.Tensor bitwise_and.Scalar __and__.Tensor __and__.Scalar",
    "bitwise_or": "bitwise_or.Tensor bitwise_or.Scalar __or__.Tensor __or__.Scalar",
    "bitwise_xor": "bitwise_xor.Tensor bitwise_xor.Scalar __xor__.Tensor __xor__.Scalar",
    "bitwise_left_shift": "bitwise_left_shift.Tensor bitwise_left_shift.Tensor_Scalar __lshift__.Tensor "
    "__lshift__.Scalar",
    "bitwise_right_shift": "bitwise_right_shift.Tensor bitwise_right_shift.Tensor_Scalar __rshift__.Tensor "
    "__rshift__.Scalar",
}.items():
    _define = define_idempotent if _name in _IDEMPOTENT else define_op
    _define(_name, _overloads, getattr(ref, _name), broadcast_shape, self=INDEX, other=INDEX, out=INDEX)

for _name in ("logical_not", "bitwise_not"):
    define_op(_name, f"{_name}.default", getattr(ref, _name), broadcast_shape, self=INDEX, out=INDEX)
for _name in ("isnan", "isinf"):
    define_op(_name, f"{_name}.default", getattr(ref, _name), broadcast_shape, self=ACT, out=INDEX)

define_op("where", "where.self", ref.where, broadcast_shape, condition=INDEX, self=ACT, other=ACT, out=ACT)
define_op(
    "masked_fill",
    "masked_fill.Scalar masked_fill.Tensor",
    ref.masked_fill,
    broadcast_shape,
    self=ACT,
    mask=INDEX,
    value=ACT,
    out=ACT,
)
