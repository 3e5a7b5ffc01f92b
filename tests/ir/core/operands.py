"""Random operands for every operator of the core table: shapes and attributes here, element types from the row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgewright.ir.core.index_bounds import OutOfRangePolicy
from edgewright.ir.core.table import CoreOp, infer_shape
from edgewright.ir.dtypes import bfloat16
from edgewright.ir.graph import Array, Graph, Op, QParams, Value
from edgewright.ir.requant_scale import FixedPointScale, FloatScale
from edgewright.ir.signatures import Alternative

Random = np.random.Generator
Shape = tuple[int, ...]
DTYPES = {"f32": np.dtype(np.float32), "f16": np.dtype(np.float16), "bf16": np.dtype(bfloat16), "bool": np.dtype(bool),
          **{f"{'i' if signed else 'u'}{bits}": np.dtype(f"{'' if signed else 'u'}int{bits}")
             for bits in (8, 16, 32, 64) for signed in (True, False)}}  # fmt: skip
PER_CHANNEL = {"depthwise_conv2d": 3}  # dimension of the weights that has the output channels; 0 elsewhere


@dataclass
class Case:
    """``shapes`` of operands; a list for a list of tensors, None for an operand that is left out. ``ranges`` of
    integers, both ends included. ``data``: contents of constants that cannot be random."""

    shapes: dict[str, Any]
    attributes: dict[str, Any] = field(default_factory=dict)
    ranges: dict[str, tuple[int, int]] = field(default_factory=dict)
    data: dict[str, Array] = field(default_factory=dict)


GENERATORS: dict[str, Callable[[Random], Case]] = {}


def generates(names: str) -> Callable[[Callable[[Random], Case]], Callable[[Random], Case]]:
    def register(function: Callable[[Random], Case]) -> Callable[[Random], Case]:
        GENERATORS.update(dict.fromkeys(names.split(), function))
        return function

    return register


def build(row: CoreOp, alternative: Alternative, first: str, rng: Random) -> tuple[Graph, list[Array]]:
    """A graph of one operator whose first operand has the type ``first``, and its inputs."""
    return _Builder(row, alternative, first, rng).run()


class _Builder:
    def __init__(self, row: CoreOp, alternative: Alternative, first: str, rng: Random) -> None:
        self.row, self.alternative, self.first, self.rng = row, alternative, first, rng
        self.case = GENERATORS[row.name](rng)
        if "bi8" in alternative.operands[-2].allowed if len(alternative.operands) > 1 else False:
            self.case = _linear(rng, transposed=False)
        self.codes: dict[str, str] = {}  # of type variables
        self.q: dict[str, QParams] = {}
        self.graph = Graph("row")
        self.inputs: list[Array] = []

    def run(self) -> tuple[Graph, list[Array]]:
        op = Op(f"core.{self.row.name}", dict(self.case.attributes), [])
        for operand, slot in zip(self.row.operands, self.alternative.operands, strict=True):
            shape = self.case.shapes[operand.name]
            code = self.first if operand is self.row.operands[0] else None
            if isinstance(shape, list):
                op.args[operand.name] = [s if s is None else self.operand(operand.name, s, slot, code) for s in shape]
            else:
                op.args[operand.name] = None if shape is None else self.operand(operand.name, shape, slot, code)
        if self._is_scaled() and "scaling" in self.row.attributes:
            low, high = (-100 if "u" not in self.first else 0), 100
            fixed = self.rng.random() < 0.5
            op.args["scaling"] = (FixedPointScale((1 << 30,), (36,), "single", 0, low, high) if fixed
                                  else FloatScale((0.013,), 3, low, high, "real"))  # fmt: skip
        shape, slot = infer_shape(op, self.row), self.alternative.results[0]
        out = Value("out", *self.type(slot, shape, self.code(slot, None)))
        op.outputs = [Value("out", out.dtype, out.shape, out.dim_order, q=out.q)]
        self.graph.ops.append(op)
        self.graph.outputs = [op.outputs[0]]
        return self.graph, self.inputs

    def _is_scaled(self) -> bool:
        return "qi16" in self.alternative.operands[0].allowed

    def code(self, slot: Any, wanted: str | None) -> str:
        bound = self.codes.get(slot.variable) if slot.variable else None
        chosen = bound or wanted or str(self.rng.choice(sorted(slot.allowed)))
        if slot.allowed >= {"qi16", "i16", "qu16"} and self._is_scaled():
            chosen = wanted or self.first  # result and operands of integer products have one type
        elif not bound and not wanted and self.first in slot.allowed and self.rng.random() < 0.75:
            chosen = self.first  # mostly one type of floats
        if slot.variable:
            self.codes[slot.variable] = chosen
        return chosen

    def type(self, slot: Any, shape: Shape, code: str) -> tuple[Any, ...]:
        """dtype, shape, order, data, state, name, kind and quantization of a value."""
        prefix, element = ("", code) if code in DTYPES else (code[0], code[1:])
        dtype = DTYPES[element]
        q = self._parameters(prefix, dtype, shape, slot) if prefix else None
        if slot.same_params and slot.variable and q is not None:
            q = self.q.setdefault(slot.variable, q)
        return dtype, shape, tuple(range(len(shape))), None, False, "", "tensor", q

    def _parameters(self, prefix: str, dtype: Any, shape: Shape, slot: Any) -> QParams:
        info = np.iinfo(dtype)
        low, high = int(info.min), int(info.max)
        if prefix == "d":
            return QParams(1.0, 0, dtype, low, high, axis=-3 if "conv" in self.row.name else -1, dynamic="per_token")
        symmetric = slot.symmetric or (slot.constant and dtype.itemsize > 1) or prefix in "cb" or self._is_scaled()
        zero = 0 if symmetric else int(self.rng.integers(-20, 21)) + (128 if low == 0 else 0)
        if prefix == "q":
            return QParams(float(self.rng.uniform(0.02, 0.08)), zero, dtype, low, high)
        axis = PER_CHANNEL.get(self.row.name, 0) if len(shape) > 1 else 0
        axis = 1 if self.case.attributes.get("transposed") and len(shape) == 2 else axis
        block = int(np.prod(shape)) // shape[axis] if prefix == "b" else None
        scales = tuple(self.rng.uniform(0.002, 0.01, shape[axis]).tolist())
        return QParams(scales, 0, dtype, low, high, axis, block)

    def operand(self, name: str, shape: Shape, slot: Any, wanted: str | None) -> Value:
        code = self.code(slot, wanted)
        value = Value(f"{name}{len(self.inputs)}", *self.type(slot, shape, code))
        if value.q is not None and value.q.dynamic is not None:
            return self._dynamic(value)
        data = self.case.data[name] if name in self.case.data else self._contents(name, value)
        is_weight = name in ("weight", "bias") and slot.constant is None and self.rng.random() < 0.75
        if slot.constant or is_weight or name in self.case.data:
            value.data = data.astype(value.dtype)
        else:
            self.graph.inputs.append(value)
            self.inputs.append(data)
        return value

    def _dynamic(self, value: Value) -> Value:
        source = Value("rows", DTYPES["f32"], value.shape, value.dim_order)
        self.graph.inputs.append(source)
        self.inputs.append(self.rng.standard_normal(value.bound).astype(np.float32))
        self.graph.ops.append(Op("core.convert", {"self": source}, [value]))
        return value

    def _contents(self, name: str, value: Value) -> Array:
        dtype = value.dtype
        assert dtype is not None
        if dtype.kind == "b":
            return self.rng.integers(0, 2, value.bound).astype(bool)
        if dtype.kind not in "iu":
            low, high = self.case.ranges.get(name, (-3, 3))
            return self.rng.uniform(low, high, value.bound).astype(np.float32).astype(dtype)
        info = np.iinfo(dtype)
        default = (-40, 40) if value.q is None or dtype.itemsize > 1 else (info.min, info.max)
        low, high = self.case.ranges.get(name, default)
        return self.rng.integers(max(low, info.min), min(high, info.max) + 1, value.bound).astype(dtype)


# --------------------------------------------------------------------------------------------------------- elementwise


def _shape(rng: Random, rank: int | None = None) -> Shape:
    return tuple(int(n) for n in rng.integers(1, 7, int(rng.integers(1, 5)) if rank is None else rank))


def _less(rng: Random, shape: Shape) -> Shape:
    """A shape that is broadcast to ``shape``."""
    kept = tuple(1 if rng.random() < 0.3 else n for n in shape)
    return kept[int(rng.integers(0, len(shape))) :]


@generates("""add sub mul div maximum minimum eq ne lt le gt ge logical_and logical_or logical_xor atan2
              bitwise_and bitwise_or bitwise_xor""")
def _binary(rng: Random) -> Case:
    shape = _shape(rng)
    return Case({"self": shape, "other": _less(rng, shape)})


@generates("trunc_divide floor_divide fmod remainder")
def _division(rng: Random) -> Case:
    return Case({"self": (shape := _shape(rng)), "other": _less(rng, shape)}, ranges={"other": (1, 9)})


@generates("bitwise_left_shift bitwise_right_shift")
def _shift(rng: Random) -> Case:
    return Case({"self": (shape := _shape(rng)), "other": _less(rng, shape)}, ranges={"other": (0, 7)})


@generates("pow")
def _pow(rng: Random) -> Case:
    return Case({"self": (shape := _shape(rng)), "exponent": _less(rng, shape)},
                ranges={"self": (1, 5), "exponent": (0, 3)})  # fmt: skip


@generates("""sigmoid tanh exp sin cos gelu gelu_tanh hardswish abs neg square floor ceil round_to_fp16 round_to_bf16
              asinh atan cosh erf expm1 silu sinh round trunc sign bitwise_not logical_not isnan isinf clone convert
              cast""")
def _unary(rng: Random) -> Case:
    return Case({"self": _shape(rng)})


@generates("log sqrt rsqrt log10 log2 reciprocal acosh log1p")
def _positive(rng: Random) -> Case:
    return Case({"self": _shape(rng)}, ranges={"self": (1, 9)})


@generates("acos asin atanh tan")
def _unit(rng: Random) -> Case:
    return Case({"self": _shape(rng)}, ranges={"self": (0, 1)})


@generates("leaky_relu")
def _leaky_relu(rng: Random) -> Case:
    return Case({"self": _shape(rng)}, {"negative_slope": 0.1})


@generates("elu")
def _elu(rng: Random) -> Case:
    return Case({"self": _shape(rng)}, {"alpha": 0.7})


@generates("clamp")
def _clamp(rng: Random) -> Case:
    return Case({"self": _shape(rng)}, {"limits": (-0.5, 1.0)})


@generates("prelu")
def _prelu(rng: Random) -> Case:
    return Case({"self": (shape := _shape(rng)), "weight": shape[-1:]})


@generates("where")
def _where(rng: Random) -> Case:
    shape = _shape(rng)
    return Case(
        {"condition": _less(rng, shape), "self": shape, "other": _less(rng, shape)}, ranges={"condition": (0, 1)}
    )


# ------------------------------------------------------------------------------------------------------------ products


def _conv_case(rng: Random, inputs: int, weight: Shape, outputs: int, groups: int) -> Case:
    shapes = {"input": (int(rng.integers(1, 3)), *_shape(rng, 2), inputs), "weight": weight,
              "bias": None if rng.random() < 0.3 else (outputs,)}  # fmt: skip
    attributes = {"padding": [2 if groups else 0] * 4, "stride": [int(rng.integers(1, 3))] * 2, "dilation": [1, 1]}
    return Case(shapes, {**attributes, "groups": groups or 1}, {"weight": (-20, 20), "bias": (-500, 500)})


@generates("conv_transpose2d")
def _transposed(rng: Random) -> Case:
    inputs, outputs = (int(n) for n in rng.integers(1, 6, 2))
    return _conv_case(rng, inputs, (outputs, 3, 2, inputs), outputs, 0)


@generates("conv2d")
def _grouped(rng: Random) -> Case:
    groups, inputs, outputs = (int(n) for n in rng.integers((1, 1, 1), (3, 6, 6)))
    kernel = tuple(int(n) for n in rng.integers(1, 4, 2))
    return _conv_case(rng, groups * inputs, (groups * outputs, *kernel, inputs), groups * outputs, groups)


@generates("depthwise_conv2d")
def _depthwise(rng: Random) -> Case:
    channels = int(rng.integers(1, 20))
    return _conv_case(rng, channels, (1, 3, 3, channels), channels, channels)


@generates("linear")
def _linear(rng: Random, transposed: bool | None = None) -> Case:
    inputs, outputs = int(rng.integers(1, 20)), int(rng.integers(1, 20))
    transposed = bool(rng.random() < 0.5) if transposed is None else transposed
    weight = (inputs, outputs) if transposed else (outputs, inputs)
    shapes = {"input": (*_shape(rng, 2), inputs), "weight": weight, "bias": None if rng.random() < 0.3 else (outputs,)}
    return Case(shapes, {"transposed": transposed}, {"weight": (-20, 20), "bias": (-500, 500)})


@generates("bmm")
def _matrices(rng: Random) -> Case:
    batch, rows, depth, columns = _shape(rng, 4)
    return Case({"self": (batch, rows, depth), "other": (batch, depth, columns)})


@generates("int_matmul")
def _int_matmul(rng: Random) -> Case:
    return Case(_matrices(rng).shapes, {"zeros": [3, 5]})


# -------------------------------------------------------------------------------------------- reductions and norms


@generates("sum prod mean amax amin")
def _reduction(rng: Random) -> Case:
    shape = _shape(rng, 3)
    dims = [int(d) for d in rng.permutation(3)[: 1 if rng.random() < 0.7 else 2]]
    return Case({"self": shape}, {"dim": dims, "keepdim": bool(rng.random() < 0.5)}, {"self": (-2, 2)})


@generates("argmax argmin")
def _argmax(rng: Random) -> Case:
    return Case({"self": _shape(rng, 3)}, {"dim": int(rng.integers(0, 3)), "keepdim": bool(rng.random() < 0.5)})


@generates("cumsum")
def _cumsum(rng: Random) -> Case:
    return Case({"self": _shape(rng, 3)}, {"dim": int(rng.integers(0, 3))})


@generates("topk_indices")
def _topk(rng: Random) -> Case:
    return Case({"self": (3, 7, 2)}, {"k": 3, "dim": 1, "largest": bool(rng.random() < 0.5)})


@generates("layer_norm rms_norm")
def _layer_norm(rng: Random) -> Case:
    shape = (*_shape(rng, 2), 9)
    weights = {name: None if rng.random() < 0.3 else (9,) for name in ("weight", "bias")}
    return Case({"input": shape, **weights}, {"normalized_shape": [9], "eps": 1e-3})


@generates("group_norm")
def _group_norm(rng: Random) -> Case:
    return Case({"input": (2, 6, *_shape(rng, 2)), "weight": (6,), "bias": (6,)}, {"num_groups": 3, "eps": 1e-2})


@generates("softmax")
def _softmax(rng: Random) -> Case:
    return Case({"self": _shape(rng)})


@generates("int_softmax")
def _int_softmax(rng: Random) -> Case:
    return Case({"self": _shape(rng)}, {"log": bool(rng.random() < 0.5)})


@generates("int_norm")
def _int_norm(rng: Random) -> Case:
    return Case({"self": (3, 12), "weight": (12,), "bias": (12,)}, {"length": 12, "channel_size": 1, "groups": 1,
                "epsilon": 1e-3, "center": bool(rng.random() < 0.5)})  # fmt: skip


# ------------------------------------------------------------------------------------------------------------ movement


@generates("permute")
def _permute(rng: Random) -> Case:
    return Case({"self": _shape(rng, 4)}, {"dims": [int(d) for d in rng.permutation(4)]})


@generates("view")
def _view(rng: Random) -> Case:
    a, b, c = _shape(rng, 3)
    return Case({"self": (a, b, c)}, {"size": [a * b, -1]})


@generates("bitcast")
def _bitcast(rng: Random) -> Case:
    return Case({"self": _shape(rng, 3)})


@generates("slice")
def _slice(rng: Random) -> Case:
    return Case({"self": (5, 4, 6)}, {"start": [int(rng.integers(0, 3)), 1, 0], "length": [2, 2, 0]})


@generates("cat")
def _cat(rng: Random) -> Case:
    a, b, c = _shape(rng, 3)
    return Case({"tensors": [(a, b, c), (a, b + 1, c), (a, 2, c)]}, {"dim": 1})


@generates("pad")
def _pad(rng: Random) -> Case:
    return Case({"self": _shape(rng, 3)}, {"before": [1, 0, 2], "after": [0, 1, 1], "value": 1.0})


@generates("dynamic_slice")
def _dynamic_slice(rng: Random) -> Case:
    shape = (7, *_shape(rng, 2))
    return Case({"self": shape, "position": (1,)}, {"length": int(rng.integers(1, 8))}, {"position": (-1, 8)})


@generates("dynamic_update_slice")
def _dynamic_update_slice(rng: Random) -> Case:
    batch, count, *rest = _shape(rng, 4)
    shapes = {"self": (batch, count + 3, *rest), "values": (batch, count, *rest), "position": ()}
    return Case(shapes, ranges={"position": (-1, 5)})


@generates("cached_attention")
def _cached_attention(rng: Random) -> Case:
    batch, count, groups, shared = (int(n) for n in rng.integers((1, 1, 1, 1), (3, 40, 4, 5)))
    count, mask = 1 if rng.random() < 0.3 else count, rng.random() < 0.3
    width, length = int(rng.choice([4, 8, 16, 32, 48, 64, 80])), count + int(rng.integers(0, 200))
    length = -(-length // 64) * 64 if rng.random() < 0.5 else length
    shapes = {
        "query": (batch, count, groups * shared, width), "key": (batch, length, groups, width),
        "value": (batch, length, groups, width), "position": (1,), "mask": (count, length) if mask else None,
    }  # fmt: skip
    attributes = {"scale": 0.3, "causal": not mask and bool(rng.random() < 0.7)}
    return Case(shapes, attributes, {"position": (-2, length - count + 2)})


@generates("quantized_cached_attention")
def _quantized_cached_attention(rng: Random) -> Case:
    case = _cached_attention(rng)
    order = [f"{name}{suffix}" for name in ("query", "key", "value") for suffix in ("", "_scale", "_zero_point")]
    shapes = {name: case.shapes[name.partition("_")[0]] for name in order}
    shapes = {name: (*shape[:3], 1) if "_" in name else shape for name, shape in shapes.items()}
    shapes |= {name: case.shapes[name] for name in ("position", "mask")}
    zeros = {name: (-20, 20) for name in order if name.endswith("_zero_point")}
    return Case(shapes, {**case.attributes, "scale": 0.003}, {**case.ranges, **zeros})


@generates("row_scale row_zero_point quantize_rows")
def _row_quantization(rng: Random) -> Case:
    return Case({"self": _shape(rng, 3)})


@generates("expand")
def _expand(rng: Random) -> Case:
    return Case({"self": (3, 1, 4)}, {"size": [3, int(rng.integers(1, 5)), 4]})


@generates("flip")
def _flip(rng: Random) -> Case:
    return Case({"self": _shape(rng, 3)}, {"dims": [0, 2]})


@generates("roll")
def _roll(rng: Random) -> Case:
    return Case({"self": _shape(rng, 3)}, {"shifts": [1, -2], "dims": [0, 2]})


@generates("repeat")
def _repeat(rng: Random) -> Case:
    return Case({"self": _shape(rng, 2)}, {"repeats": [2, 3]})


@generates("as_strided")
def _as_strided(rng: Random) -> Case:
    return Case({"self": (4, 6)}, {"size": [2, 3], "stride": [6, 2], "storage_offset": int(rng.integers(0, 3))})


@generates("unfold")
def _unfold(rng: Random) -> Case:
    return Case({"self": (3, 7)}, {"dimension": 1, "size": 3, "step": 2})


@generates("diagonal")
def _diagonal(rng: Random) -> Case:
    return Case({"self": (4, 5, 3)}, {"offset": int(rng.integers(-1, 2)), "dim1": 0, "dim2": 1})


@generates("reflection_pad replication_pad")
def _border(rng: Random) -> Case:
    return Case({"self": (1, 2, 5, 6)}, {"padding": [1, 2, 0, 1]})


@generates("pixel_shuffle")
def _pixel_shuffle(rng: Random) -> Case:
    return Case({"self": (1, 8, 3, 4)}, {"upscale_factor": 2})


@generates("pixel_unshuffle")
def _pixel_unshuffle(rng: Random) -> Case:
    return Case({"self": (1, 2, 4, 6)}, {"downscale_factor": 2})


@generates("channel_shuffle")
def _channel_shuffle(rng: Random) -> Case:
    return Case({"self": (1, 6, 3, 4)}, {"groups": 3})


# -------------------------------------------------------------------------------------------------------------- indices


@generates("index_select")
def _index_select(rng: Random) -> Case:
    outside = OutOfRangePolicy("test", wrap=True) if rng.random() < 0.5 else None
    low = 0 if outside is None else -5
    return Case({"self": (3, 5, 4), "index": (6,)}, {"dim": 1, "outside": outside}, {"index": (low, 4)})


@generates("embedding")
def _embedding(rng: Random) -> Case:
    return Case({"weight": (5, 4), "indices": (2, 3)}, ranges={"indices": (0, 4)})


@generates("index")
def _index(rng: Random) -> Case:
    return Case({"self": (3, 5, 4), "indices": [None, (6,)]}, ranges={"indices": (0, 4)})


@generates("gather")
def _gather(rng: Random) -> Case:
    outside = OutOfRangePolicy(number=7) if rng.random() < 0.5 else None
    reach = 4 if outside is None else 7
    return Case({"self": (3, 5, 4), "index": (2, 6, 4)}, {"dim": 1, "outside": outside},
                {"index": (0 if outside is None else -3, reach)})  # fmt: skip


@generates("scatter")
def _scatter(rng: Random) -> Case:
    outside = OutOfRangePolicy() if rng.random() < 0.5 else None
    return Case({"self": (3, 5, 4), "index": (2, 1, 4), "src": (2, 1, 4)}, {"dim": 1, "outside": outside},
                {"index": (0, 4 if outside is None else 6)})  # fmt: skip


@generates("scatter_add")
def _scatter_add(rng: Random) -> Case:
    return Case({"self": (3, 5, 4), "index": (2, 6, 4), "src": (2, 6, 4)}, {"dim": 1}, {"index": (0, 4)})


@generates("index_put")
def _index_put(rng: Random) -> Case:
    outside = OutOfRangePolicy() if rng.random() < 0.5 else None
    return Case({"self": (5, 4), "values": (1, 4), "indices": [(1,)]}, {"accumulate": False, "outside": outside},
                {"indices": (0, 4 if outside is None else 6)})  # fmt: skip


# --------------------------------------------------------------------------------------------------------------- images


@generates("max_pool2d avg_pool2d")
def _pool(rng: Random) -> Case:
    return Case({"self": (1, *(int(n) for n in rng.integers(3, 8, 2)), 5)},
                {"padding": [1, 0, 1, 1], "stride": [2, 1], "kernel_size": [2, 3]})  # fmt: skip


@generates("global_avg_pool2d")
def _global(rng: Random) -> Case:
    return Case({"self": _shape(rng, 4)})


@generates("upsample_bilinear2d")
def _bilinear(rng: Random) -> Case:
    return Case({"input": _shape(rng, 4)}, {"output_size": [5, 4], "align_corners": bool(rng.random() < 0.5)})


@generates("upsample_nearest2d")
def _nearest(rng: Random) -> Case:
    return Case({"input": _shape(rng, 4)}, {"output_size": [5, 4], "scale_factors": None})


@generates("resize_nearest2d")
def _resize_nearest(rng: Random) -> Case:
    return Case({"self": _shape(rng, 4)}, {"output_size": [5, 4]})


@generates("separable_resize")
def _separable(rng: Random) -> Case:
    data = {"starts": np.array([0, 1, 3]), "counts": np.array([2, 3, 1]), "weights": rng.uniform(0, 1, (3, 3))}
    return Case({"self": (2, 5, 3), "starts": (3,), "counts": (3,), "weights": (3, 3)}, {"dim": 1}, data=data)
