"""Samples of functions of one number."""

from __future__ import annotations

import numpy as np

from tests.ir.aten.harness import Sample, channels_last
from tests.ir.aten.samples.values import COMPLEX, FLOATS, INTS, array, edges, normal, unlike_stock
from tests.ir.aten.stock_differences import reason

REAL = ("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "exp", "expm1", "log", "log10", "log1p",
        "log2", "reciprocal", "rsqrt", "sin", "sinh", "sqrt", "tan", "tanh")  # fmt: skip
ROUNDING = ("ceil", "floor", "round", "trunc")
NARROW = np.linspace(-0.9, 0.9, 6).reshape(2, 3)


def layouts(key: str) -> list[Sample]:
    """Shapes and layouts, which no elementwise function may care about."""
    image = np.abs(normal("float32", 2, 3, 4, 2))
    return [
        Sample(key, [normal("float32")]),
        Sample(key, [normal("float32", 0, 3)]),
        Sample(key, [normal("float32", 4, 3).T]),
        Sample(key, [channels_last(image)], dim_order=(0, 2, 3, 1)),
        Sample(key, [channels_last(image)]),
    ]


def real(name: str) -> list[Sample]:
    key = f"aten::{name}.out"
    found = [Sample(key, [array(values, d)]) for d in FLOATS for values in (NARROW, 1 + 3 * np.abs(NARROW))]
    found += [Sample(key, [edges(d)]) for d in FLOATS]
    found += [Sample(key, [array([[0, 1, 2], [3, 1, 0]], d)], out=["float32"]) for d in (*INTS, "bool")]
    if name != "erf":
        found += [Sample(key, [normal(d, 2, 3)]) for d in COMPLEX]
    return found + layouts(key)


def exact() -> list[Sample]:
    found = []
    for name in ROUNDING:
        key = f"aten::{name}.out"
        found += [Sample(key, [v]) for d in FLOATS for v in (normal(d, 2, 3, scale=9), edges(d))]
        found += [Sample(key, [edges(d)]) for d in INTS] + layouts(key)
        found += [Sample(key, [array([0.5, 1.5, 2.5, -0.5, -1.5, 2**23 + 0.5, 1e30, -1e-30])])]
    for name in ("abs", "neg", "sign"):
        key = f"aten::{name}.out"
        found += [Sample(key, [edges(d)]) for d in (*FLOATS, *INTS)] + layouts(key)
    found += [Sample("aten::sign.out", [edges("bool")])]
    for d, part in zip(COMPLEX, ("float32", "float64"), strict=True):
        found += [Sample("aten::abs.out", [normal(d, 2, 3)], out=[part])]
    found += [Sample("aten::neg.out", [normal(d, 2, 3)]) for d in COMPLEX]
    found += [Sample("aten::_conj_physical.out", [normal(d, 2, 3)]) for d in COMPLEX]
    found += [Sample("aten::_conj_physical.out", [normal("complex64", *shape)]) for shape in ((), (0, 2))]
    return found


def erf() -> list[Sample]:
    grid = np.linspace(-6.5, 6.5, 53)
    around_one = 1 + np.arange(-3, 4) * 2.0**-52
    wide = [Sample("aten::erf.out", [v], rtol=1e-15, atol=0) for v in (grid, around_one, grid * 1e-3, grid * 1e-300)]
    return [*real("erf"), *wide, Sample("aten::erf.out", [normal("float32", 3, 20000)])]


SAMPLES = unlike_stock([*(s for name in REAL for s in real(name)), *exact(), *erf()], reason)
