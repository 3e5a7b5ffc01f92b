"""Shape inference of TOSA operators, with the number of temporary elements each needs.

Arguments are untrusted: a mismatch raises ``FormatError``. Every dimension has at least one element.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from edgewright.errors import FormatError
from edgewright.ir.graph import Op

Shape = tuple[int, ...]
ShapeRule = Callable[[Op], tuple[Shape, int]]


def require(condition: bool, rule: str, where: str, value: object) -> None:
    if not condition:
        raise FormatError(rule, where=where, value=value)


def _shape(op: Op, name: str, rank: int | None = None) -> Shape:
    shape: Shape = op.args[name].bound
    require(rank is None or len(shape) == rank, f"must have {rank} dimensions", name, shape)
    return shape


def _int_list(op: Op, name: str, count: int) -> list[int]:
    values = list(op.args[name])
    require(len(values) == count, f"must be {count} numbers", name, values)
    return values


def _axis(op: Op, shape: Shape) -> int:
    axis: int = op.args["axis"]
    require(0 <= axis < len(shape), f"must be a dimension of {list(shape)}", "axis", axis)
    return axis


def _same_shape(op: Op) -> tuple[Shape, int]:
    return _shape(op, "input"), 0


def _broadcast(*names: str) -> ShapeRule:
    def rule(op: Op) -> tuple[Shape, int]:
        shapes = [_shape(op, name) for name in names]
        try:
            return np.broadcast_shapes(*shapes), 0
        except ValueError:
            raise FormatError("must broadcast to one shape", where=" and ".join(names), value=shapes) from None

    return rule


# --------------------------------------------------------------------------------------------------------- windows


def _window_counts(image: Sequence[int], kernel: Sequence[int], stride: Sequence[int], pad: Sequence[int],
             dilation: Sequence[int]) -> list[int]:  # fmt: skip
    """Number of windows along each dimension; all are within the padded image."""
    counts = []
    for i, size in enumerate(image):
        padded = size + pad[2 * i] + pad[2 * i + 1]
        extent = (kernel[i] - 1) * dilation[i] + 1
        require(extent <= padded, "a window must fit in the padded image", "kernel", f"{extent} in {padded}")
        counts.append((padded - extent) // stride[i] + 1)
    return counts


def _padded_elements(image: Sequence[int], pad: Sequence[int]) -> int:
    return math.prod(n + pad[2 * i] + pad[2 * i + 1] for i, n in enumerate(image))


def _check_bias(op: Op, channels: int) -> None:
    shape = _shape(op, "bias", 1)
    require(shape in ((channels,), (1,)), f"must have {channels} elements, or one", "bias", shape)


def _convolution(op: Op) -> tuple[Shape, int]:
    rank = 3 if op.kind.endswith("conv3d") else 2
    image, weight = (_shape(op, name, rank + 2) for name in ("input", "weight"))
    depthwise = op.kind.endswith("depthwise_conv2d")
    kernel = weight[:2] if depthwise else weight[1:-1]
    channels = weight[2] * weight[3] if depthwise else weight[0]
    require(
        (weight[2] if depthwise else weight[-1]) == image[-1], "must have the channels of the input", "weight", weight
    )
    _check_bias(op, channels)
    pad, (stride, dilation) = _int_list(op, "pad", 2 * rank), (_int_list(op, n, rank) for n in ("stride", "dilation"))
    sizes = _window_counts(image[1:-1], kernel, stride, pad, dilation)
    taps = math.prod(kernel) * image[-1]
    return (image[0], *sizes, channels), image[0] * (
        math.prod(sizes) * taps + _padded_elements(image[1:-1], pad) * image[-1]
    ) + math.prod(weight)


def _transpose_conv(op: Op) -> tuple[Shape, int]:
    image, weight = _shape(op, "input", 4), _shape(op, "weight", 4)
    require(weight[3] == image[3], "must have the channels of the input", "weight", weight)
    _check_bias(op, weight[0])
    pad, stride = _int_list(op, "out_pad", 4), _int_list(op, "stride", 2)
    unpadded = [(n - 1) * s + k for n, s, k in zip(image[1:3], stride, weight[1:3], strict=True)]
    sizes = [unpadded[i] + pad[2 * i] + pad[2 * i + 1] for i in (0, 1)]
    cropped_less = all(-p < weight[1 + side // 2] for side, p in enumerate(pad))
    require(cropped_less, "must crop less than a filter", "out_pad", pad)
    require(min(sizes) > 0, "must leave something of the result", "out_pad", pad)
    padded = math.prod(n + s + sum(max(p, 0) for p in pad[2 * i : 2 * i + 2]) for i, (n, s) in
                       enumerate(zip(unpadded, stride, strict=True)))  # fmt: skip
    taps = math.prod(weight[1:])
    return (image[0], *sizes, weight[0]), image[0] * (2 * weight[3] * padded + math.prod(sizes) * taps)


def _pool(op: Op) -> tuple[Shape, int]:
    image = _shape(op, "input", 4)
    kernel, stride, pad = _int_list(op, "kernel", 2), _int_list(op, "stride", 2), _int_list(op, "pad", 4)
    for i in (0, 1):
        require(max(pad[2 * i : 2 * i + 2]) < kernel[i], "must be smaller than the window", "pad", pad)
    sizes = _window_counts(image[1:3], kernel, stride, pad, (1, 1))
    shape = (image[0], *sizes, image[3])
    return shape, math.prod(shape) * math.prod(kernel) + image[0] * image[3] * _padded_elements(image[1:3], pad)


def _resize(op: Op) -> tuple[Shape, int]:
    image = _shape(op, "input", 4)
    scale, offset, border = _int_list(op, "scale", 4), _int_list(op, "offset", 2), _int_list(op, "border", 2)
    require(max(scale) <= 1 << 11, "must be at most 2048", "scale", scale)
    require(all(-n <= o < 16 * n for o, n in zip(offset, scale[::2], strict=True)), "must be near the image", "offset",
         offset)  # fmt: skip
    require(all(-16 * n <= b < n for b, n in zip(border, scale[::2], strict=True)), "must be near the image", "border",
         border)  # fmt: skip
    sizes = [((n - 1) * scale[2 * i] - offset[i] + border[i]) // scale[2 * i + 1] + 1 for i, n in enumerate(image[1:3])]
    require(min(sizes) > 0, "must give an image", "scale", sizes)
    shape = (image[0], *sizes, image[3])
    return shape, 8 * math.prod(shape)


def _matmul(op: Op) -> tuple[Shape, int]:
    a, b = _shape(op, "a", 3), _shape(op, "b", 3)
    require(a[0] == b[0] and a[2] == b[1], "must fit the first matrix", "b", (a, b))
    return (a[0], a[1], b[2]), 0


# ----------------------------------------------------------------------------------------------- elements and moves


def _rescale(op: Op) -> tuple[Shape, int]:
    shape = _shape(op, "input")
    expected = shape[-1:] if op.args["per_channel"] else (1,)
    for name in ("multiplier", "shift"):
        require(_shape(op, name) == expected, f"must have the shape {list(expected)}", name, op.args[name].bound)
    multiplier, shift = (op.args[name].data for name in ("multiplier", "shift"))
    require(bool(np.all(multiplier >= 0)), "must not be negative", "multiplier", int(multiplier.min()))
    require(bool(np.all((shift >= 2) & (shift <= 62))), "must be from 2 to 62", "shift", shift.tolist()[:8])
    return shape, 0


def _table(op: Op) -> tuple[Shape, int]:
    expected = (256,) if op.args["input"].dtype.itemsize == 1 else (513,)
    require(_shape(op, "table") == expected, f"must have {expected[0]} entries", "table", op.args["table"].bound)
    return _shape(op, "input"), 0


def _reduce(op: Op) -> tuple[Shape, int]:
    shape = _shape(op, "input")
    axis = _axis(op, shape)
    return (*shape[:axis], 1, *shape[axis + 1 :]), 0


def _argmax(op: Op) -> tuple[Shape, int]:
    shape = _shape(op, "input")
    axis = _axis(op, shape)
    return (*shape[:axis], *shape[axis + 1 :]), 0


def _concat(op: Op) -> tuple[Shape, int]:
    shapes = [v.bound for v in op.args["inputs"]]
    axis = _axis(op, shapes[0])
    rest = {(*s[:axis], *s[axis + 1 :]) for s in shapes}
    require(
        len(rest) == 1 and len({len(s) for s in shapes}) == 1, "must agree in every other dimension", "inputs", shapes
    )
    return (*shapes[0][:axis], sum(s[axis] for s in shapes), *shapes[0][axis + 1 :]), 0


def _pad(op: Op) -> tuple[Shape, int]:
    shape = _shape(op, "input")
    widths = _int_list(op, "padding", 2 * len(shape))
    require(math.prod(_shape(op, "value")) == 1, "must be one number", "value", op.args["value"].bound)
    return tuple(n + widths[2 * i] + widths[2 * i + 1] for i, n in enumerate(shape)), 0


def _reshape(op: Op) -> tuple[Shape, int]:
    target, shape = tuple(op.args["shape"]), _shape(op, "input")
    require(math.prod(target) == math.prod(shape), f"must have {math.prod(shape)} elements", "shape", target)
    return target, 0


def _slice(op: Op) -> tuple[Shape, int]:
    shape = _shape(op, "input")
    start, size = (_int_list(op, name, len(shape)) for name in ("start", "size"))
    in_bounds = all(a + n <= limit for a, n, limit in zip(start, size, shape, strict=True))
    require(in_bounds, f"must be inside {list(shape)}", "size", (start, size))
    return tuple(size), 0


def _tile(op: Op) -> tuple[Shape, int]:
    shape = _shape(op, "input")
    return tuple(n * m for n, m in zip(shape, _int_list(op, "multiples", len(shape)), strict=True)), 0


def _reverse(op: Op) -> tuple[Shape, int]:
    _axis(op, _shape(op, "input"))
    return _shape(op, "input"), 0


def _transpose(op: Op) -> tuple[Shape, int]:
    shape = _shape(op, "input")
    perms = _int_list(op, "perms", len(shape))
    require(sorted(perms) == list(range(len(shape))), "must name each dimension once", "perms", perms)
    return tuple(shape[d] for d in perms), 0


def _gather(op: Op) -> tuple[Shape, int]:
    values, indices = _shape(op, "values", 3), _shape(op, "indices", 2)
    require(indices[0] == values[0], "must have as many rows as there are values", "indices", indices)
    return (*indices, values[2]), 0


def _scatter(op: Op) -> tuple[Shape, int]:
    (expected, _), values = _gather(op), _shape(op, "values", 3)
    require(_shape(op, "input") == expected, f"must have the shape {list(expected)}", "input", op.args["input"].bound)
    return values, 0


def infer_shape(op: Op, name: str) -> tuple[Shape, int]:
    """Shape of the result, and the number of temporary elements beside operands and result."""
    return RULES.get(name, _same_shape)(op)


_BINARY = ("add", "sub", "pow", "maximum", "minimum", "intdiv", "mul", "arithmetic_right_shift", "logical_left_shift",
          "logical_right_shift", "bitwise_and", "bitwise_or", "bitwise_xor", "logical_and", "logical_or", "logical_xor",
          "equal", "greater", "greater_equal")  # fmt: skip
RULES: dict[str, ShapeRule] = {
    **dict.fromkeys(_BINARY, _broadcast("a", "b")),
    **dict.fromkeys(("conv2d", "conv3d", "depthwise_conv2d"), _convolution),
    **dict.fromkeys(("max_pool2d", "avg_pool2d"), _pool),
    **dict.fromkeys(("reduce_sum", "reduce_max", "reduce_min", "reduce_any", "reduce_all"), _reduce),
    "transpose_conv2d": _transpose_conv, "resize": _resize, "matmul": _matmul, "rescale": _rescale, "table": _table,
    "select": _broadcast("condition", "on_true", "on_false"), "argmax": _argmax, "concat": _concat, "pad": _pad,
    "reshape": _reshape, "slice": _slice, "tile": _tile, "reverse": _reverse, "transpose": _transpose,
    "gather": _gather, "scatter": _scatter,
}  # fmt: skip
