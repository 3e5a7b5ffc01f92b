"""Random graphs of one operator of the core dialect, in the shapes at which kernels and layouts change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from edgewright.ir.graph import Graph, Op, QParams, Value
from tests.engine.graphs import I8, U8, biases, constant, filters, quantized, random, real

Made = tuple[Graph, list[Any]]
Subject = Callable[[np.random.Generator], Made]
CHANNELS = (1, 2, 3, 4, 5, 8, 12, 15, 16, 17, 24, 32, 40, 48, 64, 80, 96, 100, 112)
SUBJECTS: dict[str, Subject] = {}


def subject(function: Subject) -> Subject:
    SUBJECTS[function.__name__.strip("_")] = function
    return function


def _pick(rng: np.random.Generator, options: Any) -> Any:
    return options[int(rng.integers(len(options)))]


def _channels(rng: np.random.Generator) -> int:
    return int(_pick(rng, CHANNELS))


def _image(rng: np.random.Generator, channels: int, least: int = 1) -> tuple[int, int, int, int]:
    return (int(_pick(rng, (1, 1, 2, 3))), int(rng.integers(least, 12)), int(rng.integers(least, 12)), channels)


def _value(
    rng: np.random.Generator, name: str, shape: tuple[int, ...], integer: bool, like: Value | None = None
) -> Value:
    """``like``: an operand of the same operator, which is stored in the same type."""
    if not integer:
        return real(name, *shape)
    scale, zero, unsigned = float(rng.uniform(0.02, 0.08)), int(rng.integers(-40, 40)), rng.random() < 0.3
    unsigned = unsigned if like is None else like.dtype == U8
    return quantized(name, *shape, scale=scale, zero=zero + 128 * unsigned, dtype=U8 if unsigned else I8)


def _single(op: Op, inputs: list[Value], seed: int) -> Made:
    outputs = [v for v in op.outputs if v is not None]
    return Graph("subject", inputs, outputs, [op]), [random(v, seed + i) for i, v in enumerate(inputs)]


def _limits(rng: np.random.Generator) -> Any:
    return _pick(rng, (None, None, (0.0, float("inf")), (-0.7, 0.9)))


def _convolution(rng: np.random.Generator, integer: bool, kind: str) -> Made:
    inputs, outputs = _channels(rng), _channels(rng)
    groups = 1
    if kind == "depthwise_conv2d":
        groups = outputs = inputs
    elif kind == "grouped":
        groups = int(_pick(rng, (2, 3, 4)))
        inputs, outputs, kind = groups * int(_pick(rng, (1, 3, 4, 16))), groups * int(_pick(rng, (1, 4, 16))), "conv2d"
    kernel = (1, 1) if kind == "pointwise" else tuple(int(n) for n in rng.integers(1, 6, 2))
    if kind == "square":
        kernel = (3, 3)
    plain = kind in ("square", "pointwise") and rng.random() < 0.8
    kind = "depthwise_conv2d" if kind == "depthwise_conv2d" else "conv2d"
    stride = [1, 1] if plain else [int(n) for n in rng.integers(1, 3, 2)]
    dilation = [1, 1] if plain else [int(_pick(rng, (1, 1, 2))) for _ in range(2)]
    padding = [k // 2 for k in kernel for _ in range(2)]
    x = _value(rng, "x", _image(rng, inputs, 2), integer)
    sizes = [(n + 2 * (k // 2) - d * (k - 1) - 1) // s + 1
             for n, k, s, d in zip(x.bound[1:3], kernel, stride, dilation, strict=True)]  # fmt: skip
    if min(sizes) < 1:
        return _convolution(rng, integer, kind)
    y = _value(rng, "y", (x.bound[0], *sizes, outputs), integer, x)
    depthwise = kind == "depthwise_conv2d"
    shape = (1, *kernel, outputs) if depthwise else (outputs, *kernel, inputs // groups)
    weight = filters(*shape, quantize=integer, axis=3 if depthwise else 0)
    bias = biases(outputs, integer) if rng.random() < 0.7 else None
    args = {
        "input": x,
        "weight": weight,
        "bias": bias,
        "stride": stride,
        "padding": padding,
        "dilation": dilation,
        "groups": groups,
    }
    return _single(Op(f"core.{kind}", {**args, "limits": _limits(rng)}, [y]), [x], int(rng.integers(1000)))


def _make(kind: str, integer: bool) -> Subject:
    return lambda rng: _convolution(rng, integer, kind)


for _kind in ("conv2d", "square", "pointwise", "grouped", "depthwise_conv2d"):
    SUBJECTS[f"{_kind}_fp32"], SUBJECTS[f"{_kind}_int8"] = _make(_kind, False), _make(_kind, True)


def _transposed(rng: np.random.Generator, integer: bool) -> Made:
    inputs, outputs = _channels(rng), _channels(rng)
    kernel, stride = [int(n) for n in rng.integers(1, 5, 2)], [int(n) for n in rng.integers(1, 3, 2)]
    x = _value(rng, "x", _image(rng, inputs, 2), integer)
    sizes = [(n - 1) * s + k for n, s, k in zip(x.bound[1:3], stride, kernel, strict=True)]
    y = _value(rng, "y", (x.bound[0], *sizes, outputs), integer, x)
    weight = filters(outputs, *kernel, inputs, quantize=integer)
    args = {"input": x, "weight": weight, "bias": biases(outputs, integer), "stride": stride, "padding": [0] * 4}
    args |= {"dilation": [1, 1], "groups": 1, "output_padding": [0, 0]}
    return _single(Op("core.conv_transpose2d", args, [y]), [x], 1)


@subject
def conv_transpose2d_fp32(rng: np.random.Generator) -> Made:
    return _transposed(rng, False)


@subject
def conv_transpose2d_int8(rng: np.random.Generator) -> Made:
    return _transposed(rng, True)


def _linear(rng: np.random.Generator, integer: bool) -> Made:
    inputs, outputs = _channels(rng), _channels(rng)
    x = _value(rng, "x", _rows(rng, inputs), integer)
    y = _value(rng, "y", (*x.bound[:-1], outputs), integer, x)
    weight = filters(outputs, inputs, quantize=integer)
    args = {"input": x, "weight": weight, "bias": biases(outputs, integer), "limits": _limits(rng)}
    return _single(Op("core.linear", args, [y]), [x], 2)


def _rows(rng: np.random.Generator, last: int) -> tuple[int, ...]:
    return (*(int(n) for n in rng.integers(1, 9, int(rng.integers(1, 4)))), last)


@subject
def linear_fp32(rng: np.random.Generator) -> Made:
    return _linear(rng, False)


@subject
def linear_int8(rng: np.random.Generator) -> Made:
    return _linear(rng, True)


def _dynamic(rng: np.random.Generator, image: bool) -> Made:
    """The operand is quantized per row when the graph runs."""
    inputs, outputs = _channels(rng), _channels(rng)
    shape = _image(rng, inputs) if image else _rows(rng, inputs)
    x, y = real("x", *shape), real("y", *shape[:-1], outputs)
    q = QParams(1.0, 0, I8, -128, 127, axis=-3 if image else -1, dynamic="per_token")
    rows = Value("rows", I8, shape, tuple(range(len(shape))), q=q)
    weight = filters(outputs, *((1, 1) if image else ()), inputs, quantize=True)
    args: dict[str, Any] = {"input": rows, "weight": weight, "bias": biases(outputs, False), "limits": _limits(rng)}
    if image:
        args |= {"stride": [1, 1], "padding": [0] * 4, "dilation": [1, 1], "groups": 1}
    ops = [Op("core.convert", {"self": x}, [rows]), Op("core.conv2d" if image else "core.linear", args, [y])]
    return Graph("subject", [x], [y], ops), [random(x, 3)]


@subject
def linear_dynamic(rng: np.random.Generator) -> Made:
    return _dynamic(rng, False)


@subject
def pointwise_dynamic(rng: np.random.Generator) -> Made:
    return _dynamic(rng, True)


def _pool(rng: np.random.Generator, kind: str, integer: bool) -> Made:
    x = _value(rng, "x", _image(rng, _channels(rng), 2), integer)
    if kind == "global_avg_pool2d":
        y = _value(rng, "y", (x.bound[0], 1, 1, x.bound[-1]), integer, x)
        return _single(Op(f"core.{kind}", {"self": x}, [y]), [x], 4)
    kernel, stride = [int(n) for n in rng.integers(1, 4, 2)], [int(n) for n in rng.integers(1, 3, 2)]
    padding = [k // 2 for k in kernel for _ in range(2)]
    sizes = [(n + 2 * (k // 2) - k) // s + 1 for n, k, s in zip(x.bound[1:3], kernel, stride, strict=True)]
    y = _value(rng, "y", (x.bound[0], *sizes, x.bound[-1]), integer, x)
    y = Value("y", x.dtype, y.bound, y.dim_order, q=x.q) if kind == "max_pool2d" else y
    args = {"self": x, "kernel_size": kernel, "stride": stride, "padding": padding}
    args |= {"dilation": [1, 1]} if kind == "max_pool2d" else {}
    return _single(Op(f"core.{kind}", args, [y]), [x], 4)


for _kind in ("max_pool2d", "avg_pool2d", "global_avg_pool2d"):
    for _integer in (False, True):
        SUBJECTS[f"{_kind}_{'int8' if _integer else 'fp32'}"] = (
            lambda rng, kind=_kind, integer=_integer: _pool(rng, kind, integer)
        )  # fmt: skip


def _binary(rng: np.random.Generator, integer: bool) -> Made:
    shape = _image(rng, _channels(rng))
    a = _value(rng, "a", shape, integer)
    other = tuple(1 if rng.random() < 0.2 else n for n in shape)
    b, y = _value(rng, "b", other, integer, a), _value(rng, "y", shape, integer, a)
    kinds = ("add", "sub", "mul") if integer else ("add", "sub", "mul", "maximum", "minimum")
    return _single(Op(f"core.{_pick(rng, kinds)}", {"self": a, "other": b, "limits": _limits(rng)}, [y]), [a, b], 5)


@subject
def binary_fp32(rng: np.random.Generator) -> Made:
    return _binary(rng, False)


@subject
def binary_int8(rng: np.random.Generator) -> Made:
    return _binary(rng, True)


def _unary(rng: np.random.Generator, integer: bool) -> Made:
    shape = _image(rng, _channels(rng))
    x = _value(rng, "x", shape, integer)
    y = _value(rng, "y", shape, integer, x)
    return _single(
        Op(_pick(rng, ("core.sigmoid", "core.hardswish", "core.tanh", "core.abs")), {"self": x}, [y]), [x], 6
    )


@subject
def unary_fp32(rng: np.random.Generator) -> Made:
    return _unary(rng, False)


@subject
def unary_int8(rng: np.random.Generator) -> Made:
    return _unary(rng, True)


def _convert(rng: np.random.Generator, integer: bool) -> Made:
    shape = _image(rng, _channels(rng))
    x, y = _value(rng, "x", shape, not integer), _value(rng, "y", shape, integer)
    return _single(Op("core.convert", {"self": x}, [y]), [x], 7)


@subject
def quantize(rng: np.random.Generator) -> Made:
    return _convert(rng, True)


@subject
def dequantize(rng: np.random.Generator) -> Made:
    return _convert(rng, False)


@subject
def requantize(rng: np.random.Generator) -> Made:
    shape = _image(rng, _channels(rng))
    x, y = _value(rng, "x", shape, True), _value(rng, "y", shape, True)
    return _single(Op("core.convert", {"self": x}, [y]), [x], 7)


@subject
def softmax_fp32(rng: np.random.Generator) -> Made:
    shape = _image(rng, _channels(rng))
    x, y = real("x", *shape), real("y", *shape)
    return _single(Op("core.softmax", {"self": x}, [y]), [x], 8)


@subject
def bmm_fp32(rng: np.random.Generator) -> Made:
    batch = tuple(int(n) for n in rng.integers(1, 4, int(rng.integers(1, 3))))
    m, k, n = (int(_pick(rng, (1, 2, 3, 5, 8, 16, 17, 33))) for _ in range(3))
    a, b, y = real("a", *batch, m, k), real("b", *batch, k, n), real("y", *batch, m, n)
    return _single(Op("core.bmm", {"self": a, "other": b}, [y]), [a, b], 9)


def _resize(rng: np.random.Generator, integer: bool) -> Made:
    x = _value(rng, "x", _image(rng, _channels(rng), 2), integer)
    size = [int(n) for n in rng.integers(2, 14, 2)]
    y = Value("y", x.dtype, (x.bound[0], *size, x.bound[-1]), x.dim_order, q=x.q)
    args = {"input": x, "output_size": size, "align_corners": bool(rng.integers(2))}
    return _single(Op("core.upsample_bilinear2d", args, [y]), [x], 10)


@subject
def resize_fp32(rng: np.random.Generator) -> Made:
    return _resize(rng, False)


@subject
def resize_int8(rng: np.random.Generator) -> Made:
    return _resize(rng, True)


@subject
def prelu_fp32(rng: np.random.Generator) -> Made:
    channels = _channels(rng)
    shape = _image(rng, channels)
    x, y = real("x", *shape), real("y", *shape)
    slopes = constant(rng.standard_normal(channels).astype(np.float32))
    return _single(Op("core.prelu", {"self": x, "weight": slopes}, [y]), [x], 11)


def _pad(rng: np.random.Generator, integer: bool) -> Made:
    x = _value(rng, "x", _image(rng, _channels(rng)), integer)
    before, after = ([int(n) for n in (rng.random(4) < 0.4) * rng.integers(1, 4, 4)] for _ in range(2))
    shape = tuple(a + n + b for a, n, b in zip(before, x.bound, after, strict=True))
    y = Value("y", x.dtype, shape, x.dim_order, q=x.q)
    return _single(Op("core.pad", {"self": x, "before": before, "after": after, "value": 0.0}, [y]), [x], 12)


@subject
def pad_fp32(rng: np.random.Generator) -> Made:
    return _pad(rng, False)


@subject
def pad_int8(rng: np.random.Generator) -> Made:
    return _pad(rng, True)
