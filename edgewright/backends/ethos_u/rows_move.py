"""Support rules and op table rows of data movement."""

from __future__ import annotations

from typing import Any

from edgewright.backends.ethos_u import movement, rearrange
from edgewright.backends.ethos_u.dtypes import movable_types
from edgewright.backends.rules import not_scalar
from edgewright.backends.table import FLOAT, OK, STATIC, OpSpec, Rule
from edgewright.ir.graph import Op
from edgewright.ir.ports import Same

ANY = (STATIC, FLOAT)  # also unquantized integers, checked by ``movable_types``


def _check_slices(op: Op, target: Any) -> object:
    count = rearrange.slice_count(op)
    return count if count > rearrange.MAX_SLICES else OK


max_slices = Rule(f"the result must consist of at most {rearrange.MAX_SLICES} slices of the tensor", _check_slices)


def _check_contiguous(op: Op, target: Any) -> object:
    x = op.args["self"]
    return OK if x.dim_order in ((), tuple(range(len(x.shape)))) else x.dim_order


contiguous_input = Rule("the input of a strided read must be contiguous", _check_contiguous)


def _check_crop(op: Op, target: Any) -> object:
    pads, shape = list(op.args["pad"]), op.args["self"].bound[::-1]
    remaining = [size + min(pads[2 * i], 0) + min(pads[2 * i + 1], 0) for i, size in enumerate(shape[: len(pads) // 2])]
    return pads if any(size < 1 for size in remaining) else OK


nonempty_crop = Rule("negative padding must not remove an entire dimension", _check_crop)


def _movement_rows(lower: Any, *ops: str, rules: tuple[Rule, ...] = ()) -> tuple[OpSpec, ...]:
    return tuple(OpSpec(op, lower, (movable_types, *rules), ANY) for op in ops)


ROWS: tuple[OpSpec, ...] = (
    *_movement_rows(movement.copy, "clone"),
    OpSpec("dropout", movement.copy, (movable_types,), ANY, ports={"out": Same("input")}),
    *_movement_rows(movement.permute, "permute", "transpose", "t"),
    *_movement_rows(movement.view, "view", "reshape", "flatten"),
    *_movement_rows(movement.squeeze, "squeeze", "unsqueeze"),
    *_movement_rows(movement.slice_dim, "slice", "narrow", "select", "split", "split_with_sizes", "chunk", "unbind"),
    *_movement_rows(movement.flip, "flip"),
    *_movement_rows(movement.roll, "roll"),
    *_movement_rows(movement.pad_by_mode, "pad_by_mode", "reflection_pad", "replication_pad"),
    *_movement_rows(movement.pad, "pad", rules=(nonempty_crop,)),
    *_movement_rows(movement.expand, "expand", "repeat"),
    *_movement_rows(movement.cat, "cat"),
    *_movement_rows(movement.stack, "stack"),
    *_movement_rows(rearrange.pixel_shuffle, "pixel_shuffle"),
    *_movement_rows(rearrange.pixel_unshuffle, "pixel_unshuffle"),
    *_movement_rows(rearrange.channel_shuffle, "channel_shuffle"),
    *_movement_rows(rearrange.unfold, "unfold", rules=(not_scalar, max_slices)),
    *_movement_rows(rearrange.strided_read, "as_strided", rules=(max_slices, contiguous_input)),
    *_movement_rows(rearrange.strided_read, "diagonal", rules=(max_slices,)),
    *_movement_rows(rearrange.tril, "tril"),
)
