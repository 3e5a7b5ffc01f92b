"""Checks of host twins, which are files, before they run: meanings trust their arguments.

Every operator must make exactly what the graph says that it makes, out of parameters that are what they should be; no
operator may take more memory than is allowed. Meanings pad nothing, so that results and operands bound what they take.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from edgewright.errors import FormatError
from edgewright.ir.dialect_checks import MAX_INT, MAX_LENGTH, check_graph, check_memory, check_ops
from edgewright.ir.graph import Graph, Op, QParams, Value
from edgewright.ir.qnn.shapes import elementwise, shapes_of
from edgewright.ir.qnn.signatures import check_types
from edgewright.ir.qnn.table import PREFIX, QNN, Numbers

_TYPES = ("uint8", "int8", "uint16", "int16", "int32", "int64", "uint32", "bool", "float32", "float16")


def check(graph: Graph, memory: int) -> None:
    """Raise unless every operator is one of QNN's, fits its tensors, and can be afforded."""
    check_graph(graph)
    for value in graph.values():
        _check_value(value, memory)
    check_ops(graph, _check_op)
    for op in graph.ops:
        check_memory(op.kind, sum(math.prod(v.bound) for v in (*op.inputs(), *op.outputs) if v is not None), memory)


def _check_value(value: Value, memory: int) -> None:
    if value.dynamic or str(value.dtype) not in _TYPES:
        raise FormatError("must be of a fixed shape and a known type", where=value.name, value=str(value.dtype))
    check_memory(value.name, math.prod(value.bound), memory)
    if value.q is not None and value.q.block is not None:
        _check_blocks(value, value.q)


def _check_blocks(value: Value, q: QParams) -> None:
    """Blocks of input channels, the last dimension but one, of each output channel."""
    shape = value.bound
    fits = len(shape) > 1 and q.axis == len(shape) - 1 and q.block is not None and shape[-2] % q.block == 0
    if not fits or value.data is None or np.any(q.zero_point):
        raise FormatError("must have a scale for each block, and no zero point", where=value.name, value=q.block)


def _check_op(op: Op) -> None:
    row = QNN.get(op.kind.removeprefix(PREFIX))
    if row is None or not op.kind.startswith(PREFIX):
        raise FormatError("must be an operator of QNN", value=op.kind)
    given = op.args["inputs"]
    if not isinstance(given, list) or any(not isinstance(v, Value) for v in given):
        raise FormatError("must be tensors", where="inputs")
    if len(given) < row.operands[0] or (row.operands[1] and len(given) > row.operands[1]):
        raise FormatError(
            f"must have {row.operands[0]} to {row.operands[1]} operands", where="inputs", value=len(given)
        )
    if set(op.args) - {"inputs"} - set(row.params):
        raise FormatError(f"must be parameters of {op.kind}", value=sorted(set(op.args) - set(row.params)))
    for name, numbers in row.params.items():
        _check_numbers(name, numbers, op.args[name], numbers.dims)
    check_types(op, op.kind.removeprefix(PREFIX))
    made, found = shapes_of(op), [None if o is None else o.bound for o in op.outputs]
    if not elementwise(op):  # a scalar has a dimension in QNN
        made, found = [m or (1,) for m in made], [None if f is None else f or (1,) for f in found]
    if len(found) != len(made) or any(f not in (None, m) for f, m in zip(found, made, strict=True)) or found[0] is None:
        raise FormatError("must give what its operands and parameters make", value=f"{found}, not {made}"[:120])


def _check_numbers(name: str, wanted: Numbers, given: Any, dims: int) -> None:
    if dims:
        if not isinstance(given, list) or len(given) > MAX_LENGTH:
            raise FormatError("must be a list of numbers", where=name, value=type(given).__name__)
        for item in given:
            _check_numbers(name, wanted, item, dims - 1)
    elif wanted.real:
        if type(given) not in (float, int) or not math.isfinite(given) or abs(given) > 3.5e38:
            raise FormatError("must be a number", where=name, value=given)
    elif type(given) not in (int, bool) or not wanted.low <= given < MAX_INT:
        raise FormatError(f"must be whole numbers from {wanted.low}", where=name, value=given)
