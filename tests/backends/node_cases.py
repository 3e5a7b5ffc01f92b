"""Every node type of XNNPACK as a graph of one node, with random inputs; integers and real numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from edgewright.ir.dtypes import bfloat16
from edgewright.ir.graph import Graph, Op, QParams
from tests.backends.device import INT8, constant, q8, qc, single, value

Made = tuple[Graph, list[np.ndarray]]
INF = float("inf")
FLOAT: dict[str, Callable[[], Made]] = {}
EXACT: dict[str, Callable[[], Made]] = {}  # integers: bit for bit


def _random(seed: str) -> np.random.Generator:
    return np.random.default_rng(list(seed.encode()))


def _ints(r: np.random.Generator, shape: Sequence[int]) -> np.ndarray:
    return r.integers(-128, 128, shape).astype(np.int8)


def _scale(r: np.random.Generator) -> QParams:
    return q8(r.uniform(0.01, 0.1), int(r.integers(-60, 60)))


# ------------------------------------------------------------------------------------------------- one input


def _one(
    kind: str, shape: Sequence[int], out: Sequence[int], dtype: Any = np.float32, **args: Any
) -> Callable[[], Made]:
    def make() -> Made:
        r = _random(kind)
        x, y = value(shape, dtype), value(out, dtype)
        data = r.normal(size=shape) * 2
        data = np.abs(data) + 0.1 if kind in ("log", "sqrt", "rsqrt") else data
        return single(kind, [x], [y], self=x, **args), [data.astype(dtype)]

    return make


def _one_int(
    kind: str, shape: Sequence[int], out: Sequence[int], rescaled: bool = False, **args: Any
) -> Callable[[], Made]:
    def make() -> Made:
        r = _random(kind)
        q = _scale(r)
        x, y = value(shape, q=q), value(out, q=_scale(r) if rescaled else q)
        return single(kind, [x], [y], self=x, **args), [_ints(r, shape)]

    return make


_POOL = {"kernel_size": [3, 2], "stride": [2, 2], "padding": [1, 1, 0, 1]}
_IMAGE = (2, 8, 9, 5)
_SHAPED: dict[str, tuple[Sequence[int], Sequence[int], dict[str, Any]]] = {
    "permute": (_IMAGE, (2, 5, 8, 9), {"dims": [0, 3, 1, 2]}),
    "view": (_IMAGE, (16, 45), {"size": [0, 45]}),
    "slice": (_IMAGE, (2, 3, 9, 2), {"start": [0, 2, 0, 1], "length": [0, 3, 9, 2]}),
    "pad": ((2, 3, 4), (2, 6, 5), {"before": [0, 1, 0], "after": [0, 2, 1], "value": 0.5}),
    "max_pool2d": (_IMAGE, (2, 4, 5, 5), {**_POOL, "dilation": [1, 1]}),
    "clamp": ((3, 40), (3, 40), {"limits": (-0.5, 1.0)}),
    "clone": ((3, 4), (3, 4), {}),
}
_FLOATS: dict[str, tuple[Sequence[int], Sequence[int], dict[str, Any]]] = {
    **_SHAPED,
    "avg_pool2d": (_IMAGE, (2, 4, 5, 5), _POOL),
    "global_avg_pool2d": (_IMAGE, (2, 1, 1, 5), {}),
    "leaky_relu": ((3, 4), (3, 4), {"negative_slope": 0.2}),
    "elu": ((3, 4), (3, 4), {"alpha": 0.7}),
    "softmax": ((3, 7), (3, 7), {}),
}
_PLAIN = ("sigmoid", "floor", "sqrt", "ceil", "hardswish", "neg", "square", "abs", "rsqrt", "log", "gelu", "tanh",
          "exp", "sin", "cos")  # fmt: skip
for _kind, (_in, _out, _args) in _FLOATS.items():
    FLOAT[_kind] = _one(_kind, _in, _out, **_args)
    FLOAT[f"{_kind}_fp16"] = _one(_kind, _in, _out, np.float16, **_args)
for _kind in _PLAIN:
    FLOAT[_kind] = _one(_kind, (3, 40), (3, 40))
    if _kind != "gelu":
        FLOAT[f"{_kind}_fp16"] = _one(_kind, (3, 40), (3, 40), np.float16)
for _kind, (_in, _out, _args) in _SHAPED.items():
    EXACT[_kind] = _one_int(_kind, _in, _out, **_args)
for _n, _size in enumerate(((2, 8, 9, 5), (1, 7, 7, 33), (3, 1, 5, 8))):
    EXACT[f"global_avg_pool2d_{_n}"] = _one_int("global_avg_pool2d", _size, (_size[0], 1, 1, _size[3]), True)


def _half_steps() -> Made:
    """A mean of four whose every other sum is half a step from two integers; the zero point is odd."""
    x, y = value((1, 2, 2, 64), q=q8(0.05, 3)), value((1, 1, 1, 64), q=q8(0.025, -7))
    return single("global_avg_pool2d", [x], [y], self=x), [_ints(_random("half steps"), x.bound)]


EXACT["global_avg_pool2d_half_steps"] = _half_steps


def _convert(to_integers: bool) -> Callable[[], Made]:
    def make() -> Made:
        r = _random("convert")
        ints, real = value((50, 60), q=_scale(r)), value((50, 60))
        x, y = (real, ints) if to_integers else (ints, real)
        data = (r.normal(size=(50, 60)) * 4).astype(np.float32) if to_integers else _ints(r, (50, 60))
        return single("convert", [x], [y], self=x), [data]

    return make


EXACT["quantize"], EXACT["dequantize"] = _convert(True), _convert(False)


def _requantize(ratio: float) -> Callable[[], Made]:
    def make() -> Made:
        x, y = value((4, 64), q=q8(0.1207, 7)), value((4, 64), q=q8(0.1207 / ratio, -11))
        return single("convert", [x], [y], self=x), [np.arange(-128, 128).astype(np.int8).reshape(4, 64)]

    return make


for _n, _ratio in enumerate((0.4, 1.0, 1.003, 0.013, 9.7)):
    EXACT[f"requantize_{_n}"] = _requantize(_ratio)


# ------------------------------------------------------------------------------------------------ two and more


def _two(kind: str, dtype: Any = np.float32) -> Callable[[], Made]:
    def make() -> Made:
        r = _random(kind)
        shapes = ((2, 3, 4), (2, 4, 5), (2, 3, 5)) if kind == "bmm" else ((2, 3, 4), (3, 1), (2, 3, 4))
        a, b, out = (value(s, dtype) for s in shapes)
        arrays = [(r.normal(size=s) + 3 * (kind == "div")).astype(dtype) for s in shapes[:2]]
        return single(kind, [a, b], [out], self=a, other=b), arrays

    return make


def _two_int(kind: str, trial: int) -> Callable[[], Made]:
    """Every pair of integers, under random scales."""

    def make() -> Made:
        r = _random(f"{kind}{trial}")
        a, b, out = (value((256, 256), q=_scale(r)) for _ in range(3))
        grid = [g.astype(np.int8).copy() for g in np.meshgrid(np.arange(-128, 128), np.arange(-128, 128))]
        args = {"limits": (0.0, INF)} if trial == 3 else {}
        return single(kind, [a, b], [out], self=a, other=b, **args), grid

    return make


for _kind in ("add", "sub", "mul", "div", "maximum", "minimum", "bmm"):
    FLOAT[_kind], FLOAT[f"{_kind}_fp16"] = _two(_kind), _two(_kind, np.float16)
for _kind in ("add", "sub", "mul"):
    for _n in range(4):
        EXACT[f"{_kind}_{_n}"] = _two_int(_kind, _n)


def _cat(count: int, q: bool) -> Callable[[], Made]:
    def make() -> Made:
        r = _random("cat")
        scale = _scale(r) if q else None
        parts = [value((2, n + 1, 3), q=scale) for n in range(count)]
        out = value((2, count * (count + 1) // 2, 3), q=scale)
        arrays = [_ints(r, p.bound) if q else r.normal(size=p.bound).astype(np.float32) for p in parts]
        return single("cat", parts, [out], tensors=parts, dim=1), arrays

    return make


for _n in range(2, 6):
    FLOAT[f"cat_{_n}"], EXACT[f"cat_{_n}"] = _cat(_n, False), _cat(_n, True)


def _prelu(dtype: Any) -> Callable[[], Made]:
    def make() -> Made:
        r = _random("prelu")
        x, out, slopes = value(_IMAGE, dtype), value(_IMAGE, dtype), constant(r.normal(size=(5,)).astype(dtype))
        return single("prelu", [x], [out], self=x, weight=slopes), [r.normal(size=_IMAGE).astype(dtype)]

    return make


FLOAT["prelu"], FLOAT["prelu_fp16"] = _prelu(np.float32), _prelu(np.float16)


def _resize(corners: bool) -> Callable[[], Made]:
    def make() -> Made:
        x, out = value((1, 4, 5, 3)), value((1, 7, 9, 3))
        graph = single("upsample_bilinear2d", [x], [out], input=x, output_size=[7, 9], align_corners=corners)
        return graph, [_random("resize").normal(size=x.bound).astype(np.float32)]

    return make


FLOAT["resize"], FLOAT["resize_corners"] = _resize(False), _resize(True)


# ------------------------------------------------------------------------------------------------------- weights

_WINDOW = {"stride": [2, 1], "padding": [1, 0, 1, 1], "dilation": [1, 2]}
# kind: input, filters, output, channels' axis of the filters, arguments
_FILTERED: dict[str, tuple[Sequence[int], Sequence[int], Sequence[int], int, dict[str, Any]]] = {
    "linear": ((6, 40), (10, 40), (6, 10), 0, {"transposed": False}),
    "linear_transposed": ((6, 40), (40, 10), (6, 10), 1, {"transposed": True}),
    "conv2d": ((2, 8, 9, 6), (8, 3, 2, 6), (2, 4, 9, 8), 0, {**_WINDOW, "groups": 1}),
    "conv2d_grouped": ((2, 8, 9, 6), (8, 3, 2, 3), (2, 4, 9, 8), 0, {**_WINDOW, "groups": 2}),
    "depthwise_conv2d": ((2, 8, 9, 6), (1, 3, 2, 12), (2, 4, 9, 12), 3, {**_WINDOW, "groups": 6}),
    "conv_transpose2d": ((2, 4, 5, 6), (8, 3, 2, 6), (2, 7, 6, 8), 0,
                         {"stride": [2, 1], "padding": [1, 1, 0, 1], "dilation": [1, 2], "groups": 1}),
    "conv_transpose2d_grouped": ((2, 4, 5, 6), (8, 3, 2, 3), (2, 7, 6, 8), 0,
                                 {"stride": [2, 1], "padding": [1, 1, 0, 0], "dilation": [1, 1], "groups": 2}),
}  # fmt: skip


def _kind(name: str) -> tuple[str, dict[str, Any]]:
    kind = next(k for k in ("linear", "conv_transpose2d", "depthwise_conv2d", "conv2d") if name.startswith(k))
    return kind, {} if kind == "linear" else {"output_padding": [0, 0]}


def _filtered(name: str, dtype: Any = np.float32, bias: bool = True) -> Callable[[], Made]:
    def make() -> Made:
        r = _random(name)
        shape, filters, result, axis, args = _FILTERED[name]
        kind, more = _kind(name)
        wide = dtype if kind == "linear" else np.float32  # filters of images stay in single precision
        weight = constant((r.normal(size=filters) * 0.3).astype(wide))
        added = constant(r.normal(size=(filters[axis],)).astype(wide)) if bias else None
        x, out = value(shape, dtype), value(result, dtype)
        graph = single(kind, [x], [out], input=x, weight=weight, bias=added, limits=(-2.0, INF), **args, **more)
        return graph, [r.normal(size=shape).astype(dtype)]

    return make


def _filtered_int(name: str, per_channel: bool) -> Callable[[], Made]:
    def make() -> Made:
        r = _random(name)
        shape, filters, result, axis, args = _FILTERED[name]
        kind, more = _kind(name)
        channels = filters[axis]
        scales = r.uniform(0.002, 0.02, channels) if per_channel else 0.01
        q, out_q = _scale(r), q8(0.3, int(r.integers(-60, 60)))
        weight_q = qc(scales, axis) if per_channel else q8(0.01, 0)
        combined = np.float64(q.scale) * np.asarray(weight_q.scale)
        bias_q = qc(combined, 0, np.int32) if per_channel else QParams(float(np.float32(combined)), 0,
                 np.dtype(np.int32), -(2**31), 2**31 - 1)  # fmt: skip
        weight = constant(np.clip(_ints(r, filters), -127, 127).astype(INT8), weight_q)
        bias = constant(r.integers(-3000, 3000, channels).astype(np.int32), bias_q)
        x, out = value(shape, q=q), value(result, q=out_q)
        graph = single(kind, [x], [out], input=x, weight=weight, bias=bias, limits=(-10.0, INF), **args, **more)
        return graph, [_ints(r, shape)]

    return make


for _name in _FILTERED:
    FLOAT[_name], FLOAT[f"{_name}_no_bias"] = _filtered(_name), _filtered(_name, bias=False)
    FLOAT[f"{_name}_fp16"] = _filtered(_name, np.float16)
    EXACT[f"{_name}_by_tensor"] = _filtered_int(_name, False)
    if _name not in ("linear_transposed", "conv_transpose2d_grouped"):
        EXACT[f"{_name}_by_channel"] = _filtered_int(_name, True)


# -------------------------------------------------------------------------------------- rows quantized on the fly

ROWS: dict[str, Callable[[], Made]] = {}


def _rows(name: str, bits: int, block: int | None = None) -> Callable[[], Made]:
    def make() -> Made:
        r = _random(f"rows{name}")
        shape, filters, result, axis, args = _FILTERED[name] if block is None else ((6, 64), (10, 64), (6, 10), 0, {})
        kind, more = _kind(name)
        low, high = (-8, 7) if bits == 4 else (-128, 127)
        count = filters[0] * (filters[-1] // block) if block else filters[axis]
        scales = np.asarray(r.uniform(0.01, 0.05, count), np.float32)
        if block:
            scales = scales.astype(bfloat16).astype(np.float32)
        weight_q = QParams(tuple(scales.tolist()), 0, INT8, low, high, axis, block)
        weight = constant(r.integers(max(low, -127), high + 1, filters).astype(np.int8), weight_q)
        bias = constant(r.normal(size=(filters[axis],)).astype(np.float32))
        rows = QParams(1.0, 0, INT8, -128, 127, axis=-1 if kind == "linear" else -3, dynamic="per_token")
        x, stored, out = value(shape), value(shape, q=rows), value(result)
        fixed = {"transposed": False} if kind == "linear" else {}
        product = Op(f"core.{kind}", {**fixed, **args, **more, "input": stored, "weight": weight, "bias": bias}, [out])
        ops = [Op("core.convert", {"self": x}, [stored]), product]
        return Graph("rows", [x], [out], ops), [r.normal(size=shape).astype(np.float32)]

    return make


ROWS["linear_8"], ROWS["linear_4"], ROWS["linear_4_by_32"] = (
    _rows("linear", 8),
    _rows("linear", 4),
    _rows("linear", 4, 32),
)
ROWS["conv2d_8"], ROWS["conv2d_grouped_8"] = _rows("conv2d", 8), _rows("conv2d_grouped", 8)
