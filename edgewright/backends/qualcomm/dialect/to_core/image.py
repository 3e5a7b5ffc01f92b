"""Translation of QNN's pooling, resize, grid sampling, reductions and cumulative sum to core operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.backends.qualcomm.dialect.dtypes import to_float
from edgewright.backends.qualcomm.dialect.to_core.move import movable_input
from edgewright.backends.qualcomm.dialect.to_core.rewrite import (
    DEQUANTIZE,
    FLOAT32,
    QUANTIZE,
    QnnRewrite,
    element_count,
    io_of,
    is_float32,
    is_int8,
    is_quantized,
    make_constant,
    non_empty,
    rule,
)  # fmt: skip
from edgewright.engine.graph.grid_sample import Sampling, lower_grid_sample
from edgewright.ir.aten.reference.dims import cheaper_first
from edgewright.ir.aten.reference.resample import cubic
from edgewright.ir.graph import Array, Op, QParams, Value
from edgewright.ir.int_rules import dtype_range
from edgewright.ir.numerics import as_float32


@rule("PoolMax2d")
def _max_pool(rw: QnnRewrite, op: Op) -> bool:
    (source,), out = io_of(op)
    x = movable_input(rw, op, source)
    if x is None:
        return False
    pads = [list(pair) for pair in op.args["pad_amount"]]
    for i, pair in enumerate(pads):  # extend the padding for a last window beyond the edge
        window, stride = op.args["filter_size"][i], op.args["stride"][i]
        pair[1] = max(pair[1], (out.bound[1 + i] - 1) * stride + window - x.bound[1 + i] - pair[0])
    if not is_int8(x) and not is_float32(x):
        return _int_max_pool(rw, op, x, out, pads)
    args = {"kernel_size": list(op.args["filter_size"]), "stride": list(op.args["stride"]), "dilation": [1, 1]}
    emit, operand = (rw.emit, x) if is_int8(x) else (rw.emit_exact, rw.round_half(op, x))
    emit("core.max_pool2d", op, out, self=operand, padding=[n for pair in pads for n in pair], **args)
    return True


def _int_max_pool(rw: QnnRewrite, op: Op, x: Value, out: Value, pads: list[list[int]]) -> bool:
    """Of 16 bits or int32: pad with the smallest representable value."""
    if x.q is None:
        minimum = float(dtype_range(x)[0])
    else:
        minimum = (x.q.qmin - int(np.asarray(x.q.zero_point))) * float(np.float32(np.asarray(x.q.scale)))
    padding = [(0, 0), *((int(a), int(b)) for a, b in pads), (0, 0)]
    no_padding = [[0, 0], [0, 0]]
    rw.emit(op.kind, op, out, **{**op.args, "inputs": [rw.pad(op, x, padding, minimum)], "pad_amount": no_padding})
    return True


@rule("PoolAvg2d", "ReduceMean")
def _average(rw: QnnRewrite, op: Op) -> bool:
    """Global averages; other windows and axes are dispatched."""
    (x,), out = io_of(op)
    image = len(x.bound) == 4 and out.bound == (x.bound[0], 1, 1, x.bound[3]) and non_empty(x)
    is_global = list(op.args["axes"]) == [1, 2] if "axes" in op.args else tuple(op.args["filter_size"]) == x.bound[1:3]
    if not image or not is_global or any(n for pair in op.args.get("pad_amount", ()) for n in pair):
        return _float_avg_pool(rw, op) if "axes" not in op.args else _float_reduce(rw, op)
    if is_int8(x) and is_int8(out):
        rw.emit("core.global_avg_pool2d", op, out, self=x)
    elif is_float32(x, out):
        rw.emit_rounded("core.global_avg_pool2d", op, out, self=rw.round_half(op, x))
    else:
        return False
    return True


def _float_avg_pool(rw: QnnRewrite, op: Op) -> bool:
    """Padding that counts toward the average is materialized; the core operator excludes padding."""
    (x,), out = io_of(op)
    if not is_float32(x, out) or not non_empty(x, out):
        return False
    sizes, steps = ([int(n) for n in op.args[name]] for name in ("filter_size", "stride"))
    pads = [[int(a), int(b)] for a, b in op.args["pad_amount"]]
    for i, pair in enumerate(pads):
        pair[1] = max(
            pair[1] if pair[0] else 0, (out.bound[1 + i] - 1) * steps[i] + sizes[i] - x.bound[1 + i] - pair[0], 0
        )
    operand = rw.round_half(op, x)
    if op.args["count_pad_for_edges"]:
        operand = rw.pad(op, operand, [(0, 0), *((a, b) for a, b in pads), (0, 0)])
        pads = [[0, 0], [0, 0]]
    rw.emit_rounded("core.avg_pool2d", op, out, self=operand, kernel_size=sizes, stride=steps,
                  padding=[n for pair in pads for n in pair])  # fmt: skip
    return True


_REDUCTIONS = {"ReduceMean": "core.mean", "ReduceSum": "core.sum", "ReduceMax": "core.amax", "ReduceMin": "core.amin"}


@rule("ReduceSum", "ReduceMax", "ReduceMin")
def _float_reduce(rw: QnnRewrite, op: Op) -> bool:
    """Float reductions; integer ones have exact lowerings."""
    (x,), out = io_of(op)
    if not is_float32(x, out) or not non_empty(x, out):
        return False
    kind = _REDUCTIONS[op.kind.partition(".")[2]]
    args = {"self": rw.round_half(op, x), "dim": list(op.args["axes"]), "keepdim": bool(op.args["keep_dims"])}
    (rw.emit_exact if kind in ("core.amax", "core.amin") else rw.emit_rounded)(kind, op, out, **args)
    return True


@rule("ResizeBilinear")
def _bilinear(rw: QnnRewrite, op: Op) -> bool:
    (x,), out = io_of(op)
    corners = bool(op.args["align_corners"])
    if not non_empty(x, out):
        return False
    args = {"output_size": list(out.bound[1:3]), "align_corners": corners}
    if is_int8(x) and is_int8(out):
        rw.emit("core.upsample_bilinear2d", op, out, input=x, **args)
    elif is_float32(x, out):
        rw.emit_rounded("core.upsample_bilinear2d", op, out, input=rw.round_half(op, x), **args)
    elif is_quantized(x, out):
        like = replace(x, q=None, dtype=FLOAT32)
        floats = rw.emit_temporary(DEQUANTIZE, op, like, x.bound, inputs=[x])
        resized = rw.emit_temporary("core.upsample_bilinear2d", op, like, out.bound, input=floats, **args)
        rw.emit(QUANTIZE, op, out, inputs=[resized])
    else:
        return False
    return True


_BICUBIC, _CORNERS = 2, 2  # codes of modes


def _resize_taps(params: Mapping[str, Any], size: int, count: int) -> list[tuple[Array, Array]]:
    """Source indices and weights of each filter tap along one dimension."""
    corners = params["transformation_mode"] == _CORNERS
    ratio = ((size - 1) / (count - 1) if count > 1 else 0.0) if corners else size / count
    positions, step, middle = np.arange(count, dtype=np.float32), np.float32(ratio), np.float32(0.5)
    at = positions * step if corners else (positions + middle) * step - middle
    if params["interpolation_mode"] == _BICUBIC:
        return [(_clamp_index(index, size), weight.astype(np.float32)) for index, weight in cubic(at)]
    lower = _clamp_index(np.maximum(at, 0), size)
    part = np.clip(np.maximum(at, 0) - lower, 0, 1).astype(np.float32)
    return [(lower, np.float32(1) - part), (np.minimum(lower + 1, size - 1), part)]


def _clamp_index(index: Array, size: int) -> Array:
    return np.clip(np.nan_to_num(index), 0, size - 1).astype(np.int64)


def _resize_axes(sizes: Sequence[int], output_sizes: Sequence[int]) -> list[int]:
    """Order in which the dimensions are resized: the cheaper one first."""
    return [3 + dim for dim in cheaper_first(tuple(sizes[1:3]), tuple(output_sizes[1:3]))]


@rule("Resize")
def _resize(rw: QnnRewrite, op: Op) -> bool:
    """Weighted sums tap by tap, one axis at a time."""
    (x,), out = io_of(op)
    if not non_empty(x, out) or len(x.bound) != 4 or not (is_quantized(x, out) or is_float32(x, out)):
        return False
    like = replace(x, q=None, dtype=FLOAT32)
    current = rw.round_half(op, x) if is_float32(x) else rw.emit_temporary(DEQUANTIZE, op, like, x.bound, inputs=[x])
    for axis in _resize_axes(x.bound, out.bound):
        total: Value | None = None
        shape = [out.bound[axis] if d == axis else n for d, n in enumerate(current.bound)]
        for elements, weight in _resize_taps(op.args, current.bound[axis], out.bound[axis]):
            index = make_constant("places", elements)
            taps = rw.emit_temporary("core.index_select", op, like, shape, self=current, dim=axis, index=index)
            weights = make_constant("weights", weight.reshape(-1, *(1,) * (3 - axis)))
            term = rw.emit_temporary("core.mul", op, like, shape, self=taps, other=weights)
            total = term if total is None else rw.emit_temporary("core.add", op, like, shape, self=total, other=term)
        assert total is not None
        current = total
    if is_float32(x):
        rw.emit_rounded("core.clone", op, out, self=current)
    else:
        rw.emit(QUANTIZE, op, out, inputs=[current])
    return True


@rule("CumulativeSum")
def _cumsum(rw: QnnRewrite, op: Op) -> bool:
    (x,), out = io_of(op)
    axis, reverse = int(op.args["axis"]), bool(op.args["reverse"])
    operand = rw.round_half(op, x) if is_float32(x, out) else rw.strip_qparams(op, x) if is_quantized(x, out) else None
    if operand is None or not non_empty(x):
        return False
    reversed_index = make_constant("places", np.arange(x.bound[axis], dtype=np.int64)[::-1].copy())
    if x.q is not None:
        int64_value = replace(operand, dtype=np.dtype(np.int64))
        operand = rw.emit_temporary("core.cast", op, int64_value, x.bound, self=operand)
        zero = make_constant("zero", np.asarray([int(np.asarray(x.q.zero_point))], np.int64))
        operand = rw.emit_temporary("core.sub", op, int64_value, x.bound, self=operand, other=zero)
    if reverse:
        operand = rw.emit_temporary(
            "core.index_select", op, operand, x.bound, self=operand, dim=axis, index=reversed_index
        )
    total = rw.emit_temporary("core.cumsum", op, operand, x.bound, self=operand, dim=axis)
    if op.args["exclusive"]:
        total = rw.emit_temporary("core.sub", op, operand, x.bound, self=total, other=operand)
    if reverse:
        total = rw.emit_temporary("core.index_select", op, total, x.bound, self=total, dim=axis, index=reversed_index)
    if x.q is None:
        rw.emit_rounded("core.clone", op, out, self=total)
    else:
        _requantize_sum(rw, op, total, x.q, out)
    return True


def _requantize_sum(rw: QnnRewrite, op: Op, total: Value, q: QParams, out: Value) -> None:
    """Convert integer sums from the operand's scale to the result's, in float32."""
    assert out.q is not None
    float_value = replace(total, dtype=FLOAT32)
    factor = make_constant("factor", np.asarray([as_float32(q.scale) / as_float32(out.q.scale)], np.float32))
    floats = rw.emit_temporary("core.cast", op, float_value, out.bound, self=total)
    scaled = rw.emit_temporary("core.mul", op, float_value, out.bound, self=floats, other=factor)
    quantized = rw.emit_temporary(QUANTIZE, op, replace(out, q=replace(out.q, scale=1.0)), out.bound, inputs=[scaled])
    rw.emit_reshape(op, quantized, out)


@rule("GridSample")
def _grid_sample(rw: QnnRewrite, op: Op) -> bool:
    (x, grid), out = io_of(op)
    if not non_empty(x, grid, out) or not all(is_float32(v) or is_quantized(v) for v in (x, grid, out)):
        return False
    batch, *sizes, channels = x.bound
    pixels = rw.reshape(op, _float_operand(rw, op, x), (element_count(x.bound) // channels, channels))
    points = rw.reshape(op, _float_operand(rw, op, grid), (element_count(grid.bound) // len(sizes), len(sizes)))
    sampling = Sampling(int(op.args["mode"]), int(op.args["padding_mode"]), bool(op.args["align_corners"]))

    def make(kind: str, shape: Sequence[int], args: dict[str, Any], dtype: Any) -> Value:
        return rw.emit_temporary(kind, op, replace(pixels, dtype=dtype), shape, **args)

    sampled = rw.reshape(op, lower_grid_sample(make, pixels, points, batch, sizes, sampling), out.bound)
    if is_float32(out):
        rw.emit_rounded("core.clone", op, out, self=sampled)
    else:
        rw.emit(QUANTIZE, op, out, inputs=[sampled])
    return True


def _float_operand(rw: QnnRewrite, op: Op, x: Value) -> Value:
    """The float32 values of a tensor; float tensors are rounded to fp16."""
    if x.data is not None:
        return make_constant("numbers", to_float(x, x.data))
    if is_float32(x):
        return rw.round_half(op, x)
    return rw.emit_temporary(DEQUANTIZE, op, replace(x, q=None, dtype=FLOAT32), x.bound, inputs=[x])
