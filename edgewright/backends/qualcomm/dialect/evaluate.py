"""Evaluation of one QNN operator in numpy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from edgewright.backends.qualcomm.dialect import int_rules  # noqa: F401  (registers definitions)
from edgewright.backends.qualcomm.dialect.dtypes import convert_elements, from_float, to_float
from edgewright.backends.qualcomm.dialect.numerics import QNN as QNN_NUMERICS
from edgewright.backends.qualcomm.dialect.table import PREFIX, QNN, REAL, STORED
from edgewright.ir.graph import Array, Op, Value
from edgewright.ir.int_reference import run_definition


def evaluate(op: Op, arrays: Sequence[Array]) -> list[Array]:
    """The results of an operator for the arrays of its operands."""
    row, values, out = QNN[op.kind.removeprefix(PREFIX)], op.args["inputs"], op.outputs[0]
    assert out is not None and row.reference is not None
    if row.domain != STORED:  # what moves data converts its operands first
        result = run_definition(op, dict(zip(values, arrays, strict=True)), QNN_NUMERICS)
        if result is not None:
            return [result]
    if row.domain == REAL:
        if row.elementwise and values[0].q is not None and values[0].dtype.itemsize == 1:
            return [_evaluate_by_table(op, row.reference, values[0], out, arrays[0])]
        result = row.reference(_params(op, out), *(to_float(v, a) for v, a in zip(values, arrays, strict=True)))
        return [from_float(out, result)]
    if row.domain == STORED:
        operands = [_convert_operand(v, a, out) for v, a in zip(values, arrays, strict=True)]
        results = row.reference(_params(op, out), *operands)
        return list(results) if isinstance(results, list) else [results]
    return [row.reference(op, arrays)]


def _convert_operand(value: Value, array: Array, out: Value) -> Array:
    """Convert an operand of data movement to the storage of the output; index tensors are left unchanged."""
    return convert_elements(value, array, out) if value.q is not None or array.dtype.kind == "f" else array


def _params(op: Op, out: Value) -> dict[str, Any]:
    """Parameters of the operator, with the subject of error messages, the output's shape and zero point."""
    return {**op.args, "shape": out.bound, "subject": subject_of(op), "zero": zero_point_of(out)}


def subject_of(op: Op) -> str:
    out = op.outputs[0]
    return op.kind if out is None else f"{op.kind} {out.name!r}"


def zero_point_of(out: Value) -> int:
    """The stored integer that represents 0."""
    return 0 if out.q is None or out.q.axis is not None else int(np.asarray(out.q.zero_point))


def _evaluate_by_table(op: Op, reference: Callable[..., Any], value: Value, out: Value, array: Array) -> Array:
    """Evaluate a function of 8-bit values through a table of 256 entries."""
    assert value.dtype is not None
    every = np.arange(256, dtype=np.uint8).view(value.dtype)
    table = from_float(out, reference(_params(op, out), to_float(value, every)))
    return table[array.view(np.uint8)]
