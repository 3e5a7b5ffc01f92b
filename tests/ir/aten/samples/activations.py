"""Samples of the activation functions, and of dropout where it is not random."""

from __future__ import annotations

import numpy as np

from tests.ir.aten.harness import Sample, channels_last
from tests.ir.aten.samples.elementwise import CL
from tests.ir.aten.samples.values import COMPLEX, FLOATS, INTS, array, edges, normal, unlike_stock
from tests.ir.aten.stock_differences import reason

INF, NAN = float("inf"), float("nan")
ARGS = {
    "relu": [[]],
    "hardtanh": [[-1, 1], [0.0, 6.0], [-0.5, 1.5]],
    "leaky_relu": [[0.01], [-0.5], [2]],
    "elu": [[1, 1, 1], [0.5, 1.5, 2.0]],
    "gelu": [["none"], ["tanh"]],
    "sigmoid": [[]],
    "logit": [[None], [1e-3], [0.3]],
}


def activation(name: str) -> list[Sample]:
    key = f"aten::{name}.out"
    found = [Sample(key, [normal(d, 2, 3), *args]) for args in ARGS[name] for d in FLOATS]
    # Eager's vectorised gelu makes NaN of infinity; ours and its scalar path do not.
    start = 3 if name == "gelu" else 0
    found += [Sample(key, [edges(d)[start:], *args]) for args in ARGS[name] for d in FLOATS]
    args, image = ARGS[name][0], normal("float32", 2, 3, 4, 2)
    found += [Sample(key, [x, *args]) for x in (normal("float32"), normal("float32", 0, 3), normal("float32", 4, 3).T)]
    return [*found, Sample(key, [channels_last(image), *args], dim_order=CL)]


def integers() -> list[Sample]:
    found = [Sample("aten::relu.out", [edges(d)]) for d in INTS]
    found += [Sample("aten::hardtanh.out", [edges(d), -1, 5]) for d in ("int8", "int16", "int32", "int64")]
    found += [Sample("aten::hardtanh.out", [edges("uint8"), 1, 5])]
    found += [Sample("aten::sigmoid.out", [edges(d)], out=["float32"]) for d in (*INTS, "bool")]
    found += [Sample("aten::logit.out", [array([0, 1, 2], d), None], out=["float32"]) for d in (*INTS, "bool")]
    found += [Sample("aten::sigmoid.out", [normal(d, 3)]) for d in COMPLEX]
    return found


def more() -> list[Sample]:
    wide = np.linspace(-12, 12, 41)
    found = [Sample("aten::gelu.out", [array(wide, d), mode]) for d in FLOATS for mode in ("none", "tanh")]
    found += [Sample("aten::sigmoid.out", [array(wide * 10, d)]) for d in FLOATS]
    found += [Sample("aten::hardtanh.out", [edges("float32"), lo, hi]) for lo, hi in ((NAN, 1), (-INF, 0.5), (2, -2))]
    found += [
        Sample("aten::logit.out", [array([-0.5, 0, 0.1, 0.9, 1, 1.5, NAN]), eps]) for eps in (None, 0.0, 0.7, -1.0)
    ]
    return found


def gates() -> list[Sample]:
    key = "aten::glu.out"
    found = [Sample(key, [normal(d, 3, 4), -1]) for d in FLOATS]
    found += [Sample(key, [normal("float32", 2, 4, 6), dim]) for dim in (0, 1, 2, -2, -3)]
    found += [
        Sample(key, [normal("float32", 0, 4), 1]),
        Sample(key, [normal("float32", 3, 0), 1]),
        Sample(key, [normal("float32", 6, 4).T, 0]),
        Sample(key, [channels_last(normal("float32", 2, 4, 3, 2)), 1], dim_order=CL),
        Sample(key, [array([NAN, INF, -INF, 1, 1, 1, -INF, NAN]), 0]),
    ]
    return found


def dropouts() -> list[Sample]:
    cases = [(0.7, False), (0.0, True), (1.0, True), (0.0, None), (1.0, False)]
    key = "aten::native_dropout.out"
    found = [Sample(key, [normal(d, 2, 3), p, train], out=[d, "bool"]) for d in FLOATS for p, train in cases]
    found += [Sample(key, [normal("float32"), 0.5, False], out=["float32", "bool"])]
    empty = normal("float32", 0, 2)
    return [*found, Sample(key, [empty, 0.5, True], expect=[empty, empty.astype(bool)])]


SAMPLES = unlike_stock(
    [*(s for name in ARGS for s in activation(name)), *integers(), *more(), *gates(), *dropouts()], reason
)
