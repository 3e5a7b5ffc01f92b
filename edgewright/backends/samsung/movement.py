"""Lowering of data movement, gathers and top-k."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.backends.samsung.lower import EnnLowering, output
from edgewright.ir.aten.ops import OPS
from edgewright.ir.graph import Op, Value
from edgewright.lowering.passes.layout import identity


def forward_input(low: EnnLowering, op: Op) -> None:
    """No node: the output is an alias of the input."""
    x, out = op.args["self" if "self" in op.args else "input"], output(op)
    low.alias(out, identity(len(out.shape)), low.requantize_like(low.get(x), out))


def view(low: EnnLowering, op: Op) -> None:
    low.move(op, "RESHAPE", low.get(op.args["self"]), new_shape=list(output(op).bound))


def permute(low: EnnLowering, op: Op) -> None:
    """``permute``, ``transpose`` and ``t``."""
    rank = len(op.args["self"].shape)
    if op.kind == "permute":
        dims = [d % rank for d in op.args["dims"]]
    else:
        pair = (0, 1) if op.kind == "t" else (op.args["dim0"], op.args["dim1"])
        first, second = (d % rank for d in pair) if rank > 1 else (0, 0)
        dims = list(range(rank))
        dims[first], dims[second] = dims[second], dims[first]
    low.move(op, "TRANSPOSE", low.get(op.args["self"]), perm=dims)


def _slice_params(x: Value, dim: int, indices: Any) -> dict[str, list[int]]:
    """Parameters of STRIDEDSLICE that select evenly spaced indices of one dimension."""
    positions = [int(p) for p in np.atleast_1d(indices)]
    begin, end, strides = [0] * len(x.bound), list(x.bound), [1] * len(x.bound)
    strides[dim] = positions[1] - positions[0] if len(positions) > 1 else 1
    begin[dim], end[dim] = positions[0], min(positions[0] + len(positions) * strides[dim], x.bound[dim])
    return {"begin": begin, "end": end, "strides": strides}


def slice_(low: EnnLowering, op: Op) -> None:
    """``slice`` and ``narrow``; the op table's reference determines the selected indices."""
    x = op.args["self"]
    dim = op.args.get("dim", 0) % len(x.shape)
    indices = OPS[op.kind].call({**op.args, "self": np.arange(x.bound[dim]), "dim": 0})[0]
    low.move(op, "STRIDEDSLICE", low.get(x), **_slice_params(x, dim, indices))


def select(low: EnnLowering, op: Op) -> None:
    x = op.args["self"]
    dim = op.args["dim"] % len(x.shape)
    index = op.args["index"] % x.bound[dim]
    low.move(op, "STRIDEDSLICE", low.get(x), **_slice_params(x, dim, [index]), shrink_axis_mask=1 << dim)


def split(low: EnnLowering, op: Op) -> None:
    """``split``, ``split_with_sizes`` and ``chunk``; unused outputs become temporaries."""
    x = op.args["self"]
    dim = op.args.get("dim", 0) % len(x.shape)
    parts = OPS[op.kind].call({**op.args, "self": np.arange(x.bound[dim]), "dim": 0})
    sizes, x_value = [len(p) for p in parts], low.get(x)
    outs = []
    for size, out in zip(sizes, [*op.outputs, *[None] * (len(sizes) - len(op.outputs))], strict=True):
        shape = [*x.bound[:dim], size, *x.bound[dim + 1 :]]
        outs.append(low.temporary(shape, x_value) if out is None else low.make(out))
    low.node("SPLIT", [x_value], outs, axis=dim, point=sizes)


def unbind(low: EnnLowering, op: Op) -> None:
    """One slice for each output that is used."""
    x = op.args["self"]
    dim = op.args.get("dim", 0) % len(x.shape)
    for index, out in enumerate(op.outputs):
        if out is not None:
            low.node(
                "STRIDEDSLICE", [low.get(x)], low.make(out), **_slice_params(x, dim, [index]), shrink_axis_mask=1 << dim
            )


def cat(low: EnnLowering, op: Op) -> None:
    tensors, out = [t for t in op.args["tensors"] if t.shape != (0,)], output(op)
    constants = [i for i, t in enumerate(tensors) if t.constant]
    params = {"axis": op.args.get("dim", 0) % len(out.shape), **({"constant_index": constants[0]} if constants else {})}
    low.finish(op, "CONCAT", [low.requantize_like(low.get(t), out) for t in tensors], **params)


def expand(low: EnnLowering, op: Op) -> None:
    """One CONCAT with itself for each dimension that grows; new dimensions are leading."""
    x, out = op.args["self"], output(op)
    x_value = low.get(x)
    unsqueezed = (1,) * (len(out.shape) - len(x.shape)) + x_value.bound
    broadcast_dims = [d for d, (n, m) in enumerate(zip(unsqueezed, out.bound, strict=True)) if n != m]
    if not broadcast_dims:
        low.move(op, "RESHAPE", x_value, new_shape=list(out.bound))
        return
    x_value = low.requantize_like(low.reshape(x_value, unsqueezed), out)
    for count, dim in enumerate(broadcast_dims, 1):
        shape = list(x_value.bound)
        shape[dim] = out.bound[dim]
        repeated = low.make(out) if count == len(broadcast_dims) else low.temporary(shape, x_value)
        low.node("CONCAT", [x_value] * out.bound[dim], repeated, axis=dim)
        x_value = repeated


def pad(low: EnnLowering, op: Op) -> None:
    x = op.args["self"]
    rank, flat = len(x.shape), list(op.args["pad"])
    pairs = [flat[i : i + 2] for i in range(0, len(flat), 2)][::-1]
    amounts = [[0, 0]] * (rank - len(pairs)) + pairs
    widths = [a for a, _ in amounts] + [b for _, b in amounts]
    x_value = low.requantize_like(low.get(x), output(op))
    low.finish(op, "PAD", [x_value], explicit_padding=widths, padding="EXPLICIT", padding_type="CONSTANT")


def embedding(low: EnnLowering, op: Op) -> None:
    low.finish(op, "GATHER", [low.get(op.args["weight"]), low.get(op.args["indices"])], axis=0)


def index(low: EnnLowering, op: Op) -> None:
    """A rule ensures that there is one index tensor."""
    axis, indices = next((i, t) for i, t in enumerate(op.args["indices"]) if t is not None)
    low.finish(op, "GATHER", [low.get(op.args["self"]), low.get(indices)], with_quant_dtype=False, axis=axis)


def index_select(low: EnnLowering, op: Op) -> None:
    x = op.args["self"]
    axis = op.args["dim"] % len(x.shape)
    low.finish(op, "GATHER", [low.get(x), low.get(op.args["index"])], with_quant_dtype=False, axis=axis)


def topk(low: EnnLowering, op: Op) -> None:
    x, count = op.args["self"], int(op.args["k"])
    values = op.outputs[0]
    indices = op.outputs[1] if len(op.outputs) > 1 else None
    shape = (*x.bound[:-1], count)
    first = low.temporary(shape, low.get(x)) if values is None else low.make(values)
    like = Value("places", np.dtype(np.int64))
    second = low.temporary(shape, like) if indices is None else low.make(indices)
    low.node("TopK", [low.get(x)], [first, second], k_dims=count)
