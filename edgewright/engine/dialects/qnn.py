"""QNN's operators on bytes as the engine's; others stay what they are: steps of the reference.

The engine rounds halves to even where the reference rounds them up, and adds in fixed point: results differ by a step
of the last place at most.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.engine.dialects.rewrite import Rewrite, Rules
from edgewright.ir.graph import Graph, Op, Value
from edgewright.ir.numerics import Numerics
from edgewright.ir.qnn.table import PREFIX

rule: Rules[Rewrite] = Rules(PREFIX)
_BINARY = {"ElementWiseAdd": "add", "ElementWiseSubtract": "sub", "ElementWiseMultiply": "mul"}


def translate(graph: Graph, numerics: Numerics) -> Graph:
    made = Rewrite(graph)
    for op in graph.ops:
        rule.apply(made, op)
    return made.finish()


def _byte(value: Value) -> bool:
    """Bytes with one scale."""
    q = value.q
    return q is not None and q.axis is None and str(q.dtype) in ("uint8", "int8") and value.dtype == q.dtype


def _real(value: Value) -> bool:
    return value.q is None and value.dtype == np.dtype(np.float32)


def _result(op: Op) -> Value:
    out = op.outputs[0]
    assert out is not None
    return out


def _ends(op: Op) -> tuple[list[Value], Value]:
    return op.args["inputs"], _result(op)


def _alike(a: Value, b: Value) -> bool:
    return a.q == b.q and a.dtype == b.dtype


def _limits(made: Rewrite, op: Op) -> tuple[dict[str, Any], Value]:
    """An activation that follows, in the same scale, only narrows the limits of what is stored."""
    out = _result(op)
    following = made.only_reader(out)
    if following is None or not _alike(out, _result(following)):
        return {}, out
    if following.kind == f"{PREFIX}Relu":
        ends = (0.0, float("inf"))
    elif following.kind == f"{PREFIX}ReluMinMax":
        ends = (float(following.args["min_value"]), float(following.args["max_value"]))
    else:
        return {}, out
    made.done.add(id(following))
    return {"limits": ends}, _result(following)


# ---------------------------------------------------------------------------------------------------------- products


def _filters(weight: Value, order: tuple[int, ...], channels: int) -> Value | None:
    """Constant weights in the engine's order, with their scales along ``channels``; None for any other kind."""
    q = weight.q
    if q is None or weight.data is None or q.dtype != np.dtype(np.int8) or np.any(np.asarray(q.zero_point)):
        return None
    if q.block is not None or (q.axis is not None and order[channels] != q.axis):
        return None
    data = np.ascontiguousarray(weight.data.transpose(order))
    q = q if q.axis is None else replace(q, axis=channels)
    return replace(weight, shape=data.shape, dim_order=tuple(range(data.ndim)), data=data, q=q)


def _bias(x: Value, weight: Value, given: list[Value]) -> Value | bool | None:
    """A bias in units of the accumulator; False if it is not."""
    if len(given) < 3:
        return None
    bias = given[2]
    if bias.q is None or bias.data is None or bias.dtype != np.dtype(np.int32):
        return False
    assert x.q is not None and weight.q is not None
    units = np.asarray(x.q.scale) * np.asarray(weight.q.scale)
    same = np.allclose(np.asarray(bias.q.scale), units, 1e-5, 0) and not np.any(np.asarray(bias.q.zero_point))
    return replace(bias, q=None) if same else False


@rule("Conv2d", "DepthWiseConv2d")
def _convolution(made: Rewrite, op: Op) -> bool:
    given, out = _ends(op)
    x, deep = given[0], op.kind.endswith("DepthWiseConv2d")
    if not _byte(x) or not _byte(out):
        return False
    weight = _filters(given[1], (2, 0, 1, 3) if deep else (3, 0, 1, 2), 3 if deep else 0)
    bias = False if weight is None else _bias(x, given[1], given)
    if weight is None or bias is False:
        return False
    limits, last = _limits(made, op)
    pads, groups = [n for pair in op.args["pad_amount"] for n in pair], x.bound[-1] if deep else op.args["group"]
    made.emit("depthwise_conv2d" if deep else "conv2d", op, last, input=x, weight=weight, bias=bias, groups=groups,
              stride=list(op.args["stride"]), padding=pads, dilation=list(op.args["dilation"]), **limits)  # fmt: skip
    return True


@rule("FullyConnected")
def _linear(made: Rewrite, op: Op) -> bool:
    given, out = _ends(op)
    if not _byte(given[0]) or not _byte(out):
        return False
    weight = _filters(given[1], (0, 1), 0)
    bias = False if weight is None else _bias(given[0], given[1], given)
    if weight is None or bias is False:
        return False
    limits, last = _limits(made, op)
    made.emit("linear", op, last, input=given[0], weight=weight, bias=bias, **limits)
    return True


# --------------------------------------------------------------------------------------------------- single elements


@rule(*_BINARY)
def _binary(made: Rewrite, op: Op) -> bool:
    (a, b), out = _ends(op)
    if not all(_byte(v) for v in (a, b, out)):
        return False
    limits, last = _limits(made, op)
    made.emit(_BINARY[op.kind.removeprefix(PREFIX)], op, last, self=a, other=b, **limits)
    return True


@rule("Quantize", "Dequantize", "Convert")
def _convert(made: Rewrite, op: Op) -> bool:
    (x,), out = _ends(op)
    if not (_byte(x) or _real(x)) or not (_byte(out) or _real(out)):
        return False
    made.emit("convert", op, out, self=x)
    return True


# ------------------------------------------------------------------------------------------------------------- moves


def _moved(made: Rewrite, op: Op, x: Value) -> Value | None:
    """What is moved, in the result's scale; None if the engine cannot have it so."""
    out = _result(op)
    if _alike(x, out):
        return x if _byte(x) or _real(x) else None
    if not _byte(x) or not _byte(out):
        return None
    changed = replace(x, name=f"{x.name}_", dtype=out.dtype, q=out.q, data=None)
    made.emit("convert", op, changed, self=x)
    return changed


@rule("Reshape")
def _reshape(made: Rewrite, op: Op) -> bool:
    x = _moved(made, op, op.args["inputs"][0])
    if x is None:
        return False
    made.emit("view", op, _result(op), self=x, size=list(_result(op).bound))
    return True


@rule("Transpose")
def _transpose(made: Rewrite, op: Op) -> bool:
    x = _moved(made, op, op.args["inputs"][0])
    if x is None:
        return False
    made.emit("permute", op, _result(op), self=x, dims=list(op.args["perm"]))
    return True


@rule("Concat")
def _concat(made: Rewrite, op: Op) -> bool:
    given, out = _ends(op)
    if not _byte(out) or not all(_byte(v) for v in given):
        return False
    made.emit("cat", op, out, tensors=[_moved(made, op, v) for v in given], dim=op.args["axis"])
    return True


@rule("StridedSlice")
def _slice(made: Rewrite, op: Op) -> bool:
    out, ranges = _result(op), op.args["ranges"]
    plain = not any(op.args[name] for name in ("begin_mask", "end_mask", "shrink_axes"))
    x = op.args["inputs"][0]
    if not plain or any(step != 1 for _, _, step in ranges) or not _alike(x, out) or not (_byte(x) or _real(x)):
        return False
    made.emit("slice", op, out, self=x, start=[begin for begin, _, _ in ranges], length=list(out.bound))
    return True


# ------------------------------------------------------------------------------------------------------------ images


@rule("PoolMax2d")
def _max_pool(made: Rewrite, op: Op) -> bool:
    (x,), out = _ends(op)
    if not _byte(x) or not _alike(x, out):
        return False
    pads = [list(pair) for pair in op.args["pad_amount"]]
    for i, pair in enumerate(pads):  # a last window that hangs over the edge meets nothing there
        window, stride = op.args["filter_size"][i], op.args["stride"][i]
        pair[1] = max(pair[1], (out.bound[1 + i] - 1) * stride + window - x.bound[1 + i] - pair[0])
    made.emit("max_pool2d", op, out, self=x, kernel_size=list(op.args["filter_size"]), stride=list(op.args["stride"]),
              padding=[n for pair in pads for n in pair], dilation=[1, 1])  # fmt: skip
    return True


@rule("PoolAvg2d", "ReduceMean")
def _average(made: Rewrite, op: Op) -> bool:
    """Of whole images."""
    (x,), out = _ends(op)
    if not _byte(x) or not _byte(out) or len(x.bound) != 4 or out.bound != (x.bound[0], 1, 1, x.bound[3]):
        return False
    over = list(op.args["axes"]) == [1, 2] if "axes" in op.args else tuple(op.args["filter_size"]) == x.bound[1:3]
    if not over:
        return False
    made.emit("global_avg_pool2d", op, out, self=x)
    return True


@rule("ResizeBilinear")
def _bilinear(made: Rewrite, op: Op) -> bool:
    (x,), out = _ends(op)
    corners = bool(op.args["align_corners"])
    if not _byte(x) or not _byte(out) or (not corners and not op.args["half_pixel_centers"]):
        return False
    made.emit("upsample_bilinear2d", op, out, input=x, output_size=list(out.bound[1:3]), align_corners=corners)
    return True
