"""Support rules and op table rows of comparison, logic, select, gather and scatter."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.backends.ethos_u import gather, logic
from edgewright.backends.ethos_u.dtypes import INTEGERS, logic_unit, movable_types, on_family, unquantized_types
from edgewright.backends.ethos_u.rearrange import MAX_SLICES
from edgewright.backends.rules import not_scalar, rule
from edgewright.backends.table import FLOAT, OK, STATIC, OpSpec, Rule, argument_is, tensors
from edgewright.ir.graph import Op, Value
from edgewright.ir.ports import ACT, Same

ANY = (STATIC, FLOAT)


@rule("operands must both be quantized, or have one unquantized type")
def same_operand_type(op: Op, target: Any) -> object:
    operands = [v for n in ("self", "other") if isinstance(v := op.args.get(n), Value)]
    types = sorted({f"quantized {v.dtype}" if v.q is not None else str(v.dtype) for v in operands})
    return ", ".join(types) if len(types) > 1 else OK


@rule("a scalar operand must be representable in the tensor's type")
def comparable_scalar(op: Op, target: Any) -> object:
    x, number = op.args["self"], op.args["other"]
    if isinstance(number, Value):
        return OK
    if x.q is None and x.dtype.kind in "iu":
        limits = np.iinfo(x.dtype)
        return OK if limits.min <= number <= limits.max else number
    return number if number != number else OK


@rule("bitwise operands must be int8, int16, int32 or bool, all of one type")
def integer_types(op: Op, target: Any) -> object:
    types = sorted({str(v.dtype) for v in tensors(op)})
    return ", ".join(types) if len(types) > 1 or types[0] not in (*INTEGERS, "bool") else OK


@rule("shifted tensors must be integers, and constant shift amounts within 0 and the bit width minus 1")
def shift_range(op: Op, target: Any) -> object:
    other, dtype = op.args["other"], op.args["self"].dtype
    if str(dtype) not in INTEGERS:
        return dtype
    if isinstance(other, Value) and not other.constant:
        return OK
    amounts = np.asarray(other.data if isinstance(other, Value) else other)
    low, high = int(amounts.min()), int(amounts.max())
    return OK if 0 <= low <= high < 8 * dtype.itemsize else f"{low} to {high}"


@rule("selected operands must be quantized like the result, or have its unquantized type")
def select_types(op: Op, target: Any) -> object:
    out = op.outputs[0]
    names = ("self", "other") if op.kind == "where" else ("self", "value")
    operands = [v for n in names if isinstance(v := op.args.get(n), Value) and not (v.constant and v.q is None)]
    bad = [v.name for v in operands if (v.q is None) != (out.q is None) or (v.q is None and v.dtype != out.dtype)]  # type: ignore[union-attr]
    return ", ".join(bad) if bad else OK


def _indices(op: Op) -> list[Value]:
    index = op.args.get("indices", op.args.get("index"))
    return [v for v in (index if isinstance(index, list) else [index]) if v is not None]


@rule("indices must be int32 tensors, or constant")
def index_types(op: Op, target: Any) -> object:
    bad = sorted({str(v.dtype) for v in _indices(op) if not _is_constant_index(v) and str(v.dtype) != "int32"})
    return ", ".join(bad) if bad else OK


def _is_constant_index(index: Value) -> bool:
    """True for constant integer indices; the result size of a mask depends on its data."""
    return index.constant and index.dtype is not None and index.dtype.kind == "i"


@rule("gathering at computed indices needs a U85")
def gather_unit(op: Op, target: Any) -> object:
    if on_family(target, "u85"):
        return OK
    constant = op.kind in ("index_select", "index") and all(_is_constant_index(v) for v in _indices(op))
    return OK if constant and gather.slice_count(op) <= MAX_SLICES else target.target


@rule("the write must not cover the entire dimension")
def partial_write(op: Op, target: Any) -> object:
    x = op.args["self"]
    return OK if gather.written_range(op)[1] < x.bound[op.args["dim"] % len(x.shape)] else "nothing"


@rule("gathered tensors must be int8, int16 or int32, all of one type")
def gathered_types(op: Op, target: Any) -> object:
    indices = set(_indices(op))
    operands = [v for v in tensors(op) if v not in indices]
    types = sorted({"quantized " * (v.q is not None) + str(v.dtype) for v in operands})
    allowed = (*INTEGERS, *(("float32",) if target is None else ()))
    return ", ".join(types) if len(types) > 1 or str(operands[0].dtype) not in allowed else OK


@rule("the index must have the rank of the tensor")
def same_rank(op: Op, target: Any) -> object:
    return OK if len(op.args["index"].shape) == len(op.args["self"].shape) else len(op.args["index"].shape)


@rule("indexed dimensions must be adjacent")
def adjacent_dims(op: Op, target: Any) -> object:
    dims = gather.indexed_dims(op)
    return OK if dims and dims == list(range(dims[0], dims[-1] + 1)) else dims


@rule("written dimensions must start with the first")
def leading_dims(op: Op, target: Any) -> object:
    dims = gather.indexed_dims(op)
    return OK if dims and dims[0] == 0 else dims


@rule("casts must be between int8, int16 and int32 (and bool, on U85)")
def plain_cast(op: Op, target: Any) -> object:
    x, out = op.args["self"], op.outputs[0]
    if (x.q is None) != (out.q is None):  # type: ignore[union-attr]
        return f"{x.dtype} to {out.dtype}"  # type: ignore[union-attr]
    return OK


def _row(op: str, lower: Any, *rules: Rule, **options: Any) -> OpSpec:
    return OpSpec(op, lower, (logic_unit, *rules), ANY, **options)


def _gather_row(op: str, lower: Any, *rules: Rule, **options: Any) -> OpSpec:
    return OpSpec(op, lower, (gather_unit, gathered_types, index_types, *rules), ANY, **options)


ROWS: tuple[OpSpec, ...] = (
    *(
        _row(op, logic.compare, unquantized_types, same_operand_type, comparable_scalar, numbers=True)
        for op in ("eq", "ne", "lt", "le", "gt", "ge")
    ),
    *(_row(op, logic.logical, unquantized_types) for op in ("logical_and", "logical_or", "logical_xor")),
    *(_row(op, logic.bitwise, integer_types) for op in ("bitwise_and", "bitwise_or", "bitwise_xor")),
    *(_row(op, logic.shift, integer_types, shift_range) for op in ("bitwise_left_shift", "bitwise_right_shift")),
    _row("logical_not", logic.invert, unquantized_types),
    _row("bitwise_not", logic.invert, integer_types),
    _row("where", logic.where, unquantized_types, select_types),
    _row("masked_fill", logic.where, unquantized_types, select_types, numbers=True),
    OpSpec("cast", logic.cast, (unquantized_types, plain_cast), ANY),
    _gather_row("embedding", gather.embedding, ports={"weight": ACT, "out": Same("weight")}),
    _gather_row("index_select", gather.index_select, not_scalar),
    _gather_row("gather", gather.gather, not_scalar, same_rank),
    _gather_row("index", gather.index, adjacent_dims),
    _gather_row("index_put", gather.index_put, adjacent_dims, leading_dims),
    *(
        OpSpec(op, gather.slice_scatter, (movable_types, argument_is("step", 1), partial_write), ANY)
        for op in ("slice_scatter", "select_scatter")
    ),
)
