"""Vendors' static gathers: operators whose results are elements of their operand at indices known at compile time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from edgewright.backends.ethos_u.dialect.conv_pool import nearest_index, source_positions
from edgewright.engine.codegen.ranged_int import IntRangeError
from edgewright.ir.graph import Array, Op, Value

IndexLists = list[Array]
STATIC_GATHERS: dict[str, Callable[[Op], tuple[Value, IndexLists]]] = {}


def static_gather_rule(
    kind: str,
) -> Callable[[Callable[[Op], tuple[Value, IndexLists]]], Callable[[Op], tuple[Value, IndexLists]]]:
    """Register the function that computes the index tables of an operator."""

    def register(function: Callable[[Op], tuple[Value, IndexLists]]) -> Callable[[Op], tuple[Value, IndexLists]]:
        STATIC_GATHERS[kind] = function
        return function

    return register


def gather_indices(op: Op) -> tuple[Value, IndexLists]:
    """The operand, and the source index of each result along each dimension; raises if sizes are inconsistent."""
    data, lists = STATIC_GATHERS[op.kind](op)
    out = op.outputs[0]
    assert out is not None
    if tuple(len(indices) for indices in lists) != out.bound or len(lists) != len(data.bound):
        raise IntRangeError("output shape mismatch")
    for indices, size in zip(lists, data.bound, strict=True):
        if indices.size and (int(indices.min()) < 0 or int(indices.max()) >= size):
            raise IntRangeError("index out of range")
    return data, lists


def _result_shape(op: Op) -> Sequence[int]:
    out = op.outputs[0]
    assert out is not None
    return out.bound


def _identity_indices(data: Value) -> IndexLists:
    return [np.arange(n) for n in data.bound]


@static_gather_rule("tosa.tile")
def _tile(op: Op) -> tuple[Value, IndexLists]:
    data, out = op.args["input"], _result_shape(op)
    if [n * int(m) for n, m in zip(data.bound, op.args["multiples"], strict=True)] != list(out) or 0 in data.bound:
        raise IntRangeError("output shape mismatch")
    return data, [np.arange(n) % size for n, size in zip(out, data.bound, strict=True)]


@static_gather_rule("tosa.reverse")
def _reverse(op: Op) -> tuple[Value, IndexLists]:
    data, axis = op.args["input"], int(op.args["axis"])
    lists = _identity_indices(data)
    lists[axis] = lists[axis][::-1]
    return data, lists


@static_gather_rule("tosa.resize")
def _nearest(op: Op) -> tuple[Value, IndexLists]:
    data = op.args["input"]
    if op.args["mode"] != "nearest" or len(data.bound) != 4:
        raise IntRangeError("not nearest sampling")
    lists = _identity_indices(data)
    neighbors = source_positions(data.bound[1:3], op.args["scale"], op.args["offset"], op.args["border"])
    lists[1:3] = [nearest_index(*pair, n) for pair, n in zip(neighbors, op.args["scale"][::2], strict=True)]
    return data, lists


@static_gather_rule("tflite.RESIZE_NEAREST_NEIGHBOR")
def _nearest_neighbor(op: Op) -> tuple[Value, IndexLists]:
    data, out = op.args["inputs"][0], _result_shape(op)
    if len(data.bound) != 4 or len(out) != 4 or op.args["align_corners"] or op.args["half_pixel_centers"]:
        raise IntRangeError("not an image, or unsupported sampling")
    lists = _identity_indices(data)
    lists[1:3] = [np.arange(n) * size // n for n, size in zip(out[1:3], data.bound[1:3], strict=True)]
    return data, lists


@static_gather_rule("tflite.MIRROR_PAD")
def _mirror(op: Op) -> tuple[Value, IndexLists]:
    data, widths = op.args["inputs"]
    mode = "symmetric" if op.args["mode"] else "reflect"
    if widths.data is None or widths.data.shape != (len(data.bound), 2) or 0 in data.bound:
        raise IntRangeError("padding is not constant")
    pairs = [(int(a), int(b)) for a, b in widths.data]
    if [n + a + b for n, (a, b) in zip(data.bound, pairs, strict=True)] != list(_result_shape(op)) or min(
        map(min, pairs)
    ) < 0:
        raise IntRangeError("output shape mismatch")
    return data, [np.pad(np.arange(n), pair, mode=mode) for n, pair in zip(data.bound, pairs, strict=True)]  # type: ignore[call-overload]
