"""Data movement: the elements of a result are elements of an operand, unchanged."""

from __future__ import annotations

from typing import Any

from edgewright.ir.aten.ops.row_builders import SELF, define_op
from edgewright.ir.aten.reference import movement
from edgewright.ir.aten.table import OpClass
from edgewright.ir.ports import ACT, INDEX, Same

RESHAPE, SLICE, JOIN, GATHER = OpClass.RESHAPE, OpClass.SLICE, OpClass.JOIN, OpClass.GATHER


def _define_move(
    name: str, aten: str, op_class: OpClass, module: Any = movement, function: str = "", **ports: Any
) -> None:
    """Register an operator whose functions have its name."""
    fn, shape = getattr(module, function or name), getattr(module, f"{(function or name).rstrip('_')}_shape")
    define_op(name, aten, fn, shape, op_class, **(ports or {"self": ACT, "out": SELF}))


_define_move("view", "view.default view_copy.default _unsafe_view.default", RESHAPE)
_define_move("flatten", "flatten.using_ints", RESHAPE)
_define_move("permute", "permute.default permute_copy.default", OpClass.TRANSPOSE)
_define_move("transpose", "transpose.int transpose_copy.int", OpClass.TRANSPOSE)
_define_move("t", "t.default t_copy.default", OpClass.TRANSPOSE, function="matrix_transpose")
_define_move(
    "squeeze",
    "squeeze.default squeeze.dim squeeze.dims squeeze_copy.default squeeze_copy.dim squeeze_copy.dims",
    RESHAPE,
)
_define_move("unsqueeze", "unsqueeze.default unsqueeze_copy.default", RESHAPE)
_define_move("expand", "expand.default expand_copy.default", OpClass.BROADCAST)
_define_move("expand_as", "expand_as.default", OpClass.BROADCAST, self=ACT, other=INDEX, out=SELF)
_define_move("repeat", "repeat.default", GATHER)
_define_move("slice", "slice.Tensor slice_copy.Tensor", SLICE, function="slice_")
_define_move("narrow", "narrow.default narrow_copy.default", SLICE)
_define_move("select", "select.int select_copy.int", SLICE)
_define_move("flip", "flip.default", GATHER)
_define_move("roll", "roll.default", GATHER)
_define_move("diagonal", "diagonal.default diagonal_copy.default", GATHER)
_define_move("tril", "tril.default", OpClass.OTHER)

define_op("reshape", "reshape.default", movement.reshape, movement.reshape_shape, RESHAPE, self=ACT, out=SELF)
_define_move("cat", "cat.default", JOIN, movement, tensors=ACT, out=Same("tensors"))
_define_move("stack", "stack.default", JOIN, movement, tensors=ACT, out=Same("tensors"))
_define_move("split", "split.Tensor split_copy.Tensor", SLICE, movement)
_define_move("split_with_sizes", "split_with_sizes.default split_with_sizes_copy.default", SLICE, movement)
_define_move("chunk", "chunk.default", SLICE, movement)
_define_move("unbind", "unbind.int unbind_copy.int", SLICE, movement)
_define_move("as_strided", "as_strided.default as_strided_copy.default", GATHER, movement)
_define_move("unfold", "unfold.default unfold_copy.default", GATHER, movement)

# The padding value must be in the input's range; zero, the usual one, always is.
define_op(
    "pad",
    "constant_pad_nd.default pad.default",
    movement.pad_by_mode,
    movement.pad_by_mode_shape,
    OpClass.OTHER,
    lambda op: op.args.get("mode", "constant") == "constant",
    self=ACT,
    out=SELF,
)
define_op(
    "pad_by_mode",
    "pad.default",
    movement.pad_by_mode,
    movement.pad_by_mode_shape,
    OpClass.OTHER,
    lambda op: op.args["mode"] in ("reflect", "replicate"),
    self=ACT,
    out=SELF,
)
for _name in ("reflection_pad", "replication_pad"):
    _define_move(_name, " ".join(f"{_name}{n}d.default" for n in (1, 2, 3)), OpClass.OTHER, movement)
