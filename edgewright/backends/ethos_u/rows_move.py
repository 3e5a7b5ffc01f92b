"""Rows of operators that move elements, and what those ask for."""

from __future__ import annotations

from typing import Any

from edgewright.backends.ethos_u import movement, rearrange
from edgewright.backends.ethos_u.dtypes import movable
from edgewright.backends.rules import has_dims
from edgewright.backends.table import FLOAT, OK, STATIC, OpSpec, Rule
from edgewright.ir.graph import Op
from edgewright.ir.ports import Same

ANY = (STATIC, FLOAT)  # plain integers, too, which ``movable`` limits


def _pieces(op: Op, target: Any) -> object:
    found = rearrange.pieces(op)
    return found if found > rearrange.MAX_RUNS else OK


few_pieces = Rule(f"what is read must be at most {rearrange.MAX_RUNS} slices of the tensor", _pieces)


def _in_order(op: Op, target: Any) -> object:
    x = op.args["self"]
    return OK if x.dim_order in ((), tuple(range(len(x.shape)))) else x.dim_order


read_in_order = Rule("memory that is read anew must hold the tensor's elements in their order", _in_order)


def _remains(op: Op, target: Any) -> object:
    pads, shape = list(op.args["pad"]), op.args["self"].bound[::-1]
    left = [size + min(pads[2 * i], 0) + min(pads[2 * i + 1], 0) for i, size in enumerate(shape[: len(pads) // 2])]
    return pads if any(size < 1 for size in left) else OK


something_remains = Rule("negative padding must leave something of the tensor", _remains)


def _moves(lower: Any, *ops: str, rules: tuple[Rule, ...] = ()) -> tuple[OpSpec, ...]:
    return tuple(OpSpec(op, lower, (movable, *rules), ANY) for op in ops)


ROWS: tuple[OpSpec, ...] = (
    *_moves(movement.same, "clone"),
    OpSpec("dropout", movement.same, (movable,), ANY, ports={"out": Same("input")}),
    *_moves(movement.permute, "permute", "transpose", "t"),
    *_moves(movement.view, "view", "reshape", "flatten"),
    *_moves(movement.squeeze, "squeeze", "unsqueeze"),
    *_moves(movement.part, "slice", "narrow", "select", "split", "split_with_sizes", "chunk", "unbind"),
    *_moves(movement.flip, "flip"),
    *_moves(movement.roll, "roll"),
    *_moves(movement.pad_by_mode, "pad_by_mode", "reflection_pad", "replication_pad"),
    *_moves(movement.pad, "pad", rules=(something_remains,)),
    *_moves(movement.expand, "expand", "repeat"),
    *_moves(movement.cat, "cat"),
    *_moves(movement.stack, "stack"),
    *_moves(rearrange.pixel_shuffle, "pixel_shuffle"),
    *_moves(rearrange.pixel_unshuffle, "pixel_unshuffle"),
    *_moves(rearrange.channel_shuffle, "channel_shuffle"),
    *_moves(rearrange.unfold, "unfold", rules=(has_dims, few_pieces)),
    *_moves(rearrange.memory, "as_strided", rules=(few_pieces, read_in_order)),
    *_moves(rearrange.memory, "diagonal", rules=(few_pieces,)),
    *_moves(rearrange.tril, "tril"),
)
