"""Shape inference of ENN operators. Graphs are untrusted: inconsistent shapes raise ``ValueError``."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from edgewright.backends.samsung.dialect.numerics import inputs_of
from edgewright.ir.graph import Op

Shape = tuple[int, ...]


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


def _input_shapes(op: Op) -> list[Shape]:
    return [v.bound for v in inputs_of(op)]


def same_shape(op: Op) -> list[Shape]:
    return [_input_shapes(op)[0]]


def broadcast(op: Op) -> list[Shape]:
    return [tuple(np.broadcast_shapes(*_input_shapes(op)))]


def by_channel(op: Op) -> list[Shape]:
    """Operands after the first have one element, or one per channel."""
    x, *rest = _input_shapes(op)
    channels = x[1] if len(x) > 1 else 1
    _require(all(math.prod(r) in (1, channels) for r in rest), f"{rest} for {channels} channels")
    return [x]


def by_channel_exactly(op: Op) -> list[Shape]:
    x, *rest = _input_shapes(op)
    _require(len(x) > 1 and all(r == (x[1],) for r in rest), f"{rest} for {x}")
    return [x]


def group_norm(op: Op) -> list[Shape]:
    groups = op.args["num_groups"]
    result = by_channel_exactly(op)
    _require(groups >= 1 and result[0][1] % groups == 0, f"{groups} groups of {result[0]}")
    return result


def last_axis(op: Op) -> list[Shape]:
    x, *rest = _input_shapes(op)
    _require(bool(x) and all(r == x[-1:] for r in rest), f"{rest} for {x}")
    return [x]


def rms_norm(op: Op) -> list[Shape]:
    x, gamma = _input_shapes(op)
    shape = tuple(op.args["normalize_shape"])
    _require(0 < len(shape) <= len(x) and gamma == shape == x[len(x) - len(shape) :], f"{shape} of {x}")
    return [x]


def _pair(op: Op, name: str) -> list[int]:
    pair = [op.args[f"{name}_{side}"] for side in "hw"]
    _require(all(1 <= n < 1 << 16 for n in pair), f"{name} {pair}")
    return pair


def _pads(op: Op) -> list[int]:
    pads = list(op.args["explicit_padding"])
    _require(len(pads) == 4 and all(0 <= p < 1 << 16 for p in pads), f"padding {pads}")
    return pads


def _windows(op: Op, image: Shape, kernel: Sequence[int], dilation: Sequence[int]) -> Shape:
    top, left, bottom, right = _pads(op)
    result = []
    pads = (top + bottom, left + right)
    for size, k, d, s, p in zip(image[2:], kernel, dilation, _pair(op, "stride"), pads, strict=True):
        reach = (k - 1) * d + 1
        _require(k >= 1 and reach <= size + p, f"a window of {reach} in {size}+{p}")
        result.append((size + p - reach) // s + 1)
    return tuple(result)


def convolution(op: Op) -> list[Shape]:
    x, w, *bias = _input_shapes(op)
    groups = op.args["groups"]
    kernel = (op.args["kernel_h"], op.args["kernel_w"])
    _require(len(x) == 4 and len(w) == 4 and groups >= 1 and w[2:] == kernel, f"{x} by {w} of {kernel}")
    _require(x[1] == w[1] * groups and w[0] % groups == 0, f"{x[1]} channels by {w} in {groups} groups")
    _require(all(b == w[:1] for b in bias), f"bias {bias}")
    return [(x[0], w[0], *_windows(op, x, kernel, _pair(op, "dilation")))]


def deconvolution(op: Op) -> list[Shape]:
    x, w, *bias = _input_shapes(op)
    groups, (top, left, bottom, right) = op.args["groups"], _pads(op)
    kernel = (op.args["kernel_h"], op.args["kernel_w"])
    _require(len(x) == 4 and len(w) == 4 and groups >= 1 and w[2:] == kernel, f"{x} by {w} of {kernel}")
    _require(x[1] == w[1] and w[1] % groups == 0, f"{x[1]} channels by {w} in {groups} groups")
    _require((top, left) == (bottom, right), f"padding {op.args['explicit_padding']}")
    channels = w[0] * groups
    _require(all(b == (channels,) for b in bias), f"bias {bias}")
    rows = zip(x[2:], kernel, _pair(op, "stride"), _pair(op, "dilation"), (top, left), strict=True)
    sizes = [(n - 1) * s + (k - 1) * d + 1 - 2 * p for n, k, s, d, p in rows]
    _require(min(sizes) >= 1, f"sizes {sizes}")
    return [(x[0], channels, *sizes)]


def pool(op: Op) -> list[Shape]:
    (x,) = _input_shapes(op)
    _require(len(x) == 4, f"rank {len(x)}")
    kernel = _pair(op, "kernel")
    dilation = _pair(op, "dilation") if "dilation_h" in op.args else [1, 1]
    top, left, bottom, right = _pads(op)
    _require((top, left) == (bottom, right) and 2 * top <= kernel[0] and 2 * left <= kernel[1], "padding")
    return [(*x[:2], *_windows(op, x, kernel, dilation))]


def fully_connected(op: Op) -> list[Shape]:
    x, w, *bias = _input_shapes(op)
    _require(len(w) == 2 and bool(x) and x[-1] == w[1] and all(b == w[:1] for b in bias), f"{x} by {w}, {bias}")
    return [(*x[:-1], w[0])]


def batch_matmul(op: Op) -> list[Shape]:
    a, b = _input_shapes(op)
    _require(len(a) >= 2 and len(b) >= 2 and a[-1] == b[-2], f"{a} by {b}")
    return [(*np.broadcast_shapes(a[:-2], b[:-2]), a[-2], b[-1])]


def axis(op: Op) -> list[Shape]:
    (x,) = _input_shapes(op)
    _require(-len(x) <= op.args["axis"] < len(x), f"axis {op.args['axis']} of {x}")
    return [x]


def reduce(op: Op) -> list[Shape]:
    (x,) = _input_shapes(op)
    axes = list(op.args["axis"])
    _require(all(0 <= a < len(x) for a in axes) and len(set(axes)) == len(axes) > 0, f"axes {axes} of {x}")
    if op.args["keep_dims"]:
        return [tuple(1 if d in axes else n for d, n in enumerate(x))]
    return [tuple(n for d, n in enumerate(x) if d not in axes)]


def reshape(op: Op) -> list[Shape]:
    (x,) = _input_shapes(op)
    result = tuple(op.args["new_shape"])
    _require(all(n >= 0 for n in result) and math.prod(result) == math.prod(x), f"{result} of {x}")
    return [result]


def transpose(op: Op) -> list[Shape]:
    (x,) = _input_shapes(op)
    perm = list(op.args["perm"])
    _require(sorted(perm) == list(range(len(x))), f"perm {perm} of {x}")
    return [tuple(x[d] for d in perm)]


def concat(op: Op) -> list[Shape]:
    shapes, axis_ = _input_shapes(op), op.args["axis"]
    first = shapes[0]
    _require(0 <= axis_ < len(first), f"axis {axis_} of {first}")
    rest = [s[:axis_] + s[axis_ + 1 :] for s in shapes if len(s) == len(first)]
    _require(len(rest) == len(shapes) and len(set(rest)) == 1, f"{shapes}")
    return [(*first[:axis_], sum(s[axis_] for s in shapes), *first[axis_ + 1 :])]


def strided_slice(op: Op) -> list[Shape]:
    (x,) = _input_shapes(op)
    begin, end, strides = (list(op.args[name]) for name in ("begin", "end", "strides"))
    _require(len(begin) == len(end) == len(strides) == len(x), f"{begin}, {end}, {strides} of {x}")
    ends = list(zip(begin, end, strides, x, strict=True))
    _require(all(0 <= a <= b <= n and s >= 1 for a, b, s, n in ends), f"{begin}, {end}, {strides} of {x}")
    sizes = [-(-(b - a) // s) for a, b, s, _ in ends]
    mask = op.args.get("shrink_axis_mask", 0)
    _require(0 <= mask < 1 << len(x) and all(n == 1 for d, n in enumerate(sizes) if mask >> d & 1), f"mask {mask}")
    return [tuple(n for d, n in enumerate(sizes) if not mask >> d & 1)]


def split(op: Op) -> list[Shape]:
    (x,) = _input_shapes(op)
    axis_, sizes = op.args["axis"], list(op.args["point"])
    _require(0 <= axis_ < len(x) and all(n >= 0 for n in sizes) and sum(sizes) == x[axis_], f"{sizes} of {x}")
    return [(*x[:axis_], n, *x[axis_ + 1 :]) for n in sizes]


def pad(op: Op) -> list[Shape]:
    (x,) = _input_shapes(op)
    pads = list(op.args["explicit_padding"])
    rank = len(x)
    _require(len(pads) == 2 * rank and all(0 <= p < 1 << 24 for p in pads), f"padding {pads} of {x}")
    return [tuple(n + a + b for n, a, b in zip(x, pads[:rank], pads[rank:], strict=True))]


def gather(op: Op) -> list[Shape]:
    x, index = _input_shapes(op)
    axis_ = op.args["axis"]
    _require(0 <= axis_ < len(x) and str(inputs_of(op)[1].dtype) in ("int32", "int64"), f"axis {axis_} of {x}")
    return [(*x[:axis_], *index, *x[axis_ + 1 :])]


def top_k(op: Op) -> list[Shape]:
    (x,) = _input_shapes(op)
    count = op.args["k_dims"]
    _require(bool(x) and 0 <= count <= x[-1], f"{count} of {x}")
    return [(*x[:-1], count)] * 2


def depth_to_space(op: Op) -> list[Shape]:
    (x,) = _input_shapes(op)
    block = op.args["block_size"]
    _require(len(x) == 4 and 1 <= block < 1 << 12 and x[1] % (block * block) == 0, f"{block} of {x}")
    return [(x[0], x[1] // (block * block), x[2] * block, x[3] * block)]


def resize(op: Op) -> list[Shape]:
    (x,) = _input_shapes(op)
    factors = list(op.args["upsampling_factor"])
    _require(len(x) == 4 and min(x) >= 1 and len(factors) == 2, f"{factors} of {x}")
    _require(all(0 < f < 1 << 12 for f in factors), f"factors {factors}")
    sizes = [math.floor(n * f + 1e-4) for n, f in zip(x[2:], factors, strict=True)]
    _require(min(sizes) >= 1, f"sizes {sizes}")
    return [(*x[:2], *sizes)]
