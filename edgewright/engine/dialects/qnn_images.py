"""QNN's pools, resizing and reductions as the engine's."""

from __future__ import annotations

from edgewright.engine.dialects.qnn_rewrite import QnnRewrite, alike, byte, ends, rule, some
from edgewright.ir.graph import Op


@rule("PoolMax2d")
def _max_pool(made: QnnRewrite, op: Op) -> bool:
    (x,), out = ends(op)
    if not byte(x) or not alike(x, out) or not some(x, out):
        return False
    pads = [list(pair) for pair in op.args["pad_amount"]]
    for i, pair in enumerate(pads):  # a last window that hangs over the edge meets nothing there
        window, stride = op.args["filter_size"][i], op.args["stride"][i]
        pair[1] = max(pair[1], (out.bound[1 + i] - 1) * stride + window - x.bound[1 + i] - pair[0])
    made.emit("max_pool2d", op, out, self=x, kernel_size=list(op.args["filter_size"]), stride=list(op.args["stride"]),
              padding=[n for pair in pads for n in pair], dilation=[1, 1])  # fmt: skip
    return True


@rule("PoolAvg2d", "ReduceMean")
def _average(made: QnnRewrite, op: Op) -> bool:
    """Of whole images."""
    (x,), out = ends(op)
    if not byte(x) or not byte(out) or len(x.bound) != 4 or out.bound != (x.bound[0], 1, 1, x.bound[3]):
        return False
    over = list(op.args["axes"]) == [1, 2] if "axes" in op.args else tuple(op.args["filter_size"]) == x.bound[1:3]
    if not over or any(n for pair in op.args.get("pad_amount", ()) for n in pair):
        return False
    made.emit("global_avg_pool2d", op, out, self=x)
    return True


@rule("ResizeBilinear")
def _bilinear(made: QnnRewrite, op: Op) -> bool:
    (x,), out = ends(op)
    corners = bool(op.args["align_corners"])
    if not byte(x) or not byte(out) or (not corners and not op.args["half_pixel_centers"]):
        return False
    made.emit("upsample_bilinear2d", op, out, input=x, output_size=list(out.bound[1:3]), align_corners=corners)
    return True
