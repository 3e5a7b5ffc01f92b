"""Shape inference of data movement, gather and scatter."""

from __future__ import annotations

import math
from itertools import pairwise

from edgewright.ir.graph import Op
from edgewright.ir.qnn.shape_checks import Rule, Shape, axes_of, need, per_axis


def reshape(op: Op, given: list[Shape]) -> list[Shape]:
    out = op.outputs[0].bound if op.outputs[0] is not None else ()
    need(math.prod(out) == math.prod(given[0]), "elements must stay as many", out)
    return [out]


def transpose(op: Op, given: list[Shape]) -> list[Shape]:
    perm = op.args["perm"]
    need(sorted(perm) == list(range(len(given[0]))), "dimensions must each be named once", perm)
    return [tuple(given[0][d] for d in perm)]


def concat(op: Op, given: list[Shape]) -> list[Shape]:
    axis = op.args["axis"]
    need(all(len(s) > axis for s in given), "must be a dimension", axis)
    rest = {(*s[:axis], *s[axis + 1 :]) for s in given}
    need(len(rest) == 1, "tensors must agree in every other dimension", given[:4])
    return [(*given[0][:axis], sum(s[axis] for s in given), *given[0][axis + 1 :])]


def pack(op: Op, given: list[Shape]) -> list[Shape]:
    axis = op.args["axis"]
    need(len(set(given)) == 1 and axis <= len(given[0]), "tensors must be alike", given[:4])
    return [(*given[0][:axis], len(given), *given[0][axis:])]


def split(op: Op, given: list[Shape]) -> list[Shape]:
    (axis,), size = axes_of(op, given), given[0][op.args["axis"]]
    cuts = [0, *op.args.get("split_index", range(1, size)), size]
    parts = [b - a for a, b in pairwise(cuts)]
    need(min(parts) > 0, "cuts must be in order", cuts)
    middle = (lambda n: (n,)) if "split_index" in op.args else (lambda n: ())
    return [(*given[0][:axis], *middle(n), *given[0][axis + 1 :]) for n in parts]


def sliced(op: Op, given: list[Shape]) -> list[Shape]:
    made = []
    need(len(op.args["ranges"]) == len(given[0]), "must have a range for each dimension", op.args["ranges"])
    for axis, (size, (begin, end, step)) in enumerate(zip(given[0], op.args["ranges"], strict=True)):
        if op.args["shrink_axes"] >> axis & 1:
            need(0 <= begin < size, "must be an element", begin)
            continue
        need(step != 0 and begin >= 0 and end >= -1, "must be a range", (begin, end, step))
        first = None if op.args["begin_mask"] >> axis & 1 else begin
        last = None if op.args["end_mask"] >> axis & 1 or (step < 0 and end < 0) else end
        made.append(len(range(*slice(first, last, step).indices(size))))
    return [tuple(made)]


def tile(op: Op, given: list[Shape]) -> list[Shape]:
    need(len(op.args["multiples"]) == len(given[0]), "must have a number for each dimension", op.args["multiples"])
    return [tuple(n * m for n, m in zip(given[0], op.args["multiples"], strict=True))]


def pad(op: Op, given: list[Shape]) -> list[Shape]:
    per_axis(op, len(given[0]), "pad_amount")
    need(op.args["scheme"] <= 3 and min(given[0], default=1) > 0, "must be a known way to pad", op.args["scheme"])
    return [tuple(n + a + b for n, (a, b) in zip(given[0], op.args["pad_amount"], strict=True))]


def shuffled(op: Op, given: list[Shape]) -> list[Shape]:
    (axis,) = axes_of(op, given)
    need(given[0][axis] % op.args["num_groups"] == 0, "groups must be alike", given[0])
    return [given[0]]


def blocks(deep: bool) -> Rule:
    def rule(op: Op, given: list[Shape]) -> list[Shape]:
        need(len(given[0]) == 4 and len(op.args["block_size"]) == 2, "must be an image, in blocks", given[0])
        (batch, height, width, channels), (down, along) = given[0], op.args["block_size"]
        if deep:
            need(height % down == 0 and width % along == 0, "blocks must be whole", given[0])
            return [(batch, height // down, width // along, channels * down * along)]
        need(channels % (down * along) == 0, "blocks must be whole", given[0])
        return [(batch, height * down, width * along, channels // (down * along))]

    return rule


def gather(op: Op, given: list[Shape]) -> list[Shape]:
    (axis,) = axes_of(op, given)
    need(op.args["inputs"][1].dtype.kind in "iu", "must be whole numbers", str(op.args["inputs"][1].dtype))
    return [(*given[0][:axis], *given[1], *given[0][axis + 1 :])]


def gather_elements(op: Op, given: list[Shape]) -> list[Shape]:
    (axis,) = axes_of(op, given)
    fits = len(given[0]) == len(given[1]) and all(
        n <= m for i, (m, n) in enumerate(zip(*given[:2], strict=True)) if i != axis
    )
    need(fits and op.args["inputs"][1].dtype.kind in "iu", "must fit what is read", given)
    return [given[1]]


def scatter_elements(op: Op, given: list[Shape]) -> list[Shape]:
    gather_elements(op, given)
    need(given[1] == given[2] and op.args["reduction"] < 3, "must have an index for each update", given[1:])
    return [given[0]]


def scatter_nd(op: Op, given: list[Shape]) -> list[Shape]:
    x, index, updates = given
    need(len(index) > 0 and 0 < index[-1] <= len(x), "must index its tensor", index)
    need(updates == (*index[:-1], *x[index[-1] :]) and op.args["reduction"] < 3, "must fit its places", updates)
    need(op.args["inputs"][1].dtype.kind in "iu", "must be whole numbers", str(op.args["inputs"][1].dtype))
    return [x]


def top(op: Op, given: list[Shape]) -> list[Shape]:
    need(bool(given[0]) and op.args["k"] <= given[0][-1], "must be at most as many as there are", op.args["k"])
    return [(*given[0][:-1], op.args["k"])] * 2
