"""Translation of QNN's GridSample to core operators in float32."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from edgewright.backends.qualcomm.dialect.dtypes import to_float as numbers_of
from edgewright.backends.qualcomm.dialect.to_core.rewrite import (
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


@rule("GridSample")
def _grid_sample(rw: QnnRewrite, op: Op) -> bool:
    (x, grid), out = io_of(op)
    if not non_empty(x, grid, out) or x.constant or not all(is_float32(v) or is_quantized(v) for v in (x, grid, out)):
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
        return make_constant("numbers", numbers_of(x, x.data))
    if is_float32(x):
        return rw.round_half(op, x)
    return rw.emit_temporary(DEQUANTIZE, op, replace(x, q=None, dtype=FLOAT32), x.bound, inputs=[x])
