"""Runs a device graph in numpy: the meaning that engines and vendors' software are compared with.

Values are arrays of what is stored; a quantized value's parameters are in the graph, except for rows quantized on the
fly, which carry theirs. Images are channels-last, as inside a device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from edgewright.errors import ExecutionError
from edgewright.ir.budget import elements, steps
from edgewright.ir.dtypes import bfloat16, compute_type
from edgewright.ir.from_table import meaning_of
from edgewright.ir.graph import Array, Graph, Op, QParams, Value
from edgewright.ir.numerics import Numerics, single, spread
from edgewright.ir.reference import activations, elementwise, movement, norm, rearrange, unary
from edgewright.ir.reference.conv import convolution
from edgewright.ir.reference.pool import avg_pool2d, max_pool2d
from edgewright.ir.reference.resample import upsample_bilinear2d


@dataclass(frozen=True)
class Rows:
    """Integers whose rows were quantized on the fly: real = (stored - zero) / scale."""

    stored: Array
    scale: Array
    zero: Array
    real: Array


def _array(stored: Any) -> Array:
    array: Array = stored.stored if isinstance(stored, Rows) else stored
    return array


Function = Callable[["Executor", Op], Any]
FUNCTIONS: dict[str, Function] = {}


def function(*kinds: str) -> Callable[[Function], Function]:
    def register(fn: Function) -> Function:
        for kind in kinds:
            FUNCTIONS[kind] = fn
        return fn

    return register


def meaning(kind: str) -> Function | None:
    """What an operator does: one of ours, of the op table, or of a vendor's (``tosa.conv2d``), which is loaded now."""
    dialect = kind.partition(".")[0]
    if kind in FUNCTIONS or dialect not in DIALECTS:
        return FUNCTIONS.get(kind) or meaning_of(kind)
    known: Callable[[str], bool] = import_module(f"edgewright.ir.{dialect}.execute").known
    return _in_dialect if known(kind) else None


DIALECTS = ("tosa", "tflite", "qnn")


def _in_dialect(ex: Executor, op: Op) -> Any:
    """An operator of a vendor's table, on what is stored."""
    run: Callable[..., Any] = import_module(f"edgewright.ir.{op.kind.partition('.')[0]}.execute").run_op
    held = {id(v): ex.stored(v) for v in op.inputs()}
    made, out = run(op, held, ex.numerics.name), op.outputs[0]
    whole = all(held[id(v)].shape == v.bound for v in op.inputs())  # else they are some of the elements
    if out is not None and whole and made.shape != out.bound:
        raise ExecutionError(f"device graph: {op.kind}", f"must give {list(out.bound)}", value=list(made.shape))
    return made if isinstance(made, tuple) or out is None or made.dtype == out.dtype else made.astype(out.dtype)


class Executor:
    """Runs one graph; nothing is kept between runs. ``memory``: bytes that values may take at a time."""

    def __init__(self, graph: Graph, numerics: Numerics, memory: int = 4 << 30) -> None:
        self._meanings = {op.kind: meaning(op.kind) for op in graph.ops}
        missing = sorted(kind for kind, found in self._meanings.items() if found is None)
        if missing:
            raise ExecutionError("device graph", f"has operators without a meaning here: {', '.join(missing)}")
        self.graph = graph
        self.numerics = numerics
        self.memory = memory
        self.values: dict[int, Any] = {}
        self._held = 0  # bytes
        self._dead: dict[int, list[int]] = {id(op): [] for op in graph.ops}  # values by their last reader
        kept = {id(v) for v in graph.outputs}
        for value, reader in {id(v): op for op in graph.ops for v in op.inputs()}.items():
            if value not in kept:
                self._dead[id(reader)].append(value)

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """The outputs for ``inputs``."""
        self.values = {id(v): x for v, x in zip(self.graph.inputs, inputs, strict=True)}
        self._held = sum(x.nbytes for x in inputs)
        for op in self.graph.ops:
            self._afford(op)
            function = self._meanings[op.kind]
            assert function is not None
            results = function(self, op)
            for out, result in zip(op.outputs, results if isinstance(results, tuple) else (results,), strict=False):
                if out is not None:
                    self.values[id(out)] = result
                    self._held += _array(result).nbytes
            for dead in self._dead[id(op)]:
                if dead in self.values:
                    self._held -= _array(self.values.pop(dead)).nbytes
        outputs = [self.values[id(v)] for v in self.graph.outputs]
        self.values = {}
        return outputs

    def _afford(self, op: Op) -> None:
        """Refuse an operator whose result, with all that is held, would be larger than it may be."""
        size = elements(op, lambda value: _array(self.stored(value)).shape)
        if self._held + 8 * size > self.memory or size * steps(op) > 16 * self.memory:
            rule = f"values may take {self.memory} bytes at a time"
            raise ExecutionError(f"device graph: {op.kind}", rule, value=f"{size} elements more")

    def stored(self, value: Value) -> Any:
        return self.values.get(id(value), value.data)

    def real(self, value: Value) -> Array:
        """A value in the type it is computed in."""
        array = self.stored(value)
        if isinstance(array, Rows):
            return (array.stored.astype(np.int32) - array.zero).astype(np.float32) / array.scale
        if value.q is not None:
            return self.numerics.dequantize(array, value.q)
        return np.asarray(array.astype(compute_type(array.dtype), copy=False))

    def give(self, op: Op, real: Array) -> Array:
        """A real result as the output stores it, clamped to the operator's limits."""
        out = op.outputs[0]
        assert out is not None
        limits = op.args.get("limits")
        if out.q is not None:
            lo, hi = self.numerics.limits(out.q, limits)
            return np.clip(self.numerics.quantize(real, out.q), lo, hi).astype(out.q.dtype)
        if limits is not None:
            real = np.clip(real, np.float32(limits[0]), np.float32(limits[1]))
        return np.asarray(real.astype(out.dtype, copy=False))


# ------------------------------------------------------------------------------------------- products of weights


def _accumulate(ex: Executor, op: Op, product: Callable[[Array, Array], Array], axis: int) -> Array:
    """Linear and convolution, in whatever their operands are stored as. ``axis`` is that of the output's channels."""
    x, w, b, out = op.args["input"], op.args["weight"], op.args.get("bias"), op.outputs[0]
    assert out is not None
    given = ex.stored(x)
    bias = None if b is None else np.asarray(ex.stored(b))
    if isinstance(given, Rows):
        return _dynamic(ex, op, given, product, bias)
    scaling = op.args.get("scaling")
    if scaling is None and (x.q is None or out.q is None):
        total = product(ex.real(x), ex.real(w))
        return ex.give(op, total if b is None else total + ex.real(b))
    zero = 0 if x.q is None else x.q.zero_point
    total = np.rint(product((given.astype(np.float64) - zero), np.asarray(ex.stored(w)).astype(np.float64)))
    if bias is not None:
        total = total + bias
    if scaling is not None:
        return np.asarray(scaling.apply(total.astype(np.int64)).astype(out.dtype))
    assert out.q is not None
    factor = single(x.q.scale) * single(w.q.scale) / single(out.q.scale)
    spread_factor = spread(factor, axis if np.ndim(factor) else None, total.ndim)
    return ex.numerics.requantize(total, spread_factor, out.q, op.args.get("limits"))


def _dynamic(ex: Executor, op: Op, rows: Rows, product: Callable[[Array, Array], Array], bias: Array | None) -> Array:
    w: Value = op.args["weight"]
    assert w.q is not None
    centred = rows.stored.astype(np.float64) - rows.zero
    weight = np.asarray(ex.stored(w)).astype(np.float64)
    scales = np.asarray(w.q.scale, np.float32)
    if w.q.block:
        weight = weight * np.repeat(scales.reshape(weight.shape[0], -1), w.q.block, axis=1)
        total = product(centred, weight).astype(np.float32) / rows.scale
    else:
        total = product(centred, weight).astype(np.float32) * (np.float32(1) / rows.scale) * scales
    return ex.give(op, total if bias is None else total + bias.astype(np.float32))


@function("linear")
def _linear(ex: Executor, op: Op) -> Array:
    turned = op.args.get("transposed", False)
    return _accumulate(ex, op, lambda x, w: x @ (w if turned else w.T), -1)


def _images(op: Op, *, transposed: bool = False, depthwise: bool = False) -> Callable[[Array, Array], Array]:
    """Convolution of channels-last images by filters stored output, height, width, input."""
    pads = op.args["padding"]
    stride, dilation = op.args["stride"], op.args["dilation"]
    groups, extra = op.args["groups"], op.args.get("output_padding") or [0, 0]

    def product(x: Array, w: Array) -> Array:
        top, bottom, left, right = pads
        filters = w.transpose(3, 0, 1, 2) if depthwise else w.transpose(0, 3, 1, 2)
        image = x.transpose(0, 3, 1, 2)
        if transposed:
            kernels = _ungrouped(filters, groups)
            out = convolution(image, kernels, None, stride, [top, left], dilation, True, extra, groups)
            return out[..., : out.shape[2] - (bottom - top), : out.shape[3] - (right - left)].transpose(0, 2, 3, 1)
        if (top, left) != (bottom, right):
            image = np.pad(image, ((0, 0), (0, 0), (top, bottom), (left, right)))
            top = left = 0
        out = convolution(image, filters, None, stride, [top, left], dilation, False, [0, 0], groups)
        return np.asarray(out.transpose(0, 2, 3, 1))

    return product


def _ungrouped(filters: Array, groups: int) -> Array:
    """Filters of a transposed convolution as ATen has them: input channels first."""
    out, each, height, width = filters.shape
    parts = filters.reshape(groups, out // groups, each, height, width).transpose(0, 2, 1, 3, 4)
    return parts.reshape(groups * each, out // groups, height, width)


@function("conv2d")
def _conv2d(ex: Executor, op: Op) -> Array:
    given = ex.stored(op.args["input"])
    if isinstance(given, Rows) and _pointwise(op):  # XNNPACK makes it a product of pixels, each with its own range
        ex.values[id(op.args["input"])] = Rows(*ex.numerics.choose(given.real, 1), given.real)
        result = _accumulate(ex, op, _images(op), 3)
        ex.values[id(op.args["input"])] = given
        return result
    return _accumulate(ex, op, _images(op), 3)


def _pointwise(op: Op) -> bool:
    kernel = op.args["weight"].bound[1:3]
    ones = (*kernel, *op.args["stride"], op.args["groups"])
    return all(n == 1 for n in ones) and not any(op.args["padding"])


@function("depthwise_conv2d")
def _depthwise(ex: Executor, op: Op) -> Array:
    return _accumulate(ex, op, _images(op, depthwise=True), 3)


@function("conv_transpose2d")
def _conv_transpose2d(ex: Executor, op: Op) -> Array:
    return _accumulate(ex, op, _images(op, transposed=True), 3)


@function("whole_matmul")
def _whole_matmul(ex: Executor, op: Op) -> Array:
    """Stored integers without their zero points; sums by a scaling."""
    pair = zip((op.args["self"], op.args["other"]), op.args["zeros"], strict=True)
    left, right = (np.asarray(ex.stored(v)).astype(np.float64) - zero for v, zero in pair)
    out = op.outputs[0]
    assert out is not None
    return np.asarray(op.args["scaling"].apply((left @ right).astype(np.int64)).astype(out.dtype))


@function("bmm")
def _bmm(ex: Executor, op: Op) -> Array:
    return ex.give(op, ex.real(op.args["self"]) @ ex.real(op.args["other"]))


# ------------------------------------------------------------------------------------------------ element by element

_BINARY: dict[str, Callable[..., Array]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "maximum": elementwise.maximum,
    "minimum": elementwise.minimum,
}  # fmt: skip
_UNARY: dict[str, Callable[..., Array]] = {
    "sigmoid": activations.sigmoid, "tanh": np.tanh, "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "abs": unary.abs,
    "neg": unary.neg, "floor": np.floor, "ceil": np.ceil, "sin": np.sin, "cos": np.cos, "square": np.square,
    "gelu": lambda x: activations.gelu(x, "none"), "gelu_tanh": lambda x: activations.gelu(x, "tanh"),
    "round_to_half": lambda x: x.astype(np.float16).astype(x.dtype),
    "round_to_bfloat": lambda x: x.astype(bfloat16).astype(x.dtype), "rsqrt": lambda x: np.float32(1) / np.sqrt(x),
    "hardswish": lambda x: np.clip(x * np.float32(1 / 6) + np.float32(0.5), 0, 1).astype(x.dtype) * x,
}  # fmt: skip


@function(*_BINARY)
def _binary(ex: Executor, op: Op) -> Array:
    a, b, out = op.args["self"], op.args["other"], op.outputs[0]
    assert out is not None
    if out.q is not None and a.q is not None and b.q is not None and op.kind in ("add", "sub", "mul"):
        return _integer_binary(ex, op, a.q, b.q, out.q)
    return ex.give(op, _BINARY[op.kind](ex.real(a), ex.real(b)))


def _integer_binary(ex: Executor, op: Op, a: QParams, b: QParams, out: QParams) -> Array:
    x, y = (np.asarray(ex.stored(op.args[name])).astype(np.int64) for name in ("self", "other"))
    x, y = x - a.zero_point, y - b.zero_point
    limits = op.args.get("limits")
    if op.kind == "mul":
        return ex.numerics.requantize(x * y, single(a.scale) * single(b.scale) / single(out.scale), out, limits)
    return ex.numerics.sum(x, y if op.kind == "add" else -y, (a, b), out, limits)


@function(*_UNARY)
def _unary(ex: Executor, op: Op) -> Array:
    return ex.give(op, np.asarray(_UNARY[op.kind](ex.real(op.args["self"]))))


@function("leaky_relu")
def _leaky_relu(ex: Executor, op: Op) -> Array:
    x = ex.real(op.args["self"])
    return ex.give(op, np.where(x < 0, x * np.float32(op.args["negative_slope"]), x))


@function("elu")
def _elu(ex: Executor, op: Op) -> Array:
    return ex.give(op, activations.elu(ex.real(op.args["self"]), op.args["alpha"], 1.0, 1.0))


@function("prelu")
def _prelu(ex: Executor, op: Op) -> Array:
    x = ex.real(op.args["self"])
    return ex.give(op, np.where(x < 0, x * ex.real(op.args["weight"]), x))


@function("softmax")
def _softmax(ex: Executor, op: Op) -> Array:
    return ex.give(op, norm.softmax(ex.real(op.args["self"]), -1))


@function("clamp", "clone")
def _clamp(ex: Executor, op: Op) -> Array:
    value, out = op.args["self"], op.outputs[0]
    assert out is not None
    if value.q is not None and out.q is not None and value.q == out.q:
        lo, hi = ex.numerics.limits(out.q, op.args.get("limits"))
        return np.clip(ex.stored(value), lo, hi).astype(out.q.dtype)
    return ex.give(op, ex.real(value))


@function("convert")
def _convert(ex: Executor, op: Op) -> Any:
    value, out = op.args["self"], op.outputs[0]
    assert out is not None
    if out.q is not None and out.q.dynamic:
        stored, scale, zero = ex.numerics.choose(ex.real(value), -(out.q.axis or -1))
        return Rows(stored, scale, zero, ex.real(value))
    return ex.give(op, ex.real(value))


# -------------------------------------------------------------------------------------------------------- movement


@function("permute")
def _permute(ex: Executor, op: Op) -> Array:
    return movement.permute(ex.stored(op.args["self"]), op.args["dims"])


@function("view")
def _view(ex: Executor, op: Op) -> Array:
    size = [-1 if n == 0 else n for n in op.args["size"]]
    array: Array = np.ascontiguousarray(ex.stored(op.args["self"]))
    return array.reshape(size)


@function("slice")
def _slice(ex: Executor, op: Op) -> Array:
    """A length of 0 stands for the rest."""
    array: Array = ex.stored(op.args["self"])
    starts = op.args["start"]
    lengths = [n or size - a for a, n, size in zip(starts, op.args["length"], array.shape, strict=True)]
    if any(n <= 0 or a + n > size for a, n, size in zip(starts, lengths, array.shape, strict=True)):
        raise ValueError(f"slice {starts}+{lengths} is outside {list(array.shape)}")
    return np.asarray(array[tuple(slice(a, a + n) for a, n in zip(starts, lengths, strict=True))])


@function("cat")
def _cat(ex: Executor, op: Op) -> Array:
    return rearrange.cat([ex.stored(t) for t in op.args["tensors"]], op.args["dim"])


@function("pad")
def _pad(ex: Executor, op: Op) -> Array:
    value, out = op.args["self"], op.outputs[0]
    assert out is not None
    fill = np.float32(op.args["value"])
    stored = ex.numerics.quantize(np.asarray(fill), value.q) if value.q is not None else fill
    widths = list(zip(op.args["before"], op.args["after"], strict=True))
    array: Array = ex.stored(value)
    return np.pad(array, widths, constant_values=stored.astype(array.dtype))


# --------------------------------------------------------------------------------------------------------- pooling


def _planar(array: Array) -> Array:
    return array.transpose(0, 3, 1, 2)


def _padded(x: Array, pads: Sequence[int], fill: Any) -> Array:
    top, bottom, left, right = pads
    return np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=fill)


@function("max_pool2d")
def _max_pool2d(ex: Executor, op: Op) -> Array:
    value = op.args["self"]
    stored: Array = _planar(ex.stored(value))
    lowest = -np.inf if value.q is None else value.q.qmin
    image = _padded(stored, op.args["padding"], lowest)
    pooled = max_pool2d(image, op.args["kernel_size"], op.args["stride"], [0, 0], op.args["dilation"], False)[0]
    result = pooled.transpose(0, 2, 3, 1)
    if value.q is not None:
        lo, hi = ex.numerics.limits(value.q, op.args.get("limits"))
        return np.clip(result, lo, hi).astype(stored.dtype)
    return ex.give(op, result)


@function("avg_pool2d")
def _avg_pool2d(ex: Executor, op: Op) -> Array:
    """Padding is not counted."""
    image = _planar(ex.real(op.args["self"]))
    kernel, stride, pads = op.args["kernel_size"], op.args["stride"], op.args["padding"]
    top, bottom, left, right = pads
    if (top, left) == (bottom, right):
        pooled = avg_pool2d(image, kernel, stride, [top, left], False, False)
    else:
        inside = _padded(np.ones((1, 1, *image.shape[2:]), np.float32), pads, 0)
        shares = avg_pool2d(inside, kernel, stride, [0, 0], False, False)
        pooled = avg_pool2d(_padded(image, pads, 0), kernel, stride, [0, 0], False, False) / shares
    return ex.give(op, pooled.transpose(0, 2, 3, 1))


@function("global_avg_pool2d")
def _global_avg_pool2d(ex: Executor, op: Op) -> Array:
    value, out = op.args["self"], op.outputs[0]
    assert out is not None
    stored: Array = ex.stored(value)
    if value.q is None or out.q is None:
        return ex.give(op, ex.real(value).mean((1, 2), keepdims=True))
    total = (stored.astype(np.int64) - value.q.zero_point).sum((1, 2), keepdims=True)
    count = stored.shape[1] * stored.shape[2]
    factor = single(value.q.scale) / (single(out.q.scale) * np.float32(count))
    return ex.numerics.requantize(total, factor, out.q, op.args.get("limits"))


@function("upsample_bilinear2d")
def _upsample_bilinear2d(ex: Executor, op: Op) -> Array:
    image = _planar(ex.real(op.args["input"]))
    scaled = upsample_bilinear2d(image, op.args["output_size"], op.args["align_corners"], None)
    return ex.give(op, scaled.transpose(0, 2, 3, 1))
