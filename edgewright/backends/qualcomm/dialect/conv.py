"""References of convolution and matrix product. Integer accumulators are exact, then rescaled and rounded once.

8-bit results are rescaled in float32 (``numerics.py``), wider ones in double precision; both round half to even. The
emulator's results differ from either by one step in about 2 % of 8-bit values.

Loops over the taps of the kernel, each on the output positions at which it is inside the image: nothing is padded, so
no parameter in a file can cause a large allocation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.backends.qualcomm.dialect.dtypes import from_float, subtract_zero_point, to_float
from edgewright.backends.qualcomm.dialect.numerics import QNN
from edgewright.ir.aten.reference.windows import reach
from edgewright.ir.graph import Array, Op, QParams, Value
from edgewright.ir.numerics import as_float32
from edgewright.ir.requant_scale import FloatScale, all_8bit

_MULTIPLES = 16  # 4-bit multiplier of a block's scale


def block_scales(q: QParams, channels: int) -> tuple[Array, Array]:
    """One scale per output channel, and the integer multipliers (1 to 16) of its blocks."""
    scales = np.asarray(q.scale, np.float64).reshape(channels, -1)
    units = scales.max(axis=1) / _MULTIPLES
    return units, np.clip(np.round(scales / units[:, None]), 1, _MULTIPLES).astype(np.int64)


def integer_weights(value: Value, data: Array) -> tuple[Array, Array]:
    """Weights minus the zero point, and one scale per output channel or per tensor. Blockwise weights, whose output
    channels are last, are multiplied with the integer multipliers of their blocks."""
    q = value.q
    assert q is not None
    if q.block is None:
        zero = np.asarray(q.zero_point, np.int64)
        shape = [1] * data.ndim
        if q.axis is not None and zero.ndim:
            shape[q.axis] = zero.size
            zero = zero.reshape(shape)
        return data.astype(np.int64) - zero, as_float32(q.scale).reshape(-1)
    units, multiples = block_scales(q, data.shape[-1])
    return data.astype(np.int64) * np.repeat(multiples.T, q.block, axis=0), as_float32(units)


def accumulator_bias(value: Value, data: Array, units: Array) -> Array:
    """The bias in the accumulator's scale, rounded if it has another one."""
    numbers = data.astype(np.float64).reshape(-1)
    if value.q is not None:
        scale = as_float32(value.q.scale).astype(np.float64).reshape(-1)
        if np.allclose(scale, units, 1e-5, 0):
            return data.astype(np.int64).reshape(-1)
        numbers = numbers * scale
    return np.asarray(np.rint(numbers / units), np.float64).astype(np.int64)


def requantize_accumulators(total: Array, x: Value, scales: Array, out: Value) -> Array:
    """Requantize exact accumulators. Channels are last; ``scales`` are those of the weights."""
    assert x.q is not None and out.q is not None
    if all_8bit(x, out):
        return QNN.requantize(total, as_float32(x.q.scale) * scales / as_float32(out.q.scale), out.q)
    return accumulator_scale(x, scales, out).apply(total).astype(out.q.dtype)


def accumulator_scale(x: Value, scales: Array, out: Value) -> FloatScale:
    assert x.q is not None and out.q is not None
    units = as_float32(x.q.scale).astype(np.float64) * scales.astype(np.float64)
    factors: Any = (units / as_float32(out.q.scale).astype(np.float64)).reshape(-1)
    return FloatScale(tuple(factors.tolist()), int(np.asarray(out.q.zero_point)), out.q.qmin, out.q.qmax, "real")


_EXACT = 1 << 24  # sums below it are exact in float32


def _io(op: Op) -> tuple[list[Value], Value]:
    out = op.outputs[0]
    assert out is not None
    return op.args["inputs"], out


def _operands(op: Op, arrays: Sequence[Array], terms: int) -> tuple[Array, Array, Array | None]:
    """Both operands ready to multiply, and the scales of the second (None in floating point). ``terms``: products per
    sum, which decide whether float32 accumulates integers exactly."""
    (x, w, *_), (left, right) = op.args["inputs"], arrays[:2]
    if x.q is None or w.q is None:
        return to_float(x, left), to_float(w, right), None
    integers, scales = integer_weights(w, right)
    bound = (x.q.qmax - x.q.qmin) * int(np.abs(integers).max(initial=0)) * terms
    dtype = np.float32 if bound < _EXACT else np.float64
    return subtract_zero_point(left, x.q, dtype), integers.astype(dtype), scales


def _requantize(op: Op, total: Array, scales: Array | None, arrays: Sequence[Array]) -> Array:
    """Add the bias and convert accumulators to the output type. Channels are last."""
    inputs, out = _io(op)
    x, bias = inputs[0], inputs[2] if len(inputs) > 2 else None
    if scales is None or out.q is None:
        scaled = total if scales is None else total * (np.asarray(x.q.scale) * scales)  # type: ignore[union-attr]
        if bias is not None:
            scaled = scaled + np.resize(to_float(bias, arrays[2]), scaled.shape[-1])
        return from_float(out, scaled)
    integers = total.astype(np.int64)
    if bias is not None:
        assert x.q is not None
        units = as_float32(x.q.scale).astype(np.float64) * scales.astype(np.float64)
        integers = integers + np.resize(accumulator_bias(bias, arrays[2], units), integers.shape[-1])
    return requantize_accumulators(integers, x, scales, out)


def _multiply_tap(part: Array, tap: Array, groups: int) -> Array:
    """Multiply input channels with one kernel tap, per group."""
    inputs, outputs = tap.shape
    if groups == 1:
        rows = np.ascontiguousarray(part).reshape(-1, inputs) @ tap
        return rows.reshape(*part.shape[:-1], outputs)
    if inputs == 1 and outputs == groups:
        return part * tap[0]
    split = part.reshape(*part.shape[:-1], groups, 1, inputs)
    group_taps = tap.reshape(inputs, groups, outputs // groups).transpose(1, 0, 2)
    return np.matmul(split, group_taps).reshape(*part.shape[:-1], outputs)


def convolution(op: Op, arrays: Sequence[Array]) -> Array:
    """``Conv2d``, ``Conv3d``, ``DepthWiseConv2d``: filters are HWIO (DHWIO)."""
    (_, weight, *_), out = _io(op)
    rank = len(weight.bound) - 2
    window = weight.bound[:rank]
    groups = arrays[0].shape[-1] // weight.bound[-2] if op.kind.endswith("DepthWiseConv2d") else op.args["group"]
    x, w, scales = _operands(op, arrays, int(np.prod(weight.bound[:-1])))
    total = np.zeros(out.bound, x.dtype)
    for tap in np.ndindex(*window):
        ranges = [
            reach(size, count, stride, t * step - before)
            for size, count, stride, t, step, (before, _) in zip(
                x.shape[1:-1], out.bound[1:-1], op.args["stride"], tap, op.args["dilation"], op.args["pad_amount"],
                strict=True,
            )
        ]  # fmt: skip
        if None in ranges:
            continue
        write, read = ((slice(None), *(m[i] for m in ranges if m is not None)) for i in (0, 1))
        total[write] += _multiply_tap(x[read], w[tap], groups)
    return _requantize(op, total, scales, arrays)


def conv_transpose(op: Op, arrays: Sequence[Array]) -> Array:
    """``TransposeConv2d``, ``TransposeConv3d``: filters are HWIO (DHWIO), O per group."""
    (_, weight, *_), out = _io(op)
    rank, groups = len(weight.bound) - 2, op.args["group"]
    x, w, scales = _operands(op, arrays, int(np.prod(weight.bound[:-1])))
    inputs, outputs = weight.bound[-2:]
    total = np.zeros(out.bound, x.dtype)
    for tap in np.ndindex(*weight.bound[:rank]):
        ranges = [
            reach(size, count, stride, t - before)
            for size, count, stride, t, (before, _) in zip(
                out.bound[1:-1], x.shape[1:-1], op.args["stride"], tap, op.args["pad_amount"], strict=True
            )
        ]
        if None in ranges:
            continue
        read, write = ((slice(None), *(m[i] for m in ranges if m is not None)) for i in (0, 1))
        filters = w[tap].reshape(groups, inputs // groups, outputs).transpose(1, 0, 2)
        total[write] += _multiply_tap(x[read], filters.reshape(-1, groups * outputs), groups)
    return _requantize(op, total, scales if scales is None or scales.size == 1 else np.tile(scales, groups), arrays)


def fully_connected(op: Op, arrays: Sequence[Array]) -> Array:
    x, w, scales = _operands(op, arrays, arrays[1].shape[-1])
    return _requantize(op, x.reshape(-1, w.shape[1]) @ w.T, scales, arrays)


def matmul(op: Op, arrays: Sequence[Array]) -> Array:
    a, b, scales = _operands(op, arrays, arrays[0].shape[-1])
    a = np.swapaxes(a, -1, -2) if op.args["transpose_in0"] else a
    b = np.swapaxes(b, -1, -2) if op.args["transpose_in1"] else b
    return _requantize(op, np.matmul(a, b), scales, arrays)


def quantize(op: Op, arrays: Sequence[Array]) -> Array:
    """Quantize float32: graph inputs are not rounded to fp16 first."""
    (_,), out = _io(op)
    return from_float(out, arrays[0].astype(np.float32))


def dequantize(op: Op, arrays: Sequence[Array]) -> Array:
    (x,), out = _io(op)
    assert out.dtype is not None
    return to_float(x, arrays[0]).astype(out.dtype)
