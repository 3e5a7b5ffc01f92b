"""Shape inference of TFLite operators: output shape, and the number of elements of temporaries.

Graphs are untrusted: inconsistent shapes raise ``FormatError``. No dimension is 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from edgewright.backends.nxp.dialect.table import VALID
from edgewright.errors import FormatError
from edgewright.ir.graph import Op

Shape = tuple[int, ...]
ShapeRule = Callable[[Op, list[Shape]], tuple[Shape, int]]


def require(condition: bool, rule: str, where: str, value: object) -> None:
    if not condition:
        raise FormatError(rule, where=where, value=value)


def constant_ints(op: Op, index: int, *shape: int) -> list[int]:
    """Values of a constant integer input, which must have the given shape."""
    data = op.args["inputs"][index].data
    require(data.shape == shape, f"must have the shape {list(shape)}", f"inputs[{index}]", list(data.shape))
    return [int(n) for n in data.reshape(-1)]


def _out(op: Op) -> Shape:
    assert op.outputs[0] is not None
    return op.outputs[0].bound


def _same_shape(op: Op, shapes: list[Shape]) -> tuple[Shape, int]:
    return shapes[0], 0


def _broadcast(op: Op, shapes: list[Shape]) -> tuple[Shape, int]:
    try:
        return np.broadcast_shapes(*shapes), 0
    except ValueError:
        raise FormatError("must broadcast to one shape", where="inputs", value=shapes) from None


def _broadcast_to_first(op: Op, shapes: list[Shape]) -> tuple[Shape, int]:
    shape, _ = _broadcast(op, shapes)
    require(shape == shapes[0], f"must fit {list(shapes[0])}", "inputs[1]", shapes[1])
    return shape, 0


# ------------------------------------------------------------------------------------------------ windows, products


def _rank4(shapes: list[Shape], index: int = 0) -> Shape:
    require(len(shapes[index]) == 4, "must have four dimensions", f"inputs[{index}]", shapes[index])
    return shapes[index]


def _strides(op: Op) -> tuple[int, int]:
    require(op.args["padding"] == VALID, f"must be {VALID}: padding is an operator of its own", "padding",
         op.args["padding"])  # fmt: skip
    return op.args["stride_h"], op.args["stride_w"]


def _output_sizes(op: Op, image: Shape, kernel: Sequence[int], dilation: Sequence[int]) -> list[int]:
    """Height and width of the output; every window must be within the image."""
    sizes = []
    for size, k, d, s in zip(image[1:3], kernel, dilation, _strides(op), strict=True):
        reach = (k - 1) * d + 1
        require(reach <= size, "a window must fit in its image", "kernel", f"{reach} in {size}")
        sizes.append((size - reach) // s + 1)
    return sizes


def _convolution(op: Op, shapes: list[Shape]) -> tuple[Shape, int]:
    image, weight, bias = _rank4(shapes), _rank4(shapes, 1), shapes[2]
    depthwise = op.kind.endswith("DEPTHWISE_CONV_2D")
    require(weight[3] == image[3] and (not depthwise or weight[0] == 1), "must have the channels of the image",
            "inputs[1]", weight)  # fmt: skip
    require(
        not depthwise or op.args["depth_multiplier"] == 1,
        "must be 1",
        "depth_multiplier",
        op.args.get("depth_multiplier"),
    )
    channels = weight[3] if depthwise else weight[0]
    require(bias == (channels,), f"must have {channels} elements", "inputs[2]", bias)
    sizes = _output_sizes(op, image, weight[1:3], (op.args["dilation_h"], op.args["dilation_w"]))
    return (image[0], *sizes, channels), image[0] * math.prod(sizes) * math.prod(weight[1:])


def _transpose_conv(op: Op, shapes: list[Shape]) -> tuple[Shape, int]:
    weight, image, bias, out = _rank4(shapes, 1), _rank4(shapes, 2), shapes[3], _out(op)
    require(weight[3] == image[3], "must have the channels of the image", "inputs[1]", weight)
    require(bias == weight[:1], f"must have {weight[0]} elements", "inputs[3]", bias)
    full = [(n - 1) * s + k for n, s, k in zip(image[1:3], _strides(op), weight[1:3], strict=True)]
    shape = tuple(constant_ints(op, 0, 4))
    fits = shape[::3] == (image[0], weight[0]) and all(
        0 < n <= limit for n, limit in zip(shape[1:3], full, strict=True)
    )
    require(fits, f"must be within {[image[0], *full, weight[0]]}", "inputs[0]", shape)
    require(shape == out, "must be the result's shape", "inputs[0]", shape)
    return shape, image[0] * weight[0] * math.prod(full)


def _pool(op: Op, shapes: list[Shape]) -> tuple[Shape, int]:
    image, kernel = _rank4(shapes), (op.args["filter_h"], op.args["filter_w"])
    shape = (image[0], *_output_sizes(op, image, kernel, (1, 1)), image[3])
    return shape, math.prod(shape) * math.prod(kernel)


def _fully_connected(op: Op, shapes: list[Shape]) -> tuple[Shape, int]:
    x, weight, bias = shapes
    require(len(weight) == 2 and len(x) >= 1 and x[-1] == weight[1], f"must fit rows of {x[-1:]}", "inputs[1]", weight)
    require(bias == weight[:1], f"must have {weight[0]} elements", "inputs[2]", bias)
    require(
        bool(op.args["keep_num_dims"]) or len(x) == 2,
        "must be true unless the input is a matrix",
        "keep_num_dims",
        len(x),
    )
    return (*x[:-1], weight[0]), 0


def _matmul(op: Op, shapes: list[Shape]) -> tuple[Shape, int]:
    a, b = shapes
    require(len(a) >= 2 and len(b) >= 2 and a[-1] == b[-2], "must fit the first matrix", "inputs[1]", (a, b))
    outer, _ = _broadcast(op, [a[:-2], b[:-2]])
    return (*outer, a[-2], b[-1]), 0


def _resize(op: Op, shapes: list[Shape]) -> tuple[Shape, int]:
    image = _rank4(shapes)
    shape = (image[0], *constant_ints(op, 1, 2), image[3])
    aligned, half = bool(op.args["align_corners"]), bool(op.args["half_pixel_centers"])
    nearest = op.kind.endswith("NEAREST_NEIGHBOR")
    require(not (aligned or half) if nearest else not (aligned and half), "must not be true here",
         "align_corners and half_pixel_centers", (aligned, half))  # fmt: skip
    return shape, 8 * math.prod(shape)


# ---------------------------------------------------------------------------------------------------- data movement


def _reshape(op: Op, shapes: list[Shape]) -> tuple[Shape, int]:
    shape = tuple(constant_ints(op, 1, *shapes[1]))
    require(len(shapes[1]) == 1 and math.prod(shape) == math.prod(shapes[0]) and min(shape, default=1) > 0,
         f"must have {math.prod(shapes[0])} elements", "inputs[1]", shape)  # fmt: skip
    return shape, 0


def _transpose(op: Op, shapes: list[Shape]) -> tuple[Shape, int]:
    perm = constant_ints(op, 1, len(shapes[0]))
    require(sorted(perm) == list(range(len(shapes[0]))), "must be a permutation of the dimensions", "inputs[1]", perm)
    return tuple(shapes[0][d] for d in perm), 0


def _concatenation(op: Op, shapes: list[Shape]) -> tuple[Shape, int]:
    rank, axis = len(shapes[0]), op.args["axis"]
    require(-rank <= axis < rank, f"must be a dimension of {list(shapes[0])}", "axis", axis)
    axis %= rank
    rest = {(*s[:axis], *s[axis + 1 :]) for s in shapes}
    require(
        len(rest) == 1 and len({len(s) for s in shapes}) == 1, "must agree in every other dimension", "inputs", shapes
    )
    return (*shapes[0][:axis], sum(s[axis] for s in shapes), *shapes[0][axis + 1 :]), 0


def _slice(op: Op, shapes: list[Shape]) -> tuple[Shape, int]:
    begin, size = (constant_ints(op, index, len(shapes[0])) for index in (1, 2))
    inside = all(a >= 0 and n > 0 and a + n <= limit for a, n, limit in zip(begin, size, shapes[0], strict=True))
    require(inside, f"must be inside {list(shapes[0])}", "inputs[2]", (begin, size))
    return tuple(size), 0


def _pad(op: Op, shapes: list[Shape]) -> tuple[Shape, int]:
    shape = shapes[0]
    widths = np.asarray(constant_ints(op, 1, len(shape), 2)).reshape(-1, 2).tolist()
    require(all(min(pair) >= 0 for pair in widths), "must not be negative", "inputs[1]", widths)
    if op.kind.endswith("MIRROR_PAD"):
        require(op.args["mode"] in (0, 1), "must be 0 or 1", "mode", op.args["mode"])
        within = all(max(pair) <= n - 1 + op.args["mode"] for pair, n in zip(widths, shape, strict=True))
        require(within, "must be within the tensor that is mirrored", "inputs[1]", widths)
    else:
        require(math.prod(shapes[2]) == 1, "must be one number", "inputs[2]", shapes[2])
    return tuple(n + a + b for n, (a, b) in zip(shape, widths, strict=True)), 0


def _reduce(op: Op, shapes: list[Shape]) -> tuple[Shape, int]:
    shape, rank = shapes[0], len(shapes[0])
    axes = [int(a) for a in np.atleast_1d(op.args["inputs"][1].data)] if len(shapes[1]) < 2 else []
    reduced = {a % rank for a in axes if -rank <= a < rank}
    require(len(reduced) == len(axes) > 0, f"must be different dimensions of {list(shape)}", "inputs[1]", axes)
    keep_dims = bool(op.args["keep_dims"])
    return tuple(1 if d in reduced else n for d, n in enumerate(shape) if keep_dims or d not in reduced), 0


def infer_shape(op: Op, name: str) -> tuple[Shape, int]:
    """The output shape, and the number of elements of temporaries."""
    return SHAPE_RULES.get(name, _same_shape)(op, [v.bound for v in op.args["inputs"]])


SHAPE_RULES: dict[str, ShapeRule] = {
    **dict.fromkeys(("ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM"), _broadcast),
    **dict.fromkeys(("CONV_2D", "DEPTHWISE_CONV_2D"), _convolution),
    **dict.fromkeys(("MAX_POOL_2D", "AVERAGE_POOL_2D"), _pool),
    **dict.fromkeys(("PADV2", "MIRROR_PAD"), _pad),
    **dict.fromkeys(("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"), _resize),
    **dict.fromkeys(("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN"), _reduce),
    "TRANSPOSE_CONV": _transpose_conv, "FULLY_CONNECTED": _fully_connected, "BATCH_MATMUL": _matmul,
    "PRELU": _broadcast_to_first, "RESHAPE": _reshape, "TRANSPOSE": _transpose, "CONCATENATION": _concatenation,
    "SLICE": _slice,
}  # fmt: skip
