"""What shape a TOSA operator gives, from its operands' and its arguments, and how many elements it makes on the way.

Nothing is believed: what does not fit is a ``FormatError``. Tensors have at least one element along each dimension.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from edgewright.errors import FormatError
from edgewright.ir.graph import Op

Shape = tuple[int, ...]
Rule = Callable[[Op], tuple[Shape, int]]


def need(condition: bool, rule: str, where: str, value: object) -> None:
    if not condition:
        raise FormatError(rule, where=where, value=value)


def _shape(op: Op, name: str, rank: int | None = None) -> Shape:
    shape: Shape = op.args[name].bound
    need(rank is None or len(shape) == rank, f"must have {rank} dimensions", name, shape)
    return shape


def _numbers(op: Op, name: str, count: int) -> list[int]:
    found = list(op.args[name])
    need(len(found) == count, f"must be {count} numbers", name, found)
    return found


def _axis(op: Op, shape: Shape) -> int:
    axis: int = op.args["axis"]
    need(0 <= axis < len(shape), f"must be a dimension of {list(shape)}", "axis", axis)
    return axis


def _same(op: Op) -> tuple[Shape, int]:
    return _shape(op, "input"), 0


def _broadcast(*names: str) -> Rule:
    def rule(op: Op) -> tuple[Shape, int]:
        shapes = [_shape(op, name) for name in names]
        try:
            return np.broadcast_shapes(*shapes), 0
        except ValueError:
            raise FormatError("must broadcast to one shape", where=" and ".join(names), value=shapes) from None

    return rule


# --------------------------------------------------------------------------------------------------------- windows


def _windows(image: Sequence[int], kernel: Sequence[int], stride: Sequence[int], pad: Sequence[int],
             dilation: Sequence[int]) -> list[int]:  # fmt: skip
    """How many windows there are along each dimension; each is within the padded image."""
    found = []
    for i, size in enumerate(image):
        padded = size + pad[2 * i] + pad[2 * i + 1]
        reach = (kernel[i] - 1) * dilation[i] + 1
        need(reach <= padded, "a window must fit in the padded image", "kernel", f"{reach} in {padded}")
        found.append((padded - reach) // stride[i] + 1)
    return found


def _padded(image: Sequence[int], pad: Sequence[int]) -> int:
    return math.prod(n + pad[2 * i] + pad[2 * i + 1] for i, n in enumerate(image))


def _bias(op: Op, channels: int) -> None:
    shape = _shape(op, "bias", 1)
    need(shape in ((channels,), (1,)), f"must have {channels} elements, or one", "bias", shape)


def _convolution(op: Op) -> tuple[Shape, int]:
    rank = 3 if op.kind.endswith("conv3d") else 2
    image, weight = (_shape(op, name, rank + 2) for name in ("input", "weight"))
    deep = op.kind.endswith("depthwise_conv2d")
    kernel = weight[:2] if deep else weight[1:-1]
    channels = weight[2] * weight[3] if deep else weight[0]
    need((weight[2] if deep else weight[-1]) == image[-1], "must have the channels of the input", "weight", weight)
    _bias(op, channels)
    pad, (stride, dilation) = _numbers(op, "pad", 2 * rank), (_numbers(op, n, rank) for n in ("stride", "dilation"))
    sizes = _windows(image[1:-1], kernel, stride, pad, dilation)
    taps = math.prod(kernel) * image[-1]
    return (image[0], *sizes, channels), image[0] * (
        math.prod(sizes) * taps + _padded(image[1:-1], pad) * image[-1]
    ) + math.prod(weight)


def _transposed(op: Op) -> tuple[Shape, int]:
    image, weight = _shape(op, "input", 4), _shape(op, "weight", 4)
    need(weight[3] == image[3], "must have the channels of the input", "weight", weight)
    _bias(op, weight[0])
    pad, stride = _numbers(op, "out_pad", 4), _numbers(op, "stride", 2)
    full = [(n - 1) * s + k for n, s, k in zip(image[1:3], stride, weight[1:3], strict=True)]
    sizes = [full[i] + pad[2 * i] + pad[2 * i + 1] for i in (0, 1)]
    inside = all(min(pad[2 * i], 0) + min(pad[2 * i + 1], 0) + full[i] > 0 for i in (0, 1))
    need(inside and min(sizes) > 0, "must leave something of the result", "out_pad", pad)
    grown = math.prod(n + sum(max(p, 0) for p in pad[2 * i : 2 * i + 2]) for i, n in enumerate(full))
    return (image[0], *sizes, weight[0]), 2 * image[0] * weight[0] * grown


def _pool(op: Op) -> tuple[Shape, int]:
    image = _shape(op, "input", 4)
    kernel, stride, pad = _numbers(op, "kernel", 2), _numbers(op, "stride", 2), _numbers(op, "pad", 4)
    for i in (0, 1):
        need(max(pad[2 * i : 2 * i + 2]) < kernel[i], "must be smaller than the window", "pad", pad)
    sizes = _windows(image[1:3], kernel, stride, pad, (1, 1))
    made = (image[0], *sizes, image[3])
    return made, math.prod(made) * math.prod(kernel) + image[0] * image[3] * _padded(image[1:3], pad)


def _resize(op: Op) -> tuple[Shape, int]:
    image = _shape(op, "input", 4)
    scale, offset, border = _numbers(op, "scale", 4), _numbers(op, "offset", 2), _numbers(op, "border", 2)
    need(max(scale) <= 1 << 11, "must be at most 2048", "scale", scale)
    need(all(-n <= o < 16 * n for o, n in zip(offset, scale[::2], strict=True)), "must be near the image", "offset",
         offset)  # fmt: skip
    need(all(-16 * n <= b < n for b, n in zip(border, scale[::2], strict=True)), "must be near the image", "border",
         border)  # fmt: skip
    sizes = [((n - 1) * scale[2 * i] - offset[i] + border[i]) // scale[2 * i + 1] + 1 for i, n in enumerate(image[1:3])]
    need(min(sizes) > 0, "must give an image", "scale", sizes)
    made = (image[0], *sizes, image[3])
    return made, 8 * math.prod(made)


def _matmul(op: Op) -> tuple[Shape, int]:
    a, b = _shape(op, "a", 3), _shape(op, "b", 3)
    need(a[0] == b[0] and a[2] == b[1], "must fit the first matrix", "b", (a, b))
    return (a[0], a[1], b[2]), 0


# ----------------------------------------------------------------------------------------------- elements and moves


def _rescale(op: Op) -> tuple[Shape, int]:
    shape = _shape(op, "input")
    wanted = shape[-1:] if op.args["per_channel"] else (1,)
    for name in ("multiplier", "shift"):
        need(_shape(op, name) == wanted, f"must have the shape {list(wanted)}", name, op.args[name].bound)
    multiplier, shift = (op.args[name].data for name in ("multiplier", "shift"))
    need(bool(np.all(multiplier >= 0)), "must not be negative", "multiplier", int(multiplier.min()))
    need(bool(np.all((shift >= 2) & (shift <= 62))), "must be from 2 to 62", "shift", shift.tolist()[:8])
    return shape, 0


def _table(op: Op) -> tuple[Shape, int]:
    wanted = (256,) if op.args["input"].dtype.itemsize == 1 else (513,)
    need(_shape(op, "table") == wanted, f"must have {wanted[0]} entries", "table", op.args["table"].bound)
    return _shape(op, "input"), 0


def _reduced(op: Op) -> tuple[Shape, int]:
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
    need(len(rest) == 1 and len({len(s) for s in shapes}) == 1, "must agree in every other dimension", "inputs", shapes)
    return (*shapes[0][:axis], sum(s[axis] for s in shapes), *shapes[0][axis + 1 :]), 0


def _pad(op: Op) -> tuple[Shape, int]:
    shape = _shape(op, "input")
    widths = _numbers(op, "padding", 2 * len(shape))
    need(math.prod(_shape(op, "value")) == 1, "must be one number", "value", op.args["value"].bound)
    return tuple(n + widths[2 * i] + widths[2 * i + 1] for i, n in enumerate(shape)), 0


def _reshape(op: Op) -> tuple[Shape, int]:
    made, shape = tuple(op.args["shape"]), _shape(op, "input")
    need(math.prod(made) == math.prod(shape), f"must have {math.prod(shape)} elements", "shape", made)
    return made, 0


def _slice(op: Op) -> tuple[Shape, int]:
    shape = _shape(op, "input")
    start, size = (_numbers(op, name, len(shape)) for name in ("start", "size"))
    inside = all(a + n <= most for a, n, most in zip(start, size, shape, strict=True))
    need(inside, f"must be inside {list(shape)}", "size", (start, size))
    return tuple(size), 0


def _tile(op: Op) -> tuple[Shape, int]:
    shape = _shape(op, "input")
    return tuple(n * m for n, m in zip(shape, _numbers(op, "multiples", len(shape)), strict=True)), 0


def _reverse(op: Op) -> tuple[Shape, int]:
    _axis(op, _shape(op, "input"))
    return _shape(op, "input"), 0


def _transpose(op: Op) -> tuple[Shape, int]:
    shape = _shape(op, "input")
    perms = _numbers(op, "perms", len(shape))
    need(sorted(perms) == list(range(len(shape))), "must name each dimension once", "perms", perms)
    return tuple(shape[d] for d in perms), 0


def _gather(op: Op) -> tuple[Shape, int]:
    values, indices = _shape(op, "values", 3), _shape(op, "indices", 2)
    need(indices[0] == values[0], "must have as many rows as there are values", "indices", indices)
    return (*indices, values[2]), 0


def _scatter(op: Op) -> tuple[Shape, int]:
    (made, _), values = _gather(op), _shape(op, "values", 3)
    need(_shape(op, "input") == made, f"must have the shape {list(made)}", "input", op.args["input"].bound)
    return values, 0


def shape_of(op: Op, name: str) -> tuple[Shape, int]:
    """The result's shape, and elements that are made on the way beside operands and result."""
    return RULES.get(name, _same)(op)


_PAIRS = ("add", "sub", "pow", "maximum", "minimum", "intdiv", "mul", "arithmetic_right_shift", "logical_left_shift",
          "logical_right_shift", "bitwise_and", "bitwise_or", "bitwise_xor", "logical_and", "logical_or", "logical_xor",
          "equal", "greater", "greater_equal")  # fmt: skip
RULES: dict[str, Rule] = {
    **dict.fromkeys(_PAIRS, _broadcast("a", "b")),
    **dict.fromkeys(("conv2d", "conv3d", "depthwise_conv2d"), _convolution),
    **dict.fromkeys(("max_pool2d", "avg_pool2d"), _pool),
    **dict.fromkeys(("reduce_sum", "reduce_max", "reduce_min", "reduce_any", "reduce_all"), _reduced),
    "transpose_conv2d": _transposed, "resize": _resize, "matmul": _matmul, "rescale": _rescale, "table": _table,
    "select": _broadcast("condition", "on_true", "on_false"), "argmax": _argmax, "concat": _concat, "pad": _pad,
    "reshape": _reshape, "slice": _slice, "tile": _tile, "reverse": _reverse, "transpose": _transpose,
    "gather": _gather, "scatter": _scatter,
}  # fmt: skip
