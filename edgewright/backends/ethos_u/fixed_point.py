"""Fixed-point arithmetic from TOSA operators that every Ethos-U has: int32 products, shifts, CLZ and 16-bit tables.

Ethos-U has no division and no square root, so a function of a positive int32 ``x`` (reciprocal, rsqrt, log) is computed
as a compiler's soft-float library does it. ``normalize`` shifts ``x`` left by its leading zeros: ``x = mantissa *
2**-shift`` with the mantissa in one octave (two octaves for roots, so that the shift is even and halves exactly). The
mantissa indexes a 16-bit TABLE, whose 513 entries the hardware interpolates linearly; that gives about 15 correct bits
for any magnitude of ``x``. The caller applies the shift to the product. For the technique see Muller, "Elementary
Functions: Algorithms and Implementation", the chapters on range reduction and table-based methods.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from edgewright.backends.ethos_u.lower import INT16, INT32, TosaLowering
from edgewright.ir.graph import Array, Value

FRACTION_BITS = 22  # fraction bits of ``exact_table``, whose values go up to MAX_VALUE
MAX_VALUE = 127 * 32767 / 2.0**FRACTION_BITS  # the largest value


def scalar_like(low: TosaLowering, x: Value, number: int) -> Value:
    """A scalar constant that broadcasts with ``x``."""
    return low.const(np.full([1] * len(x.bound), number), np.int32)


def binary(low: TosaLowering, kind: str, a: Value, b: Value | int, **args: object) -> Value:
    """A binary int32 operator on two tensors, or a tensor and a number, with broadcasting."""
    other = scalar_like(low, a, b) if isinstance(b, int) else b
    shape = np.broadcast_shapes(a.bound, other.bound)
    return low.node(kind, shape, INT32, a=a, b=other, **args)


def subtract_from(low: TosaLowering, number: int, x: Value) -> Value:
    """``number - x``. From rank five on Vela broadcasts only second operands."""
    if len(x.bound) <= 4:
        return binary(low, "sub", scalar_like(low, x, number), x)
    return binary(low, "add", mul(low, x, -1), number)


def mul(low: TosaLowering, a: Value, b: Value | int, shift: int = 0) -> Value:
    """The 64-bit product shifted right by ``shift`` bits, rounded."""
    return binary(low, "mul", a, b, shift=shift)


def shift_right(low: TosaLowering, a: Value, bits: Value | int, rounded: bool = True) -> Value:
    return binary(low, "arithmetic_right_shift", a, bits, round=rounded)


def shift_left(low: TosaLowering, a: Value, bits: Value | int) -> Value:
    return binary(low, "logical_left_shift", a, bits)


def reduce_sum(low: TosaLowering, x: Value, axes: Sequence[int]) -> Value:
    """Sums over axes, keeping dimensions."""
    for axis in axes:
        if x.bound[axis] > 1:
            shape = [1 if a == axis else s for a, s in enumerate(x.bound)]
            x = low.node("reduce_sum", shape, INT32, input=x, axis=axis)
    return x


def exact_table(low: TosaLowering, index: Value, values: Array) -> Value:
    """Exact lookup of 256 values (below 127 * 32767) by integers from -128 to 127.

    A 16-bit TABLE interpolates between neighboring entries: at 127/128 of the distance, entries ``a, b`` give ``a +
    127 * b``. So each value is split into two 16-bit entries and one lookup returns all 22 bits of it. ``b - a`` fits
    16 bits because ``a`` is not negative.
    """
    integers = np.round(values).astype(np.int64)
    upper = integers // 127
    entries = np.stack([integers - 127 * upper, upper], axis=1).ravel()
    wide = index if index.dtype == INT32 else low.rescale(index, INT32, 1.0)
    lookup = low.rescale(binary(low, "add", shift_left(low, wide, 8), 127), INT16, 1.0)
    return low.node("table", lookup.bound, INT32, input=lookup, table=low.const([*entries, 0], np.int16))


@dataclass(frozen=True)
class Normalized:
    """A positive integer as ``mantissa * 2**-shift``, with the mantissa in ``[lowest * 2**30, 2**31)``."""

    mantissa: Value
    shift: Value
    lowest: float

    def lookup(self, low: TosaLowering, function: Callable[[Array], Array]) -> Value:
        """A function of ``mantissa / (lowest * 2**30)``, with values up to 1, in units of ``2**-22``."""
        first = round(self.lowest * 2**30)
        middle = (first + 2**31) // 2
        half_width = 2**31 - middle
        position = low.rescale(binary(low, "sub", self.mantissa, middle), INT16, 2.0**15 / half_width)
        knots = 1 + np.arange(513) * (2**31 / first - 1) / 512
        entries = np.clip(np.round(function(knots) * 2**15), -(2**15), 2**15 - 1)
        return low.node("table", position.bound, INT32, input=position, table=low.const(entries, np.int16))


def normalize(low: TosaLowering, x: Value, even_shift: bool = False) -> Normalized:
    """Shift positive ``x`` left by its leading zeros (by an even number of bits if ``even_shift``)."""
    zeros = binary(low, "sub", low.node("clz", x.bound, INT32, input=x), 1)
    if even_shift:
        zeros = shift_left(low, shift_right(low, zeros, 1, rounded=False), 1)
    return Normalized(shift_left(low, x, zeros), zeros, 0.5 if even_shift else 1.0)


def reciprocal(low: TosaLowering, x: Value) -> tuple[Value, Value]:
    """``r, s`` with ``1 / x = r * 2**(s - 52)`` and ``r <= 2**22``."""
    parts = normalize(low, x)
    return parts.lookup(low, lambda m: 1 / m), parts.shift


def rsqrt(low: TosaLowering, x: Value) -> tuple[Value, Value]:
    """``r, s`` with ``1 / sqrt(x) = r * 2**(s - 36.5)`` and ``r <= 2**22``."""
    parts = normalize(low, x, even_shift=True)
    return parts.lookup(low, lambda m: 1 / np.sqrt(m)), shift_right(low, parts.shift, 1, rounded=False)


def sqrt(low: TosaLowering, x: Value) -> tuple[Value, Value]:
    """``r, s`` with ``sqrt(x) = r * 2**(-s - 6.5)`` and ``r <= 2**22``."""
    parts = normalize(low, x, even_shift=True)
    return parts.lookup(low, lambda m: np.sqrt(m) / 2), shift_right(low, parts.shift, 1, rounded=False)


def log(low: TosaLowering, x: Value) -> Value:
    """Natural logarithm, in units of ``2**-22``."""
    parts = normalize(low, x)
    exponent = subtract_from(low, 30, parts.shift)  # the exponent: x = m * 2**(30 - shift)
    return binary(low, "add", parts.lookup(low, np.log), mul(low, exponent, round(np.log(2) * 2**22)))
