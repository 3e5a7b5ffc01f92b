"""QNN's sampling at the points of a grid as the engine's operators: in real numbers, as the reference has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from edgewright.engine.dialects.qnn_rewrite import (
    DEQUANTIZE,
    FLOAT32,
    QUANTIZE,
    QnnRewrite,
    element_count,
    io_of,
    is_float32,
    is_quantized,
    make_constant,
    non_empty,
    rule,
)  # fmt: skip
from edgewright.engine.graph.grid_sample import Sampling, lower_grid_sample
from edgewright.ir.graph import Op, Value
from edgewright.ir.qnn.dtypes import real as numbers_of


@rule("GridSample")
def _sampled(made: QnnRewrite, op: Op) -> bool:
    (x, grid), out = io_of(op)
    if not non_empty(x, grid, out) or x.constant or not all(is_float32(v) or is_quantized(v) for v in (x, grid, out)):
        return False
    batch, *sizes, channels = x.bound
    pixels = made.view(op, _reals(made, op, x), (element_count(x.bound) // channels, channels))
    points = made.view(op, _reals(made, op, grid), (element_count(grid.bound) // len(sizes), len(sizes)))
    how = Sampling(int(op.args["mode"]), int(op.args["padding_mode"]), bool(op.args["align_corners"]))

    def make(kind: str, shape: Sequence[int], args: dict[str, Any], dtype: Any) -> Value:
        return made.then(kind, op, replace(pixels, dtype=dtype), shape, **args)

    total = made.view(op, lower_grid_sample(make, pixels, points, batch, sizes, how), out.bound)
    if is_float32(out):
        made.computed("clone", op, out, self=total)
    else:
        made.emit(QUANTIZE, op, out, inputs=[total])
    return True


def _reals(made: QnnRewrite, op: Op, x: Value) -> Value:
    """What a tensor stands for, in half precision if it is of real numbers."""
    if x.data is not None:
        return make_constant("numbers", numbers_of(x, x.data))
    if is_float32(x):
        return made.half(op, x)
    return made.then(DEQUANTIZE, op, replace(x, q=None, dtype=FLOAT32), x.bound, inputs=[x])
