"""Limits of pools, resizing, reductions and movement."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.backends.nxp.movement import places_of, widths_of
from edgewright.backends.nxp.pool import image_of, spatial, window
from edgewright.backends.nxp.rules import MAX_STEP
from edgewright.backends.rules import rule
from edgewright.backends.table import OK, over
from edgewright.ir.graph import Op


@rule("ceil_mode must be False, dilation 1, and the divisor the window's size")
def plain_pool(op: Op, target: Any) -> object:
    if op.args.get("ceil_mode"):
        return "ceil_mode True"
    if any(d != 1 for d in op.args.get("dilation") or [1]):
        return f"dilation {op.args['dilation']}"
    if op.args.get("divisor_override") is not None:
        return f"divisor {op.args['divisor_override']}"
    padded = any(op.args.get("padding") or [0]) and op.kind.startswith("avg")
    return "padding that is not counted" if padded and op.args.get("count_include_pad", True) is False else OK


@rule(f"windows and strides must be at most {MAX_STEP}")
def pool_fits(op: Op, target: Any) -> object:
    kernel, stride, _ = window(op)
    return OK if max(*kernel, *stride) <= MAX_STEP else max(*kernel, *stride)


@rule("sizes must be divisible by those of the result")
def divisible(op: Op, target: Any) -> object:
    dims = spatial(op)
    assert op.outputs[0] is not None
    sizes = list(zip(op.args["self"].bound[-dims:], op.outputs[0].bound[-dims:], strict=True))
    return OK if all(m and n % m == 0 for n, m in sizes) else sizes


@rule("height and width must grow by 1, 2, 4 or 8, exactly")
def grows(op: Op, target: Any) -> object:
    x, out = image_of(op), op.outputs[0]
    assert out is not None
    factors = [m / n for n, m in zip(x.bound[2:], out.bound[2:], strict=True)]
    given = op.args.get("scale_factors") or [op.args.get("scales_h"), op.args.get("scales_w")]
    off = any(g is not None and abs(g - f) > 1e-6 for g, f in zip(given, factors, strict=True))
    return factors if off or not set(factors) <= {1.0, 2.0, 4.0, 8.0} else OK


@rule("tensors must have a dimension to reduce")
def has_dims(op: Op, target: Any) -> object:
    return OK if op.args["self"].shape and over(op) else "none"


@rule("what is read must be neighbours, in their order")
def neighbours(op: Op, target: Any) -> object:
    if not op.args["self"].shape:
        return "no dimension"
    places = places_of(op)
    return (
        OK if places and places == list(range(places[0], places[0] + len(places))) else f"step {op.args.get('step', 1)}"
    )


@rule("padding must not be negative, and its value a number")
def grows_only(op: Op, target: Any) -> object:
    widths = widths_of(op)
    if not np.isfinite(op.args.get("value") or 0):
        return op.args["value"]
    return OK if all(n >= 0 for pair in widths for n in pair) else widths


@rule("padding must be mirrored, not repeated")
def mirrored(op: Op, target: Any) -> object:
    mode = op.args.get("mode", "reflect")
    return OK if mode == "reflect" else mode


@rule("nothing must be repeated")
def same_shape(op: Op, target: Any) -> object:
    assert op.outputs[0] is not None
    return OK if op.outputs[0].bound == op.args["self"].bound else list(op.outputs[0].bound)
