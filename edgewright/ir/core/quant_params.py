"""Verifier of quantization parameters and constants, independent of the operators that use them.

The engine and the reference compute with float32 scales, subtract zero points in the value's integer type and read
constants in place, so parameters from files are checked first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import numpy as np

from edgewright.errors import FormatError
from edgewright.ir.dtypes import DType
from edgewright.ir.graph import Graph, GraphError, QParams, Value
from edgewright.ir.verify import verify

MIN_SCALE, MAX_SCALE = 1e-30, 1e30  # scales whose products and quotients are finite in float32
_DYNAMIC = ("per_token", "per_tensor")


@cache
def integer_range(dtype: DType) -> tuple[int, int]:
    """Minimum and maximum of an integer type."""
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def check_structure(graph: Graph) -> None:
    """Raise ``FormatError`` unless every value is computed once, before it is read, and outputs are computed."""
    try:
        verify(graph)
    except GraphError as error:
        raise FormatError(error.rule, where=error.subject, value=error.value) from error
    if any(not isinstance(value, Value) for value in (*graph.inputs, *graph.outputs)):
        raise FormatError("must be tensors", where="inputs and outputs")


def check_values(values: Iterable[Value]) -> None:
    """Raise ``FormatError`` unless quantization parameters and constants are valid."""
    for value in values:
        try:
            if value.q is not None:
                check_parameters(value, value.q)
            if value.data is not None:
                _check_constant(value)
        except FormatError as error:
            raise error.inside(f"value {value.name!r}") from None


def check_parameters(value: Value, q: QParams) -> None:
    """Check the range, zero point, scale, axis and the number of scales."""
    if value.dtype is None or value.dtype.kind not in "iu" or q.dtype != value.dtype:
        raise FormatError("must be integers that are stored as they are quantized", where="dtype", value=value.dtype)
    low, high = integer_range(value.dtype)
    if not low <= q.qmin <= q.qmax <= high:
        raise FormatError(f"must be a range of {value.dtype}", where="qmin, qmax", value=(q.qmin, q.qmax))
    if q.dynamic is not None:
        _check_dynamic(value, q)
        return
    is_in_range = lambda zero: isinstance(zero, int | np.integer) and q.qmin <= int(zero) <= q.qmax  # noqa: E731
    _check_each(q.zero_point, is_in_range, "zero_point", f"must be from {q.qmin} to {q.qmax}")  # fmt: skip
    _check_each(q.scale, lambda scale: MIN_SCALE <= scale <= MAX_SCALE, "scale",
          f"must be a positive number from {MIN_SCALE} to {MAX_SCALE}")  # fmt: skip
    _check_counts(value, q)


def _check_dynamic(value: Value, q: QParams) -> None:
    """Dynamic quantization: one scale per slice of the last dimensions; ``axis`` counts from the end."""
    if q.dynamic not in _DYNAMIC or q.block is not None or value.data is not None:
        raise FormatError(f"must be {' or '.join(_DYNAMIC)} of a computed value", where="dynamic", value=q.dynamic)
    if str(q.dtype) != "int8" or (q.qmin, q.qmax) != (-128, 127):
        raise FormatError("must be int8 from -128 to 127", where="dtype", value=f"{q.dtype} {q.qmin} {q.qmax}")
    if q.axis is None or not -len(value.bound) <= q.axis <= -1:
        raise FormatError(f"must be from {-len(value.bound)} to -1", where="axis", value=q.axis)


def _check_each(numbers: Any, predicate: Callable[[Any], bool], where: str, rule: str) -> None:
    """Check a number, or a tuple of one per slice."""
    if not isinstance(numbers, tuple):
        if isinstance(numbers, bool) or not predicate(numbers):  # NaN fails every predicate
            raise FormatError(rule, where=where, value=numbers)
        return
    total = sum(numbers)
    if (
        numbers and predicate(min(numbers)) and predicate(max(numbers)) and total == total
    ):  # min and max may miss a NaN, the sum does not
        return
    index = next((i for i, item in enumerate(numbers) if not predicate(item)), 0)
    raise FormatError(rule, where=f"{where}[{index}]", value=numbers[index] if numbers else "nothing")


def _check_counts(value: Value, q: QParams) -> None:
    counts = [len(numbers) for numbers in (q.scale, q.zero_point) if isinstance(numbers, tuple)]
    rank = len(value.bound)
    if q.axis is None:
        if counts or q.block is not None:
            raise FormatError("must be one number where there is no axis", where="scale", value=counts or q.block)
        return
    if not 0 <= q.axis < rank:
        raise FormatError(f"must be a dimension, from 0 to {rank - 1}", where="axis", value=q.axis)
    if not isinstance(q.scale, tuple):
        raise FormatError("must be a number for each slice along the axis", where="scale", value=q.scale)
    expected = value.bound[q.axis]
    if q.block is not None:
        slice_size = math.prod(value.bound) // max(expected, 1)
        if not 1 <= q.block <= slice_size or slice_size % q.block:
            raise FormatError(f"must divide the {slice_size} elements of a slice", where="block", value=q.block)
        expected *= slice_size // q.block
    if any(count != expected for count in counts):
        raise FormatError(f"must be {expected} numbers, one for each slice", where="scale", value=counts)


def _check_constant(value: Value) -> None:
    data, q = value.data, value.q
    assert data is not None
    if data.dtype != value.dtype or data.shape != value.bound or value.dynamic:
        actual = f"{data.dtype} {list(data.shape)}"
        raise FormatError(f"must be {value.dtype} {list(value.bound)}", where="constant", value=actual)
    if data.dtype.kind == "b" and data.size and int(np.ascontiguousarray(data).view(np.uint8).max()) > 1:
        raise FormatError("must be bytes of 0 or 1", where="constant", value=int(data.view(np.uint8).max()))
    if q is None or q.dynamic is not None or not data.size:
        return
    if (q.qmin, q.qmax) != integer_range(data.dtype):
        low, high = int(data.min()), int(data.max())
        if low < q.qmin or high > q.qmax:
            raise FormatError(f"must be integers from {q.qmin} to {q.qmax}", where="constant", value=(low, high))
