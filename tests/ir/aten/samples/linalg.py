"""Samples of matrix products."""

from __future__ import annotations

import numpy as np

from tests.ir.aten.harness import Sample
from tests.ir.aten.samples.values import COMPLEX, FLOATS, INTS, array, has_complex, normal, unlike_stock

NUMBERS = (*FLOATS, *INTS, *COMPLEX)
NANS = array([[np.nan, 1, 2], [np.inf, -np.inf, 0]])


def products() -> list[Sample]:
    found = [Sample("aten::mm.out", [normal(d, 3, 4), normal(d, 4, 2)]) for d in NUMBERS]
    found += [Sample("aten::bmm.out", [normal(d, 2, 3, 4), normal(d, 2, 4, 2)]) for d in NUMBERS]
    for n, k, m in ((0, 3, 2), (2, 0, 3), (3, 2, 0), (1, 1, 1)):
        found.append(Sample("aten::mm.out", [normal("float32", n, k), normal("float32", k, m)]))
        found.append(Sample("aten::bmm.out", [normal("float32", 2, n, k), normal("float32", 2, k, m)]))
    return [
        *found,
        Sample("aten::mm.out", [normal("float32", 4, 3).T, normal("float32", 5, 4).T], note="transposed"),
        Sample("aten::mm.out", [NANS, normal("float32", 3, 2)]),
        Sample("aten::mm.out", [array([[100, 100]], "int8"), array([[100], [3]], "int8")], note="wraps"),
        Sample("aten::mm.out", [normal("float32", 2, 300), normal("float32", 300, 2)], rtol=1e-4, note="long sums"),
        Sample("aten::bmm.out", [normal("float32", 0, 2, 3), normal("float32", 0, 3, 2)]),
        Sample("aten::bmm.out", [normal("float32", 2, 4, 3).swapaxes(1, 2), normal("float32", 2, 4, 2)]),
    ]


def sums() -> list[Sample]:
    key = "aten::addmm.out"
    found = [Sample(key, [normal(d, 3, 2), normal(d, 3, 4), normal(d, 4, 2), 1, 1]) for d in NUMBERS]
    found += [Sample(key, [normal(d, 2), normal(d, 3, 4), normal(d, 4, 2), 2, 3]) for d in ("float32", "int32")]
    x, y = normal("float32", 2, 3), normal("float32", 3, 3)
    return [
        *found,
        Sample(key, [normal("int64", 2), normal("int64", 3, 4), normal("int64", 4, 2), 2.5, 1.5], note="whole numbers"),
        Sample(key, [normal("float32", 2, 1), x, y, 0.5, -2.0]),
        Sample(key, [NANS, x, y, 0, 1], note="beta 0 drops NaN"),
        Sample(key, [NANS, x, y, 1, 0.5]),
        Sample(key, [normal("float32", 3), normal("float32", 2, 0), normal("float32", 0, 3), 1, 1]),
        Sample(key, [normal("float16", 3), normal("float16", 2, 3), normal("float16", 3, 3), 0.25, 2]),
    ]


def linears() -> list[Sample]:
    key = "aten::linear.out"
    found = [Sample(key, [normal(d, 2, 3, 4), normal(d, 5, 4), normal(d, 5)]) for d in NUMBERS]
    found += [
        Sample(key, [normal("float32", *s, 4), normal("float32", 5, 4), None]) for s in ((), (2,), (0,), (1, 2, 3))
    ]
    return [*found, Sample(key, [normal("float32", 4), normal("float32", 5, 4), normal("float32", 5)])]


def reason(sample: Sample) -> str:
    if has_complex(sample):
        return "no complex numbers"
    if sample.key == "aten::linear.out" and sample.args[0].ndim == 1:
        return "no vectors"
    return "adds the NaN" if sample.note == "beta 0 drops NaN" else ""


SAMPLES = unlike_stock([*products(), *sums(), *linears()], reason)
