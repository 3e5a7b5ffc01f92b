"""What shapes an operator of a host twin makes; numbers that fit no tensor are refused on the way."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from edgewright.errors import FormatError
from edgewright.ir.graph import Op
from edgewright.ir.qnn.elements import BINARY, UNARY
from edgewright.ir.qnn.table import PREFIX

Shape = tuple[int, ...]
Rule = Callable[[Op, list[Shape]], list[Shape]]


def shapes_of(op: Op) -> list[Shape]:
    """The shapes of the results. A number alone has a dimension in QNN."""
    given = [v.bound or (1,) for v in op.args["inputs"]]
    return [tuple(int(n) for n in s) for s in RULES[op.kind.removeprefix(PREFIX)](op, given)]


def _need(condition: bool, rule: str, value: object) -> None:
    if not condition:
        raise FormatError(rule, value=value)


def _same(op: Op, given: list[Shape]) -> list[Shape]:
    return [given[0]]


def _broadcast(op: Op, given: list[Shape]) -> list[Shape]:
    return [np.broadcast_shapes(*given)]


def _onto_first(op: Op, given: list[Shape]) -> list[Shape]:
    """Constants fit the last dimension of what they are applied to."""
    for shape in given[1:]:
        _need(np.broadcast_shapes(given[0], shape) == given[0], "must fit the last dimension", shape)
    return [given[0]]


def _numbered(count: int) -> Rule:
    def rule(op: Op, given: list[Shape]) -> list[Shape]:
        _need(op.args["operation"] < count, f"must be below {count}", op.args["operation"])
        return _broadcast(op, given)

    return rule


def _window(op: Op, size: int, i: int, window: int, stride: int, dilation: int) -> int:
    """Positions along one dimension."""
    before, after = op.args["pad_amount"][i]
    reach = (window - 1) * dilation + 1
    room = size + before + after - reach
    _need(room >= 0 and window > 0, "a window must fit its padded image", f"{reach} in {size}")
    return room // stride + 1


def _per_axis(op: Op, rank: int, *names: str) -> None:
    for name in names:
        _need(len(op.args[name]) == rank, f"must have {rank} numbers", f"{name} {op.args[name]}"[:80])
        if name == "pad_amount":
            _need(all(len(pair) == 2 for pair in op.args[name]), "must be pairs", name)


def _filters(op: Op, given: list[Shape]) -> tuple[Shape, Shape, int]:
    image, weight = given[:2]
    rank = len(weight) - 2
    _need(rank in (2, 3) and len(image) == rank + 2, "must have images and filters of one rank", (image, weight))
    return image, weight, rank


def _bias(given: list[Shape], channels: int, groups: int = 1) -> None:
    sizes = (channels, channels // groups)
    _need(len(given) < 3 or math.prod(given[2]) in sizes, f"the bias must have {channels} elements", given[2:])


def _convolution(op: Op, given: list[Shape]) -> list[Shape]:
    image, weight, rank = _filters(op, given)
    _per_axis(op, rank, "stride", "dilation", "pad_amount")
    deep = op.kind.endswith("DepthWiseConv2d")
    groups = image[-1] // max(weight[-2], 1) if deep else op.args["group"]
    fits = weight[-2] * groups == image[-1] and weight[-1] % max(groups, 1) == 0 and (not deep or weight[-2] == 1)
    _need(fits, "filters must fit the channels of each group", weight)
    _bias(given, weight[-1])
    sizes = [_window(op, n, i, weight[i], op.args["stride"][i], op.args["dilation"][i]) for i, n in
             enumerate(image[1:-1])]  # fmt: skip
    return [(image[0], *sizes, weight[-1])]


def _grown(op: Op, given: list[Shape]) -> list[Shape]:
    image, weight, rank = _filters(op, given)
    _per_axis(op, rank, "stride", "output_padding", "pad_amount")
    groups = op.args["group"]
    _need(weight[-2] == image[-1] and image[-1] % groups == 0, "filters must fit the channels", weight)
    _bias(given, weight[-1] * groups, groups)
    sizes = [
        (n - 1) * op.args["stride"][i] + weight[i] + op.args["output_padding"][i] - sum(op.args["pad_amount"][i])
        for i, n in enumerate(image[1:-1])
    ]
    _need(min(sizes) > 0, "nothing is left", sizes)
    return [(image[0], *sizes, weight[-1] * groups)]


def _fully_connected(op: Op, given: list[Shape]) -> list[Shape]:
    x, weight = given[:2]
    _need(len(x) == 2 == len(weight) and x[1] == weight[1], "rows must fit their weights", (x, weight))
    _bias(given, weight[0])
    return [(x[0], weight[0])]


def _matmul(op: Op, given: list[Shape]) -> list[Shape]:
    a, b = (list(s) for s in given[:2])
    _need(len(a) >= 2 and len(b) >= 2, "must be matrices", (a, b))
    a = [*a[:-2], a[-1], a[-2]] if op.args["transpose_in0"] else a
    b = [*b[:-2], b[-1], b[-2]] if op.args["transpose_in1"] else b
    _need(a[-1] == b[-2], "matrices must fit", (a, b))
    _bias(given, b[-1])
    return [(*np.broadcast_shapes(tuple(a[:-2]), tuple(b[:-2])), a[-2], b[-1])]


def _pool(op: Op, given: list[Shape]) -> list[Shape]:
    (image,) = given
    rank = len(image) - 2
    _need(rank in (2, 3), "must be images", image)
    _per_axis(op, rank, "filter_size", "stride", "pad_amount")
    _need(math.prod(op.args["filter_size"]) <= 1 << 20, "windows must be of a moderate size", op.args["filter_size"])
    declared, sizes = op.outputs[0].bound if op.outputs[0] is not None else (), []
    _need(len(declared) == len(image), "must give an image", declared)
    for i, n in enumerate(image[1:-1]):
        exact = _window(op, n, i, op.args["filter_size"][i], op.args["stride"][i], 1)
        more = op.args["rounding_mode"] and declared[i + 1] == exact + 1  # a window that hangs over the edge
        sizes.append(exact + bool(more))
    return [(image[0], *sizes, image[-1])]


def _resized(op: Op, given: list[Shape]) -> list[Shape]:
    image, out = given[0], op.outputs[0].bound if op.outputs[0] is not None else ()
    ends = len(image) == 4 == len(out) and min((*image, *out)) > 0
    _need(ends and (image[0], image[3]) == (out[0], out[3]), "must be images with the same channels", (image, out))
    if "interpolation_mode" in op.args:
        _need(op.args["interpolation_mode"] in (1, 2), "must be linear or cubic", op.args["interpolation_mode"])
    return [out]


def _grid(op: Op, given: list[Shape]) -> list[Shape]:
    x, grid = given
    _need(len(x) in (4, 5) and len(grid) == len(x) and grid[0] == x[0] and grid[-1] == len(x) - 2, "must fit", given)
    _need(op.args["mode"] < 2 and op.args["padding_mode"] < 3 and min(x) > 0, "must be a known mode", op.args["mode"])
    return [(*grid[:-1], x[-1])]


def _axes(op: Op, given: list[Shape]) -> list[int]:
    axes = op.args["axes"] if "axes" in op.args else [op.args["axis"]]
    _need(bool(axes) and len(set(axes)) == len(axes) and max(axes) < len(given[0]), "must be dimensions", axes)
    _need(min(given[0], default=1) > 0, "must have elements", given[0])
    return list(axes)


def _reduced(op: Op, given: list[Shape]) -> list[Shape]:
    axes, kept = _axes(op, given), bool(op.args["keep_dims"])
    return [tuple(1 if i in axes else n for i, n in enumerate(given[0]) if kept or i not in axes)]


def _along(op: Op, given: list[Shape]) -> list[Shape]:
    _axes(op, given)
    return _onto_first(op, given)


def _grouped(op: Op, given: list[Shape]) -> list[Shape]:
    _need(len(given[0]) > 2 and given[0][-1] % op.args["group"] == 0, "groups must be alike", given[0])
    return _onto_first(op, given)


def _power_of_two(op: Op, given: list[Shape]) -> list[Shape]:
    size = given[0][-1]
    _need(size > 0 and size & (size - 1) == 0, "must be a power of two", size)
    return [given[0]]


def _reshape(op: Op, given: list[Shape]) -> list[Shape]:
    out = op.outputs[0].bound if op.outputs[0] is not None else ()
    _need(math.prod(out) == math.prod(given[0]), "elements must stay as many", out)
    return [out]


def _transpose(op: Op, given: list[Shape]) -> list[Shape]:
    perm = op.args["perm"]
    _need(sorted(perm) == list(range(len(given[0]))), "dimensions must each be named once", perm)
    return [tuple(given[0][d] for d in perm)]


def _concat(op: Op, given: list[Shape]) -> list[Shape]:
    axis = op.args["axis"]
    _need(all(len(s) > axis for s in given), "must be a dimension", axis)
    rest = {(*s[:axis], *s[axis + 1 :]) for s in given}
    _need(len(rest) == 1, "tensors must agree in every other dimension", given[:4])
    return [(*given[0][:axis], sum(s[axis] for s in given), *given[0][axis + 1 :])]


def _pack(op: Op, given: list[Shape]) -> list[Shape]:
    axis = op.args["axis"]
    _need(len(set(given)) == 1 and axis <= len(given[0]), "tensors must be alike", given[:4])
    return [(*given[0][:axis], len(given), *given[0][axis:])]


def _split(op: Op, given: list[Shape]) -> list[Shape]:
    (axis,), size = _axes(op, given), given[0][op.args["axis"]]
    cuts = [0, *op.args.get("split_index", range(1, size)), size]
    parts = [b - a for a, b in pairwise(cuts)]
    _need(min(parts) > 0, "cuts must be in order", cuts)
    middle = (lambda n: (n,)) if "split_index" in op.args else (lambda n: ())
    return [(*given[0][:axis], *middle(n), *given[0][axis + 1 :]) for n in parts]


def _sliced(op: Op, given: list[Shape]) -> list[Shape]:
    made = []
    _need(len(op.args["ranges"]) == len(given[0]), "must have a range for each dimension", op.args["ranges"])
    for axis, (size, (begin, end, step)) in enumerate(zip(given[0], op.args["ranges"], strict=True)):
        if op.args["shrink_axes"] >> axis & 1:
            _need(0 <= begin < size, "must be an element", begin)
            continue
        _need(step != 0 and begin >= 0 and end >= -1, "must be a range", (begin, end, step))
        first = None if op.args["begin_mask"] >> axis & 1 else begin
        last = None if op.args["end_mask"] >> axis & 1 or (step < 0 and end < 0) else end
        made.append(len(range(*slice(first, last, step).indices(size))))
    return [tuple(made)]


def _tile(op: Op, given: list[Shape]) -> list[Shape]:
    _need(len(op.args["multiples"]) == len(given[0]), "must have a number for each dimension", op.args["multiples"])
    return [tuple(n * m for n, m in zip(given[0], op.args["multiples"], strict=True))]


def _pad(op: Op, given: list[Shape]) -> list[Shape]:
    _per_axis(op, len(given[0]), "pad_amount")
    _need(op.args["scheme"] <= 3 and min(given[0], default=1) > 0, "must be a known way to pad", op.args["scheme"])
    return [tuple(n + a + b for n, (a, b) in zip(given[0], op.args["pad_amount"], strict=True))]


def _shuffled(op: Op, given: list[Shape]) -> list[Shape]:
    (axis,) = _axes(op, given)
    _need(given[0][axis] % op.args["num_groups"] == 0, "groups must be alike", given[0])
    return [given[0]]


def _blocks(deep: bool) -> Rule:
    def rule(op: Op, given: list[Shape]) -> list[Shape]:
        _need(len(given[0]) == 4 and len(op.args["block_size"]) == 2, "must be an image, in blocks", given[0])
        (batch, height, width, channels), (down, along) = given[0], op.args["block_size"]
        if deep:
            _need(height % down == 0 and width % along == 0, "blocks must be whole", given[0])
            return [(batch, height // down, width // along, channels * down * along)]
        _need(channels % (down * along) == 0, "blocks must be whole", given[0])
        return [(batch, height * down, width * along, channels // (down * along))]

    return rule


def _gather(op: Op, given: list[Shape]) -> list[Shape]:
    (axis,) = _axes(op, given)
    _need(op.args["inputs"][1].dtype.kind in "iu", "must be whole numbers", str(op.args["inputs"][1].dtype))
    return [(*given[0][:axis], *given[1], *given[0][axis + 1 :])]


def _gather_elements(op: Op, given: list[Shape]) -> list[Shape]:
    (axis,) = _axes(op, given)
    fits = len(given[0]) == len(given[1]) and all(
        n <= m for i, (m, n) in enumerate(zip(*given[:2], strict=True)) if i != axis
    )
    _need(fits and op.args["inputs"][1].dtype.kind in "iu", "must fit what is read", given)
    return [given[1]]


def _scatter_elements(op: Op, given: list[Shape]) -> list[Shape]:
    _gather_elements(op, given)
    _need(given[1] == given[2] and op.args["reduction"] < 3, "must have an index for each update", given[1:])
    return [given[0]]


def _scatter_nd(op: Op, given: list[Shape]) -> list[Shape]:
    x, index, updates = given
    _need(len(index) > 0 and 0 < index[-1] <= len(x), "must index its tensor", index)
    _need(updates == (*index[:-1], *x[index[-1] :]) and op.args["reduction"] < 3, "must fit its places", updates)
    _need(op.args["inputs"][1].dtype.kind in "iu", "must be whole numbers", str(op.args["inputs"][1].dtype))
    return [x]


def _top(op: Op, given: list[Shape]) -> list[Shape]:
    _need(bool(given[0]) and op.args["k"] <= given[0][-1], "must be at most as many as there are", op.args["k"])
    return [(*given[0][:-1], op.args["k"])] * 2


def _each(rule: Rule, names: Sequence[str]) -> dict[str, Rule]:
    return dict.fromkeys(names, rule)


SINGLE = ("Relu", "Relu6", "ReluMinMax", "Sigmoid", "Tanh", "Gelu", "HardSwish", "Elu", "IsNan", "IsInf", "Cast",
          "Convert", "Quantize", "Dequantize")  # fmt: skip
RULES: dict[str, Rule] = {
    **_each(_same, [*(f"ElementWise{n}" for n in UNARY), *SINGLE]),
    **_each(_broadcast, [*(f"ElementWise{n}" for n in BINARY), "ElementWiseSelect"]),
    **_each(_onto_first, ["Prelu", "Batchnorm", "InstanceNorm"]),
    **_each(_convolution, ["Conv2d", "Conv3d", "DepthWiseConv2d"]),
    **_each(_grown, ["TransposeConv2d", "TransposeConv3d"]),
    **_each(_pool, ["PoolMax2d", "PoolAvg2d", "PoolAvg3d"]),
    **_each(_resized, ["ResizeNearestNeighbor", "ResizeBilinear", "Resize"]),
    **_each(_reduced, ["ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "Argmax", "Argmin"]),
    **_each(_along, ["CumulativeSum", "Softmax", "LogSoftmax", "LayerNorm", "RmsNorm", "L2Norm"]),
    "ElementWiseUnary": _numbered(16), "ElementWiseBinary": _numbered(20), "ElementWiseNeuron": _numbered(9),
    "FullyConnected": _fully_connected, "MatMul": _matmul, "GridSample": _grid, "GroupNorm": _grouped,
    "HadamardTransform": _power_of_two, "Reshape": _reshape, "Transpose": _transpose, "Concat": _concat,
    "Pack": _pack, "UnPack": _split, "Split": _split, "StridedSlice": _sliced, "Tile": _tile, "Pad": _pad,
    "ChannelShuffle": _shuffled, "DepthToSpace": _blocks(False), "SpaceToDepth": _blocks(True), "Gather": _gather,
    "GatherElements": _gather_elements, "ScatterElements": _scatter_elements, "ScatterNd": _scatter_nd, "TopK": _top,
}  # fmt: skip
