"""Rows of the operators that only move elements: every result has the very values of an operand."""

from __future__ import annotations

from typing import Any

from edgewright.ir.aten.ops.row_builders import SELF, row
from edgewright.ir.aten.reference import movement, pad, rearrange
from edgewright.ir.aten.table import Layout
from edgewright.ir.ports import ACT, INDEX, Same

AXES, SHAPE = Layout.AXES, Layout.SHAPE


def _moves(name: str, aten: str, layout: Layout, module: Any = movement, function: str = "", **ports: Any) -> None:
    fn, shape = getattr(module, function or name), getattr(module, f"{(function or name).rstrip('_')}_shape")
    row(name, aten, fn, shape, layout, **(ports or {"self": ACT, "out": SELF}))


_moves("view", "view.default view_copy.default _unsafe_view.default", SHAPE)
_moves("flatten", "flatten.using_ints", SHAPE)
_moves("permute", "permute.default permute_copy.default", AXES)
_moves("transpose", "transpose.int transpose_copy.int", AXES)
_moves("t", "t.default t_copy.default", AXES, function="matrix_transpose")
_moves(
    "squeeze",
    "squeeze.default squeeze.dim squeeze.dims squeeze_copy.default squeeze_copy.dim squeeze_copy.dims",
    AXES,
)
_moves("unsqueeze", "unsqueeze.default unsqueeze_copy.default", AXES)
_moves("expand", "expand.default expand_copy.default", AXES)
_moves("expand_as", "expand_as.default", AXES, self=ACT, other=INDEX, out=SELF)
_moves("repeat", "repeat.default", AXES)
_moves("slice", "slice.Tensor slice_copy.Tensor", AXES, function="slice_")
_moves("narrow", "narrow.default narrow_copy.default", AXES)
_moves("select", "select.int select_copy.int", AXES)
_moves("flip", "flip.default", AXES)
_moves("roll", "roll.default", AXES)
_moves("diagonal", "diagonal.default diagonal_copy.default", SHAPE)
_moves("tril", "tril.default", SHAPE)

row("reshape", "reshape.default", movement.reshape, movement.reshape_shape, SHAPE, self=ACT, out=SELF)
_moves("cat", "cat.default", AXES, rearrange, tensors=ACT, out=Same("tensors"))
_moves("stack", "stack.default", AXES, rearrange, tensors=ACT, out=Same("tensors"))
_moves("split", "split.Tensor split_copy.Tensor", AXES, rearrange)
_moves(
    "split_with_sizes",
    "split_with_sizes.default split_with_sizes_copy.default",
    AXES,
    rearrange,
)
_moves("chunk", "chunk.default", AXES, rearrange)
_moves("unbind", "unbind.int unbind_copy.int", AXES, rearrange)
# Both read memory, or add a dimension at the end: neither survives another order.
_moves("as_strided", "as_strided.default as_strided_copy.default", SHAPE, rearrange)
_moves("unfold", "unfold.default unfold_copy.default", SHAPE, rearrange)

# A padding's value joins the input's range; zero, the usual one, is in every range.
row(
    "pad",
    "constant_pad_nd.default pad.default",
    pad.pad_by_mode,
    pad.pad_by_mode_shape,
    AXES,
    lambda op: op.args.get("mode", "constant") == "constant",
    self=ACT,
    out=SELF,
)
row(
    "pad_by_mode",
    "pad.default",
    pad.pad_by_mode,
    pad.pad_by_mode_shape,
    AXES,
    lambda op: op.args["mode"] in ("reflect", "replicate"),
    self=ACT,
    out=SELF,
)
for _name in ("reflection_pad", "replication_pad"):
    _moves(_name, " ".join(f"{_name}{n}d.default" for n in (1, 2, 3)), AXES, pad)
