"""Dynamically quantized activations, one scale per row: which operators have native kernels for them."""

from __future__ import annotations

import numpy as np

from edgewright.ir.core.conv import is_core_pointwise_gemm
from edgewright.ir.graph import Op, Value


def _is_float32(value: Value) -> bool:
    return value.q is None and value.dtype == np.dtype(np.float32)


def is_dynamically_quantized(value: Value) -> bool:
    """Whether a value's scale and zero point are computed at run time, one pair per row."""
    return value.q is not None and value.q.dynamic is not None


_MAX_DEPTH = 1 << 16  # int8 products whose sum cannot overflow int32


def supports_dynamic_rows(op: Op) -> bool:
    """Whether an operator on dynamically quantized per_row has a native kernel."""
    x, weight, bias, out = (op.args.get("input"), op.args.get("weight"), op.args.get("bias"), op.outputs[0])
    if op.kind not in ("core.linear", "core.conv2d") or weight is None or out is None or not _is_float32(out):
        return False
    q, constant = weight.q, weight.constant and (bias is None or (bias.constant and _is_float32(bias)))
    if x is None or q is None or not constant or not is_dynamically_quantized(x) or q.dtype != np.dtype(np.int8):
        return False
    if op.kind == "core.conv2d" and not is_core_pointwise_gemm(op):
        return False
    transposed, depth = bool(op.args.get("transposed")), int(x.bound[-1])
    in_int4_range = (q.qmin, q.qmax) != (-8, 7) or bool(np.all((weight.data >= -8) & (weight.data <= 7)))
    per_row = op.kind == "core.conv2d" or x.q.axis in (None, -1)
    if not (per_row and in_int4_range and 0 < depth <= _MAX_DEPTH):
        return False
    scales = len(q.scale) if isinstance(q.scale, tuple) else 1
    if q.block:
        columns = int(weight.bound[0])
        return not transposed and depth % q.block == 0 and q.block % 8 == 0 and scales == columns * depth // q.block
    columns = int(weight.bound[1 if transposed else 0])
    return scales in (1, columns)
