"""Shape inference of matrix products, convolution, pooling and resizing."""

from __future__ import annotations

import math

import numpy as np

from edgewright.ir.graph import Op
from edgewright.ir.qnn.shape_checks import Shape, require, require_per_axis


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
