"""Checks of TOSA graphs that come from files, before they run: element types, arguments, shapes and memory.

The operators' meanings trust their arguments: a stride of zero or a window outside its image would read what is not
theirs. What is accepted here runs alike in machine code and in numpy.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from edgewright.errors import FormatError
from edgewright.ir.dialect_checks import MAX_INT, MAX_LENGTH, check_graph, check_memory, check_ops
from edgewright.ir.graph import Graph, Op, Value
from edgewright.ir.tosa.shapes import shape_of
from edgewright.ir.tosa.signatures import check_types
from edgewright.ir.tosa.table import PREFIX, TOSA, TosaOp

_FROM = {"stride": 1, "dilation": 1, "kernel": 1, "scale": 1, "multiples": 1, "shape": 1, "size": 1, "pad": 0,
         "padding": 0, "start": 0, "perms": 0, "axis": 0, "shift": 0}  # fmt: skip
_FLAGS = ("per_channel", "round")
_TEXTS = {"mode": ("nearest", "bilinear"), "rounding": ("single", "double")}
_LISTS = ("pad", "out_pad", "stride", "dilation", "kernel", "scale", "offset", "border", "padding", "shape", "start",
          "size", "multiples", "perms")  # fmt: skip


def check(graph: Graph, memory: int) -> None:
    """Raise unless every operator is TOSA's, has types, arguments and shapes that fit, and can be afforded."""
    check_graph(graph)
    check_ops(graph, lambda op: check_op(op, memory))


def check_op(op: Op, memory: int) -> None:
    """Raise unless an operator is TOSA's, has types, arguments and shapes that fit, and can be afforded."""
    name = op.kind.removeprefix(PREFIX)
    row = TOSA.get(name)
    if row is None or not op.kind.startswith(PREFIX):
        raise FormatError("must be an operator of TOSA", value=op.kind)
    zeros = tuple(zero for zero, _ in row.zeros)
    wanted = {*row.tensors, *zeros, *row.shapes, *row.attributes, *row.extra}
    if set(op.args) != wanted:
        raise FormatError(f"must be {', '.join(sorted(wanted))}", where="arguments", value=sorted(op.args))
    if len(op.outputs) != 1 or op.outputs[0] is None:
        raise FormatError("must be one", where="results", value=len(op.outputs))
    for argument in row.tensors:
        _check_tensor(argument, op.args[argument])
    for argument in (*row.shapes, *row.attributes, *row.extra):
        _check_argument(argument, op.args[argument])
    check_types(op)
    _check_zeros(op, row)
    _check_numbers(op, name)
    _check_shape(op, name, memory)


def _check_tensor(name: str, given: Any) -> None:
    listed = given if name == "inputs" and isinstance(given, list) else [given]
    if not listed or any(not isinstance(value, Value) for value in listed):
        raise FormatError("must be a tensor", where=name, value=type(given).__name__)
    for value in listed:
        if value.dynamic or 0 in value.bound:
            raise FormatError("must have a fixed shape with elements", where=name, value=list(value.bound))


def _check_argument(name: str, given: Any) -> None:
    if name in _LISTS:
        if not isinstance(given, list) or len(given) > MAX_LENGTH:
            raise FormatError("must be a list of integers", where=name, value=type(given).__name__)
        for item in given:
            _check_integer(name, item)
    elif name in _FLAGS:
        if type(given) is not bool:
            raise FormatError("must be true or false", where=name, value=given)
    elif name in _TEXTS:
        if given not in _TEXTS[name]:
            raise FormatError(f"must be {' or '.join(_TEXTS[name])}", where=name, value=given)
    elif name in ("axis", "shift"):
        _check_integer(name, given)


def _check_integer(name: str, given: Any) -> None:
    low = _FROM.get(name, -MAX_INT)
    if type(given) is not int or not low <= given < MAX_INT:
        raise FormatError(f"must be an integer from {low}", where=name, value=given)


def _check_zeros(op: Op, row: TosaOp) -> None:
    """Zero points are integers of their tensor's type; only 8 bits, and rescaled ones without a sign, have any."""
    for name, of in row.zeros:
        given = op.args[name]
        value: Any = op.outputs[0] if of == "output" else op.args[of]
        dtype = value.dtype
        wide = dtype.itemsize > 1 and str(dtype) != "uint16"
        info = None if wide or dtype.kind not in "iu" else np.iinfo(dtype)
        low, high = (0, 0) if info is None else (int(info.min), int(info.max))
        if type(given) is not int or not low <= given <= high:
            raise FormatError(f"must be an integer from {low} to {high}", where=name, value=given)


def _check_numbers(op: Op, name: str) -> None:
    """Arguments that the element type bounds."""
    out = op.outputs[0]
    assert out is not None and out.dtype is not None
    if name in ("cast", "rescale") and op.args["dtype"] != str(out.dtype):
        raise FormatError(f"must be that of the result, {out.dtype}", where="dtype", value=op.args["dtype"])
    if name == "mul" and op.args["shift"] > (63 if str(op.args["a"].dtype) == "int32" else 0):
        raise FormatError("must be 0 to 63 of int32, and 0 otherwise", where="shift", value=op.args["shift"])
    if name == "clamp":
        _check_limits(out, op.args["min_val"], op.args["max_val"])


def _check_limits(out: Value, low: Any, high: Any) -> None:
    assert out.dtype is not None
    whole = out.dtype.kind in "iu"
    info = np.iinfo(out.dtype) if whole else None
    for name, given in (("min_val", low), ("max_val", high)):
        if info is not None and (type(given) is not int or not info.min <= given <= info.max):
            raise FormatError(f"must be an integer of {out.dtype}", where=name, value=given)
        if info is None and (type(given) not in (int, float) or math.isnan(given)):
            raise FormatError("must be a number", where=name, value=given)
    if low > high:
        raise FormatError("must not be above max_val", where="min_val", value=(low, high))


def _check_shape(op: Op, name: str, memory: int) -> None:
    made, on_the_way = shape_of(op, name)
    out = op.outputs[0]
    assert out is not None
    check_memory(op.kind, math.prod(made) + on_the_way + sum(math.prod(v.bound) for v in op.inputs()), memory)
    if made != out.bound:
        raise FormatError(f"must have the shape {list(made)}", where="result", value=list(out.bound))
