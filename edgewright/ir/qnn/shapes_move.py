"""Shape inference of data movement, gather and scatter."""

from __future__ import annotations

import math
from itertools import pairwise

from edgewright.ir.graph import Op
from edgewright.ir.qnn.shape_checks import Shape, ShapeRule, checked_axes, require, require_per_axis


def reshape(op: Op, shapes: list[Shape]) -> list[Shape]:
    out = op.outputs[0].bound if op.outputs[0] is not None else ()
    require(math.prod(out) == math.prod(shapes[0]), "must keep the number of elements", out)
    return [out]


def transpose(op: Op, shapes: list[Shape]) -> list[Shape]:
    perm = op.args["perm"]
    require(sorted(perm) == list(range(len(shapes[0]))), "must be a permutation of the dimensions", perm)
    return [tuple(shapes[0][d] for d in perm)]


def concat(op: Op, shapes: list[Shape]) -> list[Shape]:
    axis = op.args["axis"]
    require(all(len(s) > axis for s in shapes), "must be a dimension", axis)
    rest = {(*s[:axis], *s[axis + 1 :]) for s in shapes}
    require(len(rest) == 1, "tensors must agree in every other dimension", shapes[:4])
    return [(*shapes[0][:axis], sum(s[axis] for s in shapes), *shapes[0][axis + 1 :])]


def pack(op: Op, shapes: list[Shape]) -> list[Shape]:
    axis = op.args["axis"]
    require(len(set(shapes)) == 1 and axis <= len(shapes[0]), "tensors must be alike", shapes[:4])
    return [(*shapes[0][:axis], len(shapes), *shapes[0][axis:])]


def split(op: Op, shapes: list[Shape]) -> list[Shape]:
    (axis,), size = checked_axes(op, shapes), shapes[0][op.args["axis"]]
    cuts = [0, *op.args.get("split_index", range(1, size)), size]
    parts = [b - a for a, b in pairwise(cuts)]
    require(min(parts) > 0, "cuts must be in order", cuts)
    middle = (lambda n: (n,)) if "split_index" in op.args else (lambda n: ())
    return [(*shapes[0][:axis], *middle(n), *shapes[0][axis + 1 :]) for n in parts]


def strided_slice(op: Op, shapes: list[Shape]) -> list[Shape]:
    result = []
    require(len(op.args["ranges"]) == len(shapes[0]), "must have a range for each dimension", op.args["ranges"])
    for axis, (size, (begin, end, step)) in enumerate(zip(shapes[0], op.args["ranges"], strict=True)):
        if op.args["shrink_axes"] >> axis & 1:
            require(0 <= begin < size, "must be an element", begin)
            continue
        require(step != 0 and begin >= 0 and end >= -1, "must be a range", (begin, end, step))
        first = None if op.args["begin_mask"] >> axis & 1 else begin
        last = None if op.args["end_mask"] >> axis & 1 or (step < 0 and end < 0) else end
        result.append(len(range(*slice(first, last, step).indices(size))))
    return [tuple(result)]


def tile(op: Op, shapes: list[Shape]) -> list[Shape]:
    require(len(op.args["multiples"]) == len(shapes[0]), "must have a number for each dimension", op.args["multiples"])
    return [tuple(n * m for n, m in zip(shapes[0], op.args["multiples"], strict=True))]


def pad(op: Op, shapes: list[Shape]) -> list[Shape]:
    require_per_axis(op, len(shapes[0]), "pad_amount")
    require(
        op.args["scheme"] <= 3 and min(shapes[0], default=1) > 0, "must be a known padding scheme", op.args["scheme"]
    )
    return [tuple(n + a + b for n, (a, b) in zip(shapes[0], op.args["pad_amount"], strict=True))]


def channel_shuffle(op: Op, shapes: list[Shape]) -> list[Shape]:
    (axis,) = checked_axes(op, shapes)
    require(shapes[0][axis] % op.args["num_groups"] == 0, "must be divisible into groups", shapes[0])
    return [shapes[0]]


def block_shape(to_depth: bool) -> ShapeRule:
    def rule(op: Op, shapes: list[Shape]) -> list[Shape]:
        require(
            len(shapes[0]) == 4 and len(op.args["block_size"]) == 2,
            "must be an image with a two-dimensional block size",
            shapes[0],
        )
        (batch, height, width, channels), (block_h, block_w) = shapes[0], op.args["block_size"]
        if to_depth:
            require(height % block_h == 0 and width % block_w == 0, "must be divisible into blocks", shapes[0])
            return [(batch, height // block_h, width // block_w, channels * block_h * block_w)]
        require(channels % (block_h * block_w) == 0, "must be divisible into blocks", shapes[0])
        return [(batch, height * block_h, width * block_w, channels // (block_h * block_w))]

    return rule


def gather(op: Op, shapes: list[Shape]) -> list[Shape]:
    (axis,) = checked_axes(op, shapes)
    require(op.args["inputs"][1].dtype.kind in "iu", "must be integers", str(op.args["inputs"][1].dtype))
    return [(*shapes[0][:axis], *shapes[1], *shapes[0][axis + 1 :])]


def gather_elements(op: Op, shapes: list[Shape]) -> list[Shape]:
    (axis,) = checked_axes(op, shapes)
    fits = len(shapes[0]) == len(shapes[1]) and all(
        n <= m for i, (m, n) in enumerate(zip(*shapes[:2], strict=True)) if i != axis
    )
    require(fits and op.args["inputs"][1].dtype.kind in "iu", "must fit the tensor that is read", shapes)
    return [shapes[1]]


def scatter_elements(op: Op, shapes: list[Shape]) -> list[Shape]:
    gather_elements(op, shapes)
    require(shapes[1] == shapes[2] and op.args["reduction"] < 3, "must have an index for each update", shapes[1:])
    return [shapes[0]]


def scatter_nd(op: Op, shapes: list[Shape]) -> list[Shape]:
    x, index, updates = shapes
    require(len(index) > 0 and 0 < index[-1] <= len(x), "must index its tensor", index)
    require(updates == (*index[:-1], *x[index[-1] :]) and op.args["reduction"] < 3, "must fit its indices", updates)
    require(op.args["inputs"][1].dtype.kind in "iu", "must be integers", str(op.args["inputs"][1].dtype))
    return [x]


def top_k(op: Op, shapes: list[Shape]) -> list[Shape]:
    require(
        bool(shapes[0]) and op.args["k"] <= shapes[0][-1],
        "must be at most the size of the last dimension",
        op.args["k"],
    )
    return [(*shapes[0][:-1], op.args["k"])] * 2
