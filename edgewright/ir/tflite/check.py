"""Checks of TFLite graphs that come from files, before they run: element types, arguments, shapes and memory.

Meanings trust their arguments: a stride of zero or a window outside its image would read what is not theirs. What is
accepted here runs alike in machine code and in numpy.
"""

from __future__ import annotations

import math
from typing import Any

from edgewright.errors import FormatError
from edgewright.ir.dialect_checks import MAX_INT, MAX_LENGTH, check_graph, check_memory, check_ops
from edgewright.ir.graph import Graph, Op, Value
from edgewright.ir.tflite.shapes import shape_of
from edgewright.ir.tflite.signatures import check_types
from edgewright.ir.tflite.table import PREFIX, TFLITE, TfliteOp

_FROM = {"stride_h": 1, "stride_w": 1, "dilation_h": 1, "dilation_w": 1, "filter_h": 1, "filter_w": 1}


def check(graph: Graph, memory: int) -> None:
    """Raise unless every operator of a graph is TFLite's, fits its types and shapes, and can be afforded."""
    check_graph(graph)
    check_ops(graph, lambda op: _check_op(op, memory))


def _check_op(op: Op, memory: int) -> None:
    name = op.kind.removeprefix(PREFIX)
    row = TFLITE.get(name)
    if row is None or not op.kind.startswith(PREFIX):
        raise FormatError("must be an operator of TFLite", value=op.kind)
    _check_operands(op, row)
    if set(op.args) - {"inputs"} != set(row.fields):
        raise FormatError(f"must be {', '.join(row.fields) or 'none'}", where="options", value=sorted(op.args))
    for field in row.fields:
        _check_field(field, op.args[field])
    check_types(op, name)
    made, on_the_way = shape_of(op, name)
    out = op.outputs[0]
    assert out is not None
    if made != out.bound:
        raise FormatError(f"must have the shape {list(made)}", where="result", value=list(out.bound))
    check_memory(op.kind, math.prod(made) + on_the_way + sum(math.prod(v.bound) for v in op.inputs()), memory)


def _check_operands(op: Op, row: TfliteOp) -> None:
    given = op.args["inputs"]
    if not isinstance(given, list) or not 0 < len(given) < MAX_LENGTH or (row.operands and len(given) != row.operands):
        raise FormatError(f"must be {row.operands or 'some'} tensors", where="inputs")
    if any(not isinstance(v, Value) for v in given) or len(op.outputs) != 1 or op.outputs[0] is None:
        raise FormatError("must be tensors, with one result", where="inputs")
    for value in (*given, op.outputs[0]):
        if value.dynamic or (0 in value.bound and value.data is None):
            raise FormatError("must have a fixed shape with elements", where=value.name, value=list(value.bound))


def _check_field(name: str, value: Any) -> None:
    if name in ("alpha", "beta"):
        least = 0.0 if name == "beta" else -MAX_INT
        if type(value) not in (float, int) or not math.isfinite(value) or not least < value < MAX_INT:
            raise FormatError(f"must be a number above {least}", where=name, value=value)
    elif name == "new_shape":
        if not isinstance(value, list) or any(type(n) is not int for n in value):
            raise FormatError("must be a list of integers", where=name, value=value)
    elif type(value) not in (int, bool) or not _FROM.get(name, -16) <= value < MAX_INT:
        raise FormatError(f"must be an integer from {_FROM.get(name, -16)}", where=name, value=value)
