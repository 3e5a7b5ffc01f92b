"""Upper bounds on result sizes before execution: an untrusted file must not exhaust memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from edgewright.ir.graph import Op, Value

Shape = Sequence[int]
Shapes = Callable[[Value], Shape]


def max_elements(op: Op, shape_of: Shapes) -> int:
    """An upper bound on the elements of an operator's result and of its largest intermediate."""
    size = _SIZES.get(op.name)
    if size is not None:
        return size(op, shape_of)
    return max((math.prod(shape_of(v)) for v in op.inputs()), default=1)


def reads_per_element(op: Op) -> int:
    """Reads per result element of a pooling window."""
    if "kernel_size" not in op.args:
        return 1
    return math.prod(int(k) for k in op.args["kernel_size"])


def _broadcast(op: Op, shape_of: Shapes) -> int:
    a, b = (list(shape_of(op.args[n])) for n in ("self", "other"))
    rank = max(len(a), len(b))
    a, b = ([1] * (rank - len(s)) + s for s in (a, b))
    if op.name in ("bmm", "int_matmul"):
        return math.prod(max(x, y) for x, y in zip(a[:-2], b[:-2], strict=True)) * math.prod((*a[-2:-1], *b[-1:]))
    return math.prod(max(x, y) for x, y in zip(a, b, strict=True))


def _linear(op: Op, shape_of: Shapes) -> int:
    return math.prod(shape_of(op.args["input"])[:-1]) * max(shape_of(op.args["weight"]), default=1)


def _concat(op: Op, shape_of: Shapes) -> int:
    return sum(math.prod(shape_of(v)) for v in op.args["tensors"])


def _pad(op: Op, shape_of: Shapes) -> int:
    widths = zip(shape_of(op.args["self"]), op.args["before"], op.args["after"], strict=True)
    return math.prod(n + a + b for n, a, b in widths)


def _window_op(op: Op, shape_of: Shapes) -> int:
    """The padded image, with at least as many channels as a convolution has filters."""
    batch, height, width, channels = shape_of(op.args["input"] if "input" in op.args else op.args["self"])
    top, bottom, left, right = op.args["padding"]
    weight = shape_of(op.args["weight"]) if "weight" in op.args else ()
    if op.name == "conv_transpose2d":
        output_sizes = [(n - 1) * s + d * (k - 1) + 1 + e for n, s, d, k, e in zip((height, width), op.args["stride"],
                 op.args["dilation"], weight[1:3], op.args["output_padding"], strict=True)]  # fmt: skip
        height, width = output_sizes
    channels = max(channels, weight[3] if op.name == "depthwise_conv2d" else weight[0] if weight else 0)
    return batch * (height + top + bottom) * (width + left + right) * channels


def _resize(op: Op, shape_of: Shapes) -> int:
    batch, height, width, channels = shape_of(op.args["input"])
    new = [int(n) for n in op.args["output_size"]]
    return batch * channels * max(height, new[0]) * max(width, new[1])


_SIZES: dict[str, Callable[[Op, Any], int]] = {
    **dict.fromkeys(("add", "sub", "mul", "div", "maximum", "minimum", "bmm", "int_matmul"), _broadcast),
    **dict.fromkeys(
        ("conv2d", "depthwise_conv2d", "conv_transpose2d", "max_pool2d", "avg_pool2d", "argmax_pool2d"), _window_op
    ),
    "linear": _linear,
    "cat": _concat,
    "pad": _pad,
    "upsample_bilinear2d": _resize,
}
