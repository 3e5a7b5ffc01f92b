"""ENN's operators as the engine's.

ENN's images are NCHW, the engine's channels-last: between operators that the engine has, images stay as it wants them,
and are turned where anything else reads them. What the engine has no way for stays what it is, a step of the reference.

Integers are what the reference makes of them, bit for bit. Real numbers are rounded to half precision where it rounds
them; sums before that are in the engine's order.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.engine.dialects.elements import ELEMENTS, TABULAR
from edgewright.engine.dialects.enn_rewrite import PIXELS, PLANES, EnnRewrite, byte, real, some
from edgewright.engine.dialects.rewrite import Rules
from edgewright.ir.enn.numbers import half, inputs_of, result_of
from edgewright.ir.enn.products import LIMITS
from edgewright.ir.enn.scaling import RealScaling, real_scaling
from edgewright.ir.enn.table import PREFIX
from edgewright.ir.graph import Graph, Op, Value
from edgewright.ir.numerics import Numerics

rule: Rules[EnnRewrite] = Rules(PREFIX)
_SUMS = {"ELTSUM": "add", "SUB": "sub", "ELTMUL": "mul"}
_FREE = (float("-inf"), float("inf"))


def translate(graph: Graph, numerics: Numerics) -> Graph:
    made = EnnRewrite(graph)
    for op in graph.ops:
        rule.apply(made, op, _elements if op.kind in ELEMENTS or op.kind in TABULAR else None)
    for value in graph.outputs:
        made.planes(value)
    return made.finish()


def _pair(op: Op, name: str) -> list[int]:
    return [int(op.args[f"{name}_{side}"]) for side in "hw"]


def _pads(op: Op) -> list[int]:
    """Above, below, left, right."""
    top, left, bottom, right = (int(n) for n in op.args["explicit_padding"])
    return [top, bottom, left, right]


# ---------------------------------------------------------------------------------------------------------- products


def _scaling(op: Op) -> RealScaling | None:
    """How sums become bytes; None if operands are none that the engine has a product for."""
    (x, w), rest, out = inputs_of(op)[:2], inputs_of(op)[2:], result_of(op)
    if not byte(x) or not byte(out) or w.data is None or w.q is None or not some(x, w, out):
        return None
    if w.dtype != np.dtype(np.int8) or np.any(np.asarray(w.q.zero_point)) or any(b.data is None for b in rest):
        return None
    if any(b.data.dtype.kind != "f" for b in rest if b.data is not None):
        return None
    limits = LIMITS[op.args["activation"]] if "activation" in op.args else _FREE
    made = real_scaling(x, w, rest[0] if rest else None, out, limits)
    return made if made.possible and made.low <= made.high else None


def _how(made: EnnRewrite, op: Op, image: bool) -> tuple[Value, dict[str, Any]] | None:
    """What a product reads, and how its sums are brought to the result; None if the engine has no such product."""
    x, scaling = inputs_of(op)[0], _scaling(op)
    if scaling is not None:
        return made.image(x) if image else made.planes(x), {"bias": None, "scaling": scaling}
    (w, *rest), out = inputs_of(op)[1:], result_of(op)
    if not all(real(v) for v in (x, w, *rest, out)) or any(v.data is None for v in (w, *rest)) or not some(x, w, out):
        return None
    bias = replace(rest[0], data=half(np.asarray(rest[0].data))) if rest else None
    return made.half(op, made.image(x) if image else made.planes(x)), {"bias": bias, "limits": _limits(op)}


def _limits(op: Op) -> tuple[float, float] | None:
    return LIMITS[op.args["activation"]] if "activation" in op.args else None


def _filters(weight: Value, order: tuple[int, ...], channels: int) -> Value:
    assert weight.data is not None
    data = np.ascontiguousarray((half(weight.data) if weight.q is None else weight.data).transpose(order))
    q = weight.q if weight.q is None or weight.q.axis is None else replace(weight.q, axis=channels)
    return replace(weight, shape=data.shape, dim_order=tuple(range(data.ndim)), data=data, q=q)


@rule("CONV2D", "DWCONV2D")
def _convolution(made: EnnRewrite, op: Op) -> bool:
    (x, w), out, how = inputs_of(op)[:2], result_of(op), _how(made, op, True)
    if how is None:
        return False
    groups = int(op.args["groups"])
    deep = groups > 1 and groups == x.bound[1]
    weight = _filters(w, (1, 2, 3, 0), 3) if deep else _filters(w, (0, 2, 3, 1), 0)
    made.made("depthwise_conv2d" if deep else "conv2d", op, out, input=how[0], weight=weight,
              stride=_pair(op, "stride"), padding=_pads(op), dilation=_pair(op, "dilation"), groups=groups,
              **how[1])  # fmt: skip
    return True


@rule("DECONV2D")
def _transposed(made: EnnRewrite, op: Op) -> bool:
    (x, w), out, scaling = inputs_of(op)[:2], result_of(op), _scaling(op)
    if scaling is None or int(op.args["groups"]) != 1 or _pair(op, "dilation") != [1, 1]:
        return False
    made.made("conv_transpose2d", op, out, input=made.image(x), weight=_filters(w, (0, 2, 3, 1), 0), bias=None,
              stride=_pair(op, "stride"), padding=_pads(op), dilation=[1, 1], groups=1, output_padding=[0, 0],
              scaling=scaling)  # fmt: skip
    return True


@rule("FC")
def _linear(made: EnnRewrite, op: Op) -> bool:
    x, w = inputs_of(op)[:2]
    how = _how(made, op, False) if len(x.bound) > 1 else None
    if how is None:
        return False
    made.flat("linear", op, result_of(op), input=how[0], weight=_filters(w, (0, 1), 0), **how[1])
    return True


# --------------------------------------------------------------------------------------------------- single elements


def _elements(made: EnnRewrite, op: Op) -> bool:
    """The operator as it is, on images channels-last where one of them is there only so."""
    given, out = inputs_of(op), result_of(op)
    name = op.kind.removeprefix(PREFIX)
    if name in _SUMS and all(real(v) and not v.constant and v.bound == out.bound for v in (*given, out)):
        return _real_sum(made, op, _SUMS[name])
    if len(out.bound) != 4 or not made.any_pixels(given):
        return False
    if any(len(v.bound) != 4 and not (v.constant and len(v.bound) < 4) for v in given):
        return False
    args = {**op.args, "inputs": [made.image(_four(v)) for v in given]}
    made.made(op.kind, op, out, **args)
    return True


def _real_sum(made: EnnRewrite, op: Op, kind: str) -> bool:
    given, out = inputs_of(op), result_of(op)
    if not some(out):
        return False
    image = len(out.bound) == 4 and made.any_pixels(given)
    a, b = (made.half(op, made.image(v) if image else made.planes(v)) for v in given)
    (made.made if image else made.flat)(kind, op, out, self=a, other=b)
    return True


def _four(value: Value) -> Value:
    """A constant with as many dimensions as an image."""
    if len(value.bound) == 4 or value.data is None:
        return value
    shape = (*(1,) * (4 - len(value.bound)), *value.bound)
    return replace(value, shape=shape, dim_order=(0, 1, 2, 3), data=value.data.reshape(shape))


@rule("CLIP", "RELU")
def _limited(made: EnnRewrite, op: Op) -> bool:
    """Of real numbers, limits of half precision: what is between them stays what it is."""
    (x,), out = inputs_of(op), result_of(op)
    ends = (op.args["minimum"], op.args["maximum"]) if op.kind.endswith("CLIP") else (0.0, float("inf"))
    low, high = (float(n) for n in half(np.array(ends, np.float64)))
    if not real(x) or not real(out) or x.constant or not some(out) or (low, high) != ends or not low <= high:
        return _elements(made, op)
    image = len(out.bound) == 4 and made.any_pixels([x])
    given = made.half(op, made.image(x) if image else made.planes(x))
    (made.made if image else made.flat)("clamp", op, out, self=given, limits=(low, high))
    last = made.pixels[id(out)] if image else out
    made.halves[id(last)] = last
    return True


@rule("QUANTIZE", "DEQUANTIZE")
def _conversion(made: EnnRewrite, op: Op) -> bool:
    return _elements(made, op)


# ------------------------------------------------------------------------------------------------------------- moves


@rule("RESHAPE")
def _reshape(made: EnnRewrite, op: Op) -> bool:
    (x,), out = inputs_of(op), result_of(op)
    if not some(out):
        return False
    made.flat("view", op, out, self=made.planes(x), size=list(out.bound))
    return True


@rule("TRANSPOSE")
def _transpose(made: EnnRewrite, op: Op) -> bool:
    (x,), out, dims = inputs_of(op), result_of(op), [int(d) for d in op.args["perm"]]
    if made.any_pixels([x]):
        made.flat("permute", op, out, self=made.image(x), dims=[PLANES[d] for d in dims])
    else:
        made.flat("permute", op, out, self=made.planes(x), dims=dims)
    return True


@rule("CONCAT")
def _concat(made: EnnRewrite, op: Op) -> bool:
    given, out, axis = inputs_of(op), result_of(op), int(op.args["axis"])
    if not some(*given):
        return False
    if len(out.bound) == 4 and made.any_pixels(given):
        made.made("cat", op, out, tensors=[made.image(v) for v in given], dim=PLANES[axis])
    else:
        made.flat("cat", op, out, tensors=[made.planes(v) for v in given], dim=axis)
    return True


def _slice(made: EnnRewrite, op: Op, x: Value, out: Value, start: list[int]) -> None:
    length = list(out.bound)
    if len(length) == 4 and made.any_pixels([x]):
        made.made("slice", op, out, self=made.image(x), start=[start[d] for d in PIXELS],
                  length=[length[d] for d in PIXELS])  # fmt: skip
    else:
        made.flat("slice", op, out, self=made.planes(x), start=start, length=length)


@rule("STRIDEDSLICE")
def _strided(made: EnnRewrite, op: Op) -> bool:
    (x,), out = inputs_of(op), result_of(op)
    if not some(out) or op.args.get("shrink_axis_mask", 0) or any(int(n) != 1 for n in op.args["strides"]):
        return False
    _slice(made, op, x, out, [int(n) for n in op.args["begin"]])
    return True


@rule("SPLIT")
def _split(made: EnnRewrite, op: Op) -> bool:
    (x,), axis, at = inputs_of(op), int(op.args["axis"]), 0
    for out, size in zip(op.outputs, op.args["point"], strict=True):
        if out is not None:
            _slice(made, op, x, out, [at if d == axis else 0 for d in range(len(x.bound))])
        at += int(size)
    return True


@rule("PAD")
def _pad(made: EnnRewrite, op: Op) -> bool:
    (x,), out = inputs_of(op), result_of(op)
    if not byte(x) or not some(x):
        return False
    pads, rank = [int(n) for n in op.args["explicit_padding"]], len(x.bound)
    sides = [pads[:rank], pads[rank:]]
    if rank == 4 and made.any_pixels([x]):
        before, after = ([side[d] for d in PIXELS] for side in sides)
        made.made("pad", op, out, self=made.image(x), before=before, after=after, value=0.0)
    else:
        made.flat("pad", op, out, self=made.planes(x), before=sides[0], after=sides[1], value=0.0)
    return True


@rule("MAXPOOL2D")
def _max_pool(made: EnnRewrite, op: Op) -> bool:
    (x,), out = inputs_of(op), result_of(op)
    if not byte(x) or (x.q, x.dtype) != (out.q, out.dtype) or not some(x, out):
        return False
    made.made("max_pool2d", op, out, self=made.image(x), kernel_size=_pair(op, "kernel"), stride=_pair(op, "stride"),
              padding=_pads(op), dilation=_pair(op, "dilation"))  # fmt: skip
    return True
