"""Elementwise operators on tensors of any type, one pass each."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.engine.codegen.builder import Function, Reg
from edgewright.engine.codegen.typed_arith import BOOL_OPS, TYPED_OPS, cast, has_vector_arithmetic
from edgewright.engine.graph.nodes import Node
from edgewright.engine.lower.base import Lowering, LoweringContext
from edgewright.engine.lower.elementwise import emit_elementwise
from edgewright.ir.dtypes import DType
from edgewright.ir.graph import Op, Value

_BOOL = np.dtype(np.bool_)
_NAMES = ("condition", "self", "other", "exponent", "min", "max")
_SLOW_LANES = 4  # for operators computed in float64, or divided element by element
_SLOW_KINDS = ("pow", "atan2", "fmod", "remainder", "floor_divide", "trunc_divide")


def _operands(op: Op) -> list[Any]:
    return [op.args[name] for name in _NAMES if op.args.get(name) is not None]


def _is_supported(value: Any) -> bool:
    return (
        isinstance(value, Value) and value.q is None and value.dtype is not None and has_vector_arithmetic(value.dtype)
    )


class TypedElementwise(Lowering):
    """Operators whose operands share a type, which is also the result's unless it is bool; and casts."""

    exact_reads = True

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        op, out = node.op, node.out
        if (
            len(node.ops) > 1
            or (op.name not in TYPED_OPS and op.kind != "core.cast")
            or op.args.get("limits") is not None
        ):
            return None
        values = _operands(op)
        if (
            not values
            or not _is_supported(out)
            or not all(_is_supported(v) for v in values)
            or all(v.constant for v in values)
        ):
            return None
        data = [v.dtype for v in values[op.kind == "core.where" :]]
        types_match = len(set(data)) == 1 and (out.dtype == (_BOOL if op.name in BOOL_OPS else data[0]))
        valid_condition = op.kind != "core.where" or values[0].dtype in (_BOOL, np.dtype(np.uint8))
        return (
            cls(node)
            if op.kind == "core.cast" or (types_match and valid_condition and op.args.get("alpha", 1) == 1)
            else None
        )

    def emit(self, context: LoweringContext) -> None:
        op, out = self.node.op, self.node.out
        values = _operands(op)
        source, target = values[-1].dtype, out.dtype
        assert source is not None and target is not None

        def body(f: Function, regs: list[Reg]) -> Reg:
            return cast(f, regs[0], source, target) if op.kind == "core.cast" else TYPED_OPS[op.name](f, source, regs)

        storages = [context.storage(v) for v in values]
        key = (op.name, *(_letter(v.dtype) for v in (*values, out)))
        lanes = min(_SLOW_LANES, context.isa.lanes) if op.name in _SLOW_KINDS else 0
        emit_elementwise(context, "typed", storages, context.storage(out), key, body, lanes)


def _letter(dtype: DType | None) -> str:
    assert dtype is not None
    return dtype.str
