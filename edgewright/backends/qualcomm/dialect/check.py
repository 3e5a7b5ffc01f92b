"""Verifier of host twins, which come from files: references trust their arguments.

Checks operators, parameters, element types and shapes, and that no operator needs more memory than is allowed.
References allocate no padded copies, so the sizes of operands and results bound what an operator needs.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from edgewright.backends.qualcomm.dialect.shapes import infer_shapes, is_elementwise
from edgewright.backends.qualcomm.dialect.table import PREFIX, Param, QnnOp, check_types
from edgewright.errors import FormatError
from edgewright.ir.dialect_checks import MAX_INT, MAX_LENGTH, check_memory
from edgewright.ir.graph import Op, QParams, Value

_TYPES = ("uint8", "int8", "uint16", "int16", "int32", "int64", "uint32", "bool", "float32", "float16")


def check_value(value: Value, memory: int) -> None:
    """Raise unless a tensor has a fixed shape, a type of QNN, and fits in ``memory`` bytes."""
    if value.dynamic or str(value.dtype) not in _TYPES:
        raise FormatError("must be of a fixed shape and a known type", where=value.name, value=str(value.dtype))
    if 0 in value.bound:
        raise FormatError("must have elements", where=value.name, value=list(value.bound))
    check_memory(value.name, math.prod(value.bound), memory)
    if value.q is not None and value.q.block is not None:
        _check_blocks(value, value.q)


def _check_blocks(value: Value, q: QParams) -> None:
    """Check blockwise quantization: blocks of input channels (dimension -2) of each output channel (dimension -1)."""
    shape = value.bound
    fits = len(shape) > 1 and q.axis == len(shape) - 1 and q.block is not None and shape[-2] % q.block == 0
    if not fits or value.data is None or np.any(q.zero_point):
        raise FormatError("must have one scale per block and no zero point", where=value.name, value=q.block)


def check_row(op: Op, row: QnnOp, memory: int) -> None:
    """Raise unless an operator has valid parameters, types and shapes and fits in ``memory`` bytes."""
    inputs = op.args["inputs"]
    if not isinstance(inputs, list) or any(not isinstance(v, Value) for v in inputs):
        raise FormatError("must be tensors", where="inputs")
    if len(inputs) < row.operands[0] or (row.operands[1] and len(inputs) > row.operands[1]):
        raise FormatError(
            f"must have {row.operands[0]} to {row.operands[1]} operands", where="inputs", value=len(inputs)
        )
    if set(op.args) - {"inputs"} - set(row.params):
        raise FormatError(f"must be parameters of {op.kind}", value=sorted(set(op.args) - set(row.params)))
    for name, numbers in row.params.items():
        _check_numbers(name, numbers, op.args[name], numbers.dims)
    check_types(op, op.kind.removeprefix(PREFIX))
    expected, declared = infer_shapes(op), [None if o is None else o.bound for o in op.outputs]
    if not is_elementwise(op):  # a scalar has a dimension in QNN
        expected, declared = [m or (1,) for m in expected], [None if f is None else f or (1,) for f in declared]
    if (
        len(declared) != len(expected)
        or any(f not in (None, m) for f, m in zip(declared, expected, strict=True))
        or declared[0] is None
    ):
        raise FormatError(
            "must have the shapes that follow from its operands and parameters",
            value=f"{declared}, not {expected}"[:120],
        )
    check_memory(op.kind, sum(math.prod(v.bound) for v in (*op.inputs(), *op.outputs) if v is not None), memory)


def _check_numbers(name: str, param: Param, inputs: Any, dims: int) -> None:
    if dims:
        if not isinstance(inputs, list) or len(inputs) > MAX_LENGTH:
            raise FormatError("must be a list of numbers", where=name, value=type(inputs).__name__)
        for item in inputs:
            _check_numbers(name, param, item, dims - 1)
    elif param.real:
        if type(inputs) not in (float, int) or not math.isfinite(inputs) or abs(inputs) > 3.5e38:
            raise FormatError("must be a number", where=name, value=inputs)
    elif type(inputs) not in ((int,) if param.dims else (int, bool)) or not param.low <= inputs < MAX_INT:
        raise FormatError(f"must be integers of at least {param.low}", where=name, value=inputs)
