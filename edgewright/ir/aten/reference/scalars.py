"""Arithmetic on sizes and other scalars. Integers are 64-bit and never wrap: overflow raises."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from edgewright.ir.aten.reference.dims import normal_index
from edgewright.ir.dtypes import is_floating, is_integral

Number = bool | int | float
Array = np.ndarray[Any, Any]


def _checked_int64(fn: Callable[..., Any]) -> Callable[..., Any]:
    """``fn`` on numbers only, whose integer results fit in 64 bits."""

    @wraps(fn)
    def apply(*args: Any) -> Any:
        for value in args:
            if not isinstance(value, int | float):
                raise TypeError(f"operands must be numbers, got {value!r}")
        result = fn(*args)
        if isinstance(result, int) and not -(2**63) <= result < 2**63:
            raise OverflowError(f"result does not fit in 64 bits: {result}")
        return result

    return apply


add = _checked_int64(operator.add)
sub = _checked_int64(operator.sub)
mul = _checked_int64(operator.mul)
truediv = _checked_int64(operator.truediv)
floordiv = _checked_int64(operator.floordiv)
neg = _checked_int64(operator.neg)
eq = _checked_int64(operator.eq)
lt = _checked_int64(operator.lt)
le = _checked_int64(operator.le)
gt = _checked_int64(operator.gt)
ge = _checked_int64(operator.ge)
not_ = _checked_int64(operator.not_)
ceil = _checked_int64(math.ceil)
trunc = _checked_int64(math.trunc)
to_int = _checked_int64(int)
to_float = _checked_int64(float)


@_checked_int64
def round(a: Number) -> int:
    """Round to the nearest integer, ties to even."""
    return int(np.rint(a)) if isinstance(a, float) else int(a)


@_checked_int64
def truncdiv(a: int, b: int) -> int:
    """The quotient of two integers, rounded towards zero."""
    quotient = abs(operator.index(a)) // abs(operator.index(b))
    return quotient if (a < 0) == (b < 0) else -quotient


@_checked_int64
def truncmod(a: int, b: int) -> int:
    """The remainder of ``truncdiv``; it has the sign of ``a``."""
    rest = abs(operator.index(a)) % abs(operator.index(b))
    return -rest if a < 0 else rest


@_checked_int64
def if_else(b: Number, t: Number, f: Number) -> Number:
    return t if b else f


def _choose_number(choose: Callable[[Any, Any], Any]) -> Callable[[Number, Number], Number]:
    """One of two numbers, as a float if either is."""

    @_checked_int64
    def apply(a: Number, b: Number) -> Number:
        result: Number = choose(a, b)
        return float(result) if isinstance(a, float) or isinstance(b, float) else result

    return apply


maximum = _choose_number(max)
minimum = _choose_number(min)


def size_of(self: Array, dim: int) -> int:
    if not self.ndim:
        raise IndexError("a 0-d tensor has no sizes")
    return int(self.shape[normal_index(dim, self.ndim)])


def numel_of(self: Array) -> int:
    return self.size


def item(self: Array) -> Number:
    """The only element, as a Python number."""
    if self.size != 1:
        raise ValueError(f"the tensor must have one element, got shape {list(self.shape)}")
    if is_floating(self.dtype):
        return float(self.reshape(())[()])
    if not is_integral(self.dtype):
        raise ValueError(f"the element must be a real number, got {self.dtype}")
    value: Number = self.item()
    return value
