"""QNN's convolutions and averages of volumes as the engine's of images: the channels of an image are those of all the
planes that a result is made of."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from edgewright.engine.dialects.qnn_conv import (
    conv_operands,
    dense_filters,
    emit_conv2d,
    emit_conv_transpose2d,
    is_affordable,
    transposed_filters,
)
from edgewright.engine.dialects.qnn_rewrite import QnnRewrite, io_of, is_float32, make_constant, non_empty, rule
from edgewright.ir.graph import Op, Value
from edgewright.ir.qnn.reduce import counts_of

_DEEPEST = 256  # planes of a window: each is a move


def _moderate(op: Op) -> bool:
    return is_affordable(op) and op.args["inputs"][1].bound[0] <= _DEEPEST


@rule("Conv3d")
def _convolution(made: QnnRewrite, op: Op) -> bool:
    p, groups = conv_operands(made, op) if _moderate(op) else None, int(op.args["group"])
    if p is None:
        return False
    if groups > 1:
        p.weights = np.stack([dense_filters(w.transpose(3, 0, 1, 2), groups).transpose(1, 2, 3, 0) for w in p.weights])
    (deep, down, along), pads, dilation = (list(op.args[n]) for n in ("stride", "pad_amount", "dilation"))
    wide = made.padded(op, p.x, [(0, 0), (pads[0][0], pads[0][1]), *[(0, 0)] * 3])
    planes = _planes(made, op, wide, p.weights.shape[0], deep, dilation[0], p.out.bound[1])
    weights = np.concatenate(list(p.weights), axis=2)  # [high, wide, planes by inputs, outputs]
    flat = made.temporary(p.out, (p.out.bound[0] * p.out.bound[1], *p.out.bound[2:]))
    window = {"stride": [down, along], "padding": [n for pair in pads[1:] for n in pair], "dilation": dilation[1:]}
    emit_conv2d(made, op, p, planes, weights, flat, 1, window)
    made.finish_as(op, flat, p.out)
    return True


def _planes(made: QnnRewrite, op: Op, x: Value, window: int, stride: int, dilation: int, results: int) -> Value:
    """For each plane of the result the planes it is made of, side by side in the channels of an image."""
    images, deep, *size = x.bound
    missing = max((window - 1) * dilation + results * stride - deep, 0)  # so that each plane has a whole stride
    x = made.padded(op, x, [(0, 0), (0, missing), *[(0, 0)] * 3])
    taps = []
    for tap in range(window):
        part = made.cut(op, x, [0, tap * dilation, 0, 0, 0], (images, results * stride, *size))
        if stride > 1:
            part = made.view(op, part, (images, results, stride, *size))
            part = made.cut(op, part, [0] * 6, (images, results, 1, *size))
        taps.append(made.view(op, part, (images * results, *size)))
    return made.joined(op, taps, 3)


@rule("TransposeConv3d")
def _transposed(made: QnnRewrite, op: Op) -> bool:
    """Planes are spread, with nothing between them; each image is then a transposed convolution of those that a result
    is made of."""
    groups = int(op.args["group"])
    p = conv_operands(made, op, groups) if _moderate(op) else None
    if p is None:
        return False
    window, out = p.weights.shape[0], p.out.bound
    filters = [transposed_filters(w, groups) for w in p.weights[::-1]]
    data = np.concatenate([dense_filters(f, groups) if groups > 1 else f for f in filters], axis=3)
    planes = _planes(made, op, _apart(made, op, p.x, window), window, 1, 1, out[1])
    flat = made.temporary(p.out, (out[0] * out[1], *out[2:]))
    emit_conv_transpose2d(made, op, p, planes, data, flat, 1)
    made.finish_as(op, flat, p.out)
    return True


def _apart(made: QnnRewrite, op: Op, x: Value, window: int) -> Value:
    """Planes as far apart as the stride says, and what lies before and after them."""
    stride, (before, after), more = (op.args[name][0] for name in ("stride", "pad_amount", "output_padding"))
    images, deep, *size = x.bound
    spread = made.padded(
        op, made.view(op, x, (images, deep, 1, *size)), [(0, 0)] * 2 + [(0, stride - 1)] + [(0, 0)] * 3
    )
    spread = made.view(op, spread, (images, deep * stride, *size))
    ends_ = (window - 1 - before, window - stride - after + more)  # behind the last plane there are some already
    first, length = max(-ends_[0], 0), deep * stride - max(-ends_[0], 0) - max(-ends_[1], 0)
    spread = made.cut(op, spread, [0, first, 0, 0, 0], (images, length, *size))
    return made.padded(op, spread, [(0, 0), (max(ends_[0], 0), max(ends_[1], 0)), *[(0, 0)] * 3])


@rule("PoolAvg3d")
def _average(made: QnnRewrite, op: Op) -> bool:
    """Averages of images, and then of planes. What lies around a volume is made first; where it does not count, means
    are brought to those of what is inside."""
    (x,), out = io_of(op)
    if not is_float32(x, out) or not non_empty(x, out):
        return False
    sizes, steps = ([int(n) for n in op.args[name]] for name in ("filter_size", "stride"))
    given = made.padded(op, made.half(op, x), [(0, 0), *_around(op, x, out, sizes, steps), (0, 0)])
    images, deep, high, wide, channels = given.bound
    rows, columns = out.bound[2:4]
    flat = made.view(op, given, (images * deep, high, wide, channels))
    flat = _pooled(made, op, flat, (images * deep, rows, columns, channels), sizes[1:], steps[1:])
    lines = made.view(op, flat, (images, deep, rows * columns, channels))
    lines = _pooled(made, op, lines, (images, out.bound[1], rows * columns, channels), [sizes[0], 1], [steps[0], 1])
    last, counts = made.view(op, lines, out.bound), counts_of(op)
    if (counts != math.prod(sizes)).any():
        by = make_constant("factors", (math.prod(sizes) / counts).astype(np.float32))
        last = made.then("mul", op, last, out.bound, self=last, other=by)
    made.computed("clone", op, out, self=last)
    return True


def _around(op: Op, x: Value, out: Value, sizes: Sequence[int], steps: Sequence[int]) -> list[tuple[int, int]]:
    """So much that windows have all they read, and no more than that."""
    pairs = []
    for i, (before, _) in enumerate(op.args["pad_amount"]):
        reach = (out.bound[1 + i] - 1) * steps[i] + sizes[i]
        pairs.append((int(before), max(reach - x.bound[1 + i] - int(before), 0)))
    return pairs


def _pooled(made: QnnRewrite, op: Op, x: Value, shape: Sequence[int], size: list[int], stride: list[int]) -> Value:
    """Windows within an image that may have some pixels more than they reach."""
    reach = [(n - 1) * s + k for n, s, k in zip(shape[1:3], stride, size, strict=True)]
    x = made.cut(op, x, [0] * 4, (x.bound[0], *reach, x.bound[3]))
    return made.then("avg_pool2d", op, x, shape, self=x, kernel_size=size, stride=stride, padding=[0] * 4)
