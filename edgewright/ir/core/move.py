"""Data movement on stored elements."""

from __future__ import annotations

import numpy as np

from edgewright.ir.aten.reference import movement, rearrange
from edgewright.ir.core.registry import EvaluationContext, implements
from edgewright.ir.graph import Array, Op


@implements("permute")
def _permute(ex: EvaluationContext, op: Op) -> Array:
    return movement.permute(ex.raw(op.args["self"]), op.args["dims"])


@implements("view")
def _view(ex: EvaluationContext, op: Op) -> Array:
    size = [-1 if n == 0 else n for n in op.args["size"]]
    array: Array = np.ascontiguousarray(ex.raw(op.args["self"]))
    return array.reshape(size)


@implements("slice")
def _slice(ex: EvaluationContext, op: Op) -> Array:
    """A length of 0 means up to the end."""
    array: Array = ex.raw(op.args["self"])
    starts = op.args["start"]
    lengths = [n or size - a for a, n, size in zip(starts, op.args["length"], array.shape, strict=True)]
    if any(n <= 0 or a + n > size for a, n, size in zip(starts, lengths, array.shape, strict=True)):
        raise ValueError(f"slice {starts}+{lengths} is outside {list(array.shape)}")
    return np.asarray(array[tuple(slice(a, a + n) for a, n in zip(starts, lengths, strict=True))])


@implements("cat")
def _cat(ex: EvaluationContext, op: Op) -> Array:
    return rearrange.cat([ex.raw(t) for t in op.args["tensors"]], op.args["dim"])


@implements("pad")
def _pad(ex: EvaluationContext, op: Op) -> Array:
    value, out = op.args["self"], op.outputs[0]
    assert out is not None
    fill = np.float32(op.args["value"])
    quantized_fill = ex.numerics.quantize(np.asarray(fill), value.q) if value.q is not None else fill
    widths = list(zip(op.args["before"], op.args["after"], strict=True))
    array: Array = ex.raw(value)
    return np.pad(array, widths, constant_values=quantized_fill.astype(array.dtype))
