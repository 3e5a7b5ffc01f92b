"""Exact integer arithmetic on numpy arrays: int64, and Python's integers where bounds exceed it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from edgewright.ir.graph import Array
from edgewright.ir.int_arithmetic import Float, IntArithmetic, Number, RangedInt
from edgewright.ir.requant_scale import ROUNDINGS

_INT64 = -(1 << 63), (1 << 63) - 1
_COMBINE: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "smax": np.maximum, "smin": np.minimum,
}  # fmt: skip
_COMPARE: dict[str, Callable[..., Any]] = {
    "eq": np.equal, "ne": np.not_equal, "gt": np.greater, "ge": np.greater_equal, "lt": np.less, "le": np.less_equal,
}  # fmt: skip
_BITWISE: dict[str, Callable[..., Any]] = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
_FLOAT_OPS: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
}  # fmt: skip
_FLOAT_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": np.abs, "ceil": np.ceil, "floor": np.floor, "neg": np.negative, "sqrt": np.sqrt,
}  # fmt: skip


def load(array: Array) -> RangedInt:
    """An array of integers or booleans, with the bounds of its type."""
    if array.dtype.kind == "b":
        return RangedInt(array.astype(np.int64), 0, 1)
    info: Any = np.iinfo(array.dtype)
    wide = array.astype(np.int64) if int(info.max) <= _INT64[1] else array.astype(object)
    return RangedInt(wide, int(info.min), int(info.max))


def _as_type(a: RangedInt, dtype: Any) -> Array:
    return np.asarray(a.data).astype(dtype)


def _bounded(array: Any) -> RangedInt:
    """An array with the bounds of its elements."""
    array = np.asarray(array)
    return RangedInt(array, int(array.min(initial=0)), int(array.max(initial=0)))


class NumpyInts(IntArithmetic):
    """Runs rules on arrays, which broadcast."""

    def constant(self, value: int) -> RangedInt:
        return RangedInt(np.asarray(value, np.int64 if _INT64[0] <= value <= _INT64[1] else object), value, value)

    def combine(self, name: str, a: RangedInt, b: RangedInt, low: int, high: int) -> RangedInt:
        exact = object if low < _INT64[0] or high > _INT64[1] else np.int64
        operands = [x.data if x.data.dtype == object else x.data.astype(exact, copy=False) for x in (a, b)]
        result = np.asarray(_COMBINE[name](*operands))
        return RangedInt(result.astype(exact, copy=False), low, high)

    def shift_right(self, a: RangedInt, bits: int) -> RangedInt:
        exact = np.asarray(a.data >> bits)
        low, high = a.low >> bits, a.high >> bits
        return RangedInt(exact.astype(np.int64) if _INT64[0] <= low and high <= _INT64[1] else exact, low, high)

    def shift_right_each(self, a: RangedInt, bits: RangedInt, rounded: bool) -> RangedInt:
        value, count = _as_type(a, np.int64), _as_type(bits, np.int64)
        result = value >> _count(count)
        if rounded:
            result = result + np.where(count > 0, (value >> _count(count - 1)) & 1, 0)
        return RangedInt(result, min(a.low, 0), max(a.high, 0))

    def shift_logical(self, a: RangedInt, bits: RangedInt, left: bool, width: int) -> RangedInt:
        mask = (1 << width) - 1
        value, count = _as_type(a, np.int64) & mask, _as_type(bits, np.int64)
        inside = (count >= 0) & (count < width)
        safe = np.where(inside, count, 0)
        shifted = np.where(inside, value << safe & mask if left else value >> safe, 0)
        return self.wrap(RangedInt(shifted, 0, mask), width)

    def compare(self, predicate: str, a: RangedInt, b: RangedInt) -> RangedInt:
        return RangedInt(np.asarray(_COMPARE[predicate[-2:]](a.data, b.data), np.int64), 0, 1)

    def select(self, condition: RangedInt, on_true: RangedInt, on_false: RangedInt) -> RangedInt:
        chosen = np.where(condition.data != 0, on_true.data, on_false.data)
        return RangedInt(chosen, min(on_true.low, on_false.low), max(on_true.high, on_false.high))

    def bitwise(self, name: str, a: RangedInt, b: RangedInt) -> RangedInt:
        return _bounded(_BITWISE[name](a.data, b.data))

    def leading_zeros(self, a: RangedInt) -> RangedInt:
        pattern = _as_type(a, np.int64) & 0xFFFFFFFF
        return RangedInt(32 - np.frexp(pattern.astype(np.float64))[1].astype(np.int64), 0, 32)

    def divide(self, a: RangedInt, b: RangedInt) -> RangedInt:
        x, y = (n.data.astype(object) if n.low == _INT64[0] else n.data for n in (a, b))  # it has no magnitude
        quotient, bound = np.abs(x) // np.where(y == 0, 1, np.abs(y)), max(abs(a.low), abs(a.high))
        return RangedInt(np.where((x < 0) != (y < 0), -quotient, quotient), -bound, bound)

    def lookup(self, entries: Sequence[int], index: RangedInt) -> RangedInt:
        return RangedInt(np.asarray(entries, np.int64)[index.data], min(entries), max(entries))

    def wrap(self, a: RangedInt, bits: int) -> RangedInt:
        half = 1 << (bits - 1)
        if a.fits(-half, half - 1):
            return a
        pattern = (a.data.astype(object) if bits > 62 else a.data) & (2 * half - 1)
        return RangedInt(np.where(pattern >= half, pattern - 2 * half, pattern).astype(np.int64), -half, half - 1)

    def rescale(self, a: RangedInt, multiplier: int, shift: int, rounding: str) -> RangedInt:
        return _bounded(ROUNDINGS[rounding](_as_type(a, np.int64), np.asarray(multiplier), np.asarray(shift)))

    def rescale_each(
        self, a: RangedInt, multiplier: RangedInt, shift: RangedInt, rounding: str, bound: int | None = None
    ) -> RangedInt:
        return _bounded(ROUNDINGS[rounding](_as_type(a, np.int64), multiplier.data, shift.data))

    # ------------------------------------------------------------------------------------------------------ float32

    def to_float(self, a: RangedInt) -> Float:
        return _as_type(a, np.float32)

    def float_bits(self, a: RangedInt) -> Float:
        return _as_type(a, np.int32).view(np.float32)

    def float_op(self, name: str, a: Float, b: Number) -> Float:
        with np.errstate(all="ignore"):
            return _FLOAT_OPS[name](a, np.asarray(b, np.float32))

    def float_function(self, name: str, a: Float) -> Float:
        with np.errstate(all="ignore"):
            return _FLOAT_FUNCTIONS[name](a)

    def float_clamp(self, a: Float, low: float, high: float) -> Float:
        return np.clip(a, np.float32(low), np.float32(high))

    def float_compare(self, predicate: str, a: Float, b: Number) -> RangedInt:
        return RangedInt(np.asarray(_float_compare(predicate, a, b), np.int64), 0, 1)

    def float_select(self, predicate: str, a: Float, b: Number, on_true: Float, on_false: Number) -> Float:
        return np.where(_float_compare(predicate, a, b), on_true, np.asarray(on_false, np.float32))

    def float_choose(self, condition: RangedInt, on_true: Float, on_false: Float) -> Float:
        return np.where(condition.data != 0, on_true, on_false)

    def to_int(self, a: Float, low: int, high: int, rounded: bool = True) -> RangedInt:
        return RangedInt((np.rint(a) if rounded else np.trunc(a)).astype(np.int64), low, high)


def _count(bits: Array) -> Array:
    """Counts of arithmetic shifts: those that are negative or too large leave the sign."""
    return np.where((bits < 0) | (bits > 63), 63, bits)


def _float_compare(predicate: str, a: Float, b: Number) -> Array:
    if predicate == "ord":
        return np.asarray(~(np.isnan(a) | np.isnan(b)))
    return np.asarray(_COMPARE[predicate[-2:]](a, np.asarray(b, np.float32)))
