"""Evaluation in numpy of the QNN operators that are neither translated nor defined: most are elementwise functions of
quantized numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from edgewright.backends.qualcomm.dialect.dtypes import from_float, to_float
from edgewright.backends.qualcomm.dialect.table import QnnOp
from edgewright.ir.graph import Array, Op, Value
from edgewright.ir.int_reference import undefined


def evaluate(op: Op, row: QnnOp, arrays: Sequence[Array]) -> Array:
    """The result of an operator for the arrays of its operands."""
    values, out = op.args["inputs"], op.outputs[0]
    if row.reference is None or out is None:
        raise undefined(op)
    if row.elementwise and values[0].q is not None and values[0].dtype.itemsize == 1:
        return _evaluate_by_table(op, row.reference, values[0], out, arrays[0])
    return from_float(out, row.reference(op.args, *(to_float(v, a) for v, a in zip(values, arrays, strict=True))))


def _evaluate_by_table(op: Op, reference: Callable[..., Any], value: Value, out: Value, array: Array) -> Array:
    """Evaluate a function of 8-bit values through a table of 256 entries."""
    assert value.dtype is not None
    every = np.arange(256, dtype=np.uint8).view(value.dtype)
    table = from_float(out, reference(op.args, to_float(value, every)))
    return table[array.view(np.uint8)]
