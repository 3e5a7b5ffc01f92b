"""From a group of operators to a device graph that XNNPACK's nodes can express.

A tensor may be held in several orders of its dimensions at once. Operators ask for the one they need; a transpose is
made when it is first missing, and never between two that agree. A permute is only another name for what is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.ir.graph import Array, Dim, Graph, Op, QParams, Value

Order = tuple[int, ...]
NHWC: Order = (0, 2, 3, 1)
NLC: Order = (0, 2, 1)


def identity(rank: int) -> Order:
    return tuple(range(rank))


class Lowering:
    """Builds the device graph of one group."""

    def __init__(self, group: Graph, rows: Any) -> None:
        self.group = group
        self.rows = rows
        self.graph = Graph(group.name)
        self._forms: dict[int, dict[Order, Value]] = {}
        self._constants: dict[tuple[int, Any], Value] = {}
        self._kept: list[Value] = []  # of constants made here: their ids must stay theirs

    def run(self) -> Graph:
        for value in self.group.inputs:
            held = self._device(value, value.dim_order)
            self._forms[id(value)] = {value.dim_order: held}
            self.graph.inputs.append(held)
        for op in self.group.ops:
            self.rows[op.kind].lower(self, op)
        for value in self.group.outputs:
            self.graph.outputs.append(self._output(value))
        return self.graph

    def _output(self, value: Value) -> Value:
        """An output must be made by a node, and be no input or other output as well."""
        held = self.get(value, value.dim_order)
        taken = {id(v) for v in (*self.graph.inputs, *self.graph.outputs)}
        if id(held) in taken:
            copy = self._device(value, value.dim_order)
            self.graph.ops.append(Op("clone", {"self": held}, [copy]))
            return copy
        return held

    # --------------------------------------------------------------------------------------------------- values

    def _device(self, value: Value, order: Order) -> Value:
        shape = tuple(value.bound[d] for d in order)
        q = value.q
        return Value(f"{value.name}_{''.join(map(str, order))}", value.dtype, shape, identity(len(shape)), q=q)

    def orders(self, value: Value) -> list[Order]:
        """The orders a tensor is held in now."""
        return list(self._forms.get(id(value), {}))

    def get(self, value: Value, order: Order | None = None) -> Value:
        """A tensor in an order of its dimensions (the original one by default)."""
        order = identity(len(value.shape)) if order is None else order
        if value.constant:
            return self._constant(value, order)
        forms = self._forms[id(value)]
        if order not in forms:
            known, held = next(iter(forms.items()))
            made = self._device(value, order)
            dims = [known.index(d) for d in order]
            self.graph.ops.append(Op("permute", {"self": held, "dims": dims}, [made]))
            forms[order] = made
        return forms[order]

    def _constant(self, value: Value, order: Order) -> Value:
        key = (id(value), order)
        if key not in self._constants:
            made = self._device(value, order)
            assert value.data is not None
            made.data = np.ascontiguousarray(value.data.transpose(order))
            if value.q is not None and value.q.axis is not None:
                made.q = _with_axis(value.q, order.index(value.q.axis % len(order)))
            self._constants[key] = made
        return self._constants[key]

    def constant(self, data: Array, q: QParams | None = None) -> Value:
        """A new constant."""
        made = Value("constant", data.dtype, data.shape, identity(data.ndim), data, q=q)
        self._kept.append(made)
        return made

    def alias(self, value: Value, order: Order, held: Value) -> None:
        """Let an existing device value be ``value`` in ``order``."""
        self._forms.setdefault(id(value), {})[order] = held

    def make(self, value: Value, order: Order | None = None) -> Value:
        """The device value that an operator's result goes to, in an order."""
        order = identity(len(value.shape)) if order is None else order
        held = self._device(value, order)
        self._forms.setdefault(id(value), {})[order] = held
        return held

    def temporary(self, shape: Sequence[int], like: Value) -> Value:
        """A device value between two nodes of one operator."""
        made = Value("temporary", like.dtype, tuple(shape), identity(len(shape)), q=like.q)
        self._kept.append(made)
        return made

    def emit(self, kind: str, out: Value, /, **args: Any) -> None:
        """Append a node."""
        self.graph.ops.append(Op(kind, args, [out]))


def _with_axis(q: QParams, axis: int) -> QParams:
    return QParams(q.scale, q.zero_point, q.dtype, q.qmin, q.qmax, axis, q.block, q.dynamic)


# ----------------------------------------------------------------------------------------------- element by element


def common_order(low: Lowering, op: Op, rank: int) -> Order:
    """The order an elementwise operator works in: that of its operands, if one is channels-last already."""
    found = [o for v in op.inputs() if not v.constant for o in low.orders(v) if len(o) == rank]
    other = [o for o in found if o != identity(rank)]
    both = all(
        len(v.shape) == rank or v.constant or not v.shape or int(np.prod(v.bound)) == 1
        for v in op.inputs()
        if v.dtype is not None
    )
    return other[0] if other and both else identity(rank)


def operand(low: Lowering, op: Op, name: str, order: Order) -> Value:
    """An operand of an elementwise operator, in ``order``; numbers become constants."""
    value, out = op.args[name], op.outputs[0]
    assert out is not None
    if not isinstance(value, Value):
        return low.constant(np.full((1,), value, out.dtype))
    if len(value.shape) == len(order):
        return low.get(value, order)
    if value.constant:
        return low.constant(*_expanded(value, order))
    return low.get(value)


def _expanded(value: Value, order: Order) -> tuple[Array, QParams | None]:
    """A constant of lower rank, with the dimensions it broadcasts over, in ``order``."""
    assert value.data is not None
    if order == identity(len(order)):
        return np.ascontiguousarray(value.data if value.data.ndim else value.data.reshape(1)), value.q
    data = value.data.reshape((1,) * (len(order) - value.data.ndim) + value.data.shape)
    return np.ascontiguousarray(data.transpose(order)), value.q


def binary(kind: str) -> Any:
    def lower(low: Lowering, op: Op) -> None:
        out = op.outputs[0]
        assert out is not None
        order = common_order(low, op, len(out.shape))
        a, b = operand(low, op, "self", order), operand(low, op, "other", order)
        low.emit(kind, low.make(out, order), self=a, other=b, **limits(op))

    return lower


def unary(kind: str, **arguments: str) -> Any:
    """A node of one input; ``arguments`` maps its attributes to the operator's."""

    def lower(low: Lowering, op: Op) -> None:
        source, out = next(op.inputs()), op.outputs[0]
        assert out is not None
        order = common_order(low, op, len(out.shape))
        attributes = {name: op.args[given] for name, given in arguments.items()}
        low.emit(kind, low.make(out, order), self=low.get(source, order), **attributes, **limits(op))

    return lower


def limits(op: Op) -> dict[str, Any]:
    return {"limits": op.args["limits"]} if op.args.get("limits") else {}


def clamp(bounds: Any) -> Any:
    """An activation that only limits values."""

    def lower(low: Lowering, op: Op) -> None:
        source, out = op.args["self"], op.outputs[0]
        assert out is not None
        order = common_order(low, op, len(out.shape))
        low.emit("clamp", low.make(out, order), self=low.get(source, order), limits=bounds(op))

    return lower


# ----------------------------------------------------------------------------------------------------- weights


def bias_of(low: Lowering, op: Op) -> Value | None:
    """A bias as the product of its operands needs it: integers for integers, else single precision."""
    bias, x, weight = op.args.get("bias"), op.args["input"], op.args["weight"]
    if bias is None:
        return None
    data = np.asarray(bias.data)
    if x.q is None or x.q.dynamic or weight.q is None:
        wide = np.float32 if op.kind != "linear" or x.q is not None else data.dtype
        return low.constant(data.astype(wide))
    scale = np.float64(x.q.scale) * np.asarray(weight.q.scale, np.float64)
    stored = np.rint(data / scale)
    axis = None if np.ndim(scale) == 0 else 0
    low32, high32 = -(1 << 31), (1 << 31) - 1
    shown = float(scale) if axis is None else tuple(scale.tolist())
    zero = 0 if axis is None else (0,) * data.size
    q = QParams(shown, zero, np.dtype(np.int32), low32, high32, axis)
    return low.constant(np.clip(stored, low32, high32).astype(np.int32), q)


def linear(low: Lowering, op: Op) -> None:
    x, weight, out = op.args["input"], op.args["weight"], op.outputs[0]
    assert out is not None
    args = {"input": low.get(x), "weight": low.get(weight), "bias": bias_of(low, op), "transposed": False}
    low.emit("linear", low.make(out), **args, **limits(op))


def matmul_by_constant(low: Lowering, op: Op) -> None:
    """``mm`` and ``addmm`` with a constant on the right."""
    x, weight = op.args.get("mat1", op.args["self"]), op.args["mat2"]
    out = op.outputs[0]
    assert out is not None
    given = Op("linear", {"input": x, "weight": weight, "bias": op.args["self"] if "mat1" in op.args else None}, [out])
    args = {"input": low.get(x), "weight": low.get(weight), "bias": bias_of(low, given), "transposed": True}
    low.emit("linear", low.make(out), **args, **limits(op))


def batch_matmul(low: Lowering, op: Op) -> None:
    out = op.outputs[0]
    assert out is not None
    low.emit("bmm", low.make(out), self=low.get(op.args["self"]), other=low.get(op.args["mat2"]))


def convolution(low: Lowering, op: Op) -> None:
    """Images, and sequences as images one pixel high."""
    x, out = op.args["input"], op.outputs[0]
    assert out is not None
    sequence = len(x.shape) == 3
    kind, weight = _filters(op)
    fills = {"stride": 1, "padding": 0, "dilation": 1, "output_padding": 0}
    stride, padding, dilation, extra = (_two(op.args[name], fill) for name, fill in fills.items())
    pads = [padding[0], padding[0], padding[1], padding[1]]
    image = low.get(x, NLC if sequence else NHWC)
    if sequence:
        tall = low.temporary((image.shape[0], 1, *image.shape[1:]), x)  # type: ignore[arg-type]
        low.emit("view", tall, self=image, size=[_size(x, 0), 1, _size(x, 2), _size(x, 1)])
        image = tall
    args = {"input": image, "weight": weight, "bias": bias_of(low, op), "stride": stride, "padding": pads,
            "dilation": dilation, "groups": op.args["groups"], "output_padding": extra, **limits(op)}  # fmt: skip
    if not sequence:
        low.emit(kind, low.make(out, NHWC), **args)
        return
    flat = low.make(out, NLC)
    tall = low.temporary((flat.shape[0], 1, *flat.shape[1:]), out)  # type: ignore[arg-type]
    low.emit(kind, tall, **args)
    low.emit("view", flat, self=tall, size=[_size(out, 0), _size(out, 2), _size(out, 1)])


def _size(value: Value, dim: int) -> int:
    """A size of a reshape: 0 stands for the one that is known at run time."""
    size = value.shape[dim]
    return 0 if isinstance(size, Dim) else size


def _two(values: Any, fill: int) -> list[int]:
    given = list(values)
    return [0 if fill == 0 else 1, given[0]] if len(given) == 1 else given


def _filters(op: Op) -> tuple[str, Value]:
    """The node for a convolution, and its filters as it stores them: output, height, width, input."""
    weight: Value = op.args["weight"]
    assert weight.data is not None
    data, groups, q = weight.data, op.args["groups"], weight.q
    if data.ndim == 3:
        data = data[:, :, None, :]
    axis = 0
    if op.args["transposed"]:
        each = data.shape[1]
        split = data.reshape(groups, -1, *data.shape[1:]).transpose(0, 2, 1, 3, 4)
        data = split.reshape(groups * each, -1, *data.shape[2:])
        kind, data = "conv_transpose2d", data.transpose(0, 2, 3, 1)
    elif data.shape[1] == 1 and groups > 1:
        kind, data, axis = "depthwise_conv2d", data.transpose(1, 2, 3, 0), 3
    else:
        kind, data = "conv2d", data.transpose(0, 2, 3, 1)
    if q is not None and q.axis is not None:
        q = _with_axis(q, axis)
    if q is None and data.dtype == np.float16:
        data = data.astype(np.float32)
    data = np.ascontiguousarray(data)
    return kind, Value(weight.name, data.dtype, data.shape, identity(4), data, q=q)


# ------------------------------------------------------------------------------------------------------- pooling


def max_pool2d(low: Lowering, op: Op) -> None:
    x, out = op.args["self"], op.outputs[0]
    assert out is not None
    kernel, stride, padding, dilation = pool_arguments(op)
    pads = list(padding)
    for axis in (0, 1):  # ceil_mode is padding at the end
        covered = (int(out.bound[2 + axis]) - 1) * stride[axis] + (kernel[axis] - 1) * dilation[axis] + 1
        pads[2 * axis + 1] = max(pads[2 * axis + 1], covered - int(x.bound[2 + axis]) - pads[2 * axis])
    low.emit("max_pool2d", low.make(out, NHWC), self=low.get(x, NHWC), kernel_size=kernel, stride=stride, padding=pads,
             dilation=dilation, **limits(op))  # fmt: skip


def avg_pool2d(low: Lowering, op: Op) -> None:
    x, out = op.args["self"], op.outputs[0]
    assert out is not None
    kernel, stride, padding, _ = pool_arguments(op)
    low.emit("avg_pool2d", low.make(out, NHWC), self=low.get(x, NHWC), kernel_size=kernel, stride=stride,
             padding=padding, **limits(op))  # fmt: skip


def pool_arguments(op: Op) -> tuple[list[int], list[int], list[int], list[int]]:
    def pair(name: str, default: list[int]) -> list[int]:
        given = list(op.args.get(name) or default)
        return given * 2 if len(given) == 1 else given

    kernel = pair("kernel_size", [1])
    stride = pair("stride", kernel)
    height, width = pair("padding", [0])
    return kernel, stride, [height, height, width, width], pair("dilation", [1])


def global_average(low: Lowering, op: Op) -> None:
    x, out = op.args["self"], op.outputs[0]
    assert out is not None
    kept = len(out.shape) == 4
    if kept:
        low.emit("global_avg_pool2d", low.make(out, NHWC), self=low.get(x, NHWC), **limits(op))
        return
    pooled = low.temporary((x.bound[0], 1, 1, x.bound[1]), out)
    low.emit("global_avg_pool2d", pooled, self=low.get(x, NHWC), **limits(op))
    low.emit("view", low.make(out), self=pooled, size=[_size(out, 0), _size(out, 1)])


def upsample_bilinear2d(low: Lowering, op: Op) -> None:
    x, out = op.args["input"], op.outputs[0]
    assert out is not None
    low.emit("upsample_bilinear2d", low.make(out, NHWC), input=low.get(x, NHWC), output_size=list(out.bound[2:]),
             align_corners=op.args["align_corners"])  # fmt: skip


# ------------------------------------------------------------------------------------------------------ movement


def cat(low: Lowering, op: Op) -> None:
    out = op.outputs[0]
    assert out is not None
    rank = len(out.shape)
    order = common_order(low, op, rank)
    parts = [low.get(v, order) for v in op.args["tensors"]]
    dim = order.index(op.args["dim"] % rank)
    while len(parts) > 5:
        shape = list(parts[0].bound)
        shape[dim] = sum(int(p.bound[dim]) for p in parts[:5])
        joined = low.temporary(shape, out)
        low.emit("cat", joined, tensors=parts[:5], dim=dim)
        parts = [joined, *parts[5:]]
    low.emit("cat", low.make(out, order), tensors=parts, dim=dim)


def permute(low: Lowering, op: Op) -> None:
    """Another name for what is there."""
    x, out = op.args["self"], op.outputs[0]
    assert out is not None
    rank = len(x.shape)
    if "dims" in op.args:
        dims = [d % rank for d in op.args["dims"]]
    else:
        dims = list(range(rank))
        first, second = op.args.get("dim0", 0) % rank, op.args.get("dim1", 1) % rank
        dims[first], dims[second] = dims[second], dims[first]
    for order in low.orders(x):
        low.alias(out, tuple(dims.index(d) for d in order), low.get(x, order))


def view(low: Lowering, op: Op) -> None:
    x, out = op.args["self"], op.outputs[0]
    assert out is not None
    low.emit("view", low.make(out), self=low.get(x), size=[_size(out, d) for d in range(len(out.shape))])


def slice_(low: Lowering, op: Op) -> None:
    x, out = op.args["self"], op.outputs[0]
    assert out is not None
    order = common_order(low, op, len(out.shape))
    dim = op.args["dim"] % len(x.shape)
    size = int(x.bound[dim])
    start = op.args["start"] or 0
    start = max(start + size if start < 0 else start, 0)
    starts = [min(start, size) if d == dim else 0 for d in order]
    length = [int(out.bound[d]) for d in order]
    low.emit("slice", low.make(out, order), self=low.get(x, order), start=starts, length=length)


def pad(low: Lowering, op: Op) -> None:
    x, out = op.args["self"], op.outputs[0]
    assert out is not None
    order, rank = common_order(low, op, len(out.shape)), len(x.shape)
    pads = op.args["pad"]
    before, after = [0] * rank, [0] * rank
    for index in range(len(pads) // 2):
        before[rank - 1 - index], after[rank - 1 - index] = pads[2 * index], pads[2 * index + 1]
    low.emit("pad", low.make(out, order), self=low.get(x, order), before=[before[d] for d in order],
             after=[after[d] for d in order], value=float(op.args["value"] or 0))  # fmt: skip


def same(low: Lowering, op: Op) -> None:
    """A copy that changes nothing: another name."""
    x, out = next(op.inputs()), op.outputs[0]
    assert out is not None
    if x.constant:
        low.alias(out, identity(len(x.shape)), low.get(x))
        return
    for order in low.orders(x):
        low.alias(out, order, low.get(x, order))


def convert(low: Lowering, op: Op) -> None:
    """Between real numbers and integers. Rows are those of the original order (or of images, channels last)."""
    x, out = op.args["self"], op.outputs[0]
    assert out is not None
    rank = len(out.shape)
    order = common_order(low, op, rank)
    if out.q is not None and out.q.dynamic:
        order = NHWC if out.q.axis == -3 else identity(rank)
    low.emit("convert", low.make(out, order), self=low.get(x, order))


def batch_norm(low: Lowering, op: Op) -> None:
    """With given statistics: a product and a sum by channel."""
    x, out = op.args["input"], op.outputs[0]
    assert out is not None
    scale, shift = batch_norm_factors(op)
    order = common_order(low, op, len(out.shape))
    shape = [1] * len(order)
    shape[order.index(1)] = scale.size
    scaled = low.temporary([out.bound[d] for d in order], out)
    low.emit("mul", scaled, self=low.get(x, order), other=low.constant(scale.reshape(shape).astype(out.dtype)))
    moved = low.constant(shift.reshape(shape).astype(out.dtype))
    low.emit("add", low.make(out, order), self=scaled, other=moved, **limits(op))


def batch_norm_factors(op: Op) -> tuple[Array, Array]:
    """What a batch norm multiplies by and adds, per channel."""
    mean, var = (np.asarray(op.args[n].data, np.float64) for n in ("running_mean", "running_var"))
    weight, bias = (None if op.args[n] is None else np.asarray(op.args[n].data, np.float64) for n in ("weight", "bias"))
    scale = (1 if weight is None else weight) / np.sqrt(var + op.args["eps"])
    return np.asarray(scale), np.asarray((0 if bias is None else bias) - mean * scale)
