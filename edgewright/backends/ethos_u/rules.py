"""What an Ethos-U asks of operators. ``target`` is an ``EthosUCompileSpec``, or None for TOSA alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.backends.ethos_u.split_conv import in_two_steps, steps_of
from edgewright.backends.rules import rule
from edgewright.backends.table import OK, Rule, constant, max_rank, not_empty, spread, static_shape, tensors
from edgewright.ir.graph import Op


@rule("integers must be 8 bits wide, or 16 without a zero point, with one scale for a whole tensor")
def storage(op: Op, target: Any) -> object:
    for value in tensors(op):
        q = value.q
        if q is None:
            continue
        weight = value is op.args.get("weight") and op.kind != "embedding"
        wide = str(q.dtype) not in (("int8", "int16", "uint8") if op.kind == "requantize" else ("int8", "int16"))
        if wide or q.dynamic or q.block or (q.axis is not None and not weight):
            return f"{value.name}: {q.dtype}" + (" by channel" if q.axis is not None else "")
        if (weight or str(q.dtype) == "int16") and np.any(np.asarray(q.zero_point)):
            return f"{value.name}: {q.dtype}, zero point {q.zero_point}"
    return OK


@rule("results and operands must be integers: quantize the model with EthosUQuantizer")
def quantized(op: Op, target: Any) -> object:
    if target is None:  # TOSA in floating point, for debugging
        return OK
    real = [v.name for v in tensors(op) if v.q is None and v.dtype is not None and v.dtype.kind == "f"]
    real = [n for n in real if n not in _parameters(op)]
    return ", ".join(real) if real else OK


def _parameters(op: Op) -> set[str]:
    """Biases are real numbers until they are lowered, and what else normalisations know."""
    norm = op.kind.endswith("norm") or op.kind == "prelu"
    names = ("bias", "weight", "running_mean", "running_var") if norm else ("bias",)
    return {v.name for n in names if (v := op.args.get(n)) is not None and hasattr(v, "name")}


fixed_weights = constant("weight", "bias")


@rule("strides of depthwise and 16-bit convolutions must be at most 3, or a product of two such, on U55 and U65")
def long_stride(op: Op, target: Any) -> object:
    if not in_two_steps(op, target):
        return OK
    strides = spread(op, "stride", 1)
    return strides if any(steps_of(s) is None for s in strides) else OK


@rule("convolutions of volumes need a U85")
def volumes(op: Op, target: Any) -> object:
    return OK if target is None or target.family == "u85" else target.target


@rule("products of two computed matrices must be of 8 bits on U55 and U65")
def narrow_matrices(op: Op, target: Any) -> object:
    wide = [v.name for v in op.inputs() if v.q is not None and v.q.dtype.itemsize > 1]
    return ", ".join(wide) if wide and target is not None and target.family != "u85" else OK


EVERYWHERE: tuple[Rule, ...] = (quantized, storage, static_shape(), not_empty(), max_rank(6))
