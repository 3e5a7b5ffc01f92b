"""Fixed-point arithmetic on 32-bit integers, of what every Ethos-U has: products, shifts by tensors, leading zeros and
16-bit tables. Functions of sums (reciprocals, roots, logarithms) to some 15 bits, whatever the size of the sum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from edgewright.backends.ethos_u.lower import INT16, INT32, TosaLowering
from edgewright.ir.graph import Array, Value

FINE = 22  # bits of what ``fine`` gives: values to 2**22 * TOP
TOP = 127 * 32767 / 2.0**FINE  # the largest of them


def full(low: TosaLowering, x: Value, number: int) -> Value:
    """A constant that meets ``x`` by broadcasting."""
    return low.tensor(np.full([1] * len(x.bound), number), np.int32)


def both(low: TosaLowering, kind: str, a: Value, b: Value | int, **more: object) -> Value:
    """Two tensors of 32 bits (or one and a number), broadcast."""
    other = full(low, a, b) if isinstance(b, int) else b
    shape = np.broadcast_shapes(a.bound, other.bound)
    return low.node(kind, shape, INT32, a=a, b=other, **more)


def minus(low: TosaLowering, number: int, x: Value) -> Value:
    """A number less a tensor. Of five dimensions and more, Vela broadcasts only second operands."""
    if len(x.bound) <= 4:
        return both(low, "sub", full(low, x, number), x)
    return both(low, "add", mul(low, x, -1), number)


def mul(low: TosaLowering, a: Value, b: Value | int, shift: int = 0) -> Value:
    """The product, with 64 bits in between, less ``shift`` bits (rounded)."""
    return both(low, "mul", a, b, shift=shift)


def right(low: TosaLowering, a: Value, bits: Value | int, rounded: bool = True) -> Value:
    return both(low, "arithmetic_right_shift", a, bits, round=rounded)


def left(low: TosaLowering, a: Value, bits: Value | int) -> Value:
    return both(low, "logical_left_shift", a, bits)


def summed(low: TosaLowering, x: Value, axes: Sequence[int]) -> Value:
    """Sums over axes, which stay with size 1."""
    for axis in axes:
        if x.bound[axis] > 1:
            shape = [1 if a == axis else s for a, s in enumerate(x.bound)]
            x = low.node("reduce_sum", shape, INT32, input=x, axis=axis)
    return x


def fine(low: TosaLowering, index: Value, values: Array) -> Value:
    """One of 256 values (below 127 * 32767) for each integer from -128 to 127, to the last bit.

    A 16-bit table interpolates between two entries: taken 127/128 of the way, entries ``a, b`` give ``a + 127 b``.
    From one entry to the next there are 16 bits, too: with ``a`` above zero, ``b - a`` never is more.
    """
    whole = np.round(values).astype(np.int64)
    upper = whole // 127
    entries = np.stack([whole - 127 * upper, upper], axis=1).ravel()
    wide = index if index.dtype == INT32 else low.rescale(index, INT32, 1.0)
    at = low.rescale(both(low, "add", left(low, wide, 8), 127), INT16, 1.0)
    return low.node("table", at.bound, INT32, input=at, table=low.tensor([*entries, 0], np.int16))


@dataclass(frozen=True)
class Normal:
    """A positive integer as ``mantissa * 2**-shift``: a mantissa from ``2**30`` on (``2**29``, by fours) below
    ``2**31``."""

    mantissa: Value
    shift: Value
    lowest: float

    def table(self, low: TosaLowering, function: Callable[[Array], Array]) -> Value:
        """A function of the mantissa over ``lowest``, with values up to 1, in units of ``2**-22``."""
        first = round(self.lowest * 2**30)
        middle = (first + 2**31) // 2
        reach = 2**31 - middle
        at = low.rescale(both(low, "sub", self.mantissa, middle), INT16, 2.0**15 / reach)
        knots = 1 + np.arange(513) * (2**31 / first - 1) / 512
        entries = np.clip(np.round(function(knots) * 2**15), -(2**15), 2**15 - 1)
        return low.node("table", at.bound, INT32, input=at, table=low.tensor(entries, np.int16))


def normal(low: TosaLowering, x: Value, fours: bool = False) -> Normal:
    """``x``, above zero, shifted as far left as it goes (by an even number of bits)."""
    zeros = both(low, "sub", low.node("clz", x.bound, INT32, input=x), 1)
    if fours:
        zeros = left(low, right(low, zeros, 1, rounded=False), 1)
    return Normal(left(low, x, zeros), zeros, 0.5 if fours else 1.0)


def reciprocal(low: TosaLowering, x: Value) -> tuple[Value, Value]:
    """``r, s`` with ``1 / x = r * 2**(s - 52)``: r up to ``2**22``."""
    parts = normal(low, x)
    return parts.table(low, lambda m: 1 / m), parts.shift


def rsqrt(low: TosaLowering, x: Value) -> tuple[Value, Value]:
    """``r, s`` with ``1 / sqrt(x) = r * 2**(s - 36.5)``: r up to ``2**22``."""
    parts = normal(low, x, fours=True)
    return parts.table(low, lambda m: 1 / np.sqrt(m)), right(low, parts.shift, 1, rounded=False)


def sqrt(low: TosaLowering, x: Value) -> tuple[Value, Value]:
    """``r, s`` with ``sqrt(x) = r * 2**(-s - 6.5)``: r up to ``2**22``."""
    parts = normal(low, x, fours=True)
    return parts.table(low, lambda m: np.sqrt(m) / 2), right(low, parts.shift, 1, rounded=False)


def log(low: TosaLowering, x: Value) -> Value:
    """The natural logarithm, in units of ``2**-22``."""
    parts = normal(low, x)
    whole = minus(low, 30, parts.shift)  # the exponent: x = m * 2**(30 - shift)
    return both(low, "add", parts.table(low, np.log), mul(low, whole, round(np.log(2) * 2**22)))
