"""Validation of TOSA graphs read from files: element types, arguments, shapes and memory.

Kernels and references trust their arguments: a stride of zero or a window outside its image would read out of bounds. A
graph that passes runs the same in machine code and in numpy.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from edgewright.backends.ethos_u.dialect.shapes import infer_shape
from edgewright.backends.ethos_u.dialect.table import PREFIX, TosaOp, check_types
from edgewright.errors import FormatError
from edgewright.ir.dialect_checks import MAX_INT, MAX_LENGTH, check_memory
from edgewright.ir.graph import Op, Value

_MIN_VALUE = {"stride": 1, "dilation": 1, "kernel": 1, "scale": 1, "multiples": 1, "shape": 1, "size": 1, "pad": 0,
         "padding": 0, "start": 0, "perms": 0, "axis": 0, "shift": 0}  # fmt: skip
_FLAGS = ("per_channel", "round")
_CHOICES = {"mode": ("nearest", "bilinear"), "rounding": ("single", "double")}
_LISTS = ("pad", "out_pad", "stride", "dilation", "kernel", "scale", "offset", "border", "padding", "shape", "start",
          "size", "multiples", "perms")  # fmt: skip


def check_row(op: Op, row: TosaOp, memory: int) -> None:
    """Raise unless the operator is valid TOSA and within ``memory`` bytes."""
    name = op.kind.removeprefix(PREFIX)
    zeros = tuple(zero for zero, _ in row.zeros)
    expected = {*row.tensors, *zeros, *row.shapes, *row.attributes, *row.extra}
    if set(op.args) != expected:
        raise FormatError(f"must be {', '.join(sorted(expected))}", where="arguments", value=sorted(op.args))
    if len(op.outputs) != 1 or op.outputs[0] is None:
        raise FormatError("must be one", where="results", value=len(op.outputs))
    for argument in row.tensors:
        _check_tensor(argument, op.args[argument])
    for argument in (*row.shapes, *row.attributes, *row.extra):
        _check_argument(argument, op.args[argument])
    check_types(op)
    _check_zero_points(op, row)
    _check_scalars(op, name)
    _check_shape(op, name, memory)


def _check_tensor(name: str, argument: Any) -> None:
    values = argument if name == "inputs" and isinstance(argument, list) else [argument]
    if not values or any(not isinstance(value, Value) for value in values):
        raise FormatError("must be a tensor", where=name, value=type(argument).__name__)
    for value in values:
        if value.dynamic or 0 in value.bound:
            raise FormatError("must have a fixed shape with elements", where=name, value=list(value.bound))


def _check_argument(name: str, argument: Any) -> None:
    if name in _LISTS:
        if not isinstance(argument, list) or len(argument) > MAX_LENGTH:
            raise FormatError("must be a list of integers", where=name, value=type(argument).__name__)
        for item in argument:
            _check_integer(name, item)
    elif name in _FLAGS:
        if type(argument) is not bool:
            raise FormatError("must be true or false", where=name, value=argument)
    elif name in _CHOICES:
        if argument not in _CHOICES[name]:
            raise FormatError(f"must be {' or '.join(_CHOICES[name])}", where=name, value=argument)
    elif name in ("axis", "shift"):
        _check_integer(name, argument)


def _check_integer(name: str, value: Any) -> None:
    low = _MIN_VALUE.get(name, -MAX_INT)
    if type(value) is not int or not low <= value < MAX_INT:
        raise FormatError(f"must be an integer from {low}", where=name, value=value)


def _check_zero_points(op: Op, row: TosaOp) -> None:
    """Zero points must fit the tensor's type; only 8-bit tensors, and uint16 in RESCALE, have one."""
    for name, of in row.zeros:
        zero_point = op.args[name]
        value: Any = op.outputs[0] if of == "output" else op.args[of]
        dtype = value.dtype
        unsupported = dtype.itemsize > 1 and str(dtype) != "uint16"
        info = None if unsupported or dtype.kind not in "iu" else np.iinfo(dtype)
        low, high = (0, 0) if info is None else (int(info.min), int(info.max))
        if type(zero_point) is not int or not low <= zero_point <= high:
            raise FormatError(f"must be an integer from {low} to {high}", where=name, value=zero_point)


def _check_scalars(op: Op, name: str) -> None:
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
    is_integer = out.dtype.kind in "iu"
    info = np.iinfo(out.dtype) if is_integer else None
    for name, bound in (("min_val", low), ("max_val", high)):
        if info is not None and (type(bound) is not int or not info.min <= bound <= info.max):
            raise FormatError(f"must be an integer of {out.dtype}", where=name, value=bound)
        if info is None and (type(bound) not in (int, float) or math.isnan(bound)):
            raise FormatError("must be a number", where=name, value=bound)
    if low > high:
        raise FormatError("must not be above max_val", where="min_val", value=(low, high))


def _check_shape(op: Op, name: str, memory: int) -> None:
    shape, temporaries = infer_shape(op, name)
    out = op.outputs[0]
    assert out is not None
    check_memory(op.kind, math.prod(shape) + temporaries + sum(math.prod(v.bound) for v in op.inputs()), memory)
    if shape != out.bound:
        raise FormatError(f"must have the shape {list(shape)}", where="result", value=list(out.bound))
