"""Validation of core graphs before code generation, because compiled code has no bounds checks.

A graph may come from an untrusted file. The shape rules recompute every result's shape from its operands; a declared
shape that differs is an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from edgewright.engine.codegen.math_float32 import FUNCTIONS
from edgewright.errors import ExecutionError, LimitError
from edgewright.ir.core.aten_fallback import aten_shape, is_aten_op
from edgewright.ir.graph import Graph, Op, Value, verify

Shape = tuple[int, ...]
Rule = Callable[[Op], Shape]
_MAX_SIZE = 1 << 40


def check_graph(graph: Graph, memory: int) -> None:
    """Raise unless shapes, constants and quantization are consistent and tensors fit in ``memory`` bytes."""
    verify(graph)
    for value in graph.values():
        if value.dtype is None or value.dynamic:
            raise ExecutionError(f"device graph: {value.name}", "must be a tensor of known sizes")
        if any(n < 0 for n in value.bound):
            raise _error(value.name, "sizes must not be negative", list(value.bound))
        if value.nbytes > memory:
            raise LimitError(f"device graph: {value.name}", f"may take {memory} bytes", value=value.nbytes)
        if value.data is not None and np.shape(value.data) != value.bound:
            raise _error(value.name, "a constant has the shape of its data", np.shape(value.data))
        _check_quantization(value)
    for op in graph.ops:
        _check_op(op)
    packed = sum(_packed_size(op) for op in graph.ops)
    if packed > memory:
        raise LimitError("device graph", f"packed weights may take {memory} bytes", value=packed)


def _check_quantization(value: Value) -> None:
    q = value.q
    if q is None or q.dynamic is not None or q.dtype.itemsize > 1:
        return
    scales, zeros = np.asarray(q.scale, np.float64), np.atleast_1d(np.asarray(q.zero_point, object))
    valid = bool(np.all(np.isfinite(scales) & (scales > 0))) and all(q.qmin <= z <= q.qmax for z in zeros)
    if not valid:
        rule = f"needs scales above 0 and zero points from {q.qmin} to {q.qmax}"
        raise _error(value.name, rule, (np.ravel(scales)[:3].tolist(), zeros[:3].tolist()))


def _packed_size(op: Op) -> int:
    """A lower bound on the packed size of an operator's weights: each use of a constant is packed separately."""
    weight = op.args.get("weight")
    if weight is None or weight.data is None:
        return sum(value.nbytes for value in op.inputs() if value.constant)
    channels = max(
        1, weight.bound[-1] if op.kind == "core.depthwise_conv2d" else weight.bound[0] if weight.bound else 1
    )
    padded = -(-channels // 16) * 16  # full vectors
    transformed = 4 if weight.bound[1:3] == (3, 3) and weight.q is None else 1  # Winograd filters, at most
    return int(weight.nbytes) // channels * padded * transformed


def _check_op(op: Op) -> None:
    limits = op.args.get("limits")
    if limits is not None and not limits[0] <= limits[1]:
        raise _error(op.name, "limits must be numbers in order", limits)
    rule = SHAPE_RULES.get(op.kind) or (aten_shape if is_aten_op(op.kind) else None)
    if rule is None:
        return
    out = op.outputs[0]
    if out is None:
        raise _error(op.name, "must have an output", None)
    try:
        inferred = tuple(int(n) for n in rule(op))
    except (ValueError, LookupError, TypeError, ArithmeticError) as error:
        raise _error(op.name, f"does not hold together: {error}", list(out.bound)) from error
    if inferred != out.bound:
        raise _error(op.name, f"must have shape {list(inferred)}", list(out.bound))


def _error(name: str, rule: str, value: object) -> ExecutionError:
    return ExecutionError(f"device graph: {name}", rule, value=value, remedy="The file is damaged or not one of ours.")


def _require(condition: bool, rule: str) -> None:
    if not condition:
        raise ValueError(rule)


def _pairs(op: Op, *names: str) -> list[tuple[int, int]]:
    """Arguments that are pairs of positive integers."""
    pairs = []
    for name in names:
        values = op.args.get(name) or [1, 1]
        _require(
            len(values) == 2 and all(0 < int(n) < _MAX_SIZE for n in values), f"{name} must be two positive numbers"
        )
        pairs.append((int(values[0]), int(values[1])))
    return pairs


def _pads(op: Op) -> list[tuple[int, int]]:
    values = [int(n) for n in op.args["padding"]]
    _require(len(values) == 4 and all(0 <= n < _MAX_SIZE for n in values), "padding must be four numbers from 0")
    return [(values[0], values[1]), (values[2], values[3])]


def _image_shape(value: Value) -> Shape:
    _require(len(value.bound) == 4, "needs an image of four dimensions")
    return value.bound


def _windows(size: int, pads: tuple[int, int], kernel: int, stride: int, dilation: int) -> int:
    extent = dilation * (kernel - 1) + 1
    _require(size + sum(pads) >= extent, "the window must fit in the padded image")
    return (size + sum(pads) - extent) // stride + 1


def _bias(op: Op, channels: int) -> None:
    bias = op.args.get("bias")
    # (8, 1) would be added along another dimension than the channels.
    fits = bias is None or (math.prod(bias.bound) == channels and bias.bound[-1:] in ((), (channels,)))
    _require(fits, f"the bias must have {channels} elements, in its last dimension")


def _scales(weight: Value, channels: int) -> None:
    size = 1 if weight.q is None else np.size(weight.q.scale)
    _require(size in (1, channels) or (weight.q is not None and weight.q.block is not None), "a scale for each channel")


def _conv(op: Op) -> Shape:
    batch, height, width, inputs = _image_shape(op.args["input"])
    weight = _image_shape(op.args["weight"])
    stride, dilation = _pairs(op, "stride", "dilation")
    groups = int(op.args["groups"])
    _require(groups > 0, "groups must be positive")
    if op.kind == "core.depthwise_conv2d":
        channels = weight[3]
        _require(weight[0] == 1 and inputs == groups and channels % groups == 0, "a filter for each channel")
    else:
        channels = weight[0]
        _require(weight[3] * groups == inputs and channels % groups == 0, "filters must fit the channels of each group")
    _bias(op, channels)
    _scales(op.args["weight"], channels)
    sizes = [_windows(n, p, k, s, d) for n, p, k, s, d in
             zip((height, width), _pads(op), weight[1:3], stride, dilation, strict=True)]  # fmt: skip
    return (batch, *sizes, channels)


def _conv_transpose(op: Op) -> Shape:
    batch, *image, inputs = _image_shape(op.args["input"])
    weight = _image_shape(op.args["weight"])
    stride, dilation = _pairs(op, "stride", "dilation")
    groups, extra = int(op.args["groups"]), [int(n) for n in op.args.get("output_padding") or [0, 0]]
    _require(groups > 0 and weight[3] * groups == inputs and weight[0] % groups == 0, "filters must fit the channels")
    _require(
        len(extra) == 2 and all(0 <= e < s for e, s in zip(extra, stride, strict=True)), "more than a stride is added"
    )
    _bias(op, weight[0])
    _scales(op.args["weight"], weight[0])
    sizes = [(n - 1) * s + d * (k - 1) + 1 + e - sum(p) for n, s, d, k, e, p in
             zip(image, stride, dilation, weight[1:3], extra, _pads(op), strict=True)]  # fmt: skip
    _require(min(sizes) > 0, "nothing is left")
    return (batch, *sizes, weight[0])


def _linear(op: Op) -> Shape:
    x, weight = op.args["input"].bound, op.args["weight"].bound
    _require(len(weight) == 2 and len(x) >= 1, "needs rows and a matrix")
    outputs, inputs = (weight[1], weight[0]) if op.args.get("transposed") else weight
    _require(x[-1] == inputs, f"rows must have {inputs} elements")
    _bias(op, outputs)
    _scales(op.args["weight"], outputs)
    return (*x[:-1], outputs)


def _broadcast(op: Op) -> Shape:
    return np.broadcast_shapes(op.args["self"].bound, op.args["other"].bound)


def _prelu(op: Op) -> Shape:
    shape = np.broadcast_shapes(op.args["self"].bound, op.args["weight"].bound)
    _require(shape == op.args["self"].bound, "slopes must fit the last dimension")
    return shape


def _resize(op: Op) -> Shape:
    batch, _, _, channels = _image_shape(op.args["input"])
    (size,) = _pairs(op, "output_size")
    return (batch, *size, channels)


def _bmm(op: Op) -> Shape:
    a, b = op.args["self"].bound, op.args["other"].bound
    _require(len(a) >= 2 and len(b) >= 2 and a[-1] == b[-2], "matrices must fit")
    return (*np.broadcast_shapes(a[:-2], b[:-2]), a[-2], b[-1])


def _same_shape(op: Op) -> Shape:
    return next(op.inputs()).bound


def _pool(op: Op) -> Shape:
    batch, height, width, channels = _image_shape(op.args["self"])
    kernel, stride, dilation = _pairs(op, "kernel_size", "stride", "dilation")
    sizes = [_windows(n, p, k, s, d) for n, p, k, s, d in
             zip((height, width), _pads(op), kernel, stride, dilation, strict=True)]  # fmt: skip
    return (batch, *sizes, channels)


def _global(op: Op) -> Shape:
    batch, _, _, channels = _image_shape(op.args["self"])
    return (batch, 1, 1, channels)


def _permute(op: Op) -> Shape:
    shape, dims = op.args["self"].bound, [int(d) for d in op.args["dims"]]
    _require(sorted(dims) == list(range(len(shape))), "dimensions must each be named once")
    return tuple(shape[d] for d in dims)


def _view(op: Op) -> Shape:
    total, sizes = math.prod(op.args["self"].bound), [int(n) for n in op.args["size"]]
    _require(sum(n in (0, -1) for n in sizes) <= 1 and all(n >= -1 for n in sizes), "at most one size may be left open")
    known = math.prod(n for n in sizes if n > 0)
    inferred = tuple(total // known if n in (0, -1) else n for n in sizes)
    _require(math.prod(inferred) == total, "elements must stay as many")
    return inferred


def _slice(op: Op) -> Shape:
    shape, starts = op.args["self"].bound, [int(n) for n in op.args["start"]]
    lengths = [int(n) or size - a for a, n, size in zip(starts, op.args["length"], shape, strict=True)]
    inside = all(a >= 0 and n > 0 and a + n <= size for a, n, size in zip(starts, lengths, shape, strict=True))
    _require(inside, "the slice must be inside")
    return tuple(lengths)


def _cat(op: Op) -> Shape:
    shapes = [v.bound for v in op.args["tensors"]]
    dim, rank = int(op.args["dim"]), len(shapes[0])
    _require(-rank <= dim < rank, f"the dimension must be one of {rank}")
    axis = dim % rank
    rest = {(*s[:axis], *s[axis + 1 :]) for s in shapes}
    _require(len(rest) == 1 and len({len(s) for s in shapes}) == 1, "tensors must agree in every other dimension")
    return (*shapes[0][:axis], sum(s[axis] for s in shapes), *shapes[0][axis + 1 :])


def _pad(op: Op) -> Shape:
    before, after = ([int(n) for n in op.args[name]] for name in ("before", "after"))
    _require(all(0 <= n < _MAX_SIZE for n in (*before, *after)), "padding must be at least 0")
    return tuple(n + a + b for n, a, b in zip(op.args["self"].bound, before, after, strict=True))


def _topk(op: Op) -> Shape:
    shape, dim = list(op.args["self"].bound), int(op.args["dim"])
    _require(0 <= dim < len(shape) and 0 < int(op.args["k"]) <= shape[dim], "as many as there are along the dimension")
    shape[dim] = int(op.args["k"])
    return tuple(shape)


def _separable_resize(op: Op) -> Shape:
    """Separable resize: the taps of every result must be in range."""
    shape, dim = list(op.args["self"].bound), int(op.args["dim"])
    starts, counts, weights = (op.args[name].data for name in ("starts", "counts", "weights"))
    _require(0 <= dim < len(shape) and all(a is not None for a in (starts, counts, weights)), "constants must be known")
    _require(
        starts.ndim == counts.ndim == 1 and weights.shape == (len(starts), weights.shape[1]), "a row for each result"
    )
    _require(len(starts) == len(counts) and bool(np.all(counts <= weights.shape[1])), "a weight for each neighbor")
    _require(bool(np.all((starts >= 0) & (counts > 0) & (starts + counts <= shape[dim]))), "neighbors must be inside")
    return (*shape[:dim], len(starts), *shape[dim + 1 :])


def _like(*kinds: str, rule: Rule) -> dict[str, Rule]:
    return {f"core.{kind}": rule for kind in kinds}


SHAPE_RULES: dict[str, Rule] = {
    **_like("conv2d", "depthwise_conv2d", rule=_conv),
    **_like("add", "sub", "mul", "div", "maximum", "minimum", "trunc_divide", rule=_broadcast),
    **_like(*FUNCTIONS, "clamp", "clone", "convert", "softmax", "int_softmax", "int_norm", rule=_same_shape),
    **_like("max_pool2d", "avg_pool2d", rule=_pool),
    "core.conv_transpose2d": _conv_transpose,
    "core.bmm": _bmm,
    "core.int_matmul": _bmm,
    "core.linear": _linear,
    "core.prelu": _prelu,
    "core.upsample_bilinear2d": _resize,
    "core.global_avg_pool2d": _global,
    "core.permute": _permute,
    "core.view": _view,
    "core.slice": _slice,
    "core.cat": _cat,
    "core.pad": _pad,
    "core.topk_indices": _topk,
    "core.separable_resize": _separable_resize,
}


def every_window_overlaps(size: int, windows: int, kernel: int, stride: int, padding: int, dilation: int) -> bool:
    """Whether every window along a dimension has a tap inside the image."""
    starts = np.arange(windows)[:, None] * stride - padding
    taps = starts + np.arange(kernel)[None, :] * dilation
    return bool(((taps >= 0) & (taps < size)).any(1).all())
