"""Legalization: a graph of any dialect becomes a core graph of operators that have kernels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.backends.registry import find_dialect
from edgewright.engine.graph.fuse import is_dynamically_quantized, supports_dynamic_rows
from edgewright.engine.graph.layout import VIEW_KINDS
from edgewright.engine.graph.nodes import is_core, is_quantized8
from edgewright.errors import EdgewrightError
from edgewright.ir.core.conv import is_core_pointwise_gemm
from edgewright.ir.core.dialect import CORE
from edgewright.ir.dialect import FindDialect, dialects_of
from edgewright.ir.dtypes import DType, bfloat16
from edgewright.ir.graph import Array, Graph, Op, Value
from edgewright.ir.numerics import Numerics

# ------------------------------------------------------------------------------------------------------- fold constants

# Constant folding: small operators that read nothing but constants are evaluated once, by the reference.
#
# Our compiler folds constants, so few graphs have such operators; translations and lowerings may expect that what they
# translate has a computed operand. A copy of a constant to an output stays a step at its place: callers that map
# outputs to memory of their own, as the replay of NPU streams does, rely on the order of the writes.

_ERRORS = (EdgewrightError, ValueError, LookupError, TypeError, ArithmeticError)  # the step reports them when it runs
_MAX_ELEMENTS = 1 << 16  # of a result: folded weights would be in memory twice


def fold_constants(graph: Graph, numerics: Numerics, find_dialect: FindDialect) -> Graph:
    """The graph without operators whose operands are all constant; the same graph if it has none."""
    folded: dict[Value, Value] = {}
    ops, outputs = list[Op](), set(graph.outputs)
    for op in graph.ops:
        op = _substitute(op, folded)
        copies_to_output = op.kind in VIEW_KINDS and op.outputs[0] in outputs
        results = None if copies_to_output else _evaluate(op, numerics, find_dialect)
        if results is None:
            ops.append(op)
        else:
            folded |= results
    if not folded:
        return graph
    return Graph(graph.name, graph.inputs, [folded.get(v, v) for v in graph.outputs], ops)


def _substitute(op: Op, folded: dict[Value, Value]) -> Op:
    if not any(value in folded for value in op.inputs()):
        return op

    def substitute(argument: Any) -> Any:
        if isinstance(argument, list | tuple):
            return type(argument)(substitute(item) for item in argument)
        return folded.get(argument, argument) if isinstance(argument, Value) else argument

    return replace(op, args={name: substitute(argument) for name, argument in op.args.items()})


def _evaluate(op: Op, numerics: Numerics, find_dialect: FindDialect) -> dict[Value, Value] | None:
    """The results of an operator as constants; None if it reads computed values, or raises an error."""
    operands = list(op.inputs())
    if not operands or any(not v.constant for v in operands):
        return None
    dialect = CORE if op.kind.startswith("core.") else find_dialect(op.kind.partition(".")[0])
    outputs = [out for out in op.outputs if out is not None]
    if dialect is None or any(out.dynamic or (out.q is not None and out.q.dynamic) for out in outputs):
        return None
    if sum(math.prod(out.bound) for out in outputs) > _MAX_ELEMENTS:
        return None
    try:
        with np.errstate(all="ignore"):
            results = dialect.run_op(op, {}, numerics)
    except _ERRORS:
        return None
    pairs = zip(op.outputs, results, strict=True)
    return {out: _folded_constant(out, result) for out, result in pairs if out is not None}


def _folded_constant(out: Value, result: Array) -> Value:
    return replace(out, data=np.ascontiguousarray(result, out.dtype).reshape(out.bound))


# -------------------------------------------------------------------------------------------------------------- to core

# Translation of other dialects' graphs to core operators before they are compiled.
#
# Operators on constants alone are evaluated first. A dialect's ``to_core`` translates what it can. Of the operators
# that it leaves, elementwise integer operators are compiled from the dialect's rules (``ir/int_rules.py``); everything
# else runs as a step of the numpy reference.


def to_core(graph: Graph, numerics: Numerics) -> Graph:
    """Translate the graph as far as possible. Only constants of a graph that already contains core operators are
    folded."""
    dialects = list(dialects_of(graph, find_dialect))
    for dialect in dialects:
        dialect.load_rules()
    graph = fold_constants(graph, numerics, find_dialect)
    if len(dialects) == 1 and all(op.kind.startswith(dialects[0].prefix) for op in graph.ops):
        return dialects[0].to_core(graph, numerics)
    return graph


# ----------------------------------------------------------------------------------------------------------- widen fp16

# Widening of fp16 and bf16 graphs to float32. The reference computes in float32 and stores 16 bits, so rounding each
# result to 16 bits while keeping it in float32 is bit-exact. Only graph inputs and outputs are stored in 16 bits.

_F32 = np.dtype(np.float32)
ROUNDING_OPS: dict[DType, str] = {np.dtype(np.float16): "core.round_to_fp16", bfloat16: "core.round_to_bf16"}
_EXACT = tuple(f"core.{name}" for name in (
    "permute", "view", "slice", "cat", "clone", "expand", "max_pool2d", "abs", "neg", "maximum", "minimum", "floor",
    "ceil", "pad",
))  # fmt: skip


def is_16bit_float(value: Value) -> bool:
    return value.q is None and value.dtype in ROUNDING_OPS


def widen(graph: Graph) -> Graph:
    """Rewrite the graph in float32; return it unchanged if nothing is computed in 16 bits."""
    computed = [op for op in graph.ops if any(is_16bit_float(v) for v in _tensors(op))]
    if not computed or not is_core(graph):
        return graph
    return _Widener(graph).run()


def _tensors(op: Op) -> list[Value]:
    return [*op.inputs(), *(v for v in op.outputs if v is not None)]


class _Widener:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.wide: dict[Value, Value] = {}  # the float32 value of each 16-bit one
        self.ops: list[Op] = []

    def run(self) -> Graph:
        for value in self.graph.inputs:
            if is_16bit_float(value):
                self.wide[value] = widened = _as_float32(value)
                self.ops.append(Op("core.convert", {"self": value}, [widened]))
        for op in self.graph.ops:
            self._op(op)
        for value in dict.fromkeys(v for v in self.graph.outputs if is_16bit_float(v) and not v.constant):
            if value not in self.graph.inputs:
                self.ops.append(Op("core.convert", {"self": self.wide[value]}, [value]))
        return Graph(self.graph.name, list(self.graph.inputs), list(self.graph.outputs), self.ops)

    def _op(self, op: Op) -> None:
        if not any(is_16bit_float(v) for v in _tensors(op)):
            self.ops.append(op)
            return
        args = {name: self._argument(argument) for name, argument in op.args.items()}
        outputs: list[Value | None] = []
        rounds: list[Op] = []
        for out in op.outputs:
            if out is None or not is_16bit_float(out):
                outputs.append(out)
                continue
            assert out.dtype is not None
            self.wide[out] = rounded = _as_float32(out)
            unrounded = rounded if _exact(op) else _as_float32(out)
            if unrounded is not rounded:
                rounds.append(Op(ROUNDING_OPS[out.dtype], {"self": unrounded}, [rounded]))
            outputs.append(unrounded)
            if op.kind == "core.pad":
                args["value"] = float(np.asarray(args["value"]).astype(out.dtype))
        is_float = all(value is not None and value.q is None for value in (*op.inputs(), *op.outputs))
        kind = "core.clone" if op.kind == "core.convert" and is_float else op.kind
        self.ops += [Op(kind, args, outputs, op.origin), *rounds]

    def _argument(self, argument: Any) -> Any:
        if isinstance(argument, list | tuple):
            return type(argument)(self._argument(g) for g in argument)
        if not isinstance(argument, Value) or not is_16bit_float(argument):
            return argument
        if argument not in self.wide:
            assert argument.data is not None
            self.wide[argument] = widened = _as_float32(argument)
            widened.data = np.asarray(argument.data).astype(_F32)
        return self.wide[argument]


def _exact(op: Op) -> bool:
    """Whether a result needs no rounding: it only copies or selects 16-bit operands."""
    return op.kind in _EXACT and op.args.get("limits") is None and all(is_16bit_float(v) for v in op.inputs())


def _as_float32(value: Value) -> Value:
    return Value(value.name, _F32, value.shape, value.dim_order)


# ------------------------------------------------------------------------------------------------------------- legalize

# Legalization: rewrite operators without a kernel in terms of operators that have one. Results are bit-exact, except
# for non-finite floats.
#
# - Depthwise convolution with a channel multiplier: repeat each input channel.
# - Dilated transposed convolution: insert zeros between the filter taps.
# - Grouped int8 convolution with few channels per group: dense filters, zero outside their own group.
# - Dynamically quantized image: quantize to integers held in float32, and convolve those exactly.


_MAX_FILTER_BYTES = 1 << 24  # of expanded filters


def legalize(graph: Graph) -> Graph:
    """Rewrite the graph; return it unchanged if every operator is legal."""
    legalizer = _Legalizer(graph)
    rewritten = [legalizer.rewrite(op) for op in graph.ops]
    if all(ops is None for ops in rewritten):
        return graph
    ops = [o for op, new in zip(graph.ops, rewritten, strict=True) for o in ([op] if new is None else new)]
    read = {v for op in ops for v in op.inputs()} | set(graph.outputs)
    unused = [op for op in ops if op.kind == "core.convert" and not any(v in read for v in op.outputs)]
    return Graph(graph.name, graph.inputs, graph.outputs, [op for op in ops if op not in unused])


class _Legalizer:
    def __init__(self, graph: Graph) -> None:
        self.makers = {v: op for op in graph.ops for v in op.outputs if v is not None}

    def rewrite(self, op: Op) -> list[Op] | None:
        """The replacement of an operator, or None if it is legal."""
        weight = op.args.get("weight")
        if op.kind not in ("core.conv2d", "core.depthwise_conv2d", "core.conv_transpose2d") or not isinstance(
            weight, Value
        ):
            return None
        if weight.data is None or "scaling" in op.args:
            return None
        return (
            _expand_channel_multiplier(op)
            or _expand_dilation(op)
            or _expand_groups(op)
            or self._expand_dynamic_quantization(op)
        )

    def _expand_dynamic_quantization(self, op: Op) -> list[Op] | None:
        x, weight, out = op.args["input"], op.args["weight"], op.outputs[0]
        maker, q = self.makers.get(x), weight.q
        if (
            op.kind != "core.conv2d"
            or not is_dynamically_quantized(x)
            or supports_dynamic_rows(op)
            or maker is None
            or out is None
            or q is None
        ):
            return None
        supported = q.block is None and q.dtype == np.dtype(np.int8) and out.q is None and out.dtype == _F32
        source = maker.args["self"]
        if (
            maker.kind != "core.convert"
            or not supported
            or source.q is not None
            or source.dtype != _F32
            or is_core_pointwise_gemm(op)
        ):
            return None
        return _FloatBuilder().convolution(op, source, -(x.q.axis or -1), out)


def _expand_channel_multiplier(op: Op) -> list[Op] | None:
    x, groups = op.args["input"], int(op.args["groups"])
    if op.kind != "core.depthwise_conv2d" or op.args["weight"].bound[3] <= groups or len(x.bound) != 4:
        return None
    times = op.args["weight"].bound[3] // groups
    shapes = [(*x.bound, 1), (*x.bound, times), (*x.bound[:3], groups * times)]
    values = [replace(x, shape=s, dim_order=tuple(range(len(s)))) for s in shapes]
    ops = [
        Op("core.view", {"self": x, "size": list(shapes[0])}, [values[0]]),
        Op("core.expand", {"self": values[0], "size": list(shapes[1])}, [values[1]]),
        Op("core.view", {"self": values[1], "size": list(shapes[2])}, [values[2]]),
    ]
    args = {**op.args, "input": values[2], "groups": groups * times}
    return [*ops, Op(op.kind, args, list(op.outputs), op.origin)]


def _with_weight(op: Op, data: Array, **changed: Any) -> list[Op]:
    weight = replace(op.args["weight"], shape=data.shape, data=data)
    return [Op(op.kind, {**op.args, "weight": weight, **changed}, list(op.outputs), op.origin)]


def _is_symmetric(weight: Value) -> bool:
    """Whether a stored 0 means 0."""
    return weight.q is None or (weight.q.block is None and not np.any(weight.q.zero_point))


def _expand_dilation(op: Op) -> list[Op] | None:
    dilation, data = [int(d) for d in op.args["dilation"]], np.asarray(op.args["weight"].data)
    if op.kind != "core.conv_transpose2d" or dilation == [1, 1] or not _is_symmetric(op.args["weight"]):
        return None
    sizes = [d * (k - 1) + 1 for d, k in zip(dilation, data.shape[1:3], strict=True)]
    if data.nbytes // max(1, data.shape[1] * data.shape[2]) * sizes[0] * sizes[1] > _MAX_FILTER_BYTES:
        return None
    expanded = np.zeros((data.shape[0], *sizes, data.shape[3]), data.dtype)
    expanded[:, :: dilation[0], :: dilation[1]] = data
    (dense,) = _with_weight(op, expanded, dilation=[1, 1])
    return _expand_groups(dense) or [dense]


def _expand_groups(op: Op) -> list[Op] | None:
    """Merge groups of channels, with zeros between them, until the kernels accept the result."""
    groups, data = int(op.args["groups"]), np.asarray(op.args["weight"].data)
    x, out = op.args["input"], op.outputs[0]
    if (
        op.kind not in ("core.conv2d", "core.conv_transpose2d")
        or groups == 1
        or data.dtype != np.dtype(np.int8)
        or x.q is None
        or is_dynamically_quantized(x)
        or not _is_symmetric(op.args["weight"])
    ):
        return None
    outputs, inputs = data.shape[0] // groups, data.shape[3]
    count = groups if outputs % 16 else 1
    if is_quantized8(x.q) and out is not None and is_quantized8(out.q):
        count = _merged_groups(groups, outputs, data.shape[1:], x.bound[0])
    if count == 1 or data.nbytes * count > _MAX_FILTER_BYTES:
        return None
    expanded = np.zeros((*data.shape[:3], inputs * count), data.dtype)
    for g in range(groups):
        rows, first = slice(g * outputs, (g + 1) * outputs), g % count * inputs
        expanded[rows, ..., first : first + inputs] = data[rows]
    return _with_weight(op, expanded, groups=groups // count)


_GROUP_STEPS = 1024  # kernel calls of one convolution: images times groups
_EPILOGUE_STEPS = 8.0  # cost of storing a vector of channels, in dot products of a vector


def _merged_groups(groups: int, outputs: int, window: Sequence[int], images: int) -> int:
    """How many groups to merge: the divisor with the least cost, in dot products of 16 channels by four inputs."""
    *taps, inputs = window

    def cost(count: int) -> float:
        vectors, steps = -(-count * outputs // 16), -(-count * inputs // 4) * math.prod(taps)
        return groups // count * vectors * (steps + _EPILOGUE_STEPS)

    divisors = [n for n in range(1, groups + 1) if groups % n == 0 and groups // n * images <= _GROUP_STEPS]
    return min([*divisors, groups], key=cost)


class _FloatBuilder:
    """Appends float32 operators."""

    def __init__(self) -> None:
        self.ops: list[Op] = []

    def add(self, kind: str, shape: Sequence[int], args: dict[str, Any], dtype: Any = _F32) -> Value:
        value = Value("v", np.dtype(dtype), tuple(shape), tuple(range(len(shape))))
        self.ops.append(Op(kind, args, [value]))
        return value

    def binary(self, kind: str, a: Value, b: Any, dtype: Any = _F32) -> Value:
        other = b if isinstance(b, Value) else _constant(b)
        return self.add(kind, np.broadcast_shapes(a.bound, other.bound), {"self": a, "other": other}, dtype)

    def where(self, condition: Value, on_true: Any, on_false: Any) -> Value:
        branches = [v if isinstance(v, Value) else _constant(v) for v in (on_true, on_false)]
        return self.add(
            "core.where", condition.bound, {"condition": condition, "self": branches[0], "other": branches[1]}
        )

    def convolution(self, op: Op, x: Value, dims: int, out: Value) -> list[Op]:
        """Quantize ``x`` with the steps of ``Numerics.quantize_rows``, convolve, and rescale."""
        rank = len(x.bound)
        axes, reduced = list(range(rank - dims, rank)), (*x.bound[: rank - dims], *(1,) * dims)
        reduction = {"self": x, "dim": axes, "keepdim": True}
        low = self.binary("core.minimum", self.add("core.amin", reduced, reduction), 0)
        high = self.binary("core.maximum", self.add("core.amax", reduced, reduction), 0)
        constant_input = self.binary("core.eq", low, high, np.bool_)
        span = self.where(constant_input, 1, self.binary("core.sub", high, low))
        scale = self.where(constant_input, 1, self.binary("core.div", _constant(255), span))
        centered = self._quantize_centered(x, low, high, scale)
        weight = op.args["weight"]
        data = np.ascontiguousarray(np.asarray(weight.data).astype(np.float32))
        args = {**op.args, "input": centered, "weight": _constant(data), "bias": None, "exact": True}
        args.pop("limits", None)
        total = self.add("core.conv2d", out.bound, args)
        inverse_scale = self.add("core.reciprocal", reduced, {"self": scale})
        scales = np.broadcast_to(np.asarray(weight.q.scale, np.float32), (out.bound[-1],)) if weight.q else None
        real = self.binary("core.mul", self.binary("core.mul", total, inverse_scale), np.ascontiguousarray(scales))
        bias = op.args.get("bias")
        bias_add = {"self": real, "other": bias if bias is not None else _constant(0)}
        if op.args.get("limits") is not None:
            bias_add["limits"] = op.args["limits"]
        return [*self.ops, Op("core.add", bias_add, [out], op.origin)]

    def _quantize_centered(self, x: Value, low: Value, high: Value, scale: Value) -> Value:
        below, above = self.binary("core.mul", low, scale), self.binary("core.mul", high, scale)
        first, second = self.binary("core.add", below, -128), self.binary("core.add", above, 127)
        positive = self.binary("core.gt", self.binary("core.add", first, second), 0, np.bool_)
        zeros = [
            self.binary("core.sub", self.add("core.neg", v.bound, {"self": v}), -n)
            for v, n in ((below, -128), (above, 127))
        ]
        zero_point = self.where(positive, *zeros)
        zero = self._round(self._clamp_int8(zero_point))
        quantized = self._clamp_int8(self.binary("core.add", self._round(self.binary("core.mul", x, scale)), zero))
        return self.binary("core.sub", quantized, zero)

    def _clamp_int8(self, x: Value) -> Value:
        return self.binary("core.minimum", self.binary("core.maximum", x, -128), 127)

    def _round(self, x: Value) -> Value:
        return self.add("core.round", x.bound, {"self": x})


def _constant(data: Any) -> Value:
    array = np.asarray(data, np.float32)
    return Value("v", _F32, array.shape, tuple(range(array.ndim)), array)
