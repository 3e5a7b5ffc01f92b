"""QNN's pools, resizing and reductions as the engine's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgewright.engine.dialects.qnn_rewrite import (
    DEQUANTIZE,
    FLOAT32,
    QUANTIZE,
    QnnRewrite,
    io_of,
    is_float32,
    is_int8,
    is_int16,
    is_quantized,
    make_constant,
    non_empty,
    rule,
    same_type,
)  # fmt: skip
from edgewright.ir.graph import Op, QParams, Value
from edgewright.ir.numerics import as_float32
from edgewright.ir.qnn.image import resize_axes, resize_taps


@rule("PoolMax2d")
def _max_pool(made: QnnRewrite, op: Op) -> bool:
    (x,), out = io_of(op)
    if not same_type(x, out) or not non_empty(x, out) or not (is_quantized(x) or is_float32(x)):
        return False
    pads = [list(pair) for pair in op.args["pad_amount"]]
    for i, pair in enumerate(pads):  # a last window that hangs over the edge meets nothing there
        window, stride = op.args["filter_size"][i], op.args["stride"][i]
        pair[1] = max(pair[1], (out.bound[1 + i] - 1) * stride + window - x.bound[1 + i] - pair[0])
    if is_int16(x):
        return _largest_word(made, op, x, out, pads)
    args = {"kernel_size": list(op.args["filter_size"]), "stride": list(op.args["stride"]), "dilation": [1, 1]}
    emit, given = (made.emit, x) if is_int8(x) else (made.exact, made.half(op, x))
    emit("max_pool2d", op, out, self=given, padding=[n for pair in pads for n in pair], **args)
    return True


def _largest_word(made: QnnRewrite, op: Op, x: Value, out: Value, pads: list[list[int]]) -> bool:
    """Padding holds the least there is."""
    assert x.q is not None
    least = (x.q.qmin - int(np.asarray(x.q.zero_point))) * float(np.float32(np.asarray(x.q.scale)))
    around = [(0, 0), *((int(a), int(b)) for a, b in pads), (0, 0)]
    none = [[0, 0], [0, 0]]
    made.emit(op.kind, op, out, **{**op.args, "inputs": [made.padded(op, x, around, least)], "pad_amount": none})
    return True


@rule("PoolAvg2d", "ReduceMean")
def _average(made: QnnRewrite, op: Op) -> bool:
    """Of whole images."""
    (x,), out = io_of(op)
    image = len(x.bound) == 4 and out.bound == (x.bound[0], 1, 1, x.bound[3]) and non_empty(x)
    over = list(op.args["axes"]) == [1, 2] if "axes" in op.args else tuple(op.args["filter_size"]) == x.bound[1:3]
    if not image or not over or any(n for pair in op.args.get("pad_amount", ()) for n in pair):
        return _pooled(made, op) if "axes" not in op.args else _reduced(made, op)
    if is_int8(x) and is_int8(out):
        made.emit("global_avg_pool2d", op, out, self=x)
    elif is_float32(x, out):
        made.computed("global_avg_pool2d", op, out, self=made.half(op, x))
    else:
        return False
    return True


def _pooled(made: QnnRewrite, op: Op) -> bool:
    """Real numbers; padding that counts is made first: the engine's own does not."""
    (x,), out = io_of(op)
    if not is_float32(x, out) or not non_empty(x, out):
        return False
    sizes, steps = ([int(n) for n in op.args[name]] for name in ("filter_size", "stride"))
    pads = [[int(a), int(b)] for a, b in op.args["pad_amount"]]
    for i, pair in enumerate(pads):
        pair[1] = max(
            pair[1] if pair[0] else 0, (out.bound[1 + i] - 1) * steps[i] + sizes[i] - x.bound[1 + i] - pair[0], 0
        )
    given = made.half(op, x)
    if op.args["count_pad_for_edges"]:
        given = made.padded(op, given, [(0, 0), *((a, b) for a, b in pads), (0, 0)])
        pads = [[0, 0], [0, 0]]
    made.computed("avg_pool2d", op, out, self=given, kernel_size=sizes, stride=steps,
                  padding=[n for pair in pads for n in pair])  # fmt: skip
    return True


_REDUCED = {"ReduceMean": "mean", "ReduceSum": "sum", "ReduceMax": "amax", "ReduceMin": "amin"}


@rule("ReduceSum", "ReduceMax", "ReduceMin")
def _reduced(made: QnnRewrite, op: Op) -> bool:
    """Of real numbers: those of integers have folds of their own."""
    (x,), out = io_of(op)
    if not is_float32(x, out) or not non_empty(x, out) or x.constant:
        return False
    kind = _REDUCED[op.kind.partition(".")[2]]
    args = {"self": made.half(op, x), "dim": list(op.args["axes"]), "keepdim": bool(op.args["keep_dims"])}
    (made.exact if kind in ("amax", "amin") else made.computed)(kind, op, out, **args)
    return True


@rule("ResizeBilinear")
def _bilinear(made: QnnRewrite, op: Op) -> bool:
    (x,), out = io_of(op)
    corners = bool(op.args["align_corners"])
    if not non_empty(x, out) or (not corners and not op.args["half_pixel_centers"]):
        return False
    args = {"output_size": list(out.bound[1:3]), "align_corners": corners}
    if is_int8(x) and is_int8(out):
        made.emit("upsample_bilinear2d", op, out, input=x, **args)
    elif is_float32(x, out):
        made.computed("upsample_bilinear2d", op, out, input=made.half(op, x), **args)
    elif is_quantized(x, out):
        like = replace(x, q=None, dtype=FLOAT32)
        given = made.then(DEQUANTIZE, op, like, x.bound, inputs=[x])
        larger = made.then("upsample_bilinear2d", op, like, out.bound, input=given, **args)
        made.emit(QUANTIZE, op, out, inputs=[larger])
    else:
        return False
    return True


@rule("Resize")
def _resize(made: QnnRewrite, op: Op) -> bool:
    """Elements by weights, tap by tap, along one side and then the other."""
    (x,), out = io_of(op)
    if not non_empty(x, out) or x.constant or len(x.bound) != 4 or not (is_quantized(x, out) or is_float32(x, out)):
        return False
    like = replace(x, q=None, dtype=FLOAT32)
    held = made.half(op, x) if is_float32(x) else made.then(DEQUANTIZE, op, like, x.bound, inputs=[x])
    for axis in resize_axes(x.bound, out.bound):
        total: Value | None = None
        shape = [out.bound[axis] if d == axis else n for d, n in enumerate(held.bound)]
        for elements, weight in resize_taps(op.args, held.bound[axis], out.bound[axis]):
            index = make_constant("places", elements)
            picked = made.then("index_select", op, like, shape, self=held, dim=axis, index=index)
            by = make_constant("weights", weight.reshape(-1, *(1,) * (3 - axis)))
            part = made.then("mul", op, like, shape, self=picked, other=by)
            total = part if total is None else made.then("add", op, like, shape, self=total, other=part)
        assert total is not None
        held = total
    if is_float32(x):
        made.computed("clone", op, out, self=held)
    else:
        made.emit(QUANTIZE, op, out, inputs=[held])
    return True


@rule("CumulativeSum")
def _running(made: QnnRewrite, op: Op) -> bool:
    (x,), out = io_of(op)
    axis, backwards = int(op.args["axis"]), bool(op.args["reverse"])
    given = made.half(op, x) if is_float32(x, out) else made.bare(op, x) if is_quantized(x, out) else None
    if given is None or given.constant or not non_empty(x) or not x.bound or op.args["exclusive"]:
        return False
    places = make_constant("places", np.arange(x.bound[axis], dtype=np.int64)[::-1].copy())
    if x.q is not None:
        wide = replace(given, dtype=np.dtype(np.int64))
        given = made.then("cast", op, wide, x.bound, self=given)
        zero = make_constant("zero", np.asarray([int(np.asarray(x.q.zero_point))], np.int64))
        given = made.then("sub", op, wide, x.bound, self=given, other=zero)
    if backwards:
        given = made.then("index_select", op, given, x.bound, self=given, dim=axis, index=places)
    total = made.then("cumsum", op, given, x.bound, self=given, dim=axis)
    if backwards:
        total = made.then("index_select", op, total, x.bound, self=total, dim=axis, index=places)
    if x.q is None:
        made.computed("clone", op, out, self=total)
    else:
        _in_steps(made, op, total, x.q, out)
    return True


def _in_steps(made: QnnRewrite, op: Op, total: Value, q: QParams, out: Value) -> None:
    """Whole numbers in the operand's steps, brought to the result's in single precision."""
    assert out.q is not None
    single_ = replace(total, dtype=FLOAT32)
    factor = make_constant("factor", np.asarray([as_float32(q.scale) / as_float32(out.q.scale)], np.float32))
    real_ = made.then("cast", op, single_, out.bound, self=total)
    scaled = made.then("mul", op, single_, out.bound, self=real_, other=factor)
    steps = made.then(QUANTIZE, op, replace(out, q=replace(out.q, scale=1.0)), out.bound, inputs=[scaled])
    made.finish_as(op, steps, out)
