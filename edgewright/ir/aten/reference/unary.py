"""Elementwise functions of one operand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from edgewright.ir.aten.reference import special
from edgewright.ir.aten.reference.elementwise import Array, cast, to_floating
from edgewright.ir.dtypes import compute_type, is_integral

Unary = Callable[[Array], Array]


def _float_function(fn: Callable[[Any], Any]) -> Unary:
    """A floating-point function: integers are converted to float32."""
    return lambda self: np.asarray(fn(to_floating(self)))


exp = _float_function(np.exp)
expm1 = _float_function(np.expm1)
log = _float_function(np.log)
log1p = _float_function(np.log1p)
log2 = _float_function(np.log2)
log10 = _float_function(np.log10)
sin = _float_function(np.sin)
cos = _float_function(np.cos)
tan = _float_function(np.tan)
asin = _float_function(np.arcsin)
acos = _float_function(np.arccos)
atan = _float_function(np.arctan)
sinh = _float_function(np.sinh)
cosh = _float_function(np.cosh)
tanh = _float_function(np.tanh)
asinh = _float_function(np.arcsinh)
acosh = _float_function(np.arccosh)
atanh = _float_function(np.arctanh)
sqrt = _float_function(np.sqrt)
erf = _float_function(special.erf)
erfinv = _float_function(special.erfinv)
rsqrt = _float_function(lambda x: 1 / np.sqrt(x))
reciprocal = _float_function(lambda x: 1 / x)
sinc = _float_function(np.sinc)


def _rounding(fn: Callable[[Any], Any]) -> Unary:
    """A rounding function; integers are unchanged."""
    return lambda self: self if is_integral(self.dtype) else np.asarray(fn(to_floating(self)))


ceil = _rounding(np.ceil)
floor = _rounding(np.floor)
trunc = _rounding(np.trunc)
round = _rounding(np.rint)  # ties to even


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
