"""Samples of reductions and scans."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.ir.dtypes import ScalarType
from tests.ir.aten.harness import Sample, channels_last
from tests.ir.aten.samples.values import COMPLEX, FLOATS, INTS, array, edges, normal

F32, F64, I8, I64 = ScalarType.FLOAT32, ScalarType.FLOAT64, ScalarType.INT8, ScalarType.INT64
IMAGE = normal("float32", 2, 3, 4, 2)
DIMS: list[tuple[Any, bool]] = [([1], False), ([-1, 0], True), ([], False), (None, True), ([0, 1, 2, 3], False)]
NANS = array([[1, np.nan, 3], [np.inf, 2, -np.inf], [np.nan, np.nan, 0], [-np.inf, -np.inf, -np.inf]])
TIES = array([[1, 3, 3, 0], [2, 2, 0, 0], [-1, -1, -1, -1], [0, -0.0, 0, -0.0]])


def distinct(name: str, *shape: int, seed: int = 0) -> np.ndarray:
    """Values without ties, in no order."""
    count = int(np.prod(shape))
    return array(np.random.default_rng(seed).permutation(count).reshape(shape) - count // 3, name)


def sums() -> list[Sample]:
    key = "aten::sum.IntList_out"
    found = [Sample(key, [IMAGE, dim, keep, None]) for dim, keep in DIMS]
    found += [Sample(key, [normal(d, 3, 4), [1], False, None]) for d in (*FLOATS, *COMPLEX)]
    found += [Sample(key, [normal(d, 3, 4), [0], False, None], out=["int64"]) for d in (*INTS, "bool")]
    return [
        *found,
        Sample(key, [edges("int8"), None, False, None], out=["int64"]),
        Sample(key, [edges("int32"), None, False, None], out=["int32"], note="wraps"),
        Sample(key, [array([[2**62, 2**62, 5]], "int64"), [1], True, None], note="wraps"),
        Sample(key, [normal("float32", 3, 4), [1], False, F64], out=["float64"]),
        Sample(key, [normal("float32", 3, 4), [1], False, I64], out=["int64"], note="casts first"),
        Sample(key, [normal("int32", 3, 4), [1], False, F32], out=["float32"]),
        Sample(key, [array([100, 100, 100], "int64"), [0], False, I8], out=["int8"]),
        Sample(key, [array(np.full(3000, 1.25), "float16"), [0], False, None], note="float32 inside"),
        Sample(key, [array(np.full(3000, 0.125), "bfloat16"), [0], False, None], note="float32 inside"),
        Sample(key, [NANS, [1], False, None]),
        Sample(key, [normal("float32"), [0], False, None]),
        Sample(key, [normal("float32"), None, True, None]),
        Sample(key, [normal("float32", 0, 3), [0], False, None]),
        Sample(key, [normal("float32", 3, 0, 2), [0], True, None]),
        Sample(key, [channels_last(IMAGE), [1], True, None], dim_order=(0, 2, 3, 1)),
        Sample(key, [normal("float32", 5, 4).T, [0], False, None]),
    ]


def means() -> list[Sample]:
    key, whole = "aten::mean.out", "aten::mean.dtype_out"
    found = [Sample(key, [IMAGE, dim, keep, None]) for dim, keep in DIMS]
    found += [Sample(key, [normal(d, 3, 4), [-1], False, None]) for d in (*FLOATS, *COMPLEX)]
    found += [Sample(whole, [normal(d, 3, 4), None]) for d in FLOATS]
    return [
        *found,
        Sample(key, [normal("int32", 3, 4), [0], False, F32], out=["float32"]),
        Sample(key, [normal("bool", 3, 4), [0], False, F32], out=["float32"]),
        Sample(key, [normal("float16", 3, 4), [0], False, F32], out=["float32"]),
        Sample(key, [normal("float32", 0, 3), [0], False, None], note="of nothing"),
        Sample(key, [normal("float32", 0, 3), [1], False, None]),
        Sample(key, [normal("float32"), [-1], True, None]),
        Sample(key, [NANS, [0], False, None]),
        Sample(key, [channels_last(IMAGE), [2, 3], True, None], dim_order=(0, 2, 3, 1)),
        Sample(whole, [normal("int64", 5), F32], out=["float32"]),
        Sample(whole, [normal("float32", 5), F64], out=["float64"]),
        Sample(whole, [normal("float32", 0), None]),
        Sample(whole, [normal("float64"), None]),
    ]


def variances() -> list[Sample]:
    found = []
    for key, outs in (("aten::var.correction_out", 1), ("aten::var_mean.correction_out", 2)):
        found += [Sample(key, [IMAGE, dim, 1, keep]) for dim, keep in DIMS]
        found += [Sample(key, [normal(d, 3, 4), [1], None, True]) for d in FLOATS]
        found += [Sample(key, [normal("float32", 3, 4), [0], c, False]) for c in (0, 2, 1.5, 3, 10)]
        found += [
            Sample(key, [normal("complex64", 3, 4), [1], 1, False], out=["float32", "complex64"][:outs]),
            Sample(key, [normal("float32"), [0], 1, False]),
            Sample(key, [normal("float32"), [0], 0, False]),
            Sample(key, [normal("float32", 0, 3), [0], 1, False], note="of nothing"),
            Sample(key, [normal("float32", 0, 3), [1], 1, False]),
            Sample(key, [NANS[[0, 2]], [1], 1, False]),
            Sample(key, [normal("float32", 40) + np.float32(1000), None, 1, False], note="far from zero"),
        ]
    key = "aten::var.out"
    found += [Sample(key, [IMAGE, dim, unbiased, keep]) for dim, keep in DIMS for unbiased in (True, False)]
    found += [Sample(key, [normal(d, 3, 4), [-1], True, False]) for d in FLOATS]
    return found


def products() -> list[Sample]:
    key, whole = "aten::prod.int_out", "aten::prod.out"
    found = [Sample(key, [normal(d, 3, 4), 1, False, None]) for d in (*FLOATS, *COMPLEX)]
    found += [Sample(key, [normal(d, 3, 4), -2, True, None], out=["int64"]) for d in (*INTS, "bool")]
    found += [Sample(whole, [normal(d, 2, 3), None]) for d in FLOATS]
    return [
        *found,
        Sample(key, [normal("float32", 3, 0), 1, False, None], note="of nothing"),
        Sample(key, [normal("float32"), 0, True, None]),
        Sample(key, [NANS, 1, False, None]),
        Sample(key, [normal("int32", 2, 3), 0, False, F32], out=["float32"]),
        Sample(whole, [normal("int32", 2, 3), None], out=["int64"]),
        Sample(whole, [array([2**40, 2**40], "int64"), None], note="wraps"),
        Sample(whole, [normal("bool", 4), None], out=["int64"]),
        Sample(whole, [normal("float32", 0), None]),
        Sample(whole, [normal("float32", 3), F64], out=["float64"]),
    ]


def anys() -> list[Sample]:
    found = []
    for d in (*FLOATS, *INTS, "bool"):
        x = np.where(normal("bool", 4, 3), normal(d, 4, 3), array(0, d))
        out = ["uint8" if d == "uint8" else "bool"]
        found.append(Sample("aten::any.all_out", [x], out=out))
        found.append(Sample("aten::any.out", [x, 1, False], out=out))
        found.append(Sample("aten::any.dims_out", [x, [-2], True], out=out))
    found += [Sample("aten::any.dims_out", [IMAGE > 2, dim, keep]) for dim, keep in DIMS if dim != []]
    for key, rest in (("aten::any.all_out", []), ("aten::any.out", [-1, True])):
        found += [
            Sample(key, [x, *rest], out=["bool"]) for x in (array([np.nan, 0]), normal("float32", 0), normal("float32"))
        ]
    return [
        *found,
        Sample("aten::any.out", [normal("float32", 0, 3), 0, False], out=["bool"]),
        Sample(
            "aten::any.all_out",
            [
                array([0, -0.0]),
            ],
            out=["bool"],
        ),
        Sample("aten::any.dims_out", [IMAGE > 2, [], False], stock=False, why="[] means no dim to eager torch"),
    ]


def extremes() -> list[Sample]:
    found = []
    for way in ("max", "min"):
        key, whole, along, where = (
            f"aten::a{way}.out",
            f"aten::{way}.unary_out",
            f"aten::{way}.dim_{way}",
            f"aten::arg{way}.out",
        )
        found += [Sample(key, [IMAGE, dim, keep]) for dim, keep in DIMS if dim is not None]
        for d in (*FLOATS, *INTS, "bool"):
            found += [Sample(key, [normal(d, 3, 4), [1], False]), Sample(whole, [normal(d, 3, 4)])]
            found.append(Sample(along, [normal(d, 3, 4), 1, False], out=[d, "int64"]))
            if d != "bool":
                found.append(Sample(where, [normal(d, 3, 4), 0, True], out=["int64"]))
        for x in (
            NANS,
            TIES,
            array(NANS, "bfloat16"),
            array(NANS, "float16"),
            array(TIES, "int32"),
            edges("float32"),
            edges("int64"),
        ):
            found += [Sample(key, [x, [-1], False]), Sample(whole, [x])]
            found += [Sample(along, [x, d, True], out=[str(x.dtype), "int64"]) for d in range(-1, x.ndim - 1)]
            found += [Sample(where, [x, d, True], out=["int64"]) for d in (None, 0, -1)]
        found += [
            Sample(key, [normal("float32", 0, 3), [1], False]),
            Sample(key, [normal("float32"), [0], True]),
            Sample(whole, [normal("float32")]),
            Sample(whole, [normal("float32", 4, 3).T]),
            Sample(along, [normal("float32", 2, 0, 3), -1, False], out=["float32", "int64"]),
            Sample(along, [normal("float32"), -1, True], out=["float32", "int64"]),
            Sample(along, [channels_last(IMAGE), 1, False], out=["float32", "int64"]),
            Sample(where, [IMAGE, None, False], out=["int64"]),
            Sample(where, [channels_last(IMAGE), None, False], out=["int64"]),
            Sample(where, [normal("float32"), 0, True], out=["int64"]),
            Sample(where, [normal("float32"), None, False], out=["int64"]),
            Sample(where, [normal("float32", 0, 3), 1, False], out=["int64"]),
        ]
    return found


def cumsums() -> list[Sample]:
    key = "aten::cumsum.out"
    found = [Sample(key, [normal(d, 3, 4), 1, None]) for d in (*FLOATS, *COMPLEX)]
    found += [Sample(key, [normal(d, 3, 4), -2, None], out=["int64"]) for d in (*INTS, "bool")]
    return [
        *found,
        Sample(key, [IMAGE, 2, None]),
        Sample(key, [channels_last(IMAGE), 1, None], dim_order=(0, 2, 3, 1)),
        Sample(key, [NANS, 1, None]),
        Sample(key, [normal("float32", 3), 0, F64], out=["float64"]),
        Sample(key, [normal("float32", 3), 0, I64], out=["int64"], note="casts first"),
        Sample(key, [normal("int32", 3), 0, F32], out=["float32"]),
        Sample(key, [array([2**63 - 1, 1, 1], "int64"), 0, None], note="wraps"),
        Sample(key, [array(np.full(400, 0.1), "float16"), 0, None], note="float32 inside"),
        Sample(key, [normal("float32"), 0, None]),
        Sample(key, [normal("float32", 0, 3), 0, None]),
    ]


def topks() -> list[Sample]:
    key = "aten::topk.values"
    cases = [(3, 1, True), (2, -2, False), (1, -1, True), (0, 0, True), (4, 0, False)]
    found = [Sample(key, [distinct("float32", 4, 5), k, d, up, True], out=["float32", "int64"]) for k, d, up in cases]
    found += [
        Sample(key, [distinct(d, 3, 6), 4, -1, largest, True], out=[d, "int64"])
        for d in (*FLOATS, *INTS)
        for largest in (True, False)
        if d != "uint8"
    ]
    broken = array([3, np.nan, -np.inf, np.inf, 0, -2])
    found += [Sample(key, [broken, k, 0, up, True], out=["float32", "int64"]) for k in (2, 6) for up in (True, False)]
    return [
        *found,
        Sample(key, [array([200, 3, 255, 0], "uint8"), 3, 0, True, True], out=["uint8", "int64"]),
        Sample(key, [edges("int64"), 7, 0, True, True], out=["int64", "int64"]),
        Sample(key, [normal("float32"), 1, 0, True, True], out=["float32", "int64"]),
        Sample(key, [normal("float32", 0, 3), 2, 1, True, True], out=["float32", "int64"]),
        Sample(key, [channels_last(distinct("float32", 2, 3, 2, 2)), 2, 1, True, True], out=["float32", "int64"]),
    ]


SAMPLES = [*sums(), *means(), *variances(), *products(), *anys(), *extremes(), *cumsums(), *topks()]
