"""Elementwise arithmetic with type promotion and broadcasting; comparison, logic, bitwise operators and selection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from edgewright.ir.dtypes import (
    DType,
    complex_dtype,
    compute_type,
    is_complex,
    is_floating,
    is_integral,
    promote,
    promote_scalar,
)

# ---------------------------------------------------------------------------------------------------------- elementwise

# Elementwise arithmetic, with type promotion and broadcasting.

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]


def broadcast_shape(*args: Any, **kwargs: Any) -> Shape:
    """The common shape of all array arguments."""
    return np.broadcast_shapes(*(a.shape for a in (*args, *kwargs.values()) if isinstance(a, np.ndarray)))


def _kind(dtype: DType) -> int:
    return 3 if is_complex(dtype) else 2 if is_floating(dtype) else 1 if dtype.kind != "b" else 0


def result_type(*args: Any) -> DType:
    """torch's result type of arrays and numbers: a 0-d array affects it only if it is of a higher category.

    >>> result_type(np.ones(2, np.float16), np.array(1.0), 3)
    dtype('float16')
    """
    arrays = [a for a in args if isinstance(a, np.ndarray)]
    wide = [a.dtype for a in arrays if a.ndim]
    flat = [a.dtype for a in arrays if not a.ndim]
    dtype = promote(*(wide or flat))
    if wide and flat:
        other = promote(*flat)
        if is_complex(other) and is_floating(dtype):
            dtype = complex_dtype(dtype)
        elif _kind(other) > _kind(dtype):
            dtype = promote(dtype, other)
    for number in args:
        if not isinstance(number, np.ndarray):
            dtype = promote_scalar(dtype, number)
    return dtype


def cast(value: Any, dtype: DType) -> Any:
    """An array or a number in ``dtype``; integers wrap."""
    if isinstance(value, np.ndarray):
        return value.astype(dtype, copy=False)
    return np.asarray(value).astype(dtype)[()]


def checked_cast(value: Any, dtype: DType) -> Any:
    """A number in ``dtype``, which must represent it; unsigned types also accept negated values, wrapped."""
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        if not (info.min or -info.max) <= value <= info.max:
            raise OverflowError(f"{value} does not fit in {dtype}")
    return cast(value, dtype)


def promote_operands(*args: Any, rounded: bool = False) -> list[Any]:
    """All arguments in torch's computation type: arrays promoted, numbers by category only.

    16-bit floats are computed in float32; ``rounded`` first rounds numbers to 16 bits, for operators whose result is
    discontinuous in them.
    """
    dtype = result_type(*args)
    if rounded:
        args = tuple(cast(a, dtype) for a in args)
    return [cast(a, compute_type(dtype)) for a in args]


def to_floating(self: Any) -> Any:
    """An operand of a floating-point (or complex) function: integers become float32."""
    return cast(self, np.dtype(np.float32) if is_integral(self.dtype) else compute_type(self.dtype))


def _times_alpha(self: Any, alpha: Any) -> Any:
    if alpha == 1:
        return self
    if is_integral(self.dtype) and isinstance(alpha, float):
        raise ValueError(f"alpha must be an integer for integer tensors, got {alpha}")
    return self * cast(alpha, self.dtype)


def add(self: Array, other: Any, alpha: Any = 1) -> Array:
    a, b = promote_operands(self, other)
    return np.asarray(a + _times_alpha(b, alpha))


def sub(self: Array, other: Any, alpha: Any = 1) -> Array:
    a, b = promote_operands(self, other)
    return np.asarray(a - _times_alpha(b, alpha))


def rsub(self: Array, other: Any, alpha: Any = 1) -> Array:
    a, b = promote_operands(self, other)
    return np.asarray(b - _times_alpha(a, alpha))


def mul(self: Array, other: Any) -> Array:
    a, b = promote_operands(self, other)
    return np.asarray(a * b)


def _check_divisor(self: Any, other: Any) -> None:
    if self.size and is_integral(other.dtype) and not np.all(other):
        raise ZeroDivisionError("integer division by zero")


def div(self: Array, other: Any, rounding_mode: str | None = None) -> Array:
    """The quotient: true division (None), or rounded down (``floor``) or towards zero (``trunc``) in the operands'
    type."""
    a, b = promote_operands(self, other)
    if rounding_mode is None:
        return np.asarray(to_floating(a) / to_floating(b))
    if rounding_mode not in ("floor", "trunc"):
        raise ValueError(f"rounding_mode must be None, 'floor' or 'trunc', got {rounding_mode!r}")
    _check_divisor(self, b)
    if rounding_mode == "floor":
        return np.asarray(np.floor_divide(a, b))
    if is_integral(a.dtype):
        return np.asarray(np.floor_divide(a - np.fmod(a, b), b))
    return np.asarray(np.trunc(a / b))


def floor_divide(self: Array, other: Any) -> Array:
    return div(self, other, "floor")


def fmod(self: Array, other: Any) -> Array:
    """The remainder that has the sign of ``self``."""
    a, b = promote_operands(self, other, rounded=True)
    _check_divisor(self, b)
    return np.asarray(np.fmod(a, b))


def remainder(self: Array, other: Any) -> Array:
    """The remainder that has the sign of ``other``."""
    a, b = promote_operands(self, other, rounded=True)
    _check_divisor(self, b)
    if is_integral(a.dtype):
        return np.asarray(np.remainder(a, b))
    rest = np.fmod(a, b)
    return np.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


def _integer_pow(base: Any, exponent: Any) -> Array:
    """Wraps on overflow; negative powers of anything but 1 and -1 are 0."""
    power = np.power(base, np.maximum(exponent, 0))
    if not np.any(exponent < 0):
        return np.asarray(power)
    unit = np.where(base == 1, 1, np.where(base == -1, 1 - 2 * (exponent & 1), 0))
    return np.where(exponent < 0, unit, power)


def pow(self: Any, exponent: Any) -> Array:
    base, power = promote_operands(self, exponent)
    if not is_integral(base.dtype):
        return np.asarray(np.power(base, power))
    if not isinstance(exponent, np.ndarray) and not 0 <= exponent == int(power):
        raise ValueError(f"an integer tensor takes exponents from 0 to its type's largest, got {exponent}")
    return _integer_pow(base, power)


def maximum(self: Array, other: Any) -> Array:
    a, b = promote_operands(self, other)
    return np.asarray(np.maximum(a, b))


def minimum(self: Array, other: Any) -> Array:
    a, b = promote_operands(self, other)
    return np.asarray(np.minimum(a, b))


def clamp_shape(self: Array, min: Any = None, max: Any = None) -> Shape:
    if min is None and max is None:
        raise ValueError("clamp needs min or max")
    return broadcast_shape(self, min, max)


def clamp(self: Array, min: Any = None, max: Any = None) -> Array:
    """``min(max(self, min), max)``; NaN propagates."""
    values = iter(promote_operands(*(v for v in (self, min, max) if v is not None)))
    result = next(values)
    if min is not None:
        result = np.maximum(result, next(values))
    if max is not None:
        result = np.minimum(result, next(values))
    return np.asarray(result)


def atan2(self: Array, other: Array) -> Array:
    a, b = promote_operands(self, other)
    return np.asarray(np.arctan2(to_floating(a), to_floating(b)))


# -------------------------------------------------------------------------------------------------------------- compare

# Elementwise comparison, logic, bitwise operators and selection.

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
