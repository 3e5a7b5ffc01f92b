"""Elementwise comparison, logic, bitwise operators and selection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from edgewright.ir.aten.reference.elementwise import (
    Array,
    cast,
    checked_cast,
    promote_operands,
    result_type,
    to_floating,
)
from edgewright.ir.dtypes import is_complex

Binary = Callable[[Any, Any], Array]


def _comparison(fn: Callable[[Any, Any], Any]) -> Binary:
    def compare(self: Array, other: Any) -> Array:
        a, b = promote_operands(self, other, rounded=True)
        return np.asarray(fn(a, b))

    return compare


def _ordering(fn: Callable[[Any, Any], Any]) -> Binary:
    compare = _comparison(fn)

    def order(self: Array, other: Any) -> Array:
        if is_complex(result_type(self, other)):
            raise ValueError("complex numbers have no order")
        return compare(self, other)

    return order


eq = _comparison(np.equal)
ne = _comparison(np.not_equal)
lt = _ordering(np.less)
le = _ordering(np.less_equal)
gt = _ordering(np.greater)
ge = _ordering(np.greater_equal)


def logical_and(self: Array, other: Array) -> Array:
    return np.asarray(self.astype(np.bool_) & other.astype(np.bool_))


def logical_or(self: Array, other: Array) -> Array:
    return np.asarray(self.astype(np.bool_) | other.astype(np.bool_))


def logical_xor(self: Array, other: Array) -> Array:
    return np.asarray(self.astype(np.bool_) ^ other.astype(np.bool_))


def logical_not(self: Array) -> Array:
    return np.asarray(~self.astype(np.bool_))


def isnan(self: Array) -> Array:
    return np.asarray(np.isnan(to_floating(self)))


def isinf(self: Array) -> Array:
    return np.asarray(np.isinf(to_floating(self)))


def bitwise_and(self: Array, other: Any) -> Array:
    a, b = promote_operands(self, other)
    return np.asarray(a & b)


def bitwise_or(self: Array, other: Any) -> Array:
    a, b = promote_operands(self, other)
    return np.asarray(a | b)


def bitwise_xor(self: Array, other: Any) -> Array:
    a, b = promote_operands(self, other)
    return np.asarray(a ^ b)


def bitwise_not(self: Array) -> Array:
    return np.asarray(~self)


def _shift(self: Array, other: Any) -> tuple[Any, Any, Any]:
    """Value, count, and a mask of valid counts; with any other count every bit is shifted out."""
    value, count = promote_operands(self, other)
    if value.dtype.kind not in "iu":
        raise ValueError(f"shifts take integers, got {value.dtype}")
    valid = (count >= 0) & (count < 8 * value.dtype.itemsize)
    return value, np.where(valid, count, 0), valid


def bitwise_left_shift(self: Array, other: Any) -> Array:
    value, count, usable = _shift(self, other)
    return np.where(usable, value << count, np.zeros_like(value))


def bitwise_right_shift(self: Array, other: Any) -> Array:
    """Arithmetic shift: negative numbers end at -1."""
    value, count, usable = _shift(self, other)
    return np.where(usable, value >> count, np.negative((value < 0).astype(value.dtype)))


def where(condition: Array, self: Array, other: Array) -> Array:
    if condition.dtype not in (np.dtype(np.bool_), np.dtype(np.uint8)):
        raise ValueError(f"the condition must be bool, got {condition.dtype}")
    dtype = result_type(self, other)
    return np.where(condition.astype(np.bool_), cast(self, dtype), cast(other, dtype))


def masked_fill(self: Array, mask: Array, value: Any) -> Array:
    if mask.dtype != np.dtype(np.bool_):
        raise ValueError(f"the mask must be bool, got {mask.dtype}")
    return np.where(mask, checked_cast(value, self.dtype), self)
