"""What shape a TFLite operator gives, and how many elements it makes on the way beside operands and result.

Nothing is believed: what does not fit is a ``FormatError``. Tensors have at least one element along each dimension.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from edgewright.errors import FormatError
from edgewright.ir.graph import Op
from edgewright.ir.tflite.table import VALID

Shape = tuple[int, ...]
Rule = Callable[[Op, list[Shape]], tuple[Shape, int]]


def need(condition: bool, rule: str, where: str, value: object) -> None:
    if not condition:
        raise FormatError(rule, where=where, value=value)


def numbers(op: Op, place: int, *shape: int) -> list[int]:
    """The integers of a constant operand, which has this shape."""
    data = op.args["inputs"][place].data
    need(data.shape == shape, f"must have the shape {list(shape)}", f"inputs[{place}]", list(data.shape))
    return [int(n) for n in data.reshape(-1)]


def _out(op: Op) -> Shape:
    assert op.outputs[0] is not None
    return op.outputs[0].bound


def _same(op: Op, given: list[Shape]) -> tuple[Shape, int]:
    return given[0], 0


def _broadcast(op: Op, given: list[Shape]) -> tuple[Shape, int]:
    try:
        return np.broadcast_shapes(*given), 0
    except ValueError:
        raise FormatError("must broadcast to one shape", where="inputs", value=given) from None


def _onto_first(op: Op, given: list[Shape]) -> tuple[Shape, int]:
    made, _ = _broadcast(op, given)
    need(made == given[0], f"must fit {list(given[0])}", "inputs[1]", given[1])
    return made, 0


# ------------------------------------------------------------------------------------------------ windows, products


def _image(given: list[Shape], place: int = 0) -> Shape:
    need(len(given[place]) == 4, "must have four dimensions", f"inputs[{place}]", given[place])
    return given[place]


def _steps(op: Op) -> tuple[int, int]:
    need(op.args["padding"] == VALID, f"must be {VALID}: padding is an operator of its own", "padding",
         op.args["padding"])  # fmt: skip
    return op.args["stride_h"], op.args["stride_w"]


def _windows(op: Op, image: Shape, kernel: Sequence[int], dilation: Sequence[int]) -> list[int]:
    """How many windows there are along each side; each is within the image."""
    found = []
    for size, k, d, s in zip(image[1:3], kernel, dilation, _steps(op), strict=True):
        reach = (k - 1) * d + 1
        need(reach <= size, "a window must fit in its image", "kernel", f"{reach} in {size}")
        found.append((size - reach) // s + 1)
    return found


def _convolution(op: Op, given: list[Shape]) -> tuple[Shape, int]:
    image, weight, bias = _image(given), _image(given, 1), given[2]
    deep = op.kind.endswith("DEPTHWISE_CONV_2D")
    need(weight[3] == image[3] and (not deep or weight[0] == 1), "must have the channels of the image", "inputs[1]",
         weight)  # fmt: skip
    need(not deep or op.args["depth_multiplier"] == 1, "must be 1", "depth_multiplier", op.args.get("depth_multiplier"))
    channels = weight[3] if deep else weight[0]
    need(bias == (channels,), f"must have {channels} elements", "inputs[2]", bias)
    sizes = _windows(op, image, weight[1:3], (op.args["dilation_h"], op.args["dilation_w"]))
    return (image[0], *sizes, channels), image[0] * math.prod(sizes) * math.prod(weight[1:])


def _transposed(op: Op, given: list[Shape]) -> tuple[Shape, int]:
    weight, image, bias, out = _image(given, 1), _image(given, 2), given[3], _out(op)
    need(weight[3] == image[3], "must have the channels of the image", "inputs[1]", weight)
    need(bias == weight[:1], f"must have {weight[0]} elements", "inputs[3]", bias)
    full = [(n - 1) * s + k for n, s, k in zip(image[1:3], _steps(op), weight[1:3], strict=True)]
    made = tuple(numbers(op, 0, 4))
    fits = made[::3] == (image[0], weight[0]) and all(0 < n <= most for n, most in zip(made[1:3], full, strict=True))
    need(fits, f"must be within {[image[0], *full, weight[0]]}", "inputs[0]", made)
    need(made == out, "must be the result's shape", "inputs[0]", made)
    return made, image[0] * weight[0] * math.prod(full)


def _pool(op: Op, given: list[Shape]) -> tuple[Shape, int]:
    image, kernel = _image(given), (op.args["filter_h"], op.args["filter_w"])
    made = (image[0], *_windows(op, image, kernel, (1, 1)), image[3])
    return made, math.prod(made) * math.prod(kernel)


def _rows(op: Op, given: list[Shape]) -> tuple[Shape, int]:
    x, weight, bias = given
    need(len(weight) == 2 and len(x) >= 1 and x[-1] == weight[1], f"must fit rows of {x[-1:]}", "inputs[1]", weight)
    need(bias == weight[:1], f"must have {weight[0]} elements", "inputs[2]", bias)
    need(bool(op.args["keep_num_dims"]) or len(x) == 2, "must be true of more than rows", "keep_num_dims", len(x))
    return (*x[:-1], weight[0]), 0


def _matmul(op: Op, given: list[Shape]) -> tuple[Shape, int]:
    a, b = given
    need(len(a) >= 2 and len(b) >= 2 and a[-1] == b[-2], "must fit the first matrix", "inputs[1]", (a, b))
    outer, _ = _broadcast(op, [a[:-2], b[:-2]])
    return (*outer, a[-2], b[-1]), 0


def _resized(op: Op, given: list[Shape]) -> tuple[Shape, int]:
    image = _image(given)
    made = (image[0], *numbers(op, 1, 2), image[3])
    aligned, half = bool(op.args["align_corners"]), bool(op.args["half_pixel_centers"])
    nearest = op.kind.endswith("NEAREST_NEIGHBOR")
    need(not (aligned or half) if nearest else not (aligned and half), "must not be true here",
         "align_corners and half_pixel_centers", (aligned, half))  # fmt: skip
    return made, 8 * math.prod(made)


# ------------------------------------------------------------------------------------------------------------ moves


def _reshape(op: Op, given: list[Shape]) -> tuple[Shape, int]:
    made = tuple(numbers(op, 1, *given[1]))
    need(len(given[1]) == 1 and math.prod(made) == math.prod(given[0]) and min(made, default=1) > 0,
         f"must have {math.prod(given[0])} elements", "inputs[1]", made)  # fmt: skip
    return made, 0


def _transpose(op: Op, given: list[Shape]) -> tuple[Shape, int]:
    perm = numbers(op, 1, len(given[0]))
    need(sorted(perm) == list(range(len(given[0]))), "must name each dimension once", "inputs[1]", perm)
    return tuple(given[0][d] for d in perm), 0


def _concatenation(op: Op, given: list[Shape]) -> tuple[Shape, int]:
    rank, axis = len(given[0]), op.args["axis"]
    need(-rank <= axis < rank, f"must be a dimension of {list(given[0])}", "axis", axis)
    axis %= rank
    rest = {(*s[:axis], *s[axis + 1 :]) for s in given}
    need(len(rest) == 1 and len({len(s) for s in given}) == 1, "must agree in every other dimension", "inputs", given)
    return (*given[0][:axis], sum(s[axis] for s in given), *given[0][axis + 1 :]), 0


def _slice(op: Op, given: list[Shape]) -> tuple[Shape, int]:
    begin, size = (numbers(op, place, len(given[0])) for place in (1, 2))
    inside = all(a >= 0 and n > 0 and a + n <= most for a, n, most in zip(begin, size, given[0], strict=True))
    need(inside, f"must be inside {list(given[0])}", "inputs[2]", (begin, size))
    return tuple(size), 0


def _pad(op: Op, given: list[Shape]) -> tuple[Shape, int]:
    shape = given[0]
    widths = np.asarray(numbers(op, 1, len(shape), 2)).reshape(-1, 2).tolist()
    need(all(min(pair) >= 0 for pair in widths), "must not be negative", "inputs[1]", widths)
    if op.kind.endswith("MIRROR_PAD"):
        need(op.args["mode"] in (0, 1), "must be 0 or 1", "mode", op.args["mode"])
        within = all(max(pair) <= n - 1 + op.args["mode"] for pair, n in zip(widths, shape, strict=True))
        need(within, "must be within the tensor that is mirrored", "inputs[1]", widths)
    else:
        need(math.prod(given[2]) == 1, "must be one number", "inputs[2]", given[2])
    return tuple(n + a + b for n, (a, b) in zip(shape, widths, strict=True)), 0


def _reduced(op: Op, given: list[Shape]) -> tuple[Shape, int]:
    shape, rank = given[0], len(given[0])
    axes = [int(a) for a in np.atleast_1d(op.args["inputs"][1].data)] if len(given[1]) < 2 else []
    gone = {a % rank for a in axes if -rank <= a < rank}
    need(len(gone) == len(axes) > 0, f"must be different dimensions of {list(shape)}", "inputs[1]", axes)
    kept = bool(op.args["keep_dims"])
    return tuple(1 if d in gone else n for d, n in enumerate(shape) if kept or d not in gone), 0


def shape_of(op: Op, name: str) -> tuple[Shape, int]:
    """The result's shape, and elements that are made on the way."""
    return RULES.get(name, _same)(op, [v.bound for v in op.args["inputs"]])


RULES: dict[str, Rule] = {
    **dict.fromkeys(("ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM"), _broadcast),
    **dict.fromkeys(("CONV_2D", "DEPTHWISE_CONV_2D"), _convolution),
    **dict.fromkeys(("MAX_POOL_2D", "AVERAGE_POOL_2D"), _pool),
    **dict.fromkeys(("PADV2", "MIRROR_PAD"), _pad),
    **dict.fromkeys(("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"), _resized),
    **dict.fromkeys(("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN"), _reduced),
    "TRANSPOSE_CONV": _transposed, "FULLY_CONNECTED": _rows, "BATCH_MATMUL": _matmul, "PRELU": _onto_first,
    "RESHAPE": _reshape, "TRANSPOSE": _transpose, "CONCATENATION": _concatenation, "SLICE": _slice,
}  # fmt: skip
