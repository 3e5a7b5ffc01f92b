"""Rows of comparison, logic, choice, and of reading at places that tensors name."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.backends.ethos_u import gather, logic
from edgewright.backends.ethos_u.dtypes import INTEGERS, logic_unit, movable, on, plain
from edgewright.backends.ethos_u.rearrange import MAX_RUNS
from edgewright.backends.rules import has_dims, rule
from edgewright.backends.table import FLOAT, OK, STATIC, OpSpec, Rule, argument_is, tensors
from edgewright.ir.graph import Op, Value
from edgewright.ir.ports import ACT, Same

ANY = (STATIC, FLOAT)


@rule("both operands must be quantized, or both plain numbers of one type")
def alike(op: Op, target: Any) -> object:
    held = [v for n in ("self", "other") if isinstance(v := op.args.get(n), Value)]
    found = sorted({f"quantized {v.dtype}" if v.q is not None else str(v.dtype) for v in held})
    return ", ".join(found) if len(found) > 1 else OK


@rule("a number to compare with must be one that the tensor's type has")
def comparable(op: Op, target: Any) -> object:
    x, number = op.args["self"], op.args["other"]
    if isinstance(number, Value):
        return OK
    if x.q is None and x.dtype.kind in "iu":
        limits = np.iinfo(x.dtype)
        return OK if limits.min <= number <= limits.max else number
    return number if number != number else OK


@rule("bits must be of int8, int16, int32 or bool tensors, all of one type")
def whole_numbers(op: Op, target: Any) -> object:
    found = sorted({str(v.dtype) for v in tensors(op)})
    return ", ".join(found) if len(found) > 1 or found[0] not in (*INTEGERS, "bool") else OK


@rule("shifts must be of whole numbers; constant ones by 0 to one less than the number of bits")
def shifts(op: Op, target: Any) -> object:
    other, dtype = op.args["other"], op.args["self"].dtype
    if str(dtype) not in INTEGERS:
        return dtype
    if isinstance(other, Value) and not other.constant:
        return OK
    given = np.asarray(other.data if isinstance(other, Value) else other)
    low, high = int(given.min()), int(given.max())
    return OK if 0 <= low <= high < 8 * dtype.itemsize else f"{low} to {high}"


@rule("what is chosen must be quantized as the result is, or be plain numbers of its type")
def choices(op: Op, target: Any) -> object:
    out = op.outputs[0]
    names = ("self", "other") if op.kind == "where" else ("self", "value")
    held = [v for n in names if isinstance(v := op.args.get(n), Value) and not (v.constant and v.q is None)]
    bad = [v.name for v in held if (v.q is None) != (out.q is None) or (v.q is None and v.dtype != out.dtype)]  # type: ignore[union-attr]
    return ", ".join(bad) if bad else OK


def _indices(op: Op) -> list[Value]:
    given = op.args.get("indices", op.args.get("index"))
    return [v for v in (given if isinstance(given, list) else [given]) if v is not None]


@rule("places must be int32 tensors, or constant")
def places(op: Op, target: Any) -> object:
    bad = sorted({str(v.dtype) for v in _indices(op) if not _known(v) and str(v.dtype) != "int32"})
    return ", ".join(bad) if bad else OK


def _known(index: Value) -> bool:
    """True for constant places; masks have as many as they have ones."""
    return index.constant and index.dtype is not None and index.dtype.kind == "i"


@rule("reading at places that are computed needs a U85")
def gather_unit(op: Op, target: Any) -> object:
    if on(target, "u85"):
        return OK
    known = op.kind in ("index_select", "index") and all(_known(v) for v in _indices(op))
    return OK if known and gather.slices(op) <= MAX_RUNS else target.target


@rule("something of the tensor that is written to must remain")
def part_remains(op: Op, target: Any) -> object:
    x = op.args["self"]
    return OK if gather.written(op)[1] < x.bound[op.args["dim"] % len(x.shape)] else "nothing"


@rule("what is read must be int8, int16 or int32, and of one type")
def readable(op: Op, target: Any) -> object:
    beside = set(_indices(op))
    held = [v for v in tensors(op) if v not in beside]
    found = sorted({"quantized " * (v.q is not None) + str(v.dtype) for v in held})
    allowed = (*INTEGERS, *(("float32",) if target is None else ()))
    return ", ".join(found) if len(found) > 1 or str(held[0].dtype) not in allowed else OK


@rule("places must have as many dimensions as the tensor")
def same_rank(op: Op, target: Any) -> object:
    return OK if len(op.args["index"].shape) == len(op.args["self"].shape) else len(op.args["index"].shape)


@rule("places must be given for dimensions that are neighbours")
def neighbours(op: Op, target: Any) -> object:
    dims = gather.named_dims(op)
    return OK if dims and dims == list(range(dims[0], dims[-1] + 1)) else dims


@rule("written places must begin with the first dimension")
def leading(op: Op, target: Any) -> object:
    dims = gather.named_dims(op)
    return OK if dims and dims[0] == 0 else dims


@rule("types must be changed between int8, int16 and int32 (and bool, on U85) only")
def plain_cast(op: Op, target: Any) -> object:
    x, out = op.args["self"], op.outputs[0]
    if (x.q is None) != (out.q is None):  # type: ignore[union-attr]
        return f"{x.dtype} to {out.dtype}"  # type: ignore[union-attr]
    return OK


def _row(op: str, lower: Any, *rules: Rule, **more: Any) -> OpSpec:
    return OpSpec(op, lower, (logic_unit, *rules), ANY, **more)


def _reads(op: str, lower: Any, *rules: Rule, **more: Any) -> OpSpec:
    return OpSpec(op, lower, (gather_unit, readable, places, *rules), ANY, **more)


ROWS: tuple[OpSpec, ...] = (
    *(_row(op, logic.compared, plain, alike, comparable, numbers=True) for op in ("eq", "ne", "lt", "le", "gt", "ge")),
    *(_row(op, logic.logical, plain) for op in ("logical_and", "logical_or", "logical_xor")),
    *(_row(op, logic.bitwise, whole_numbers) for op in ("bitwise_and", "bitwise_or", "bitwise_xor")),
    *(_row(op, logic.shifted, whole_numbers, shifts) for op in ("bitwise_left_shift", "bitwise_right_shift")),
    _row("logical_not", logic.negated, plain),
    _row("bitwise_not", logic.negated, whole_numbers),
    _row("where", logic.where, plain, choices),
    _row("masked_fill", logic.where, plain, choices, numbers=True),
    OpSpec("cast", logic.cast, (plain, plain_cast), ANY),
    _reads("embedding", gather.embedding, ports={"weight": ACT, "out": Same("weight")}),
    _reads("index_select", gather.index_select, has_dims),
    _reads("gather", gather.gather, has_dims, same_rank),
    _reads("index", gather.index, neighbours),
    _reads("index_put", gather.index_put, neighbours, leading),
    *(
        OpSpec(op, gather.scattered, (movable, argument_is("step", 1), part_remains), ANY)
        for op in ("slice_scatter", "select_scatter")
    ),
)
