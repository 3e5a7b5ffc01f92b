"""A graph of one operator among neighbours that want its operands and its result in other layouts.

An operator's kernel is given addresses and strides, and what they are depends on who else reads a value: a convolution
wants a border around it, a concatenation makes it inside another, a slice is read inside another. Each context here
puts one such neighbour beside the graph; ``neighbours`` yields all that fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from edgewright.ir.graph import Graph, Op, Value
from tests.engine.graphs import constant, filters

Made = tuple[Graph, list[Any]]
Context = Callable[[Graph, list[Any], int], "Made | None"]


def like(value: Value, name: str, shape: tuple[int, ...] | None = None) -> Value:
    shape = value.bound if shape is None else shape
    return Value(name, value.dtype, shape, tuple(range(len(shape))), q=value.q)


def replaced(graph: Graph, old: Value, new: Value) -> list[Op]:
    """The graph's operators, reading ``new`` for ``old``."""

    def change(tree: Any) -> Any:
        if isinstance(tree, list | tuple):
            return type(tree)(change(item) for item in tree)
        return new if tree is old else tree

    return [Op(op.kind, {k: change(v) for k, v in op.args.items()}, list(op.outputs), op.origin) for op in graph.ops]


def plain(value: Value) -> bool:
    """Single precision, or 8 bits with one scale: what convolutions and moves of the core dialect read."""
    if value.q is None:
        return value.dtype == np.dtype(np.float32)
    return value.dtype is not None and value.dtype.itemsize == 1 and value.q.axis is None and value.q.dynamic is None


def window(value: Value, name: str) -> tuple[Op, Value]:
    """A depthwise 3x3 convolution with padding: its operand gets a border."""
    channels = value.bound[-1]
    out = like(value, name)
    weight = filters(1, 3, 3, channels, quantize=value.q is not None, axis=3, per_channel=False)
    args = {
        "input": value,
        "weight": weight,
        "bias": None,
        "stride": [1, 1],
        "padding": [1] * 4,
        "dilation": [1, 1],
        "groups": channels,
    }
    return Op("core.depthwise_conv2d", args, [out]), out


def _image(value: Value) -> bool:
    return len(value.bound) == 4 and plain(value) and 0 not in value.bound


def result_has_border(graph: Graph, inputs: list[Any], at: int) -> Made | None:
    out = graph.outputs[at]
    if not _image(out):
        return None
    op, more = window(out, "windowed")
    return Graph("border", graph.inputs, [*graph.outputs, more], [*graph.ops, op]), inputs


def only_window_reads_result(graph: Graph, inputs: list[Any], at: int) -> Made | None:
    out = graph.outputs[at]
    if not _image(out):
        return None
    op, more = window(out, "windowed")
    outputs = [more if i == at else v for i, v in enumerate(graph.outputs)]
    return Graph("border", graph.inputs, outputs, [*graph.ops, op]), inputs


def operand_has_border(graph: Graph, inputs: list[Any], at: int) -> Made | None:
    """The operand is made by a clone inside the graph, and a window reads it too."""
    value = graph.inputs[at]
    if not _image(value):
        return None
    inside = like(value, "inside")
    first = Op("core.add", {"self": value, "other": constant(np.float32(0.0).reshape(1))}, [inside])
    if value.q is not None:
        first = Op("core.clamp", {"self": value, "limits": None}, [inside])
    op, more = window(inside, "windowed")
    return Graph("border", graph.inputs, [*graph.outputs, more], [first, *replaced(graph, value, inside), op]), inputs


def _joined(graph: Graph, inputs: list[Any], at: int, dim: int, first: bool, returned: bool = False) -> Made | None:
    """``returned``: the concatenation is the caller's array."""
    out = graph.outputs[at]
    rank = len(out.bound)
    if not plain(out) or rank < 2 or 0 in out.bound or dim >= rank:
        return None
    size = 16 if dim == rank - 1 else 3
    other = like(out, "beside", (*out.bound[:dim], size, *out.bound[dim + 1 :]))
    made = like(out, "joined", (*out.bound[:dim], out.bound[dim] + size, *out.bound[dim + 1 :]))
    last = like(made, "last")
    pieces = [out, other] if first else [other, out]
    ops = [*graph.ops, Op("core.cat", {"tensors": pieces, "dim": dim}, [made])]
    ops += [] if returned else [_unary(made, last)]
    outputs = [(made if returned else last) if i == at else v for i, v in enumerate(graph.outputs)]
    rng = np.random.default_rng(9)
    more = rng.integers(0, 100, other.bound) if other.q is not None else rng.standard_normal(other.bound)
    return Graph("joined", [*graph.inputs, other], outputs, ops), [*inputs, more.astype(other.dtype)]


def _unary(value: Value, out: Value) -> Op:
    return Op("core.hardswish" if value.q is None else "core.clamp", {"self": value, "limits": None}, [out])


def result_is_channels_of_another(graph: Graph, inputs: list[Any], at: int) -> Made | None:
    return _joined(graph, inputs, at, len(graph.outputs[at].bound) - 1, True)


def result_is_last_channels_of_another(graph: Graph, inputs: list[Any], at: int) -> Made | None:
    return _joined(graph, inputs, at, len(graph.outputs[at].bound) - 1, False)


def result_is_returned_in_another(graph: Graph, inputs: list[Any], at: int) -> Made | None:
    return _joined(graph, inputs, at, len(graph.outputs[at].bound) - 1, False, returned=True)


def result_is_rows_of_another(graph: Graph, inputs: list[Any], at: int) -> Made | None:
    rank = len(graph.outputs[at].bound)
    return _joined(graph, inputs, at, 1, False) if rank > 2 else None


def result_is_images_of_another(graph: Graph, inputs: list[Any], at: int) -> Made | None:
    return _joined(graph, inputs, at, 0, True)


def _sliced(graph: Graph, inputs: list[Any], at: int, dim: int) -> Made | None:
    value = graph.inputs[at]
    rank = len(value.bound)
    if not plain(value) or rank < 2 or 0 in value.bound:
        return None
    before, after = (16, 5) if dim == rank - 1 else (1, 2)
    shape = (*value.bound[:dim], before + value.bound[dim] + after, *value.bound[dim + 1 :])
    wide, inside, part = like(value, "wide", shape), like(value, "inside", shape), like(value, "part")
    starts = [before if d == dim else 0 for d in range(rank)]
    cut = Op("core.slice", {"self": inside, "start": starts, "length": list(value.bound)}, [part])
    ops = [Op("core.clamp", {"self": wide, "limits": None}, [inside]), cut, *replaced(graph, value, part)]
    pads = [(before, after) if d == dim else (0, 0) for d in range(rank)]
    data = np.pad(inputs[at], pads, constant_values=77)
    inputs = [data if i == at else x for i, x in enumerate(inputs)]
    return Graph("sliced", [wide if v is value else v for v in graph.inputs], list(graph.outputs), ops), inputs


def operand_is_channels_of_another(graph: Graph, inputs: list[Any], at: int) -> Made | None:
    return _sliced(graph, inputs, at, len(graph.inputs[at].bound) - 1)


def operand_is_rows_of_another(graph: Graph, inputs: list[Any], at: int) -> Made | None:
    return _sliced(graph, inputs, at, 1) if len(graph.inputs[at].bound) > 2 else None


def operand_is_permuted(graph: Graph, inputs: list[Any], at: int) -> Made | None:
    value = graph.inputs[at]
    rank = len(value.bound)
    if not plain(value) or rank < 3 or 0 in value.bound:
        return None
    dims = [0, *range(2, rank), 1]
    back = [dims.index(d) for d in range(rank)]
    shape = tuple(value.bound[d] for d in back)
    other, inside, part = like(value, "other", shape), like(value, "inside", shape), like(value, "part")
    moved = Op("core.permute", {"self": inside, "dims": dims}, [part])
    ops = [Op("core.clamp", {"self": other, "limits": None}, [inside]), moved, *replaced(graph, value, part)]
    data = [x.transpose(back).copy() if i == at else x for i, x in enumerate(inputs)]
    return Graph("permuted", [other if v is value else v for v in graph.inputs], list(graph.outputs), ops), data


def result_is_permuted(graph: Graph, inputs: list[Any], at: int) -> Made | None:
    out = graph.outputs[at]
    rank = len(out.bound)
    if not plain(out) or rank < 3 or 0 in out.bound:
        return None
    dims = [0, *range(2, rank), 1]
    moved = like(out, "moved", tuple(out.bound[d] for d in dims))
    last = like(moved, "last")
    ops = [*graph.ops, Op("core.permute", {"self": out, "dims": dims}, [moved]), _unary(moved, last)]
    outputs = [last if i == at else v for i, v in enumerate(graph.outputs)]
    return Graph("permuted", list(graph.inputs), outputs, ops), inputs


def result_is_read_twice(graph: Graph, inputs: list[Any], at: int) -> Made | None:
    out = graph.outputs[at]
    rank = len(out.bound)
    if not plain(out) or rank < 1 or 0 in out.bound or out.bound[-1] < 2:
        return None
    half = out.bound[-1] // 2
    part = like(out, "half", (*out.bound[:-1], half))
    cut = Op(
        "core.slice",
        {"self": out, "start": [0] * (rank - 1) + [out.bound[-1] - half], "length": list(part.bound)},
        [part],
    )
    last, whole = like(part, "last"), like(out, "whole")
    ops = [*graph.ops, cut, _unary(part, last), _unary(out, whole)]
    outputs = [whole if i == at else v for i, v in enumerate(graph.outputs)]
    return Graph("twice", list(graph.inputs), [*outputs, last], ops), inputs


OF_RESULT: dict[str, Context] = {
    f.__name__: f
    for f in (
        result_has_border, only_window_reads_result, result_is_channels_of_another, result_is_last_channels_of_another,
        result_is_returned_in_another,
        result_is_rows_of_another, result_is_images_of_another, result_is_permuted, result_is_read_twice,
    )
}  # fmt: skip
OF_OPERAND: dict[str, Context] = {
    f.__name__: f
    for f in (operand_has_border, operand_is_channels_of_another, operand_is_rows_of_another, operand_is_permuted)
}


def neighbours(graph: Graph, inputs: list[Any]) -> Iterator[tuple[str, Made]]:
    """The graph in every context that fits one of its operands or results."""
    sides = ((OF_RESULT, len(graph.outputs)), (OF_OPERAND, len(graph.inputs)))
    for contexts, count in sides:
        for name, wrap in contexts.items():
            for at in range(count):
                made = wrap(graph, inputs, at)
                if made is not None:
                    yield f"{name} {at}", made
