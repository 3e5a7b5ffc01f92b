"""Rows that are quantized as they come, each by its own range: which operators have kernels for them."""

from __future__ import annotations

import numpy as np

from edgewright.ir.core.dynamic_conv import is_core_pointwise_gemm
from edgewright.ir.graph import Op, Value


def _single(value: Value) -> bool:
    return value.q is None and value.dtype == np.dtype(np.float32)


def is_dynamically_quantized(value: Value) -> bool:
    """Rows that are quantized by their own range."""
    return value.q is not None and value.q.dynamic is not None


_MOST_PRODUCTS = 1 << 16  # of bytes, whose sum is sure to stay in 32 bits


def supports_dynamic_rows(op: Op) -> bool:
    """Whether there are kernels for an operator on rows that are quantized on the fly."""
    x, weight, bias, out = (op.args.get("input"), op.args.get("weight"), op.args.get("bias"), op.outputs[0])
    if op.kind not in ("linear", "conv2d") or weight is None or out is None or not _single(out):
        return False
    q, known = weight.q, weight.constant and (bias is None or (bias.constant and _single(bias)))
    if x is None or q is None or not known or not is_dynamically_quantized(x) or q.dtype != np.dtype(np.int8):
        return False
    if op.kind == "conv2d" and not is_core_pointwise_gemm(op):
        return False
    turned, depth = bool(op.args.get("transposed")), int(x.bound[-1])
    small = (q.qmin, q.qmax) != (-8, 7) or bool(np.all((weight.data >= -8) & (weight.data <= 7)))
    rows = op.kind == "conv2d" or x.q.axis in (None, -1)
    if not (rows and small and 0 < depth <= _MOST_PRODUCTS):
        return False
    scales = len(q.scale) if isinstance(q.scale, tuple) else 1
    if q.block:
        columns = int(weight.bound[0])
        return not turned and depth % q.block == 0 and q.block % 8 == 0 and scales == columns * depth // q.block
    columns = int(weight.bound[1 if turned else 0])
    return scales in (1, columns)
