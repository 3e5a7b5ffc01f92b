"""Samples of comparison, logic, bits, and choice."""

from __future__ import annotations

import numpy as np

from tests.ir.aten.harness import Sample, channels_last
from tests.ir.aten.samples.elementwise import BIG, CL, pairs
from tests.ir.aten.samples.values import COMPLEX, FLOATS, INTS, array, edges, normal, unlike_stock
from tests.ir.aten.stock_differences import reason

BOOL = ["bool"]


def comparisons(name: str) -> list[Sample]:
    key, number = f"aten::{name}.Tensor_out", f"aten::{name}.Scalar_out"
    image = normal("int8", 2, 3, 4, 2)
    found = [Sample(key, [normal(d, 2, 3), normal(d, 3, seed=5)], out=BOOL) for d in (*FLOATS, *INTS, "bool")]
    found += [Sample(key, list(pairs(d)), out=BOOL) for d in (*FLOATS, "int8", "int64", "uint8")]
    found += [
        Sample(key, [normal("int32", 2, 3), normal("float32", 3)], out=BOOL),
        Sample(key, [normal("int8", 3), normal("uint8", 3)], out=BOOL),
        Sample(key, [BIG, BIG + np.array([0, 1, -1, 0])], out=BOOL),
        Sample(key, [array([0.1]), array(0.1, "float64")], out=BOOL, note="0-d"),
        Sample(key, [normal("float32"), normal("float32")], out=BOOL),
        Sample(key, [normal("float32", 0, 2), normal("float32", 2)], out=BOOL),
        Sample(key, [channels_last(image), image], out=BOOL, dim_order=CL),
        Sample(key, [normal("float32", 3), normal("float32", 3, seed=5)], out=["uint8"]),
    ]
    found += [Sample(number, [normal(d, 3, 4), 1], out=BOOL) for d in (*FLOATS, *INTS, "bool")]
    found += [Sample(number, [edges(d), v], out=BOOL) for d in FLOATS for v in (0.5, -0.0, float("inf"), float("nan"))]
    found += [
        Sample(number, [BIG, 2**53 + 1], out=BOOL),
        Sample(number, [array([0.1, 0.2], "bfloat16"), 0.1], out=BOOL),
        Sample(number, [array([0.1, 0.2], "float32"), 0.1], out=BOOL),
        Sample(number, [array([44, 3], "int8"), 300], out=BOOL),
        Sample(number, [normal("int32", 4), 1.5], out=BOOL),
        Sample(number, [normal("bool", 4), True], out=BOOL),
    ]
    if name in ("eq", "ne"):
        found += [Sample(key, [normal(d, 2, 3), normal(d, 3)], out=BOOL) for d in COMPLEX]
    return found


def logic() -> list[Sample]:
    found = []
    for name in ("logical_and", "logical_or", "logical_xor"):
        key = f"aten::{name}.out"
        found += [Sample(key, list(pairs(d)), out=BOOL) for d in (*FLOATS, *INTS, "bool")]
        found += [
            Sample(key, [normal("int32", 2, 3), normal("float16", 3)], out=BOOL),
            Sample(key, [normal("bool", 2, 3), normal("bool", 3)], out=["float32"]),
            Sample(key, [normal("bool"), normal("bool", 0, 2)], out=BOOL),
        ]
    for name in ("logical_not", "isnan", "isinf"):
        key = f"aten::{name}.out"
        found += [Sample(key, [edges(d)], out=BOOL) for d in (*FLOATS, *INTS, "bool")]
        found += [Sample(key, [normal("float32", *shape)], out=BOOL) for shape in ((), (0, 2))]
    odd = array([complex(np.nan, 1), complex(1, np.inf), 1j, 0], "complex64")
    found += [Sample(f"aten::{n}.out", [odd], out=BOOL) for n in ("isnan", "isinf")]
    return found


def bits() -> list[Sample]:
    found = []
    for name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        key, number = f"aten::{name}.Tensor_out", f"aten::{name}.Scalar_out"
        found += [Sample(key, list(pairs(d))) for d in (*INTS, "bool")]
        found += [Sample(number, [edges(d), 6]) for d in INTS]
        found += [
            Sample(key, [normal("bool", 4), normal("int32", 4)], out=["int32"]),
            Sample(key, [normal("int8", 0, 2), normal("int8")]),
            Sample(number, [normal("bool", 4), True]),
            Sample(number, [normal("bool", 4), 6], out=["int64"]),
            Sample(number, [BIG, -(2**53) - 1]),
            Sample(number, [normal("int16"), -1]),
        ]
    found += [Sample("aten::bitwise_not.out", [edges(d)]) for d in (*INTS, "bool")]
    found += [Sample("aten::bitwise_not.out", [normal("int32", *shape)]) for shape in ((), (0, 2))]
    for name in ("bitwise_left_shift", "bitwise_right_shift"):
        key, number = f"aten::{name}.Tensor_out", f"aten::{name}.Tensor_Scalar_out"
        for d in INTS:
            width = 8 * np.dtype(d).itemsize
            found += [Sample(key, [edges(d).reshape(-1, 1), array([0, 1, 3, width - 1], d)])]
            found += [Sample(key, [edges(d).reshape(-1, 1), array([width, width + 5, -1], d)])]
            found += [Sample(number, [edges(d), 3]), Sample(number, [edges(d), width])]
        found += [Sample(key, [normal("int8", 3), array([1, 9, 12], "int32")], out=["int32"])]
        found += [Sample(number, [normal("int64", 3), -1]), Sample(number, [normal("int32", 0), 2])]
    return found


def choice() -> list[Sample]:
    key, mask = "aten::where.self_out", normal("bool", 2, 3)
    found = [Sample(key, [mask, v, w], out=[d]) for d in (*FLOATS, *INTS, *COMPLEX, "bool")
             for v, w in [(normal(d, 2, 3), normal(d, 3, seed=5))]]  # fmt: skip
    found += [
        Sample(key, [mask, normal("float32", 1), normal("int64", 2, 1)], out=["float32"]),
        Sample(key, [mask, normal("float16", 2, 3), array(2.5, "float64")], out=["float16"], note="0-d"),
        Sample(key, [mask.astype(np.uint8), normal("float32", 3), normal("float32", 3)], out=["float32"]),
        Sample(key, [array(True, "bool"), normal("float32", 3), array(np.nan)], out=["float32"]),
        Sample(key, [array([True, False, True, False], "bool"), BIG, -BIG], out=["int64"]),
        Sample(key, [normal("bool", 0, 3), normal("float32", 3), normal("float32")], out=["float32"]),
    ]  # fmt: skip
    key = "aten::masked_fill.Scalar_out"
    found += [Sample(key, [normal(d, 2, 3), mask, 2]) for d in (*FLOATS, *INTS, "bool")]
    found += [Sample(key, [normal(d, 2, 3), mask[:1], v]) for d in FLOATS for v in (float("-inf"), 0.5)]
    found += [
        Sample(key, [normal("float32", 3), mask, 7.5], note="self broadcasts"),
        Sample(key, [normal("int64", 2, 3), array(True, "bool"), 2**53 + 1]),
        Sample(key, [normal("float32"), array(True, "bool"), 1]),
        Sample(key, [normal("float32", 0, 3), normal("bool", 3), 1]),
    ]
    return found


SAMPLES = unlike_stock([
    *(s for name in ("eq", "ne", "lt", "le", "gt", "ge") for s in comparisons(name)),
    *logic(), *bits(), *choice(),
], reason)  # fmt: skip
