"""Verifier of TFLite graphs loaded from files: element types, arguments, shapes and memory.

The references and the generated code trust their arguments: a stride of zero or a window outside its image would read
out of bounds. Graphs that pass run identically in both.
"""

from __future__ import annotations

import math
from typing import Any

from edgewright.backends.nxp.dialect.shapes import infer_shape
from edgewright.backends.nxp.dialect.table import PREFIX, TfliteOp, check_types
from edgewright.errors import FormatError
from edgewright.ir.dialect_checks import MAX_INT, MAX_LENGTH, check_memory
from edgewright.ir.graph import Op, Value

_MINIMUM = {"stride_h": 1, "stride_w": 1, "dilation_h": 1, "dilation_w": 1, "filter_h": 1, "filter_w": 1}


def check_row(op: Op, row: TfliteOp, memory: int) -> None:
    """Raise unless an operator has valid types and shapes and fits in ``memory`` bytes."""
    name = op.kind.removeprefix(PREFIX)
    _check_operands(op, row)
    if set(op.args) - {"inputs"} != set(row.fields):
        raise FormatError(f"must be {', '.join(row.fields) or 'none'}", where="options", value=sorted(op.args))
    for field in row.fields:
        _check_field(field, op.args[field])
    check_types(op, name)
    shape, temporaries = infer_shape(op, name)
    out = op.outputs[0]
    assert out is not None
    if shape != out.bound:
        raise FormatError(f"must have the shape {list(shape)}", where="result", value=list(out.bound))
    check_memory(op.kind, math.prod(shape) + temporaries + sum(math.prod(v.bound) for v in op.inputs()), memory)


def _check_operands(op: Op, row: TfliteOp) -> None:
    inputs = op.args["inputs"]
    if (
        not isinstance(inputs, list)
        or not 0 < len(inputs) < MAX_LENGTH
        or (row.operands and len(inputs) != row.operands)
    ):
        raise FormatError(f"must be {row.operands or 'some'} tensors", where="inputs")
    if any(not isinstance(v, Value) for v in inputs) or len(op.outputs) != 1 or op.outputs[0] is None:
        raise FormatError("must be tensors, with one result", where="inputs")
    for value in (*inputs, op.outputs[0]):
        if value.dynamic or (0 in value.bound and value.data is None):
            raise FormatError("must have a static, non-empty shape", where=value.name, value=list(value.bound))


def _check_field(name: str, value: Any) -> None:
    if name in ("alpha", "beta"):
        lower = 0.0 if name == "beta" else -MAX_INT
        if type(value) not in (float, int) or not math.isfinite(value) or not lower < value < MAX_INT:
            raise FormatError(f"must be a number above {lower}", where=name, value=value)
    elif name == "new_shape":
        if not isinstance(value, list) or any(type(n) is not int for n in value):
            raise FormatError("must be a list of integers", where=name, value=value)
    elif type(value) not in (int, bool) or not _MINIMUM.get(name, -16) <= value < MAX_INT:
        raise FormatError(f"must be an integer from {_MINIMUM.get(name, -16)}", where=name, value=value)
