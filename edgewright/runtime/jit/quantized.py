"""Lowering of quantize and dequantize calls to float arithmetic that matches their kernels bit for bit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.ir.graph import Value
from edgewright.runtime.jit.composites import emit_float
from edgewright.runtime.jit.graph_builder import GraphBuilder, make_value
from edgewright.runtime.jit.registry import Args, lowers
from edgewright.runtime.jit.typed_elementwise import emit_typed
from edgewright.runtime.tensor import TensorSlot

_F32 = np.dtype(np.float32)
_Q = "quantized_decomposed::"
_EXACT = 1 << 24  # float32 represents all integers below


def _constant_params(g: GraphBuilder, param: Any, shape: Sequence[int]) -> Any:
    """Constant quantization parameters in ``shape``; None if they are not constant."""
    data = g.constant_data(param) if isinstance(param, TensorSlot) else np.asarray(param)
    return None if data is None or data.size != math.prod(shape) else data.reshape(shape)


def _param_shape(x: TensorSlot, a: Args) -> tuple[int, ...] | None:
    """The shape in which parameters broadcast against ``x``."""
    if "axis" not in a:
        return ()
    rank = len(x.bound)
    if not rank or not -rank <= a["axis"] < rank:
        return None
    axis = a["axis"] % rank
    return (x.bound[axis], *(1,) * (rank - 1 - axis))


def _qparams(g: GraphBuilder, a: Args) -> tuple[Any, Any] | None:
    """Scales and zero points, if both are constant."""
    x, shape = a["input"], _param_shape(a["input"], a)
    if shape is None or not g.supports(x) or g.constant_data(x) is not None:
        return None
    zero = a["zero_points"] if "zero_points" in a else a["zero_point"]
    scales = _constant_params(g, a["scales"] if "scales" in a else a["scale"], shape)
    zeros = _constant_params(g, 0 if zero is None else zero, shape) if zero is not None else np.zeros(shape)
    if scales is None or zeros is None or not np.all(np.abs(zeros) < _EXACT):
        return None
    return scales, zeros


def _float_constant(array: Any) -> Value:
    data = np.ascontiguousarray(array).astype(np.float32).reshape(np.shape(array))
    return make_value(data.shape, data)


@lowers(*(f"{_Q}quantize_per_{overload}" for overload in ("tensor.out", "tensor.Tensor_out", "channel.out")))
def _quantize(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, out, params = a["input"], outs[0], _qparams(g, a)
    low, high = a["quant_min"], a["quant_max"]
    if (
        params is None
        or not g.supports_float(x)
        or not g.supports(out)
        or max(abs(low), abs(high)) >= _EXACT
        or low > high
    ):
        return False
    scales, zeros = params
    info = np.iinfo(out.dtype) if out.dtype.kind in "iu" else None
    if info is None or not info.min <= low <= high <= info.max or not np.all(scales):
        return False
    # Per-tensor kernels invert the scale in double precision, per-channel kernels in single.
    inverse = np.float32(1.0 / float(scales)) if scales.ndim == 0 else 1 / scales.astype(np.float32)
    shifted = emit_float(
        g,
        "core.add",
        emit_float(g, "core.round", emit_float(g, "core.mul", g.value(x), _float_constant(inverse))),
        _float_constant(zeros),
    )
    clamped = emit_float(g, "core.minimum", emit_float(g, "core.maximum", shifted, float(low)), float(high))
    is_nan = g.emit_core("core.isnan", clamped.bound, {"self": clamped}, np.dtype(np.bool_))
    args = {"condition": is_nan, "self": _float_constant(np.float32(low)), "other": clamped}
    g.emit_to("core.cast", out, {"self": g.emit_core("core.where", clamped.bound, args)})
    g.macs += 4 * math.prod(x.bound)
    return True


@lowers(*(f"{_Q}dequantize_per_{overload}" for overload in ("tensor.out", "tensor.Tensor_out", "channel.out")))
def _dequantize(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, params = a["input"], _qparams(g, a)
    if params is None or not g.supports_float(*outs) or x.dtype.kind not in "iu" or x.bound != outs[0].bound:
        return False
    scales, zeros = params
    widened = g.emit_core("core.cast", x.bound, {"self": g.value(x)}, _F32)
    centered = emit_float(g, "core.sub", widened, _float_constant(zeros))
    return emit_typed(g, "core.mul", outs[0], {"self": centered, "other": _float_constant(scales)}, _F32)
