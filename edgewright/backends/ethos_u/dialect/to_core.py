"""Translation of TOSA graphs to core operators.

TOSA tensors carry no scale. Int8 tensors get scale 1 and the zero point of the operator that pads them, so that borders
hold the neutral value. TOSA separates accumulation from requantization: CONV2D produces int32 or int48 accumulators,
and a RESCALE rounds them, once ("single") or, with DOUBLE_ROUND, twice (TOSA specification, RESCALE and
apply_scale_32). A RESCALE that is the only reader is fused into the convolution's ``scaling``. Where something else
reads the accumulators, or the window has no specialized kernel, the convolution computes accumulators from an
explicitly padded image. Sums and functions of float32 use the engine's order and accuracy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.backends.ethos_u.dialect.table import FLOAT_FUNCTIONS, PREFIX
from edgewright.engine.kernels.int8_depthwise import MAX_TAPS
from edgewright.ir.graph import Array, Graph, Op, QParams, Value
from edgewright.ir.numerics import Numerics
from edgewright.ir.requant_scale import FixedPointScale
from edgewright.ir.rewrite import GraphRewrite, RuleTable

rule: RuleTable[TosaRewrite] = RuleTable(PREFIX)
INT8_RANGES: dict[Any, tuple[int, int]] = {np.dtype(np.int8): (-128, 127), np.dtype(np.uint8): (0, 255)}
INT_RANGES: dict[Any, tuple[int, int]] = {**INT8_RANGES, np.dtype(np.int16): (-32768, 32767)}
_ZERO_POINT_PRESERVING = (
    "max_pool2d",
    "reshape",
    "transpose",
    "slice",
    "concat",
    "pad",
    "clamp",
    "identity",
    "reverse",
    "tile",
)


class TosaRewrite(GraphRewrite):
    """A TOSA graph being translated."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        zero_points = _zero_points(graph)
        for value in graph.values():
            q = None
            if value.dtype is not None and value.dtype in INT8_RANGES:
                q = QParams(1.0, zero_points.get(value, 0), value.dtype, *INT8_RANGES[value.dtype])
            if q is not None or value.q is not None:
                self.values[value] = replace(value, q=q)

    def zero_point(self, value: Value) -> int:
        """The zero point of a tensor; 0 if it has none."""
        q = self.value(value).q
        return 0 if q is None else int(np.asarray(q.zero_point))

    def new_value(self, value: Value, shape: Sequence[int], zero: int | None = None) -> Value:
        """A new tensor of another shape, stored like ``value``, optionally with another zero point."""
        current = self.value(value)
        q = current.q if current.q is None or zero is None else replace(current.q, zero_point=zero)
        return Value(value.name, current.dtype, tuple(shape), tuple(range(len(shape))), q=q)

    def move(self, kind: str, op: Op, out: Value, x: Value, **args: Any) -> bool:
        """Emit data movement. Stored integers stay as they are, also if the result is read with another zero point."""
        moved = self.new_value(x, out.bound)
        same = moved.q == self.value(out).q
        self.emit(kind, op, out if same else moved, self=x, **args)
        if not same:
            self.emit("core.bitcast", op, out, self=moved)
        return True

    def like(self, op: Op, x: Value, out: Value) -> Value:
        """The stored integers of ``x`` as a tensor with the zero point of ``out``."""
        if self.value(x).q == self.value(out).q:
            return x
        same = Value(x.name, x.dtype, x.bound, x.dim_order, q=self.value(out).q)
        self.emit("core.bitcast", op, same, self=x)
        return same

    def pad(self, op: Op, x: Value, out: Value, before: Sequence[int], after: Sequence[int], fill: Any) -> bool:
        """Pad ``x`` with ``fill``; False if float32 cannot represent the fill value exactly."""
        value = float(fill) - self.zero_point(x)
        is_int = x.dtype is not None and x.dtype.kind != "f"
        if min(*before, *after, 0) < 0 or (is_int and (value != float(np.float32(value)) or value != int(value))):
            return False
        return self.move("core.pad", op, out, x, before=list(before), after=list(after), value=value)

    def pad_image(self, op: Op, x: Value, padding: Sequence[int], fill: int) -> Value | None:
        """An image with padding at top, bottom, left and right; None if the fill value is not representable."""
        top, bottom, left, right = padding
        batch, high, wide, channels = x.bound
        int8_range = INT8_RANGES.get(x.dtype)
        zero = fill if int8_range is not None and int8_range[0] <= fill <= int8_range[1] else None
        out = self.new_value(x, (batch, high + top + bottom, wide + left + right, channels), zero)
        return out if self.pad(op, x, out, [0, top, left, 0], [0, bottom, right, 0], fill) else None

    def fuse_rescale(self, op: Op, width: int | None = None) -> tuple[FixedPointScale, Value] | None:
        """Fuse the RESCALE that is an accumulator's only reader, and a clamp after it; returns scaling and result.

        ``width``: of the result, in bytes. Core's integer convolutions have results as wide as their input: between
        layers of 8 and of 16 bits, accumulators and RESCALE stay apart.
        """
        acc = result_of(op)
        rescale = self.only_reader(acc)
        if rescale is None or rescale.kind != f"{PREFIX}rescale" or rescale.args["input_zp"]:
            return None
        out = result_of(rescale)
        multiplier, shift = (rescale.args[name].data for name in ("multiplier", "shift"))
        if out.dtype is None or width not in (None, out.dtype.itemsize):
            return None
        if out.dtype not in INT_RANGES or multiplier is None or shift is None or multiplier.size != shift.size:
            return None
        if not rescale.args["per_channel"]:
            multiplier, shift = multiplier.reshape(-1)[:1], shift.reshape(-1)[:1]
        if multiplier.size not in (1, acc.bound[-1]):
            return None
        self.done.add(rescale)
        low, high = INT_RANGES[out.dtype]
        clamp = self.only_reader(out)
        if clamp is not None and clamp.kind == f"{PREFIX}clamp" and has_int_limits(clamp):
            self.done.add(clamp)
            low, high, out = (
                max(low, int(clamp.args["min_val"])),
                min(high, int(clamp.args["max_val"])),
                result_of(clamp),
            )
        multipliers, shifts = (tuple(int(n) for n in a.reshape(-1)) for a in (multiplier, shift))
        return FixedPointScale(
            multipliers, shifts, rescale.args["rounding"], int(rescale.args["output_zp"]), low, high
        ), out


def has_int_limits(clamp: Op) -> bool:
    """Whether the limits of a clamp are ordered integers."""
    low, high = clamp.args["min_val"], clamp.args["max_val"]
    return bool(low == int(low) and high == int(high) and low <= high)


def _zero_points(graph: Graph) -> dict[Value, int]:
    """The zero point that each int8 tensor is read with, propagated backwards through data movement."""
    zero_points: dict[Value, int] = {}
    for op in reversed(graph.ops):
        name = op.kind.removeprefix(PREFIX)
        if "input_zp" in op.args and name != "rescale" and isinstance(op.args.get("input"), Value):
            zero_points.setdefault(op.args["input"], int(op.args["input_zp"]))
        elif name in _ZERO_POINT_PRESERVING and op.outputs[0] in zero_points:
            for value in op.inputs():
                zero_points.setdefault(value, zero_points[op.outputs[0]])
    return {key: zero for key, zero in zero_points.items() if -128 <= zero <= 127}


def result_of(op: Op) -> Value:
    out = op.outputs[0]
    assert out is not None
    return out


def make_constant(data: Array, q: QParams | None = None) -> Value:
    array = np.ascontiguousarray(data)
    return Value("constant", array.dtype, array.shape, tuple(range(array.ndim)), array, q=q)


def int_pairs(op: Op, *names: str) -> dict[str, list[int]]:
    """Arguments that are numbers for rows and for columns."""
    return {name: [int(n) for n in op.args[name]] for name in names}


_FLOAT32 = np.dtype(np.float32)
_SAME = ("abs", *FLOAT_FUNCTIONS)
_PAIRS = {
    **{name: f"core.{name}" for name in ("add", "sub", "mul", "maximum", "minimum")},
    "equal": "core.eq", "greater": "core.gt", "greater_equal": "core.ge",
}  # fmt: skip
_OTHER_NAMES = {"negate": "neg", "identity": "clone"}
_REDUCED = {"reduce_sum": "core.sum", "reduce_max": "core.amax", "reduce_min": "core.amin"}


def translate_float(rw: TosaRewrite, op: Op) -> bool:
    """Translate an operator on float32 tensors; False if it has other types or no rule."""
    rule = _RULES.get(op.kind.removeprefix(PREFIX))
    types = {v.dtype for v in (*op.inputs(), result_of(op))}
    if rule is None or _FLOAT32 not in types or not types <= {_FLOAT32, np.dtype(bool)}:
        return False
    return ("weight" not in op.args or op.args["weight"].data is not None) and rule(rw, op)


def _unary(rw: TosaRewrite, op: Op) -> bool:
    name = op.kind.removeprefix(PREFIX)
    rw.emit(f"core.{_OTHER_NAMES.get(name, name)}", op, result_of(op), self=op.args["input"])
    return True


def _binary(rw: TosaRewrite, op: Op) -> bool:
    if op.args.get("shift"):
        return False
    rw.emit(_PAIRS[op.kind.removeprefix(PREFIX)], op, result_of(op), self=op.args["a"], other=op.args["b"])
    return True


def _pow(rw: TosaRewrite, op: Op) -> bool:
    rw.emit("core.pow", op, result_of(op), self=op.args["a"], exponent=op.args["b"])
    return True


def _select(rw: TosaRewrite, op: Op) -> bool:
    condition, on_true, on_false = (op.args[name] for name in ("condition", "on_true", "on_false"))
    rw.emit("core.where", op, result_of(op), condition=condition, self=on_true, other=on_false)
    return True


def _clamp(rw: TosaRewrite, op: Op) -> bool:
    limits = float(op.args["min_val"]), float(op.args["max_val"])
    if not limits[0] <= limits[1]:
        return False
    rw.emit("core.clamp", op, result_of(op), self=op.args["input"], limits=limits)
    return True


def _reduce(rw: TosaRewrite, op: Op) -> bool:
    kind = _REDUCED[op.kind.removeprefix(PREFIX)]
    rw.emit(kind, op, result_of(op), self=op.args["input"], dim=[int(op.args["axis"])], keepdim=True)
    return True


def _bias(op: Op, channels: int) -> Value | None:
    bias = op.args["bias"].data
    if bias is None or bias.size not in (1, channels):
        return None
    return make_constant(np.broadcast_to(bias.reshape(-1), channels).astype(np.float32))


def _convolve(rw: TosaRewrite, op: Op, kind: str, filters: Any, channels: int, **sizes: Any) -> bool:
    bias = _bias(op, channels)
    if bias is None or op.args["input_zp"] or op.args["weight_zp"]:
        return False
    rw.emit(kind, op, result_of(op), input=op.args["input"], weight=make_constant(filters), bias=bias, **sizes)
    return True


def _float_conv2d(rw: TosaRewrite, op: Op) -> bool:
    weight = op.args["weight"]
    return _convolve(rw, op, "core.conv2d", weight.data, weight.bound[0], padding=[int(n) for n in op.args["pad"]],
                     groups=1, **int_pairs(op, "stride", "dilation"))  # fmt: skip


def _float_depthwise(rw: TosaRewrite, op: Op) -> bool:
    weight = op.args["weight"]
    high, wide, inputs, multiplier = weight.bound
    outputs = inputs * multiplier
    return _convolve(rw, op, "core.depthwise_conv2d", weight.data.reshape(1, high, wide, outputs), outputs,
                     groups=inputs, padding=[int(n) for n in op.args["pad"]],
                     **int_pairs(op, "stride", "dilation"))  # fmt: skip


def _float_transposed(rw: TosaRewrite, op: Op) -> bool:
    weight, out_pad = op.args["weight"], [int(n) for n in op.args["out_pad"]]
    if max(out_pad) > 0:
        return _float_conv2d(rw, _transposed_as_conv2d(rw, op))
    return _convolve(rw, op, "core.conv_transpose2d", weight.data, weight.bound[0], padding=[-n for n in out_pad],
                     groups=1, dilation=[1, 1], output_padding=[0, 0], **int_pairs(op, "stride"))  # fmt: skip


def _float_conv3d(rw: TosaRewrite, op: Op) -> bool:
    plane = _planes_as_conv2d(rw, op)
    return plane is not None and _float_conv2d(rw, plane) and _emit_volume(rw, op, result_of(plane), result_of(op))


def _float_matmul(rw: TosaRewrite, op: Op) -> bool:
    if op.args["a_zp"] or op.args["b_zp"]:
        return False
    rw.emit("core.bmm", op, result_of(op), self=op.args["a"], other=op.args["b"])
    return True


def _pool(rw: TosaRewrite, op: Op) -> bool:
    kind, window = f"core.{op.kind.removeprefix(PREFIX)}", int_pairs(op, "kernel", "stride")
    if op.args.get("input_zp") or op.args.get("output_zp"):
        return False
    dilation = {"dilation": [1, 1]} if kind == "core.max_pool2d" else {}
    rw.emit(kind, op, result_of(op), self=op.args["input"], kernel_size=window["kernel"], stride=window["stride"],
              padding=[int(n) for n in op.args["pad"]], **dilation)  # fmt: skip
    return True


_RULES: dict[str, Callable[[TosaRewrite, Op], bool]] = {
    **dict.fromkeys((*_SAME, *_OTHER_NAMES), _unary),
    **dict.fromkeys(_PAIRS, _binary),
    **dict.fromkeys(_REDUCED, _reduce),
    **dict.fromkeys(("max_pool2d", "avg_pool2d"), _pool),
    "clamp": _clamp,
    "conv2d": _float_conv2d,
    "conv3d": _float_conv3d,
    "depthwise_conv2d": _float_depthwise,
    "transpose_conv2d": _float_transposed,
    "matmul": _float_matmul,
    "pow": _pow,
    "select": _select,
}


_WEIGHT = QParams(1.0, 0, np.dtype(np.int8), -128, 127)
_MAX_TAPS = {1: MAX_TAPS, 2: 49}  # of depthwise kernels, by the size of an input element


def _operands(rw: TosaRewrite, op: Op, channels: int) -> dict[str, Any] | None:
    """Input and bias of an int8 or int16 convolution with constant weights; None for other types."""
    x, weight, bias = (op.args[name] for name in ("input", "weight", "bias"))
    is_int16 = x.dtype == np.dtype(np.int16)
    if x.dtype not in INT_RANGES or weight.data is None or bias.data is None or weight.dtype.kind != "i":
        return None
    if (not is_int16 and weight.dtype != np.dtype(np.int8)) or bias.data.dtype.kind != "i":
        return None
    if op.args["weight_zp"] or rw.zero_point(x) != op.args["input_zp"] or bias.data.size not in (1, channels):
        return None
    data = np.broadcast_to(bias.data.reshape(-1), channels).astype(np.int64 if is_int16 else np.int32)
    return {"input": x, "bias": make_constant(data)}


def _emit_requantized(rw: TosaRewrite, op: Op, kind: str, filters: Array, channels: int, **sizes: Any) -> bool:
    operands = _operands(rw, op, channels)
    rescale = None if operands is None else rw.fuse_rescale(op, op.args["input"].dtype.itemsize)
    if operands is None or rescale is None:
        return False
    scaling, out = rescale
    weight = make_constant(filters, _WEIGHT if op.args["input"].dtype in INT8_RANGES else None)
    rw.emit(kind, op, out, **operands, weight=weight, scaling=scaling, **sizes)
    return True


@rule("conv2d")
def _conv2d(rw: TosaRewrite, op: Op) -> bool:
    weight = op.args["weight"]
    if weight.data is None or weight.dtype.kind != "i":
        return False
    return _emit_requantized(
        rw, op, "core.conv2d", weight.data, weight.bound[0], padding=[int(n) for n in op.args["pad"]], groups=1,
        **int_pairs(op, "stride", "dilation"),
    ) or _emit_accumulators(rw, op, weight.data, result_of(op) in rw.outputs)  # fmt: skip


@rule("depthwise_conv2d")
def _depthwise(rw: TosaRewrite, op: Op) -> bool:
    x, weight = op.args["input"], op.args["weight"]
    if weight.data is None or weight.dtype.kind != "i" or x.dtype not in INT_RANGES:
        return False
    high, wide, inputs, multiplier = weight.bound
    if multiplier > 1 and inputs == x.bound[-1]:
        op = _repeat_channels(rw, op, multiplier)
    filters = weight.data.reshape(1, high, wide, inputs * multiplier)
    few_taps = high * wide <= _MAX_TAPS[x.dtype.itemsize]
    return (few_taps and _emit_requantized(
        rw, op, "core.depthwise_conv2d", filters, inputs * multiplier, padding=[int(n) for n in op.args["pad"]],
        groups=inputs * multiplier, **int_pairs(op, "stride", "dilation"),
    )) or _emit_accumulators(
        rw, op, filters.reshape(high, wide, inputs * multiplier, 1), result_of(op) in rw.outputs
    )  # fmt: skip


def _repeat_channels(rw: TosaRewrite, op: Op, multiplier: int) -> Op:
    """Repeat each channel once per filter, so that the channel multiplier becomes 1."""
    x = op.args["input"]
    expanded, repeated, flat = (rw.new_value(x, shape) for shape in
                        ((*x.bound, 1), (*x.bound, multiplier), (*x.bound[:-1], x.bound[-1] * multiplier)))  # fmt: skip
    rw.emit("core.view", op, expanded, self=x, size=list(expanded.bound))
    rw.emit("tosa.tile", op, repeated, input=expanded, multiples=[1] * len(x.bound) + [multiplier])
    rw.emit("core.view", op, flat, self=repeated, size=list(flat.bound))
    return replace(op, args={**op.args, "input": flat})


def _emit_accumulators(rw: TosaRewrite, op: Op, filters: Array, is_output: bool = False) -> bool:
    """Emit the accumulators with the generic kernel of ``lower/int_conv.py``; as int32 if they fit, unless they are an
    output."""
    x, bias, acc = op.args["input"], op.args["bias"], result_of(op)
    padding = [int(n) for n in op.args["pad"]]
    if x.dtype not in INT_RANGES or bias.data is None or len(x.bound) != 4 or min(padding) < 0:
        return False
    image = rw.pad_image(op, x, padding, int(op.args["input_zp"])) if any(padding) else x
    if image is None:
        return False
    weights = filters.astype(np.int64) - int(op.args["weight_zp"])
    axes = (0, 1, 3) if "depthwise" in op.kind else (1, 2, 3)
    bound = int(np.abs(weights).sum(axis=axes).max(initial=0)) * (1 << 8 * x.dtype.itemsize)
    if bound + int(np.abs(bias.data.astype(np.int64)).max(initial=0)) < 1 << 31 and not is_output:
        rw.values[acc] = replace(rw.value(acc), dtype=np.dtype(np.int32))
    args = {**op.args, "weight": make_constant(filters), "input": image, "pad": [0] * 4}
    rw.emit(op.kind, op, acc, **args)
    return True


@rule("conv3d")
def _conv3d(rw: TosaRewrite, op: Op) -> bool:
    x, acc = op.args["input"], result_of(op)
    plane = _planes_as_conv2d(rw, op) if x.dtype in INT_RANGES else None
    if plane is None:
        return False
    filters, accumulators = plane.args["weight"].data, result_of(plane)
    operands = _operands(rw, plane, len(filters))
    rescale = None if operands is None else rw.fuse_rescale(op, x.dtype.itemsize)
    if operands is None or rescale is None:
        return _emit_accumulators(rw, plane, filters, acc in rw.outputs) and _emit_volume(rw, op, accumulators, acc)
    scaling, out = rescale
    image = rw.new_value(out, accumulators.bound)
    weight = make_constant(filters, _WEIGHT if x.dtype in INT8_RANGES else None)
    rw.emit("core.conv2d", plane, image, **operands, weight=weight, scaling=scaling, padding=plane.args["pad"],
              groups=1, **int_pairs(plane, "stride", "dilation"))  # fmt: skip
    return _emit_volume(rw, op, image, out)


def _planes_as_conv2d(rw: TosaRewrite, op: Op) -> Op | None:
    """A 3D convolution as 2D: the planes of each window become channels of one image."""
    x, weight, acc = op.args["input"], op.args["weight"], result_of(op)
    if weight.data is None or len(x.bound) != 5:
        return None
    planes = _gather_planes(rw, op, x, weight.bound[1], acc.bound[1])
    if planes is None:
        return None
    images = acc.bound[0] * acc.bound[1]
    flat = rw.new_value(x, (images, *planes.bound[2:]))
    rw.emit("core.view", op, flat, self=planes, size=list(flat.bound))
    filters = weight.data.transpose(0, 2, 3, 1, 4).reshape(weight.bound[0], *weight.bound[2:4], -1)
    args = {**op.args, "input": flat, "weight": make_constant(filters)}
    args |= {name: [int(n) for n in op.args[name]][at:] for name, at in (("pad", 2), ("stride", 1), ("dilation", 1))}
    return Op("tosa.conv2d", args, [rw.new_value(acc, (images, *acc.bound[2:]))], op.origin)


def _emit_volume(rw: TosaRewrite, op: Op, image: Value, out: Value) -> bool:
    """Reshape the images of all planes to volumes."""
    image_value = rw.value(image)
    if image_value.dtype != rw.value(out).dtype:
        rw.values[out] = replace(rw.value(out), dtype=image_value.dtype)
    rw.emit("core.view", op, out, self=image, size=list(out.bound))
    return True


def _gather_planes(rw: TosaRewrite, op: Op, x: Value, kernel_depth: int, depth: int) -> Value | None:
    """For each result the planes of its window side by side: ``[batch, depth, height, width, kernel_depth *
    channels]``.
    """
    (front, back), stride, dilation = op.args["pad"][:2], int(op.args["stride"][0]), int(op.args["dilation"][0])
    batch, in_depth, *rest = x.bound
    groups = -(-(in_depth + front + back) // stride)
    if (
        min(front, back) < 0
        or (in_depth + front + back - (kernel_depth - 1) * dilation - 1) // stride + 1 != depth
        or depth < 1
    ):
        return None
    padded = rw.new_value(x, (batch, groups * stride, *rest))
    after = groups * stride - in_depth - front
    if not rw.pad(op, x, padded, [0, front, 0, 0, 0], [0, after, 0, 0, 0], int(op.args["input_zp"])):
        return None
    grouped = rw.new_value(x, (batch, groups, stride, *rest))
    rw.emit("core.view", op, grouped, self=padded, size=list(grouped.bound))
    planes = []
    for k in range(kernel_depth):
        group, offset = divmod(k * dilation, stride)
        part, plane = rw.new_value(x, (batch, depth, 1, *rest)), rw.new_value(x, (batch, depth, *rest))
        rw.emit("core.slice", op, part, self=grouped, start=[0, group, offset, 0, 0, 0], length=list(part.bound))
        rw.emit("core.view", op, plane, self=part, size=list(plane.bound))
        planes.append(plane)
    merged = rw.new_value(x, (batch, depth, *rest[:-1], kernel_depth * rest[-1]))
    rw.emit("core.cat", op, merged, tensors=planes, dim=4)
    return merged


@rule("matmul")
def _matmul(rw: TosaRewrite, op: Op) -> bool:
    a, b = op.args["a"], op.args["b"]
    if any(v.dtype not in INT_RANGES or v.data is not None for v in (a, b)):
        return False
    scaled = rw.fuse_rescale(op)
    if scaled is None:
        return False
    scaling, out = scaled
    zeros = (int(op.args["a_zp"]), int(op.args["b_zp"]))
    rw.emit("core.int_matmul", op, out, self=a, other=b, zeros=zeros, scaling=scaling)
    return True


@rule("transpose_conv2d")
def _transposed(rw: TosaRewrite, op: Op) -> bool:
    """conv_transpose2d if it is requantized from int8 and the output padding is less than the stride."""
    x, weight, pads = op.args["input"], op.args["weight"], [int(n) for n in op.args["out_pad"]]
    if weight.data is None or weight.dtype.kind != "i" or x.dtype not in INT_RANGES:
        return False
    extra = [max(pads[1], 0), max(pads[3], 0)]
    supported = all(e < s for e, s in zip(extra, op.args["stride"], strict=True)) and max(pads[0], pads[2]) <= 0
    return (supported and x.dtype in INT8_RANGES and _emit_requantized(
        rw, op, "core.conv_transpose2d", weight.data, weight.bound[0], padding=[max(-n, 0) for n in pads], groups=1,
        dilation=[1, 1], output_padding=extra, **int_pairs(op, "stride"),
    )) or _conv2d(rw, _transposed_as_conv2d(rw, op))  # fmt: skip


def _transposed_as_conv2d(rw: TosaRewrite, op: Op) -> Op:
    """A convolution by the mirrored filters, of the image with zeros between and around its pixels."""
    x, filters, (stride_h, stride_w) = op.args["input"], op.args["weight"].data, op.args["stride"]
    (batch, high, wide, channels), zero = x.bound, int(op.args["input_zp"])
    pixels = rw.new_value(x, (batch, high, 1, wide, 1, channels))
    spaced = rw.new_value(x, (batch, high, stride_h, wide, stride_w, channels))
    upsampled = rw.new_value(x, (batch, high * stride_h, wide * stride_w, channels))
    rw.emit("core.view", op, pixels, self=x, size=list(pixels.bound))
    rw.pad(op, pixels, spaced, [0] * 6, [0, 0, stride_h - 1, 0, stride_w - 1, 0], zero)
    rw.emit("core.view", op, upsampled, self=spaced, size=list(upsampled.bound))
    top, bottom, left, right = (
        pad + filters.shape[1 + side // 2] - 1 - (side % 2) * (op.args["stride"][side // 2] - 1)
        for side, pad in enumerate(int(n) for n in op.args["out_pad"])
    )
    sizes = (batch, upsampled.bound[1] + min(bottom, 0), upsampled.bound[2] + min(right, 0), channels)
    cropped = rw.new_value(x, sizes)
    rw.emit("core.slice", op, cropped, self=upsampled, start=[0] * 4, length=list(sizes))
    image = rw.pad_image(op, cropped, [top, max(bottom, 0), left, max(right, 0)], zero)
    args = {name: op.args[name] for name in ("bias", "input_zp", "weight_zp")}
    args |= {"input": image, "weight": make_constant(filters[:, ::-1, ::-1]), "pad": [0] * 4}
    return Op("tosa.conv2d", {**args, "stride": [1, 1], "dilation": [1, 1]}, op.outputs, op.origin)


def to_core(graph: Graph, numerics: Numerics) -> Graph:
    rw = TosaRewrite(graph)
    for op in graph.ops:
        if not translate_float(rw, op):
            rule.apply(rw, op)
    return rw.finish()


@rule("reshape")
def _reshape(rw: TosaRewrite, op: Op) -> bool:
    if 0 in result_of(op).bound:
        return False
    return rw.move("core.view", op, result_of(op), op.args["input"], size=[int(n) for n in op.args["shape"]])


@rule("transpose")
def _transpose(rw: TosaRewrite, op: Op) -> bool:
    return rw.move("core.permute", op, result_of(op), op.args["input"], dims=[int(d) for d in op.args["perms"]])


@rule("concat")
def _concat(rw: TosaRewrite, op: Op) -> bool:
    tensors = [rw.like(op, x, result_of(op)) for x in op.args["inputs"]]
    rw.emit("core.cat", op, result_of(op), tensors=tensors, dim=int(op.args["axis"]))
    return True


@rule("slice")
def _slice(rw: TosaRewrite, op: Op) -> bool:
    if 0 in result_of(op).bound or [int(n) for n in op.args["size"]] != list(result_of(op).bound):
        return False
    start, length = [int(n) for n in op.args["start"]], list(result_of(op).bound)
    return rw.move("core.slice", op, result_of(op), op.args["input"], start=start, length=length)


@rule("pad")
def _pad(rw: TosaRewrite, op: Op) -> bool:
    x, value = op.args["input"], op.args["value"]
    if value.data is None or value.data.size < 1:
        return False
    fill, sides = value.data.reshape(-1)[0], op.args["padding"]
    return rw.pad(op, x, result_of(op), [int(n) for n in sides[::2]], [int(n) for n in sides[1::2]], fill)


@rule("max_pool2d")
def _max_pool(rw: TosaRewrite, op: Op) -> bool:
    x, out = op.args["input"], result_of(op)
    sizes, padding = int_pairs(op, "kernel", "stride"), [int(n) for n in op.args["pad"]]
    if x.dtype in INT8_RANGES and rw.zero_point(x) == rw.zero_point(out):
        rw.emit("core.max_pool2d", op, out, self=x, kernel_size=sizes["kernel"], stride=sizes["stride"],
                  padding=padding, dilation=[1, 1])  # fmt: skip
        return True
    if x.dtype is None or x.dtype.kind != "i" or not any(padding) or min(padding) < 0 or len(x.bound) != 4:
        return False
    padded = rw.pad_image(op, x, padding, int(np.iinfo(x.dtype).min))  # never the maximum
    if padded is None:
        return False
    rw.ops.append(replace(op, args={**op.args, "input": padded, "pad": [0] * 4}, outputs=[rw.value(out)]))
    return True


@rule("resize")
def _resize(rw: TosaRewrite, op: Op) -> bool:
    """Store sums of four pixels as int32 where they fit, so that the following RESCALE need not read 64 bits."""
    x, out, scale = op.args["input"], result_of(op), op.args["scale"]
    fits = x.dtype == np.dtype(np.int16) and int(scale[0]) * int(scale[2]) << 15 < 1 << 31
    if op.args["mode"] == "bilinear" and fits and out not in rw.outputs:
        rw.values[out] = replace(rw.value(out), dtype=np.dtype(np.int32))
    return False
