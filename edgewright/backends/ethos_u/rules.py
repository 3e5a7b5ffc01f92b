"""Support rules of the Ethos-U backend. ``target`` is an ``EthosUCompileSpec``, or None for TOSA export."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.backends.ethos_u.split_conv import factor_stride, needs_split_stride
from edgewright.backends.rules import rule
from edgewright.backends.table import OK, Rule, constant, conv_argument, max_rank, not_empty, static_shape, tensors
from edgewright.ir.graph import Op


@rule("tensors must be int8, or int16 without a zero point, with one scale per tensor")
def quantization_format(op: Op, target: Any) -> object:
    for value in tensors(op):
        q = value.q
        if q is None:
            continue
        weight = value is op.args.get("weight") and op.kind != "embedding"
        unsupported = str(q.dtype) not in (("int8", "int16", "uint8") if op.kind == "requantize" else ("int8", "int16"))
        if unsupported or q.dynamic or q.block or (q.axis is not None and not weight):
            return f"{value.name}: {q.dtype}" + (" by channel" if q.axis is not None else "")
        if (weight or str(q.dtype) == "int16") and np.any(np.asarray(q.zero_point)):
            return f"{value.name}: {q.dtype}, zero point {q.zero_point}"
    return OK


@rule("results and operands must be quantized: quantize the model with EthosUQuantizer")
def quantized(op: Op, target: Any) -> object:
    if target is None:  # TOSA in floating point, for debugging
        return OK
    floats = [v.name for v in tensors(op) if v.q is None and v.dtype is not None and v.dtype.kind == "f"]
    floats = [n for n in floats if n not in _float_parameters(op)]
    return ", ".join(floats) if floats else OK


def _float_parameters(op: Op) -> set[str]:
    """Parameters that stay float until lowering: biases, and the statistics of normalizations."""
    norm = op.kind.endswith("norm") or op.kind == "prelu"
    names = ("bias", "weight", "running_mean", "running_var") if norm else ("bias",)
    return {v.name for n in names if (v := op.args.get(n)) is not None and hasattr(v, "name")}


constant_weights = constant("weight", "bias")


@rule(
    "strides of depthwise and 16-bit convolutions must be at most 3, or a product of two such strides, on U55 and U65"
)
def stride_limit(op: Op, target: Any) -> object:
    if not needs_split_stride(op, target):
        return OK
    strides = conv_argument(op, "stride", 1)
    return strides if any(factor_stride(s) is None for s in strides) else OK


@rule("3-D convolutions need a U85")
def conv3d_unit(op: Op, target: Any) -> object:
    return OK if target is None or target.family == "u85" else target.target


@rule("products of two computed matrices must be 8-bit on U55 and U65")
def int8_matmul(op: Op, target: Any) -> object:
    operands = [v.name for v in op.inputs() if v.q is not None and v.q.dtype.itemsize > 1]
    return ", ".join(operands) if operands and target is not None and target.family != "u85" else OK


COMMON_RULES: tuple[Rule, ...] = (quantized, quantization_format, static_shape(), not_empty(), max_rank(6))
