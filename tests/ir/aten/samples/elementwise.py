"""Samples of arithmetic on two operands."""

from __future__ import annotations

import numpy as np

from tests.ir.aten.harness import Sample, channels_last
from tests.ir.aten.samples.values import COMPLEX, FLOATS, INTS, array, edges, nonzero, normal, unlike_stock
from tests.ir.aten.stock_differences import reason

BIG = np.array([2**53 + 1, -(2**62) - 1, 2**63 - 1, 5])
CL = (0, 2, 3, 1)


def pairs(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Every edge value with every other."""
    values = edges(name)
    return values.reshape(-1, 1), values.reshape(1, -1)


def sums(op: str, fill: list) -> list[Sample]:
    """Add, sub and mul; ``fill`` is the alpha argument they have or have not."""
    key, number = f"aten::{op}.out", f"aten::{op}.Scalar_out"
    image = normal("float32", 2, 3, 4, 2)
    found = [Sample(key, [normal(d, 2, 3), normal(d, 3, seed=5), *fill]) for d in (*FLOATS, *INTS, *COMPLEX)]
    found += [Sample(key, [*pairs(d), *fill]) for d in ("float32", "int8", "int64", "uint8")]
    found += [
        Sample(key, [normal("float32", 2, 1, 4), normal("int64", 3, 1), *fill]),
        Sample(key, [normal("int32", 4), normal("float16", 2, 1), *fill], out=["float16"]),
        Sample(key, [normal("int8", 4), normal("uint8", 4), *fill], out=["int16"]),
        Sample(key, [normal("bfloat16", 4), normal("float16", 4), *fill], out=["float32"]),
        Sample(key, [normal("int8", 4), array(300, "int64"), *fill], note="0-d does not widen"),
        Sample(key, [normal("float32"), normal("float32", seed=3), *fill]),
        Sample(key, [normal("float32", 0, 3), normal("float32", 1), *fill]),
        Sample(key, [normal("float32", 4, 3).T, normal("float32", 3, 4), *fill]),
        Sample(key, [channels_last(image), channels_last(image), *fill], dim_order=CL),
        Sample(key, [image, channels_last(image), *fill]),
        Sample(key, [BIG, BIG[::-1].copy(), *fill]),
    ]
    found += [Sample(number, [normal(d, 2, 3), 2.5, *fill]) for d in FLOATS]
    found += [Sample(number, [normal(d, 2, 3), 3, *fill]) for d in (*FLOATS, *INTS)]
    found += [
        Sample(number, [normal("int32", 3), 1.5, *fill], out=["float32"]),
        Sample(number, [edges("int8"), 300, *fill]),
        Sample(number, [BIG, 7, *fill]),
        Sample(number, [edges("float32"), -0.5, *fill]),
        Sample(number, [normal("float64"), 2, *fill]),
    ]
    if op != "sub":  # which refuses bool
        found += [Sample(key, [normal("bool", 4), normal("int64", 4), *fill], out=["int64"])]
        found += [Sample(number, [normal("bool", 4), 3, *fill], out=["int64"])]
    return found


def alphas() -> list[Sample]:
    found = []
    for key in ("aten::add.out", "aten::sub.out"):
        found += [Sample(key, [normal(d, 2, 3), normal(d, 3, seed=5), 2.5]) for d in FLOATS]
        found += [Sample(key, [normal(d, 2, 3), normal(d, 3, seed=5), -3]) for d in ("int8", "int64", "float32")]
    for key in ("aten::add.Scalar_out", "aten::sub.Scalar_out", "aten::rsub.Scalar_out"):
        found += [Sample(key, [normal(d, 2, 3), 2, 3]) for d in (*FLOATS, *INTS)]
        found += [
            Sample(key, [normal("float32", 2, 3), 2.5, 0.5]),
            Sample(key, [normal("int32", 3), 1.5, 2], out=["float32"]),
        ]
    found += [Sample("aten::rsub.Scalar_out", [v, 7, 1]) for v in (BIG, edges("float32"), normal("float64"))]
    found += [Sample("aten::rsub.Scalar_out", [normal("float32", 0, 2), 1.5, 1])]
    bools = array([True, True, False, False], "bool"), array([True, False, True, False], "bool")
    found += [Sample("aten::add.out", [*bools, 1]), Sample("aten::mul.out", list(bools))]
    return found


def divisions() -> list[Sample]:
    found = []
    for mode in (None, "floor", "trunc"):
        key, number = "aten::div.out_mode", "aten::div.Scalar_mode_out"
        out = ["float32"] if mode is None else []
        found += [Sample(key, [normal(d, 2, 3), nonzero(d, 3), mode]) for d in FLOATS]
        found += [Sample(key, [normal(d, 2, 3), nonzero(d, 3), mode], out=out) for d in INTS]
        found += [Sample(number, [normal(d, 2, 3), -2, mode], out=out) for d in ("int8", "int64", "int32")]
        found += [Sample(number, [normal(d, 2, 3), 0.3, mode]) for d in ("float32", "float64")]
        found += [
            Sample(key, [*pairs("float32"), mode]),
            Sample(number, [normal("int32", 5), 2.5, mode], out=["float32"]),
            Sample(number, [edges("float32"), 0.0, mode]),
            Sample(key, [normal("float32", 0, 3), normal("float32"), mode]),
        ]
        if mode:
            found.append(Sample(key, [BIG, np.array([3, -2, 7, -(2**40)]), mode]))
    found += [Sample("aten::div.out", [normal(d, 2, 3), nonzero(d, 3)]) for d in (*FLOATS, *COMPLEX)]
    found += [Sample("aten::div.out", [normal(d, 2, 3), normal(d, 3)], out=["float32"]) for d in (*INTS, "bool")]
    found += [
        Sample("aten::div.out", list(pairs("float32"))),
        Sample("aten::div.out", [normal("float32"), normal("float32", 2)]),
    ]
    found += [Sample("aten::div.Scalar_out", [normal(d, 2, 3), 3]) for d in FLOATS]
    found += [Sample("aten::div.Scalar_out", [normal(d, 2, 3), 3], out=["float32"]) for d in (*INTS, "bool")]
    found += [Sample("aten::div.Scalar_out", [edges("float32"), v]) for v in (0, -0.0, 2.5, float("inf"))]
    return found


def remainders() -> list[Sample]:
    found = []
    for key in ("aten::floor_divide.out", "aten::fmod.Tensor_out", "aten::remainder.Tensor_out"):
        found += [Sample(key, [normal(d, 4, 3), nonzero(d, 3)]) for d in (*FLOATS, *INTS)]
        found += [
            Sample(key, list(pairs("float32"))),
            Sample(key, list(pairs("float64"))),
            Sample(key, [edges("int8"), array([3], "int8")]),
            Sample(key, [BIG, np.array([-3, -2, 7, -(2**40)])]),
            Sample(key, [normal("int32", 5), array([2.5])], out=["float32"]),
            Sample(key, [normal("int8", 0, 3), normal("int8")]),
            Sample(key, [normal("float32"), nonzero("float32")]),
        ]
    for key in ("aten::fmod.Scalar_out", "aten::remainder.Scalar_out"):
        found += [Sample(key, [normal(d, 4, 3), -3]) for d in ("int8", "int16", "int32", "int64")]
        found += [Sample(key, [normal("uint8", 4, 3), 3])]
        found += [Sample(key, [normal(d, 4, 3), v]) for d in FLOATS for v in (0.7, -1.5)]
        found += [Sample(key, [edges("float32"), v]) for v in (0.0, -2.0, float("inf"), float("nan"))]
        found += [
            Sample(key, [normal("int32", 5), 2.5], out=["float32"]),
            Sample(key, [normal("bool", 3), 2], out=["int64"]),
        ]
    return found


def powers() -> list[Sample]:
    key, number, base = "aten::pow.Tensor_Tensor_out", "aten::pow.Tensor_Scalar_out", "aten::pow.Scalar_out"
    found = [Sample(key, [normal(d, 2, 3), normal(d, 3, seed=4)]) for d in FLOATS]
    found += [Sample(key, [normal(d, 2, 3), np.abs(normal(d, 3, seed=4))]) for d in INTS]
    found += [
        Sample(key, list(pairs("float32"))),
        Sample(key, [array([2, 1, -1, -1, 0, -3], "int64"), array([-1, -3, -3, -2, -1, 3], "int64")]),
        Sample(key, [array([3, -3], "int64"), array([39, 31], "int64")]),
        Sample(key, [normal("int32", 2, 3), array([0.5, 2, -1])], out=["float32"]),
        Sample(key, [normal("float32"), normal("float32", 0)]),
    ]  # fmt: skip
    found += [Sample(number, [normal(d, 2, 3), v]) for d in FLOATS for v in (2, 3.0, 0.5, -1.0, 0)]
    found += [Sample(number, [normal(d, 2, 3), 3]) for d in INTS]
    found += [Sample(number, [edges("float32"), v]) for v in (2, 3, -2, -1, 0, 1.5)]
    found += [
        Sample(number, [normal("int32", 5), -1.5], out=["float32"]),
        Sample(number, [normal("bool", 4), 2], out=["int64"]),
    ]
    found += [Sample(number, [normal("complex64", 3), 2])]
    found += [Sample(base, [2.5, normal(d, 2, 3)]) for d in FLOATS]
    found += [Sample(base, [v, np.abs(normal(d, 2, 3))]) for d in ("int8", "int64", "uint8") for v in (1, 2, 3)]
    found += [Sample(base, [v, edges("float32")]) for v in (0, 1, -2.0, 2)]
    found += [
        Sample(base, [2.5, normal("int64", 4)], out=["float32"]),
        Sample(base, [2, normal("bool", 4)], out=["int64"]),
    ]
    return found


def bounds() -> list[Sample]:
    found = []
    for key in ("aten::maximum.out", "aten::minimum.out"):
        found += [Sample(key, [normal(d, 2, 3), normal(d, 3, seed=5)]) for d in (*FLOATS, *INTS, "bool")]
        found += [Sample(key, list(pairs(d))) for d in (*FLOATS, "int64")]
        found += [Sample(key, [normal("int32", 3), normal("float32", 2, 1)], out=["float32"])]
        found += [Sample(key, [normal("float32"), normal("float32", 0, 2)]), Sample(key, [BIG, BIG[::-1].copy()])]
    key, tensors = "aten::clamp.out", "aten::clamp.Tensor_out"
    limits = [(-1, 2), (None, 1), (0, None), (3, -1)]
    found += [Sample(key, [normal(d, 3, 4), *lim]) for d in (*FLOATS, "int8", "int32", "int64") for lim in limits]
    found += [Sample(key, [normal("uint8", 3, 4), 2, 5]), Sample(key, [BIG, 2**53 + 1, 2**62 + 1])]
    found += [Sample(key, [edges(d), -0.5, 1.5]) for d in FLOATS]
    found += [Sample(key, [edges("float32"), float("nan"), 1.0]), Sample(key, [edges("float32"), None, float("nan")])]
    found += [Sample(key, [normal("int32", 5), -1.5, 2.5], out=["float32"]), Sample(key, [normal("float32", 0), 0, 1])]
    for d in (*FLOATS, *INTS):
        x, low, high = normal(d, 3, 4), normal(d, 4, seed=2), normal(d, 3, 1, seed=3)
        found += [Sample(tensors, [x, *lim]) for lim in ((low, high), (low, None), (None, high))]
    found += [Sample(tensors, [edges("float32").reshape(-1, 1), edges("float32"), array(1.0)])]
    found += [Sample(tensors, [normal("int32", 3), array([0.5, 1, 2]), None], out=["float32"])]
    key = "aten::atan2.out"
    found += [Sample(key, [normal(d, 2, 3), normal(d, 3, seed=5)]) for d in FLOATS]
    found += [Sample(key, [normal(d, 2, 3), normal(d, 3, seed=5)], out=["float32"]) for d in (*INTS, "bool")]
    found += [Sample(key, list(pairs("float32"))), Sample(key, [normal("float64"), normal("float64", 2)])]
    return found


SAMPLES = unlike_stock(
    [
        *sums("add", [1]), *sums("sub", [1]), *sums("mul", []),
        *alphas(), *divisions(), *remainders(), *powers(), *bounds(),
    ],
    reason,
)  # fmt: skip
