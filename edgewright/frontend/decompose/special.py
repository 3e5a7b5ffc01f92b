"""Decompositions of special functions."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

from edgewright.frontend.decompose.canonical import dtype_of, rule, to_dtype
from edgewright.frontend.rewriter import Rewriter

aten = torch.ops.aten

# erfinv(x) / x in float32, highest power first: M. Giles, "Approximating the erfinv function", 2011.
# With w = -log(1 - x^2): in w - 2.5 for w < 5, else in sqrt(w) - 3.
_ERFINV_CENTRAL = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164,
    0.246640727, 1.50140941,
)  # fmt: skip
_ERFINV_TAIL = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047,
    1.00167406, 2.83297682,
)  # fmt: skip


def _horner(rw: Rewriter, coefficients: tuple[float, ...], u: fx.Node) -> Any:
    total = rw.call(aten.add.Scalar, rw.call(aten.mul.Scalar, u, coefficients[0]), coefficients[1])
    for coefficient in coefficients[2:]:
        total = rw.call(aten.add.Scalar, rw.call(aten.mul.Tensor, total, u), coefficient)
    return total


@rule(aten.erfinv.default)
def erfinv(rw: Rewriter, x: fx.Node) -> Any:
    """Giles' polynomials in float32; a step of Halley's method makes them float64. Infinite at -1 and 1, NaN beyond."""
    floating = dtype_of(x).is_floating_point
    result_dtype = dtype_of(x) if floating else torch.get_default_dtype()
    y = to_dtype(rw, x, torch.float64 if result_dtype == torch.float64 else torch.float32)
    # The product keeps the digits of 1 - |x| that 1 - x^2 loses.
    product = rw.call(aten.mul.Tensor, rw.call(aten.rsub.Scalar, y, 1), rw.call(aten.add.Scalar, y, 1))
    w = rw.call(aten.neg.default, rw.call(aten.log.default, product))
    central = _horner(rw, _ERFINV_CENTRAL, rw.call(aten.sub.Scalar, w, 2.5))
    clamped = rw.call(aten.clamp.default, w, 5.0)
    tail = _horner(rw, _ERFINV_TAIL, rw.call(aten.sub.Scalar, rw.call(aten.sqrt.default, clamped), 3))
    factor = rw.call(aten.where.self, rw.call(aten.lt.Scalar, w, 5), central, tail)
    z = rw.call(aten.mul.Tensor, factor, y)
    if dtype_of(y) == torch.float64:
        z = _halley_step(rw, z, y)
    # Quantizers observe every step: only what is infinite for this input may be.
    at_end = rw.call(aten.eq.Scalar, rw.call(aten.abs.default, y), 1)
    return to_dtype(rw, rw.call(aten.where.self, at_end, rw.call(aten.mul.Tensor, y, w), z), result_dtype)


def _halley_step(rw: Rewriter, z: fx.Node, y: fx.Node) -> Any:
    """A better root of erf(z) = y."""
    inverse_slope = rw.call(aten.exp.default, rw.call(aten.mul.Tensor, z, z))
    miss = rw.call(aten.sub.Tensor, rw.call(aten.erf.default, z), y)
    miss = rw.call(aten.mul.Scalar, rw.call(aten.mul.Tensor, miss, inverse_slope), math.sqrt(math.pi) / 2)
    divisor = rw.call(aten.add.Scalar, rw.call(aten.mul.Tensor, z, miss), 1)
    return rw.call(aten.sub.Tensor, z, rw.call(aten.div.Tensor, miss, divisor))
