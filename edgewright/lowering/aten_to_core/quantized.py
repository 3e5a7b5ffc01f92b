"""Lowering of quantize and dequantize: to one core operator if the result carries its parameters, else to float
arithmetic that matches the kernels of portable programs bit for bit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from edgewright.ir.graph import Op, Value
from edgewright.lowering.aten_to_core.elementwise import Lowering
from edgewright.lowering.aten_to_core.operands import (
    BOOL,
    F32,
    cast_value,
    computed,
    emit_result,
    float_node,
    normalize_dim,
    require_floats,
    result,
    scalar,
)
from edgewright.lowering.passes.layout import NHWC, LoweringContext, NotLoweredError, common_order, identity, require

_EXACT = 1 << 24  # float32 represents all integers below


def convert(low: LoweringContext, op: Op) -> None:
    """Quantize or dequantize values with quantization parameters.

    Dynamic quantization has two granularities, chosen by ``num_nonbatch_dims`` of the quantized value: a fully
    connected layer quantizes each row (1: the last dimension) and a convolution each image (3: H, W and C). The
    parameters depend on which elements share a range, so the order is fixed here: the original order for rows, NHWC
    for images. ``is_core_pointwise_gemm`` is the exception: XNNPACK runs some 1x1 convolutions as a matrix
    product, in which each pixel is a row of its own.
    """
    x, out = op.args["self"], result(op)
    rank = len(out.shape)
    order = common_order(low, op, rank)
    if out.q is not None and out.q.dynamic:
        order = NHWC if out.q.axis == -3 else identity(rank)
    low.emit("core.convert", low.make(out, order), self=low.get(x, order))


def _constant(param: Any, shape: tuple[int, ...]) -> Any:
    """Constant quantization parameters in ``shape``."""
    data = param.data if isinstance(param, Value) else np.asarray(param)
    if data is None or data.size != math.prod(shape):
        raise NotLoweredError("parameters must be constant")
    return data.reshape(shape)


def _qparams(op: Op) -> tuple[Any, Any]:
    """Scales and zero points, in the shape in which they broadcast against the operand."""
    x, shape = op.args["input"], ()
    if "axis" in op.args:
        axis = normalize_dim(x, op.args["axis"])
        shape = (x.bound[axis], *(1,) * (len(x.bound) - 1 - axis))
    names = ("scales", "zero_points") if "scales" in op.args else ("scale", "zero_point")
    scale, zero = (op.args[name] for name in names)
    zeros = np.zeros(shape) if zero is None else _constant(zero, shape)
    require(np.all(np.abs(zeros) < _EXACT), "zero points must be exact in float32")
    return _constant(scale, shape), zeros


def _floats(low: LoweringContext, array: Any) -> Value:
    return low.constant(np.ascontiguousarray(array).astype(np.float32).reshape(np.shape(array)))


def quantize(low: LoweringContext, op: Op) -> None:
    x, out, (scales, zeros) = op.args["input"], result(op), _qparams(op)
    bottom, top = op.args["quant_min"], op.args["quant_max"]
    require_floats(x)
    require(out.dtype is not None and out.dtype.kind in "iu", "the result must be of integers")
    info = np.iinfo(out.dtype)
    require(max(info.min, 1 - _EXACT) <= bottom <= top <= min(info.max, _EXACT - 1), "the type must have the range")
    require(np.all(scales), "scales must not be zero")
    # Per-tensor kernels invert the scale in double precision, per-channel kernels in single.
    inverse = np.float32(1.0 / float(scales)) if scales.ndim == 0 else 1 / scales.astype(np.float32)
    rounded = float_node(low, "core.round", float_node(low, "core.mul", computed(low, x), _floats(low, inverse)))
    shifted = float_node(low, "core.add", rounded, _floats(low, zeros))
    clamped = float_node(low, "core.minimum", float_node(low, "core.maximum", shifted, float(bottom)), float(top))
    is_nan = low.compute("core.isnan", clamped.bound, BOOL, self=clamped)
    stored = low.compute(
        "core.where", clamped.bound, F32, condition=is_nan, self=scalar(low, bottom, F32), other=clamped
    )
    low.emit("core.cast", low.make(out), self=stored)


def dequantize(low: LoweringContext, op: Op) -> None:
    x, out, (scales, zeros) = op.args["input"], result(op), _qparams(op)
    require_floats(out)
    require(x.dtype.kind in "iu", "the operand must be of integers")
    centered = float_node(low, "core.sub", cast_value(low, computed(low, x), F32), _floats(low, zeros))
    emit_result(low, "core.mul", out, F32, self=centered, other=_floats(low, scales))


LOWERINGS: dict[str, Lowering] = {
    **dict.fromkeys(("quantize_per_tensor", "quantize_per_channel"), quantize),
    **dict.fromkeys(("dequantize_per_tensor", "dequantize_per_channel"), dequantize),
}
