"""Element by element: functions of one number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from edgewright.ir.aten.reference import special
from edgewright.ir.aten.reference.elementwise import Array, cast, floating
from edgewright.ir.dtypes import compute_type, is_integral

Unary = Callable[[Array], Array]


def _real(fn: Callable[[Any], Any]) -> Unary:
    """A function of real numbers: integers enter it as float32."""
    return lambda self: np.asarray(fn(floating(self)))


exp = _real(np.exp)
expm1 = _real(np.expm1)
log = _real(np.log)
log1p = _real(np.log1p)
log2 = _real(np.log2)
log10 = _real(np.log10)
sin = _real(np.sin)
cos = _real(np.cos)
tan = _real(np.tan)
asin = _real(np.arcsin)
acos = _real(np.arccos)
atan = _real(np.arctan)
sinh = _real(np.sinh)
cosh = _real(np.cosh)
tanh = _real(np.tanh)
asinh = _real(np.arcsinh)
acosh = _real(np.arccosh)
atanh = _real(np.arctanh)
sqrt = _real(np.sqrt)
erf = _real(special.erf)
erfinv = _real(special.erfinv)
rsqrt = _real(lambda x: 1 / np.sqrt(x))
reciprocal = _real(lambda x: 1 / x)


def _rounding(fn: Callable[[Any], Any]) -> Unary:
    """A way to make floats whole; integers are."""
    return lambda self: self if is_integral(self.dtype) else np.asarray(fn(floating(self)))


ceil = _rounding(np.ceil)
floor = _rounding(np.floor)
trunc = _rounding(np.trunc)
round = _rounding(np.rint)  # halves go to the even neighbour


def abs(self: Array) -> Array:
    """The magnitude: real for complex numbers; the smallest integer wraps to itself."""
    return np.asarray(np.abs(cast(self, compute_type(self.dtype))))


def neg(self: Array) -> Array:
    return np.asarray(np.negative(cast(self, compute_type(self.dtype))))


def sign(self: Array) -> Array:
    """-1, 0 or 1; NaN has no sign and gives 0."""
    if self.dtype.kind == "b":
        return self
    x = cast(self, compute_type(self.dtype))
    return np.asarray((x > 0).astype(x.dtype) - (x < 0).astype(x.dtype))


def conj(self: Array) -> Array:
    return np.asarray(np.conj(self)) if self.dtype.kind == "c" else self


def square(self: Array) -> Array:
    x = cast(self, compute_type(self.dtype))
    return np.asarray(x * x)
