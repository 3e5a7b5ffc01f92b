"""Checks of device graphs that come from files, before they run: meanings trust their arguments.

A stride of zero or a window outside its image would read what is not theirs; sizes are compared before anything is
allocated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from edgewright.errors import FormatError
from edgewright.ir.graph import Graph, Op, Value
from edgewright.ir.tflite.table import PREFIX, TFLITE
from edgewright.ir.twins import LARGEST, afford, check_ops, check_scales

# Operators whose last operands say shapes, axes and the like, and how many of those there are.
_NUMBERS = {
    "RESHAPE": 1, "TRANSPOSE": 1, "SLICE": 2, "MEAN": 1, "SUM": 1, "REDUCE_MAX": 1, "REDUCE_MIN": 1, "MIRROR_PAD": 1,
    "RESIZE_BILINEAR": 1, "RESIZE_NEAREST_NEIGHBOR": 1,
}  # fmt: skip
_PLAIN = {"stride_h": 1, "stride_w": 1, "dilation_h": 1, "dilation_w": 1, "filter_h": 1, "filter_w": 1}


def check(graph: Graph, memory: int) -> None:
    """Raise unless every operator of a graph is TFLite's, fits its shapes and can be afforded."""
    check_ops(graph, lambda op: _check_op(op, memory))


def _check_op(op: Op, memory: int) -> None:
    row = TFLITE.get(op.kind.removeprefix(PREFIX))
    if row is None or not op.kind.startswith(PREFIX):
        raise FormatError("must be an operator of TFLite", value=op.kind)
    given = op.args["inputs"]
    if not isinstance(given, list) or not given or (row.operands and len(given) != row.operands):
        raise FormatError(f"must have {row.operands} operands", where="inputs")
    if len(op.outputs) != 1 or any(not isinstance(v, Value) for v in (*given, *op.outputs)):
        raise FormatError("must have tensors for operands and one result", value=op.kind)
    for name in row.fields:
        _check_field(name, op.args[name])
    _check_types(op, row.name, given)
    largest = max(_SIZES.get(row.name, _broadcast)(op), math.prod(op.outputs[0].bound))  # type: ignore[union-attr]
    afford(op.kind, largest, memory)


def _check_field(name: str, value: Any) -> None:
    if name in ("alpha", "beta"):
        if type(value) not in (float, int) or not math.isfinite(value):
            raise FormatError("must be a number", where=name, value=value)
    elif name != "new_shape" and (type(value) not in (int, bool) or not _PLAIN.get(name, -16) <= value < LARGEST):
        raise FormatError(f"must be a whole number from {_PLAIN.get(name, -16)}", where=name, value=value)


def _check_types(op: Op, name: str, given: Sequence[Value]) -> None:
    """Bytes with finite scales, 32-bit biases, and constant numbers."""
    first = len(given) - _NUMBERS.get(name, 0)
    wide = {first - 1} if name in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV") else set()
    numbers = {1} if name == "PADV2" else {0} if name == "TRANSPOSE_CONV" else set(range(first, len(given)))
    for index, value in enumerate((*given, *op.outputs)):
        assert value is not None
        plain = index in numbers and index < len(given)
        kind = "int32" if plain or index in wide else "int8"
        if value.dynamic or str(value.dtype) != kind or (plain and value.data is None):
            raise FormatError(f"must be {'constant ' * plain}{kind} of a fixed shape", where=value.name)
        if kind == "int8":
            _check_scale(value)
    if wide and any(given[i].data is None for i in wide):
        raise FormatError("must be constant", where="bias")


def _check_scale(value: Value) -> None:
    check_scales(value)
    q = value.q
    assert q is not None
    scales = np.asarray(q.scale)
    if any(not -128 <= z <= 127 for z in np.atleast_1d(np.asarray(q.zero_point))):
        raise FormatError("must have zero points of 8 bits", where=value.name)
    if scales.ndim and (q.axis is None or scales.size != value.bound[q.axis]):
        raise FormatError("must have a scale for each channel", where=value.name)


# Elements of the largest array that an operator makes on its way, by the operator's name.


def _shapes(op: Op) -> list[tuple[int, ...]]:
    return [v.bound for v in op.args["inputs"]]


def _broadcast(op: Op) -> int:
    shapes = _shapes(op)[: TFLITE[op.kind.removeprefix(PREFIX)].operands]
    if len(shapes) == 2 and np.broadcast_shapes(*shapes) != op.outputs[0].bound:  # type: ignore[union-attr]
        raise FormatError("must broadcast to the result", value=shapes)
    return math.prod(op.outputs[0].bound) + sum(map(math.prod, shapes))  # type: ignore[union-attr]


def _sum(op: Op) -> int:
    return sum(math.prod(v.bound) for v in (*op.inputs(), *op.outputs) if v is not None)


def _windows(op: Op, image: Sequence[int], kernel: Sequence[int], dilation: Sequence[int]) -> int:
    """How many windows there are; each must lie within the image."""
    count = 1
    for size, k, d, s in zip(image[1:3], kernel, dilation, (op.args["stride_h"], op.args["stride_w"]), strict=True):
        reach = (k - 1) * d + 1
        if k < 1 or reach > size:
            raise FormatError("a window must fit its image", value=f"{reach} in {size}")
        count *= (size - reach) // s + 1
    return count


def _convolution(op: Op) -> int:
    image, weight, bias = _shapes(op)
    deep = op.kind.endswith("DEPTHWISE_CONV_2D")
    if len(image) != 4 or len(weight) != 4 or weight[3] != image[3] or (deep and weight[0] != 1):
        raise FormatError("must have the channels of its input", where="weight", value=weight)
    if bias != ((weight[3] if deep else weight[0]),):
        raise FormatError("must have a number for each channel", where="bias", value=bias)
    count = _windows(op, image, weight[1:3], (op.args["dilation_h"], op.args["dilation_w"]))
    return image[0] * count * math.prod(weight[1:]) + _sum(op)


def _pool(op: Op) -> int:
    (image,) = _shapes(op)
    if len(image) != 4:
        raise FormatError("must have four dimensions", where="image", value=image)
    kernel = (op.args["filter_h"], op.args["filter_w"])
    return image[0] * _windows(op, image, kernel, (1, 1)) * math.prod(kernel) * image[3] + _sum(op)


def _transposed(op: Op) -> int:
    _, weight, image, bias = _shapes(op)
    if len(image) != 4 or len(weight) != 4 or weight[3] != image[3] or bias != weight[:1]:
        raise FormatError("must have the channels of its input", where="weight", value=weight)
    strides = (op.args["stride_h"], op.args["stride_w"])
    grown = ((n - 1) * s + k for n, s, k in zip(image[1:3], strides, weight[1:3], strict=True))
    return image[0] * weight[0] * math.prod(grown) + _sum(op)


def _pad(op: Op) -> int:
    shape, widths = op.args["inputs"][0].bound, op.args["inputs"][1].data
    if widths.shape != (len(shape), 2) or widths.min(initial=0) < 0:
        raise FormatError("must be two numbers for each dimension, none negative", where="padding")
    grown = tuple(int(n) + int(a) + int(b) for n, (a, b) in zip(shape, widths.tolist(), strict=True))
    if grown != op.outputs[0].bound:  # type: ignore[union-attr]
        raise FormatError("must give the result's shape", where="padding", value=grown)
    return math.prod(grown)


def _product(op: Op) -> int:
    a, b = _shapes(op)[:2]
    if len(a) < 2 or len(b) < 2:
        raise FormatError("must be matrices", value=(a, b))
    return _sum(op)


def _resized(op: Op) -> int:
    image, out = op.args["inputs"][0].bound, op.outputs[0].bound  # type: ignore[union-attr]
    if len(image) != 4 or len(out) != 4 or min(*image, *out) < 1 or (image[0], image[3]) != (out[0], out[3]):
        raise FormatError("must be images with the same channels", value=(image, out))
    if op.kind.endswith("NEAREST_NEIGHBOR") and (op.args["align_corners"] or op.args["half_pixel_centers"]):
        raise FormatError("must be False", where="align_corners and half_pixel_centers")
    return 8 * math.prod(out)


_SIZES: dict[str, Callable[[Op], int]] = {
    **dict.fromkeys(("CONV_2D", "DEPTHWISE_CONV_2D"), _convolution),
    **dict.fromkeys(("MAX_POOL_2D", "AVERAGE_POOL_2D"), _pool),
    **dict.fromkeys(("PADV2", "MIRROR_PAD"), _pad),
    **dict.fromkeys(("FULLY_CONNECTED", "BATCH_MATMUL"), _product),
    **dict.fromkeys(("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"), _resized),
    **dict.fromkeys(
        ("CONCATENATION", "PRELU", *(n for n in _NUMBERS if n not in ("MIRROR_PAD",) and "RESIZE" not in n)), _sum
    ),
    "TRANSPOSE_CONV": _transposed,
}
