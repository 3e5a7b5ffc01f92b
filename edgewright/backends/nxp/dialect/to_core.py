"""Translation of TFLite operators to core operators.

Under "tflite" numerics a convolution carries a ``Scaling`` with TFLite's own rounding: "twice" is
MultiplyByQuantizedMultiplier with two roundings (doubling high multiply, then rounding shift), as in the reference
convolution kernels; "once" is the single rounding of FULLY_CONNECTED. Under "xnnpack" numerics it carries none, because
XNNPACK's float32 requantization is the engine's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from edgewright.backends.nxp.dialect.elementwise import RELU_RANGES, clamp_limits
from edgewright.backends.nxp.dialect.numerics import rounds_like_xnnpack, scale, scales, zero_point
from edgewright.backends.nxp.dialect.table import PREFIX
from edgewright.ir.fixed_point import quantize_multiplier
from edgewright.ir.graph import Array, Graph, Op, Value
from edgewright.ir.numerics import Numerics
from edgewright.ir.requant_scale import FixedPointScale, FloatScale
from edgewright.ir.rewrite import GraphRewrite, RuleTable


def requant_factor(x: Value, weight: Value, out: Value) -> Array:
    """Requantization factors of an accumulator, per channel: in double precision, from float32 scales."""
    return np.float64(scale(x)) * scales(weight).astype(np.float64) / np.float64(scale(out))


def matmul_factor(x: Value, weight: Value, out: Value) -> Array:
    """The same for ``BATCH_MATMUL``, which rounds the product of both input scales to float32."""
    return np.asarray(np.float64(scale(x) * scale(weight)) / np.float64(scale(out)))


def product_operands(op: Op) -> tuple[Value, Value]:
    """The two tensors that the accumulator is a sum of products of."""
    inputs = op.args["inputs"]
    return (inputs[2], inputs[1]) if op.kind.endswith("TRANSPOSE_CONV") else (inputs[0], inputs[1])


rule: RuleTable[_TfliteRewrite] = RuleTable(PREFIX)


def to_core(graph: Graph, numerics: Numerics) -> Graph:
    rw = _TfliteRewrite(graph, numerics)
    for op in graph.ops:
        rule.apply(rw, op)
    return rw.finish()


class _TfliteRewrite(GraphRewrite):
    def __init__(self, graph: Graph, numerics: Numerics) -> None:
        super().__init__(graph)
        self.fixed_point = not rounds_like_xnnpack(numerics)

    def fuse_requantization(
        self, op: Op, rounding: str, factor: Callable[[Value, Value, Value], Any] = requant_factor
    ) -> tuple[dict[str, Any], Value]:
        """The requantization arguments of a convolution, and its result; a following activation narrows the clamp
        range.
        """
        out = _result(op)
        low, high, following = -128, 127, self.only_reader(out)
        if following is not None and (clamp_range := _clamp_range(following)) is not None:
            low, high = clamp_range
            self.done.add(following)
        last = out if following is None or following not in self.done else _result(following)
        if not self.fixed_point:
            return {"limits": _float_limits(last, low, high)}, last
        mantissa, exponent = quantize_multiplier(factor(*product_operands(op), out))
        scaling = FixedPointScale(_int_tuple(mantissa), _int_tuple(31 - exponent), rounding, zero_point(out), low, high)
        return {"scaling": scaling}, last


def _int_tuple(array: Any) -> tuple[int, ...]:
    return tuple(int(n) for n in np.atleast_1d(array))


def _result(op: Op) -> Value:
    out = op.outputs[0]
    assert out is not None
    return out


def _float_limits(out: Value, low: int, high: int) -> tuple[float, float] | None:
    """The clamp range in real units, as core operators express it; None if it is the full range."""
    if (low, high) == (-128, 127):
        return None
    assert out.q is not None
    step = float(np.asarray(out.q.scale))
    return (low - zero_point(out)) * step, (high - zero_point(out)) * step


def _clamp_range(op: Op) -> tuple[int, int] | None:
    """The clamp range of an operator that only clamps, in quantized units; None for other operators."""
    name, out = op.kind.removeprefix(PREFIX), _result(op)
    values = op.args["inputs"]
    if any(v.q is None for v in (*values, out)) or values[0].q != out.q:
        return None
    if name in RELU_RANGES:
        return clamp_limits(out, *RELU_RANGES[name])
    if name in ("MAXIMUM", "MINIMUM") and values[1].data is not None and values[1].data.size == 1:
        limit = int(values[1].data.reshape(-1)[0])
        return (limit, 127) if name == "MAXIMUM" else (-128, limit)
    return None


# ------------------------------------------------------------------------------------------------------ convolutions


def _hw_pair(op: Op, name: str) -> list[int]:
    return [int(op.args.get(f"{name}_{side}", 1)) for side in ("h", "w")]


def _fold_padding(rw: _TfliteRewrite, x: Value) -> tuple[Value, list[int]]:
    """Fold an explicit zero-point padding of the input: the unpadded image, and top, bottom, left, right."""
    producer = rw.makers.get(x)
    if producer is None or producer.kind != f"{PREFIX}PADV2":
        return x, [0] * 4
    image, widths, value = producer.args["inputs"]
    if value.data is None or widths.data is None or widths.data.shape != (4, 2) or image.q != x.q:
        return x, [0] * 4
    (before, _), *sides, (last, _) = [[int(n) for n in pair] for pair in widths.data]
    spatial_only = not any((*map(int, widths.data[0]), *map(int, widths.data[3])))
    if not spatial_only or before or last or int(value.data.reshape(-1)[0]) != zero_point(image):
        return x, [0] * 4
    return image, [n for pair in sides for n in pair]


@rule("CONV_2D", "DEPTHWISE_CONV_2D")
def _convolution(rw: _TfliteRewrite, op: Op) -> bool:
    x, weight, bias = op.args["inputs"]
    if weight.data is None or bias.data is None:
        return False
    image, padding = _fold_padding(rw, x)
    depthwise = "DEPTHWISE" in op.kind
    scaling, out = rw.fuse_requantization(op, "twice")
    rw.emit("core.depthwise_conv2d" if depthwise else "core.conv2d", op, out, input=image, weight=weight, bias=bias,
              stride=_hw_pair(op, "stride"), padding=padding, dilation=_hw_pair(op, "dilation"),
              groups=x.bound[-1] if depthwise else 1, **scaling)  # fmt: skip
    return True


@rule("FULLY_CONNECTED")
def _linear(rw: _TfliteRewrite, op: Op) -> bool:
    x, weight, bias = op.args["inputs"]
    if weight.data is None or bias.data is None or np.size(weight.q.scale) > 1:
        return False
    scaling, out = rw.fuse_requantization(op, "once")
    rw.emit("core.linear", op, out, input=x, weight=weight, bias=bias, **scaling)
    return True


@rule("BATCH_MATMUL")
def _matmul(rw: _TfliteRewrite, op: Op) -> bool:
    (a, b), out = op.args["inputs"], _result(op)
    if rw.fixed_point:
        scaling, out = rw.fuse_requantization(op, "twice", matmul_factor)
    else:
        factor = float(scale(a) * scale(b) / scale(out))
        scaling = {"scaling": FloatScale((factor,), zero_point(out), -128, 127, "even")}
    rw.emit("core.int_matmul", op, out, self=a, other=b, zeros=(zero_point(a), zero_point(b)), **scaling)
    return True


@rule("TRANSPOSE_CONV")
def _transposed(rw: _TfliteRewrite, op: Op) -> bool:
    _, weight, x, bias = op.args["inputs"]
    if weight.data is None or bias.data is None or len(x.bound) != 4:
        return False
    stride, size = _hw_pair(op, "stride"), _result(op).bound[1:3]
    full = [(n - 1) * s + k for n, s, k in zip(x.bound[1:3], stride, weight.bound[1:3], strict=True)]
    cropped = [f - n for f, n in zip(full, size, strict=True)]
    if min(cropped) < 0:
        return False
    scaling, out = rw.fuse_requantization(op, "twice")
    rw.emit("core.conv_transpose2d", op, out, input=x, weight=weight, bias=bias, stride=stride, dilation=[1, 1],
              groups=1, padding=[0, cropped[0], 0, cropped[1]], output_padding=[0, 0], **scaling)  # fmt: skip
    return True


# ----------------------------------------------------------------------------------------------------- data movement


@rule("RESHAPE")
def _reshape(rw: _TfliteRewrite, op: Op) -> bool:
    x, shape = op.args["inputs"]
    rw.emit("core.view", op, _result(op), self=x, size=[int(n) for n in shape.data])
    return True


@rule("TRANSPOSE")
def _transpose(rw: _TfliteRewrite, op: Op) -> bool:
    x, dims = op.args["inputs"]
    rw.emit("core.permute", op, _result(op), self=x, dims=[int(d) for d in dims.data])
    return True


@rule("CONCATENATION")
def _concatenation(rw: _TfliteRewrite, op: Op) -> bool:
    axis = int(op.args["axis"])
    rw.emit("core.cat", op, _result(op), tensors=list(op.args["inputs"]), dim=axis % len(_result(op).bound))
    return True


@rule("SLICE")
def _slice(rw: _TfliteRewrite, op: Op) -> bool:
    x, begin, size = op.args["inputs"]
    if tuple(int(n) for n in size.data) != _result(op).bound or 0 in _result(op).bound:
        return False
    rw.emit("core.slice", op, _result(op), self=x, start=[int(n) for n in begin.data], length=list(_result(op).bound))
    return True


@rule("PADV2")
def _pad(rw: _TfliteRewrite, op: Op) -> bool:
    x, widths, value = op.args["inputs"]
    if value.data is None or value.data.size != 1 or x.q != _result(op).q:
        return False
    before, after = ([int(pair[i]) for pair in widths.data] for i in (0, 1))
    fill = (int(value.data.reshape(-1)[0]) - zero_point(x)) * float(np.asarray(x.q.scale))
    rw.emit("core.pad", op, _result(op), self=x, before=before, after=after, value=fill)
    return True


@rule("MAX_POOL_2D")
def _max_pool(rw: _TfliteRewrite, op: Op) -> bool:
    x, out = op.args["inputs"][0], _result(op)
    if x.q != out.q:
        return False
    rw.emit("core.max_pool2d", op, out, self=x, kernel_size=_hw_pair(op, "filter"), stride=_hw_pair(op, "stride"),
              padding=[0] * 4, dilation=[1, 1])  # fmt: skip
    return True


@rule("ADD", "SUB", "MUL")
def _binary(rw: _TfliteRewrite, op: Op) -> bool:
    """Core add, sub and mul under XNNPACK's rounding; TFLite's rounding has its own rules."""
    if rw.fixed_point:
        return False
    a, b = op.args["inputs"]
    rw.emit(f"core.{op.kind.removeprefix(PREFIX).lower()}", op, _result(op), self=a, other=b)
    return True
