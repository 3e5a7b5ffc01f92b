"""Shape inference of a host twin's operators; inconsistent parameters are rejected."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from edgewright.backends.qualcomm.dialect.elementwise import ACTIVATIONS, BINARY, UNARY
from edgewright.backends.qualcomm.dialect.table import PREFIX
from edgewright.errors import FormatError
from edgewright.ir.graph import Op

Shape = tuple[int, ...]
ShapeRule = Callable[[Op, list[Shape]], list[Shape]]


def require(condition: bool, rule: str, value: object) -> None:
    """Raise ``FormatError`` unless ``condition`` holds."""
    if not condition:
        raise FormatError(rule, value=value)


def require_per_axis(op: Op, rank: int, *names: str) -> None:
    """Require one number (a pair for ``pad_amount``) per dimension."""
    for name in names:
        require(len(op.args[name]) == rank, f"must have {rank} numbers", f"{name} {op.args[name]}"[:80])
        if name == "pad_amount":
            require(all(len(pair) == 2 for pair in op.args[name]), "must be pairs", name)


def checked_axes(op: Op, shapes: list[Shape]) -> list[int]:
    """The ``axes`` or ``axis`` of an operator; raises unless they are distinct dimensions of the first operand."""
    axes = op.args["axes"] if "axes" in op.args else [op.args["axis"]]
    require(bool(axes) and len(set(axes)) == len(axes) and max(axes) < len(shapes[0]), "must be dimensions", axes)
    require(min(shapes[0], default=1) > 0, "must have elements", shapes[0])
    return list(axes)


def _output_size(op: Op, size: int, i: int, window: int, stride: int, dilation: int) -> int:
    """Output size along one dimension."""
    before, after = op.args["pad_amount"][i]
    reach = (window - 1) * dilation + 1
    room = size + before + after - reach
    require(room >= 0 and window > 0, "a window must fit its padded image", f"{reach} in {size}")
    return room // stride + 1


def _filters(op: Op, shapes: list[Shape]) -> tuple[Shape, Shape, int]:
    image, weight = shapes[:2]
    rank = len(weight) - 2
    require(rank in (2, 3) and len(image) == rank + 2, "must have images and filters of one rank", (image, weight))
    return image, weight, rank


def _bias(shapes: list[Shape], channels: int, groups: int = 1) -> None:
    sizes = (channels, channels // groups)
    require(len(shapes) < 3 or math.prod(shapes[2]) in sizes, f"the bias must have {channels} elements", shapes[2:])


def convolution(op: Op, shapes: list[Shape]) -> list[Shape]:
    image, weight, rank = _filters(op, shapes)
    require_per_axis(op, rank, "stride", "dilation", "pad_amount")
    deep = op.kind.endswith("DepthWiseConv2d")
    groups = image[-1] // max(weight[-2], 1) if deep else op.args["group"]
    fits = weight[-2] * groups == image[-1] and weight[-1] % max(groups, 1) == 0 and (not deep or weight[-2] == 1)
    require(fits, "filters must fit the channels of each group", weight)
    _bias(shapes, weight[-1])
    sizes = [_output_size(op, n, i, weight[i], op.args["stride"][i], op.args["dilation"][i]) for i, n in
             enumerate(image[1:-1])]  # fmt: skip
    return [(image[0], *sizes, weight[-1])]


def conv_transpose(op: Op, shapes: list[Shape]) -> list[Shape]:
    image, weight, rank = _filters(op, shapes)
    require_per_axis(op, rank, "stride", "output_padding", "pad_amount")
    groups = op.args["group"]
    require(weight[-2] == image[-1] and image[-1] % groups == 0, "filters must fit the channels", weight)
    _bias(shapes, weight[-1] * groups, groups)
    sizes = [
        (n - 1) * op.args["stride"][i] + weight[i] + op.args["output_padding"][i] - sum(op.args["pad_amount"][i])
        for i, n in enumerate(image[1:-1])
    ]
    require(min(sizes) > 0, "must have a positive output size", sizes)
    return [(image[0], *sizes, weight[-1] * groups)]


def fully_connected(op: Op, shapes: list[Shape]) -> list[Shape]:
    x, weight = shapes[:2]
    require(len(x) == 2 == len(weight) and x[1] == weight[1], "rows must fit their weights", (x, weight))
    _bias(shapes, weight[0])
    return [(x[0], weight[0])]


def matmul(op: Op, shapes: list[Shape]) -> list[Shape]:
    a, b = (list(s) for s in shapes[:2])
    require(len(a) >= 2 and len(b) >= 2, "must be matrices", (a, b))
    a = [*a[:-2], a[-1], a[-2]] if op.args["transpose_in0"] else a
    b = [*b[:-2], b[-1], b[-2]] if op.args["transpose_in1"] else b
    require(a[-1] == b[-2], "matrices must fit", (a, b))
    _bias(shapes, b[-1])
    return [(*np.broadcast_shapes(tuple(a[:-2]), tuple(b[:-2])), a[-2], b[-1])]


def pool(op: Op, shapes: list[Shape]) -> list[Shape]:
    (image,) = shapes
    rank = len(image) - 2
    require(rank in (2, 3), "must be images", image)
    require_per_axis(op, rank, "filter_size", "stride", "pad_amount")
    require(
        math.prod(op.args["filter_size"]) <= 1 << 20,
        "must have at most 2^20 elements",
        op.args["filter_size"],
    )
    declared, sizes = op.outputs[0].bound if op.outputs[0] is not None else (), []
    require(len(declared) == len(image), "must give an image", declared)
    for i, n in enumerate(image[1:-1]):
        exact = _output_size(op, n, i, op.args["filter_size"][i], op.args["stride"][i], 1)
        more = op.args["rounding_mode"] and declared[i + 1] == exact + 1  # a window that extends past the edge
        sizes.append(exact + bool(more))
    return [(image[0], *sizes, image[-1])]


def resize(op: Op, shapes: list[Shape]) -> list[Shape]:
    image, out = shapes[0], op.outputs[0].bound if op.outputs[0] is not None else ()
    ends = len(image) == 4 == len(out) and min((*image, *out)) > 0
    require(ends and (image[0], image[3]) == (out[0], out[3]), "must be images with the same channels", (image, out))
    if op.kind.endswith("ResizeBilinear"):
        centered = op.args["align_corners"] or op.args["half_pixel_centers"]
        require(centered, "must align the corners or the pixels' centers", "neither")
    if "interpolation_mode" in op.args:
        require(op.args["interpolation_mode"] in (1, 2), "must be linear or cubic", op.args["interpolation_mode"])
    return [out]


def grid_sample(op: Op, shapes: list[Shape]) -> list[Shape]:
    x, grid = shapes
    require(
        len(x) in (4, 5) and len(grid) == len(x) and grid[0] == x[0] and grid[-1] == len(x) - 2,
        "must fit",
        shapes,
    )
    require(op.args["mode"] < 2 and op.args["padding_mode"] < 3 and min(x) > 0, "must be a known mode", op.args["mode"])
    return [(*grid[:-1], x[-1])]


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
    require(shapes[1] == shapes[2], "must have an index for each update", shapes[1:])
    _replaces(op)
    return [shapes[0]]


def _replaces(op: Op) -> None:
    require(op.args["reduction"] == 0, "must replace elements, not add or multiply", op.args["reduction"])


def scatter_nd(op: Op, shapes: list[Shape]) -> list[Shape]:
    x, index, updates = shapes
    require(len(index) > 0 and 0 < index[-1] <= len(x), "must index its tensor", index)
    require(updates == (*index[:-1], *x[index[-1] :]), "must fit its indices", updates)
    _replaces(op)
    require(op.args["inputs"][1].dtype.kind in "iu", "must be integers", str(op.args["inputs"][1].dtype))
    return [x]


def top_k(op: Op, shapes: list[Shape]) -> list[Shape]:
    require(
        bool(shapes[0]) and op.args["k"] <= shapes[0][-1],
        "must be at most the size of the last dimension",
        op.args["k"],
    )
    return [(*shapes[0][:-1], op.args["k"])] * 2


def infer_shapes(op: Op) -> list[Shape]:
    """Infer output shapes. A scalar has rank 1 in QNN, but keeps rank 0 in elementwise operators."""
    shapes = [v.bound if is_elementwise(op) else v.bound or (1,) for v in op.args["inputs"]]
    return [tuple(int(n) for n in s) for s in RULES[op.kind.removeprefix(PREFIX)](op, shapes)]


def is_elementwise(op: Op) -> bool:
    return op.kind.removeprefix(PREFIX) in ELEMENTWISE


def _like_first(op: Op, shapes: list[Shape]) -> list[Shape]:
    return [shapes[0]]


def _broadcast(op: Op, shapes: list[Shape]) -> list[Shape]:
    return [np.broadcast_shapes(*shapes)]


def _onto_first(op: Op, shapes: list[Shape]) -> list[Shape]:
    """The first shape; further operands must broadcast to it."""
    for shape in shapes[1:]:
        require(np.broadcast_shapes(shapes[0], shape) == shapes[0], "must fit the last dimension", shape)
    return [shapes[0]]


def _by_code(count: int) -> ShapeRule:
    def rule(op: Op, shapes: list[Shape]) -> list[Shape]:
        require(op.args["operation"] < count, f"must be below {count}", op.args["operation"])
        return _broadcast(op, shapes)

    return rule


def _reduce(op: Op, shapes: list[Shape]) -> list[Shape]:
    axes, keep = checked_axes(op, shapes), bool(op.args["keep_dims"])
    return [tuple(1 if i in axes else n for i, n in enumerate(shapes[0]) if keep or i not in axes)]


def _along_axes(op: Op, shapes: list[Shape]) -> list[Shape]:
    checked_axes(op, shapes)
    return _onto_first(op, shapes)


def _softmax(op: Op, shapes: list[Shape]) -> list[Shape]:
    require(op.args["beta"] == 1, "must be 1", op.args["beta"])
    return _along_axes(op, shapes)


def _row_norm(op: Op, shapes: list[Shape]) -> list[Shape]:
    """Of the last dimensions."""
    axes, rank = sorted(checked_axes(op, shapes)), len(shapes[0])
    require(axes == list(range(rank - len(axes), rank)), "must be the last dimensions", axes)
    _onto_first(op, [shapes[0][axes[0] :], *shapes[1:]])
    return [shapes[0]]


def _image_norm(op: Op, shapes: list[Shape]) -> list[Shape]:
    """Of the channels of images."""
    require(len(shapes[0]) > 2 and min(shapes[0]) > 0, "must be images", shapes[0])
    _onto_first(op, [shapes[0][-1:], *shapes[1:]])
    return [shapes[0]]


def _group_norm(op: Op, shapes: list[Shape]) -> list[Shape]:
    require(len(shapes[0]) > 2 and shapes[0][-1] % op.args["group"] == 0, "must be divisible into groups", shapes[0])
    return _image_norm(op, shapes)


def _rule_for(rule: ShapeRule, names: Sequence[str]) -> dict[str, ShapeRule]:
    return dict.fromkeys(names, rule)


OTHER_UNARY = ("Relu", "Relu6", "ReluMinMax", *ACTIVATIONS, "Elu", "IsNan", "IsInf", "Cast", "Convert", "Quantize",
               "Dequantize")  # fmt: skip
ELEMENTWISE: dict[str, ShapeRule] = {
    **_rule_for(_like_first, [*(f"ElementWise{n}" for n in UNARY), *OTHER_UNARY]),
    **_rule_for(_broadcast, [*(f"ElementWise{n}" for n in BINARY), "ElementWiseSelect"]),
    "ElementWiseUnary": _by_code(16), "ElementWiseBinary": _by_code(20), "ElementWiseNeuron": _by_code(9),
}  # fmt: skip
RULES: dict[str, ShapeRule] = {
    **ELEMENTWISE,
    **_rule_for(_onto_first, ["Prelu", "Batchnorm"]),
    **_rule_for(convolution, ["Conv2d", "Conv3d", "DepthWiseConv2d"]),
    **_rule_for(conv_transpose, ["TransposeConv2d", "TransposeConv3d"]),
    **_rule_for(pool, ["PoolMax2d", "PoolAvg2d", "PoolAvg3d"]),
    **_rule_for(resize, ["ResizeNearestNeighbor", "ResizeBilinear", "Resize"]),
    **_rule_for(_reduce, ["ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "Argmax", "Argmin"]),
    **_rule_for(_softmax, ["Softmax", "LogSoftmax"]), **_rule_for(_row_norm, ["LayerNorm", "RmsNorm"]),
    "CumulativeSum": _along_axes, "InstanceNorm": _image_norm,
    "FullyConnected": fully_connected, "MatMul": matmul, "GridSample": grid_sample,
    "GroupNorm": _group_norm, "Reshape": reshape,
    "Transpose": transpose, "Concat": concat, "Pack": pack, "UnPack": split,
    "Split": split, "StridedSlice": strided_slice, "Tile": tile, "Pad": pad,
    "ChannelShuffle": channel_shuffle, "DepthToSpace": block_shape(False),
    "SpaceToDepth": block_shape(True),
    "Gather": gather, "GatherElements": gather_elements, "ScatterElements": scatter_elements,
    "ScatterNd": scatter_nd, "TopK": top_k,
}  # fmt: skip
