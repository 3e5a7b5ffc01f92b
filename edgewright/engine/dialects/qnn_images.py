"""QNN's pools, resizing and reductions as the engine's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgewright.engine.dialects.qnn_rewrite import (
    DEQUANTIZE,
    QUANTIZE,
    SINGLE,
    QnnRewrite,
    alike,
    byte,
    ends,
    real,
    rule,
    some,
    whole,
    word,
)  # fmt: skip
from edgewright.ir.graph import Op, Value


@rule("PoolMax2d")
def _max_pool(made: QnnRewrite, op: Op) -> bool:
    (x,), out = ends(op)
    if not alike(x, out) or not some(x, out) or not (whole(x) or real(x)):
        return False
    pads = [list(pair) for pair in op.args["pad_amount"]]
    for i, pair in enumerate(pads):  # a last window that hangs over the edge meets nothing there
        window, stride = op.args["filter_size"][i], op.args["stride"][i]
        pair[1] = max(pair[1], (out.bound[1 + i] - 1) * stride + window - x.bound[1 + i] - pair[0])
    if word(x):
        return _largest_word(made, op, x, out, pads)
    args = {"kernel_size": list(op.args["filter_size"]), "stride": list(op.args["stride"]), "dilation": [1, 1]}
    emit, given = (made.emit, x) if byte(x) else (made.exact, made.half(op, x))
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
    (x,), out = ends(op)
    image = len(x.bound) == 4 and out.bound == (x.bound[0], 1, 1, x.bound[3]) and some(x)
    over = list(op.args["axes"]) == [1, 2] if "axes" in op.args else tuple(op.args["filter_size"]) == x.bound[1:3]
    if not image or not over or any(n for pair in op.args.get("pad_amount", ()) for n in pair):
        return _pooled(made, op) if "axes" not in op.args else _reduced(made, op)
    if byte(x) and byte(out):
        made.emit("global_avg_pool2d", op, out, self=x)
    elif real(x, out):
        made.computed("global_avg_pool2d", op, out, self=made.half(op, x))
    else:
        return False
    return True


def _pooled(made: QnnRewrite, op: Op) -> bool:
    """Real numbers; padding that counts is made first: the engine's own does not."""
    (x,), out = ends(op)
    if not real(x, out) or not some(x, out):
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
    (x,), out = ends(op)
    if not real(x, out) or not some(x, out) or x.constant:
        return False
    kind = _REDUCED[op.kind.partition(".")[2]]
    args = {"self": made.half(op, x), "dim": list(op.args["axes"]), "keepdim": bool(op.args["keep_dims"])}
    (made.exact if kind in ("amax", "amin") else made.computed)(kind, op, out, **args)
    return True


@rule("ResizeBilinear")
def _bilinear(made: QnnRewrite, op: Op) -> bool:
    (x,), out = ends(op)
    corners = bool(op.args["align_corners"])
    if not some(x, out) or (not corners and not op.args["half_pixel_centers"]):
        return False
    args = {"output_size": list(out.bound[1:3]), "align_corners": corners}
    if byte(x) and byte(out):
        made.emit("upsample_bilinear2d", op, out, input=x, **args)
    elif real(x, out):
        made.computed("upsample_bilinear2d", op, out, input=made.half(op, x), **args)
    elif whole(x, out):
        single = replace(x, q=None, dtype=SINGLE)
        given = made.then(DEQUANTIZE, op, single, x.bound, inputs=[x])
        larger = made.then("upsample_bilinear2d", op, single, out.bound, input=given, **args)
        made.emit(QUANTIZE, op, out, inputs=[larger])
    else:
        return False
    return True
