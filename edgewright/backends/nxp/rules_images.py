"""Constraints of pooling, resizing, reductions and data movement."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.backends.nxp.movement import pad_widths, selected_indices
from edgewright.backends.nxp.pool import image_input, pool_window, spatial_rank
from edgewright.backends.nxp.rules import MAX_WINDOW_PARAM
from edgewright.backends.rules import rule
from edgewright.backends.table import OK, reduced_dims
from edgewright.ir.graph import Op


@rule("ceil_mode must be False, dilation 1, and the divisor the window size")
def pool_form(op: Op, target: Any) -> object:
    if op.args.get("ceil_mode"):
        return "ceil_mode True"
    if any(d != 1 for d in op.args.get("dilation") or [1]):
        return f"dilation {op.args['dilation']}"
    if op.args.get("divisor_override") is not None:
        return f"divisor {op.args['divisor_override']}"
    padded = any(op.args.get("padding") or [0]) and op.kind.startswith("avg")
    return "count_include_pad False" if padded and op.args.get("count_include_pad", True) is False else OK


@rule(f"windows and strides must be at most {MAX_WINDOW_PARAM}")
def pool_fits(op: Op, target: Any) -> object:
    kernel, stride, _ = pool_window(op)
    return OK if max(*kernel, *stride) <= MAX_WINDOW_PARAM else max(*kernel, *stride)


@rule("input sizes must be divisible by output sizes")
def divisible(op: Op, target: Any) -> object:
    dims = spatial_rank(op)
    assert op.outputs[0] is not None
    sizes = list(zip(op.args["self"].bound[-dims:], op.outputs[0].bound[-dims:], strict=True))
    return OK if all(m and n % m == 0 for n, m in sizes) else sizes


@rule("scale factors of a resize must be exactly 1, 2, 4 or 8")
def upscale_factor(op: Op, target: Any) -> object:
    x, out = image_input(op), op.outputs[0]
    assert out is not None
    factors = [m / n for n, m in zip(x.bound[2:], out.bound[2:], strict=True)]
    arguments = op.args.get("scale_factors") or [op.args.get("scales_h"), op.args.get("scales_w")]
    different = any(g is not None and abs(g - f) > 1e-6 for g, f in zip(arguments, factors, strict=True))
    return factors if different or not set(factors) <= {1.0, 2.0, 4.0, 8.0} else OK


@rule("at least one dimension must be reduced")
def has_reduced_dims(op: Op, target: Any) -> object:
    return OK if op.args["self"].shape and reduced_dims(op) else "none"


@rule("slices must be contiguous (step 1)")
def contiguous_slice(op: Op, target: Any) -> object:
    if not op.args["self"].shape:
        return "no dimension"
    indices = selected_indices(op)
    return (
        OK
        if indices and indices == list(range(indices[0], indices[0] + len(indices)))
        else f"step {op.args.get('step', 1)}"
    )


@rule("padding must not be negative, and its value must be finite")
def nonnegative_padding(op: Op, target: Any) -> object:
    widths = pad_widths(op)
    if not np.isfinite(op.args.get("value") or 0):
        return op.args["value"]
    return OK if all(n >= 0 for pair in widths for n in pair) else widths


@rule("padding mode must be reflect")
def reflect_only(op: Op, target: Any) -> object:
    mode = op.args.get("mode", "reflect")
    return OK if mode == "reflect" else mode


@rule("expand must not repeat elements")
def no_broadcast(op: Op, target: Any) -> object:
    assert op.outputs[0] is not None
    return OK if op.outputs[0].bound == op.args["self"].bound else list(op.outputs[0].bound)
