"""Quantizing and dequantizing calls, as arithmetic of a device graph: exactly what their kernels do, step by step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.ir.graph import Value
from edgewright.runtime.jit.composites import real
from edgewright.runtime.jit.graph_builder import Maker, new
from edgewright.runtime.jit.registry import Args, taken
from edgewright.runtime.jit.typed_elementwise import finish
from edgewright.runtime.tensor import TensorSlot

_F32 = np.dtype(np.float32)
_Q = "quantized_decomposed::"
_EXACT = 1 << 24  # integers that single precision has


def _numbers(m: Maker, given: Any, shape: Sequence[int]) -> Any:
    """Parameters that the file holds, along a dimension or for all; None if they are not known."""
    held = m.constant(given) if isinstance(given, TensorSlot) else np.asarray(given)
    return None if held is None or held.size != math.prod(shape) else held.reshape(shape)


def _channels(x: TensorSlot, a: Args) -> tuple[int, ...] | None:
    """The shape that parameters are broadcast from."""
    if "axis" not in a:
        return ()
    rank = len(x.bound)
    if not rank or not -rank <= a["axis"] < rank:
        return None
    axis = a["axis"] % rank
    return (x.bound[axis], *(1,) * (rank - 1 - axis))


def _parameters(m: Maker, a: Args) -> tuple[Any, Any] | None:
    """Scales and zero points."""
    x, shape = a["input"], _channels(a["input"], a)
    if shape is None or not m.known(x) or m.constant(x) is not None:
        return None
    zero = a["zero_points"] if "zero_points" in a else a["zero_point"]
    scales = _numbers(m, a["scales"] if "scales" in a else a["scale"], shape)
    zeros = _numbers(m, 0 if zero is None else zero, shape) if zero is not None else np.zeros(shape)
    if scales is None or zeros is None or not np.all(np.abs(zeros) < _EXACT):
        return None
    return scales, zeros


def _single(array: Any) -> Value:
    data = np.ascontiguousarray(array).astype(np.float32).reshape(np.shape(array))
    return new(data.shape, data)


@taken(*(f"{_Q}quantize_per_{way}" for way in ("tensor.out", "tensor.Tensor_out", "channel.out")))
def _quantize(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, out, found = a["input"], outs[0], _parameters(m, a)
    low, high = a["quant_min"], a["quant_max"]
    if found is None or not m.usable(x) or not m.known(out) or max(abs(low), abs(high)) >= _EXACT or low > high:
        return False
    scales, zeros = found
    info = np.iinfo(out.dtype) if out.dtype.kind in "iu" else None
    if info is None or not info.min <= low <= high <= info.max or not np.all(scales):
        return False
    # One scale is inverted in double precision, one for each channel in single.
    inverse = np.float32(1.0 / float(scales)) if scales.ndim == 0 else 1 / scales.astype(np.float32)
    moved = real(m, "add", real(m, "round", real(m, "mul", m.planes(x), _single(inverse))), _single(zeros))
    bounded = real(m, "minimum", real(m, "maximum", moved, float(low)), float(high))
    lost = m.between("isnan", bounded.bound, {"self": bounded}, np.dtype(np.bool_))
    args = {"condition": lost, "self": _single(np.float32(low)), "other": bounded}
    m.add("cast", out, {"self": m.between("where", bounded.bound, args)})
    m.macs += 4 * math.prod(x.bound)
    return True


@taken(*(f"{_Q}dequantize_per_{way}" for way in ("tensor.out", "tensor.Tensor_out", "channel.out")))
def _dequantize(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, found = a["input"], _parameters(m, a)
    if found is None or not m.usable(*outs) or x.dtype.kind not in "iu" or x.bound != outs[0].bound:
        return False
    scales, zeros = found
    held = m.between("cast", x.bound, {"self": m.planes(x)}, _F32)
    centred = real(m, "sub", held, _single(zeros))
    return finish(m, "mul", outs[0], {"self": centred, "other": _single(scales)}, _F32)
