"""Data movement on stored elements: quantization parameters are those of the operand."""

from __future__ import annotations

import math

import numpy as np

from edgewright.ir.aten.reference import movement
from edgewright.ir.core.evaluation import EvaluationContext
from edgewright.ir.core.table import (
    DIM,
    DIMS,
    MAX_INT,
    NUMBER,
    Shape,
    ShapeOf,
    define,
    define_aten,
    first_operand,
    integer,
    integers,
    require,
)
from edgewright.ir.dtypes import is_floating
from edgewright.ir.graph import Array, Op

# Elements keep their type and their quantization parameters; `convert` requantizes, `bitcast` only relabels.
_MOVED = "M= -> M="
_STORED_ALIKE = ("u8", "i16", "u16")  # with and without quantization parameters


def _permute(ex: EvaluationContext, op: Op) -> Array:
    return movement.permute(ex.raw(op.args["self"]), op.args["dims"])


def _permute_shape(op: Op, shape_of: ShapeOf) -> Shape:
    shape, dims = shape_of(op.args["self"]), op.args["dims"]
    require(sorted(dims) == list(range(len(shape))), "dimensions must each be named once")
    return tuple(shape[d] for d in dims)


define("permute", "dimension `dims[i]` becomes dimension `i`", "self", _MOVED, _permute_shape, _permute,
       {"dims": integers(0)})  # fmt: skip


def _view(ex: EvaluationContext, op: Op) -> Array:
    size = [-1 if n == 0 else n for n in op.args["size"]]
    array: Array = np.ascontiguousarray(ex.raw(op.args["self"]))
    return array.reshape(size)


def _view_shape(op: Op, shape_of: ShapeOf) -> Shape:
    total, sizes = math.prod(shape_of(op.args["self"])), op.args["size"]
    require(sum(n in (0, -1) for n in sizes) <= 1, "at most one size may be left open")
    known = math.prod(n for n in sizes if n > 0)
    inferred = tuple(total // known if n in (0, -1) else n for n in sizes)
    require(math.prod(inferred) == total, "elements must stay as many")
    return inferred


define("view", "another shape; one size may be 0 or -1: whatever is left", "self", _MOVED,
       _view_shape, _view, {"size": integers(-1)})  # fmt: skip


def _bitcast(ex: EvaluationContext, op: Op) -> Array:
    array: Array = ex.raw(op.args["self"])
    return array


define("bitcast", "the same integers with other quantization parameters, or with none", "self",
       " | ".join(("qi8 -> qi8", *(f"stored_{kind} -> stored_{kind}" for kind in _STORED_ALIKE))), first_operand,
       _bitcast)  # fmt: skip


def _slice(ex: EvaluationContext, op: Op) -> Array:
    """A length of 0 means up to the end."""
    array: Array = ex.raw(op.args["self"])
    starts = op.args["start"]
    lengths = [n or size - a for a, n, size in zip(starts, op.args["length"], array.shape, strict=True)]
    if any(n <= 0 or a + n > size for a, n, size in zip(starts, lengths, array.shape, strict=True)):
        raise ValueError(f"slice {starts}+{lengths} is outside {list(array.shape)}")
    return np.asarray(array[tuple(slice(a, a + n) for a, n in zip(starts, lengths, strict=True))])


def _slice_shape(op: Op, shape_of: ShapeOf) -> Shape:
    shape, starts = shape_of(op.args["self"]), op.args["start"]
    lengths = [n or size - a for a, n, size in zip(starts, op.args["length"], shape, strict=True)]
    inside = all(n > 0 and a + n <= size for a, n, size in zip(starts, lengths, shape, strict=True))
    require(inside, "the slice must be inside")
    return tuple(lengths)


define("slice", "`length[d]` elements of each dimension, from `start[d]`; a length of 0: up to the end", "self",
       _MOVED, _slice_shape, _slice, {"start": integers(0), "length": integers(0)})  # fmt: skip


def _cat(ex: EvaluationContext, op: Op) -> Array:
    return movement.cat([ex.raw(t) for t in op.args["tensors"]], op.args["dim"])


def _cat_shape(op: Op, shape_of: ShapeOf) -> Shape:
    shapes, dim = [tuple(shape_of(v)) for v in op.args["tensors"]], int(op.args["dim"])
    rank = len(shapes[0])
    require(-rank <= dim < rank, f"the dimension must be one of {rank}")
    axis = dim % rank
    rest = {(*s[:axis], *s[axis + 1 :]) for s in shapes}
    require(len(rest) == 1 and len({len(s) for s in shapes}) == 1, "tensors must agree in every other dimension")
    return (*shapes[0][:axis], sum(s[axis] for s in shapes), *shapes[0][axis + 1 :])


define("cat", "tensors one after the other along `dim`", "tensors*", "M=* -> M=", _cat_shape, _cat,
       {"dim": DIM}, size=lambda op, shape_of: sum(math.prod(shape_of(v)) for v in op.args["tensors"]))  # fmt: skip


def _pad(ex: EvaluationContext, op: Op) -> Array:
    value, out = op.args["self"], op.outputs[0]
    assert out is not None
    fill = np.float32(op.args["value"])
    quantized_fill = ex.numerics.quantize(np.asarray(fill), value.q) if value.q is not None else fill
    widths = list(zip(op.args["before"], op.args["after"], strict=True))
    array: Array = ex.raw(value)
    return np.pad(array, widths, constant_values=quantized_fill.astype(array.dtype))


def _pad_shape(op: Op, shape_of: ShapeOf) -> Shape:
    require(is_floating(op.args["self"].dtype) or math.isfinite(op.args["value"]), "integers must be finite")
    widths = zip(shape_of(op.args["self"]), op.args["before"], op.args["after"], strict=True)
    return tuple(n + a + b for n, a, b in widths)


define("pad", "`value` before and after each dimension", "self", _MOVED, _pad_shape, _pad,
       {"before": integers(0), "after": integers(0), "value": NUMBER})  # fmt: skip

# ------------------------------------------------------------------------------------------------------ of the op table

define_aten("expand", "dimensions of size 1, repeated to `size`", "self", _MOVED, {"size": integers(-1)},
            stored=True)  # fmt: skip
define_aten("flip", "in reverse order along `dims`", "self", "N -> N", {"dims": DIMS}, stored=True)
define_aten("roll", "shifted in a circle along `dims`", "self", "N -> N",
            {"shifts": integers(-MAX_INT), "dims": DIMS}, stored=True)  # fmt: skip
define_aten("repeat", "`repeats[d]` times along each dimension", "self", "N -> N", {"repeats": integers(0)},
            stored=True)  # fmt: skip
define_aten("as_strided", "element `storage_offset + sum(i[d] * stride[d])` of the flat tensor", "self", "N -> N",
            {"size": integers(0), "stride": integers(0), "storage_offset": integer(0).or_absent()},
            stored=True)  # fmt: skip
define_aten("unfold", "windows of `size` along `dimension`, which become the last dimension", "self", "N -> N",
            {"dimension": DIM, "size": integer(0), "step": integer(1)}, stored=True)  # fmt: skip
define_aten("diagonal", "the diagonal of two dimensions, which becomes the last dimension", "self", "N -> N",
            {"offset": integer(-MAX_INT).with_default(0), "dim1": DIM.with_default(0),
             "dim2": DIM.with_default(1)}, stored=True)  # fmt: skip
define_aten("reflection_pad replication_pad", "border elements, mirrored or repeated; NCHW", "self", "N -> N",
            {"padding": integers(-MAX_INT)}, stored=True)  # fmt: skip
define_aten("pixel_shuffle", "channels become blocks of pixels; NCHW", "self", "N -> N",
            {"upscale_factor": integer(1)}, stored=True)  # fmt: skip
define_aten("pixel_unshuffle", "blocks of pixels become channels; NCHW", "self", "N -> N",
            {"downscale_factor": integer(1)}, stored=True)  # fmt: skip
define_aten("channel_shuffle", "channels of `groups` interleaved; NCHW", "self", "N -> N", {"groups": integer(1)},
            stored=True)  # fmt: skip
