"""Translates traced NPU operations to operators of a core graph, which the engine compiles.

Scaling maps to TOSA's RESCALE: ``natural`` is its single rounding, ``tfl`` its double rounding. Operations with wider
sums or another rounding raise ``NotTranslatedError`` and stay with the interpreter.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.backends.ethos_u.npu.elementwise import HEADROOM, OperandScales
from edgewright.backends.ethos_u.npu.map_views import CoreGraphBuilder, NotTranslatedError
from edgewright.backends.ethos_u.npu.output_stage import OutputStage, rescale
from edgewright.backends.ethos_u.npu.trace import Convolution, Copy, Elementwise, Operand2, Operation, Pool
from edgewright.ir.graph import Array, Value
from edgewright.ir.requant_scale import FixedPointScale

_ROUNDINGS = {"natural": "single", "tfl": "double"}
_INT32 = np.dtype(np.int32)
_MAX_ABS_INPUT = 511  # largest 8-bit value minus a zero point
_MAX_TRIED_SUMS = 1 << 20  # number of sums compared to simplify a scale
_BINARY = {"ADD": "add", "SUB": "sub", "MIN": "minimum", "MAX": "maximum"}


def translate(builder: CoreGraphBuilder, op: Operation) -> None:
    """Add the operators of one operation; on ``NotTranslatedError`` the builder must be discarded."""
    if isinstance(op, Copy):
        builder.copy(op.source, op.target, op.length)
        return
    if op.ofm.dtype.itemsize != 1 or op.ifm.dtype.itemsize != 1:
        raise NotTranslatedError("not 8-bit")
    if isinstance(op, Convolution):
        _convolution(builder, op)
    elif isinstance(op, Pool):
        _pool(builder, op)
    else:
        _elementwise(builder, op)


def _checked_scale(multiplier: Any, shift: Any, rounding: str) -> tuple[tuple[int, ...], tuple[int, ...], str]:
    """Multipliers, shifts and rounding, if the engine supports them."""
    by, bits = (tuple(int(n) for n in np.atleast_1d(a)) for a in (multiplier, shift))
    if rounding not in _ROUNDINGS or not all(0 <= m < 1 << 31 for m in by) or not all(2 <= s <= 62 for s in bits):
        raise NotTranslatedError(f"{by[:1]} >> {bits[:1]}, {rounding}")
    return by, bits, _ROUNDINGS[rounding]


def _scaling(stage: OutputStage, multiplier: Any, shift: Any) -> FixedPointScale:
    by, bits, rounding = _checked_scale(multiplier, shift, stage.rounding)
    if len(by) != len(bits):
        by, bits = tuple(n * max(len(by), len(bits)) if len(n) == 1 else n for n in (by, bits))
    if stage.low > stage.high:
        raise NotTranslatedError("empty clamp range")
    return FixedPointScale(by, bits, rounding, stage.zero_point, stage.low, stage.high)


def _narrow(data: Array, dtype: Any) -> Array:
    """Cast to a narrower type, or raise if a value does not fit."""
    info = np.iinfo(dtype)
    if int(data.min(initial=0)) < info.min or int(data.max(initial=0)) > info.max:
        raise NotTranslatedError(f"more bits than {dtype}")
    return data.astype(dtype)


def _window_args(op: Convolution | Pool, depth: int) -> tuple[tuple[int, int, int], dict[str, Any]]:
    """Input shape and window arguments of a convolution or pool."""
    window, (height, width, _) = op.window, op.shape
    height_in, width_in = (
        r - a - b for r, a, b in zip(window.reach((height, width)), window.before, window.after, strict=True)
    )
    if window.upscale != "none" or min(height_in, width_in) < 1:
        raise NotTranslatedError("upscaled or empty input")
    padding = [window.before[0], window.after[0], window.before[1], window.after[1]]
    return (height_in, width_in, depth), {
        "stride": list(window.stride),
        "padding": padding,
        "dilation": list(window.dilation),
    }


def _convolution(b: CoreGraphBuilder, op: Convolution) -> None:
    scaling, bias = _scaling(op.stage, op.multiplier, op.shift), _narrow(op.bias, np.int32)
    shape, window_args = _window_args(op, op.depth)
    filters = _narrow(op.weights, np.int8)
    max_sum = np.abs(op.weights.astype(np.int64)).reshape(len(filters), -1).sum(axis=1) * _MAX_ABS_INPUT + np.abs(
        op.bias
    )
    if int(max_sum.max(initial=0)) >= 1 << 31:
        raise NotTranslatedError("accumulators wider than 32 bits")
    _convolve(b, op, b.read(op.ifm, shape), filters, bias, scaling, window_args, op.depthwise)


def _convolve(b: CoreGraphBuilder, op: Convolution | Pool, x: Value, filters: Array, bias: Array,
              scaling: FixedPointScale, window_args: dict[str, Any], depthwise: bool) -> None:  # fmt: skip
    filters = filters[..., 0].transpose(1, 2, 0)[None] if depthwise else filters
    result = b.value((1, *op.shape), op.ofm.dtype, 0)
    b.op("core.depthwise_conv2d" if depthwise else "core.conv2d", result, input=x, weight=b.constant(filters, np.int8,
         0), bias=b.constant(bias, np.int32), groups=op.shape[2] if depthwise else 1, scaling=scaling,
         **window_args)  # fmt: skip
    b.write(op.ofm, _emit_table(b, result, op.stage), op.shape)


def _pool(b: CoreGraphBuilder, op: Pool) -> None:
    depth = op.shape[2]
    shape, window_args = _window_args(op, depth)
    op = _simplify_scale(op)
    if op.window.elements == 1 and not op.window.padded and op.window.stride == (1, 1):
        if _is_copy(op):
            return b.move(op.ifm, op.ofm, op.shape)
        return _emit_output_stage(b, op, _subtract_zero_point(b, b.read(op.ifm, shape), op.ifm.zero_point))
    if op.mode == "AVERAGE" and not op.window.padded:  # padding changes the element count
        scaling = _scaling(op.stage, op.multiplier, op.shift)
        ones, zero_bias = np.ones((depth, *op.window.size, 1), np.int8), np.zeros(depth, np.int32)
        return _convolve(b, op, b.read(op.ifm, shape), ones, zero_bias, scaling, window_args, True)
    if op.mode != "MAX" or any(
        p >= k for p, k in zip(window_args["padding"], np.repeat(op.window.size, 2), strict=True)
    ):
        raise NotTranslatedError("padded average pool")
    x = b.read(op.ifm, shape)
    maxima = b.value((1, *op.shape), op.ifm.dtype, op.ifm.zero_point)
    b.op("core.max_pool2d", maxima, self=x, kernel_size=list(op.window.size), **window_args)
    return _emit_output_stage(b, op, _subtract_zero_point(b, maxima, op.ifm.zero_point))


def _simplify_scale(op: Pool) -> Pool:
    """Replace the scale by 1, or by one of fewer bits, if every possible sum gives the same result."""
    if np.size(op.multiplier) != 1 or np.size(op.shift) != 1:
        return op
    by, bits = int(np.ravel(op.multiplier)[0]), int(np.ravel(op.shift)[0])
    max_sum = _MAX_ABS_INPUT * (1 if op.mode == "MAX" else op.window.elements)
    if max_sum > _MAX_TRIED_SUMS:
        return op
    sums = np.arange(-max_sum, max_sum + 1, dtype=np.int64)
    expected = rescale(sums, by, bits, op.stage.rounding)
    for other, fewer in ((1, 0), ((by + 1) >> 1, bits - 1), (by >> 1, bits - 1)):
        if fewer >= 0 and np.array_equal(rescale(sums, other, fewer, op.stage.rounding), expected):
            return replace(op, multiplier=other, shift=fewer)
    return op


def _is_copy(op: Pool) -> bool:
    """True if the pool copies its input unchanged."""
    stage, info = op.stage, np.iinfo(op.ofm.dtype)
    factor = (int(np.ravel(op.multiplier)[0]), int(np.ravel(op.shift)[0])) if np.size(op.shift) == 1 else ()
    same_type = op.ifm.dtype == op.ofm.dtype and op.ifm.zero_point == stage.zero_point and stage.table is None
    return same_type and factor == (1, 0) and (stage.low, stage.high) == (info.min, info.max)


def _elementwise(b: CoreGraphBuilder, op: Elementwise) -> None:
    if op.mode not in (*_BINARY, "MUL", "ABS"):
        raise NotTranslatedError(op.mode)
    first = b.read(op.ifm, op.shape)
    a, operand2 = _subtract_zero_point(b, first, op.ifm.zero_point), _operand2(b, op.operand2)
    if op.mode == "ABS":
        return _emit_output_stage(b, op, b.op("tosa.abs", b.value(a.bound, _INT32), input=a))
    assert operand2 is not None
    a, operand2 = (operand2, a) if op.swapped else (a, operand2)
    if isinstance(op.scales, OperandScales):
        a, operand2 = _common_scale(b, op.scales, a, operand2)
    out = b.value((1, *op.shape), _INT32)
    if op.mode == "MUL":
        return _emit_output_stage(b, op, b.op("tosa.mul", out, a=a, b=operand2, shift=0))
    return _emit_output_stage(b, op, b.op(f"tosa.{_BINARY[op.mode]}", out, a=a, b=operand2))


def _operand2(b: CoreGraphBuilder, operand: Operand2 | None) -> Value | None:
    if operand is None:
        return None
    if operand.map is None:
        return b.constant(np.full((1, 1, 1, 1), operand.number), _INT32)
    return _subtract_zero_point(b, b.read(operand.map, operand.shape), operand.map.zero_point)


def _common_scale(b: CoreGraphBuilder, scales: OperandScales, a: Value, operand2: Value) -> tuple[Value, Value]:
    """Bring both operands of a sum to one scale."""
    if scales.mode == "both16":
        return _multiply(b, a, scales.a[0] & 0xFFFF), _multiply(b, operand2, scales.b & 0xFFFF)
    exact, other = (a, operand2) if scales.mode == "a32" else (operand2, a)
    scaled = _scale_operand(b, exact, *scales.a, scales.rounding)
    shifted = _multiply(b, other, 1 << HEADROOM[1])
    return (scaled, shifted) if scales.mode == "a32" else (shifted, scaled)


def _scale_operand(b: CoreGraphBuilder, x: Value, multiplier: int, shift: int, rounding: str) -> Value:
    """Scale an 8-bit operand to 32 bits."""
    if shift == 0 and multiplier << 9 < 1 << 31:
        return _multiply(b, x, multiplier)
    (multiplier, *_), (shift, *_), rounding_mode = _checked_scale(multiplier, shift, rounding)
    return _rescale(b, x, b.value(x.bound, _INT32), multiplier, shift, rounding_mode, 0)


def _subtract_zero_point(b: CoreGraphBuilder, x: Value, zero: int) -> Value:
    """Widen to int32 and subtract the zero point."""
    wide = b.op("tosa.cast", b.value(x.bound, _INT32), input=x, dtype="int32")
    return wide if zero == 0 else b.op("tosa.sub", b.value(x.bound, _INT32), a=wide, b=_scalar(b, zero))


def _scalar(b: CoreGraphBuilder, value: int) -> Value:
    return b.constant(np.full((1, 1, 1, 1), value), _INT32)


def _multiply(b: CoreGraphBuilder, x: Value, factor: int) -> Value:
    return b.op("tosa.mul", b.value(x.bound, _INT32), a=x, b=_scalar(b, factor), shift=0)


def _rescale(b: CoreGraphBuilder, x: Value, out: Value, by: int, bits: int, rounding: str, zero: int) -> Value:
    return b.op("tosa.rescale", out, input=x, multiplier=b.constant([by], _INT32), shift=b.constant([bits], np.int8),
                input_zp=0, output_zp=zero, dtype=str(out.dtype), rounding=rounding, per_channel=False)  # fmt: skip


def _emit_output_stage(b: CoreGraphBuilder, op: Pool | Elementwise, values: Value) -> None:
    """Apply the output stage to int32 values and store them."""
    stage, dtype = op.stage, op.ofm.dtype
    if stage.low > stage.high:
        raise NotTranslatedError("empty clamp range")
    if np.size(op.multiplier) != 1 or np.size(op.shift) != 1:
        raise NotTranslatedError("per-channel scale")
    by, bits = int(np.ravel(op.multiplier)[0]), int(np.ravel(op.shift)[0])
    limits = {"min_val": stage.low, "max_val": stage.high}
    if (by, bits) == (1, 0):
        shifted = b.op("tosa.add", b.value(values.bound, _INT32), a=values, b=_scalar(b, stage.zero_point))
        clamped = b.op("tosa.clamp", b.value(values.bound, _INT32), input=shifted, **limits)
        result = b.op("tosa.cast", b.value(values.bound, dtype, 0), input=clamped, dtype=str(dtype))
    else:
        (by, *_), (bits, *_), rounding = _checked_scale(by, bits, stage.rounding)
        scaled = _rescale(b, values, b.value(values.bound, dtype, 0), by, bits, rounding, stage.zero_point)
        result = b.op("tosa.clamp", b.value(values.bound, dtype, 0), input=scaled, **limits)
    b.write(op.ofm, _emit_table(b, result, stage), op.shape)


def _emit_table(b: CoreGraphBuilder, x: Value, stage: OutputStage) -> Value:
    if stage.table is None:
        return x
    if stage.table.size != 256 or stage.dtype != np.dtype(np.int8):
        raise NotTranslatedError("lookup table type")
    out = b.value(x.bound, np.int8, 0)
    return b.op("tosa.table", out, input=x, table=b.constant(stage.table, np.int8))
