"""Evaluation of one TOSA operator in numpy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgewright.backends.ethos_u.dialect import int_rules  # noqa: F401  (registers definitions)
from edgewright.backends.ethos_u.dialect.numerics import TOSA_NUMERICS
from edgewright.backends.ethos_u.dialect.table import PREFIX, TOSA
from edgewright.ir.dialect import array_of
from edgewright.ir.graph import Array, Op, Value
from edgewright.ir.int_reference import run_definition, undefined


def evaluate(op: Op, arrays: Mapping[Value, Array]) -> Array:
    """The result of an operator for its constants and ``arrays``."""
    row, args, out = TOSA[op.kind.removeprefix(PREFIX)], dict[str, Any](op.args), op.outputs[0]
    result = run_definition(op, arrays, TOSA_NUMERICS)
    if result is None:
        if row.reference is None:
            raise undefined(op)
        for name in row.tensors:
            value = args[name]
            args[name] = [array_of(v, arrays) for v in value] if isinstance(value, list) else array_of(value, arrays)
        result = row.reference(**args)
    return result if out is None or result.dtype == out.dtype else result.astype(out.dtype)
