"""Support rules of the Ethos-U backend: element types, and limits of the NPU.

``target`` is an ``EthosUCompileSpec``, or None for TOSA export.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.backends.ethos_u.split_conv import MAX_STRIDE, factor_stride, needs_split_stride
from edgewright.backends.rules import rule
from edgewright.backends.table import OK, Rule, constant, conv_argument, max_rank, not_empty, static_shape, tensors
from edgewright.ir.graph import Op, Value

INTEGERS = ("int8", "int16", "int32")


def on_family(target: Any, *families: str) -> bool:
    """True for TOSA export and for targets of these families."""
    return target is None or target.family in families


def plain_types(target: Any) -> tuple[str, ...]:
    """Supported unquantized types of a target."""
    return (*INTEGERS, *(("bool",) if on_family(target, "u85") else ()), *(("float32",) if target is None else ()))


def shape_only(op: Op) -> set[Value]:
    """Operands of which only the shape is read."""
    name = {"expand_as": "other", "copy": "self"}.get(op.kind)
    return {op.args[name]} if name is not None and isinstance(op.args[name], Value) else set()


@rule("unquantized tensors must be int8, int16 or int32 (or bool, on U85)")
def unquantized_types(op: Op, target: Any) -> object:
    allowed, ignored = plain_types(target), shape_only(op)
    operands = [v for v in tensors(op) if v.q is None and v not in ignored]
    bad = sorted({str(v.dtype) for v in operands if str(v.dtype) not in allowed})
    return ", ".join(bad) if bad else OK


@rule(
    "operands of data movement must be int8, int16 or int32 (or bool, on U85), of one type, and all or none quantized"
)
def movable_types(op: Op, target: Any) -> object:
    allowed, ignored = plain_types(target), shape_only(op)
    operands = [v for v in tensors(op) if v not in ignored]
    types = sorted({"quantized " * (v.q is not None) + str(v.dtype) for v in operands})
    return (
        ", ".join(types) if len(types) > 1 or any(v.q is None and str(v.dtype) not in allowed for v in operands) else OK
    )


@rule("operands and results must all be quantized")
def all_quantized(op: Op, target: Any) -> object:
    operands = tensors(op)
    if target is None and all(v.q is None and str(v.dtype) == "float32" for v in operands):
        return OK
    unquantized = sorted({f"{v.name} ({v.dtype})" for v in operands if v.q is None})
    return ", ".join(unquantized) if unquantized else OK


@rule("comparison, logic and select need a U85")
def logic_unit(op: Op, target: Any) -> object:
    return OK if on_family(target, "u85") else target.target


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
    return {v.name for n in names if isinstance(v := op.args.get(n), Value)}


constant_weights = constant("weight", "bias")


@rule(
    "strides of depthwise and 16-bit convolutions must be at most 3, or a product of two such strides, on U55 and U65"
)
def stride_limit(op: Op, target: Any) -> object:
    if not needs_split_stride(op, target):
        return OK
    strides = conv_argument(op, "stride", 1)
    return strides if any(factor_stride(s) is None for s in strides) else OK


@rule("strides of 3-D convolutions must be at most 3 in height and width on U55 and U65")
def conv3d_stride(op: Op, target: Any) -> object:
    strides = conv_argument(op, "stride", 1)[1:]
    return OK if on_family(target, "u85") or max(strides) <= MAX_STRIDE else strides


@rule("products of two computed matrices must be 8-bit on U55 and U65")
def int8_matmul(op: Op, target: Any) -> object:
    operands = [v.name for v in op.inputs() if v.q is not None and v.q.dtype.itemsize > 1]
    return ", ".join(operands) if operands and target is not None and target.family != "u85" else OK


COMMON_RULES: tuple[Rule, ...] = (quantized, quantization_format, static_shape(), not_empty(), max_rank(6))
