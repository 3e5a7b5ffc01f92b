"""Exact integer arithmetic as an interface, so that a vendor's operator is written once.

A rule of a dialect (``ir/int_rules.py``) computes with an ``IntArithmetic`` and nothing else. ``NumpyInts``
(``ir/numpy_ints.py``) runs it on arrays, as the reference. The engine's ``RangedIntBuilder`` generates machine code.

Every integer carries the bounds of its value, which this class tracks by interval arithmetic: from them the engine
chooses 32 or 64 bits, and numpy Python's integers where 64 bits would overflow. Where an implementation cannot compute
exactly, it raises ``IntRangeError``, and the operator runs in another way.

Float32 steps are for vendors that define integer operators by real numbers. Every step rounds once; no implementation
fuses two of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


class IntRangeError(Exception):
    """The result would not fit in 64 bits, or the operation is not supported exactly."""


@dataclass(frozen=True)
class RangedInt:
    """Integers in [low, high]. ``data``: an array or a vector register."""

    data: Any
    low: int
    high: int

    def fits(self, low: int, high: int) -> bool:
        return self.low >= low and self.high <= high


Float = Any  # float32 numbers: an array or a vector register
Number = Any  # the same, or a Python float


class IntArithmetic(ABC):
    """The operations that rules may use."""

    # -------------------------------------------------------------------------------------------------- arithmetic

    @abstractmethod
    def constant(self, value: int) -> RangedInt: ...

    @abstractmethod
    def combine(self, name: str, a: RangedInt, b: RangedInt, low: int, high: int) -> RangedInt:
        """``add``, ``sub``, ``mul``, ``smax`` or ``smin``, whose result is in [low, high]."""

    def add(self, a: RangedInt, b: RangedInt) -> RangedInt:
        return self.combine("add", a, b, a.low + b.low, a.high + b.high)

    def sub(self, a: RangedInt, b: RangedInt) -> RangedInt:
        return self.combine("sub", a, b, a.low - b.high, a.high - b.low)

    def mul(self, a: RangedInt, b: RangedInt) -> RangedInt:
        products = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
        return self.combine("mul", a, b, min(products), max(products))

    def plus(self, a: RangedInt, n: int) -> RangedInt:
        return a if n == 0 else self.add(a, self.constant(n))

    def shift_left(self, a: RangedInt, bits: int) -> RangedInt:
        return self.mul(a, self.constant(1 << bits))

    @abstractmethod
    def shift_right(self, a: RangedInt, bits: int) -> RangedInt:
        """Arithmetic shift: rounds down."""

    @abstractmethod
    def shift_right_each(self, a: RangedInt, bits: RangedInt, rounded: bool) -> RangedInt:
        """Arithmetic shift by as many bits per element, rounded down or half up. Counts outside of 0 to 63 leave the
        sign."""

    @abstractmethod
    def shift_logical(self, a: RangedInt, bits: RangedInt, left: bool, width: int) -> RangedInt:
        """Shift integers of ``width`` bits, filling with zeros; the result is signed. Counts outside of 0 to
        ``width - 1`` give 0."""

    def largest(self, a: RangedInt, b: RangedInt) -> RangedInt:
        return self.combine("smax", a, b, max(a.low, b.low), max(a.high, b.high))

    def smallest(self, a: RangedInt, b: RangedInt) -> RangedInt:
        return self.combine("smin", a, b, min(a.low, b.low), min(a.high, b.high))

    def clamp(self, a: RangedInt, low: int, high: int) -> RangedInt:
        if a.low < low:
            a = self.largest(a, self.constant(low))
        if a.high > high:
            a = self.smallest(a, self.constant(high))
        return a if a.low >= low else RangedInt(a.data, low, a.high)

    @abstractmethod
    def compare(self, predicate: str, a: RangedInt, b: RangedInt) -> RangedInt:
        """1 where ``a predicate b`` (eq, ne, sgt, sge, slt, sle), else 0."""

    @abstractmethod
    def select(self, condition: RangedInt, on_true: RangedInt, on_false: RangedInt) -> RangedInt:
        """``on_true`` where ``condition`` is not 0."""

    @abstractmethod
    def bitwise(self, name: str, a: RangedInt, b: RangedInt) -> RangedInt:
        """``and``, ``or`` or ``xor`` in two's complement."""

    @abstractmethod
    def leading_zeros(self, a: RangedInt) -> RangedInt:
        """Leading zero bits of 32-bit integers."""

    @abstractmethod
    def divide(self, a: RangedInt, b: RangedInt) -> RangedInt:
        """Division, truncated; by zero it returns the dividend."""

    @abstractmethod
    def lookup(self, entries: Sequence[int], index: RangedInt) -> RangedInt:
        """``entries[index]``; indices must be in range."""

    @abstractmethod
    def wrap(self, a: RangedInt, bits: int) -> RangedInt:
        """The low bits, as a signed integer."""

    def narrow(self, a: RangedInt) -> RangedInt:
        """The same integers, in fewer bits where their bounds allow: a hint that this is faster."""
        return a

    # ---------------------------------------------------------------------------------------------------- rescaling

    @abstractmethod
    def rescale(self, a: RangedInt, multiplier: int, shift: int, rounding: str) -> RangedInt:
        """Multiply by a non-negative fixed-point factor, rounded as in ``ir/requant_scale.py``."""

    @abstractmethod
    def rescale_each(
        self, a: RangedInt, multiplier: RangedInt, shift: RangedInt, rounding: str, bound: int | None = None
    ) -> RangedInt:
        """The same with a factor per element. ``bound``: of the results' absolute value, where it is known."""

    # ------------------------------------------------------------------------------------------------------ float32

    @abstractmethod
    def to_float(self, a: RangedInt) -> Float:
        """Round to nearest even."""

    @abstractmethod
    def float_bits(self, a: RangedInt) -> Float:
        """32-bit patterns as float32."""

    @abstractmethod
    def float_op(self, name: str, a: Float, b: Number) -> Float:
        """``add``, ``sub``, ``mul`` or ``div``."""

    @abstractmethod
    def float_function(self, name: str, a: Float) -> Float:
        """``abs``, ``ceil``, ``floor``, ``neg`` or ``sqrt``."""

    @abstractmethod
    def float_clamp(self, a: Float, low: float, high: float) -> Float:
        """NaN stays NaN."""

    @abstractmethod
    def float_compare(self, predicate: str, a: Float, b: Number) -> RangedInt:
        """1 where ``a predicate b`` (oeq, une, ogt, oge, olt, ole), else 0; ``o`` predicates are false for NaN."""

    @abstractmethod
    def float_select(self, predicate: str, a: Float, b: Number, on_true: Float, on_false: Number) -> Float:
        """``on_true`` where ``a predicate b``; predicates as in ``float_compare``, and ``ord``: neither is NaN."""

    @abstractmethod
    def float_choose(self, condition: RangedInt, on_true: Float, on_false: Float) -> Float:
        """``on_true`` where ``condition`` is not 0."""

    @abstractmethod
    def to_int(self, a: Float, low: int, high: int, rounded: bool = True) -> RangedInt:
        """Integers of floats that are in [low, high]: rounded half to even, or truncated."""
