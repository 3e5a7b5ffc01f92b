"""Samples of creation, copies and casts."""

from __future__ import annotations

import numpy as np

from tests.ir.aten.harness import Sample, channels_last
from tests.ir.aten.samples.elementwise import BIG, CL
from tests.ir.aten.samples.values import COMPLEX, FLOATS, INTS, array, dtype_of, edges, normal, unlike_stock
from tests.ir.aten.stock_differences import reason

ALL = (*FLOATS, *INTS, "bool")


def constants() -> list[Sample]:
    found = []
    for size in ([2, 3], [], [0, 4], [1, 2, 1, 3]):
        found += [Sample("aten::zeros.out", [size], out=[d]) for d in (*ALL, *COMPLEX)]
        found += [Sample("aten::ones.out", [size], out=[d]) for d in (*ALL, *COMPLEX)]
        found += [Sample("aten::full.out", [size, 2], out=[d]) for d in ALL]
        found += [
            Sample("aten::full.out", [size, v], out=[d]) for d in FLOATS for v in (0.1, float("-inf"), float("nan"))
        ]
        found += [Sample("aten::empty.out", [size, None], expect=[np.zeros(size, d)]) for d in ("float32", "int8")]
    found += [
        Sample("aten::full.out", [[3], v], out=[d]) for d, v in (("int32", 2.7), ("int64", 2**53 + 1), ("bool", 0.5))
    ]
    order = ([2, 3, 4, 2], [0, 2, 3, 1])
    key = "dim_order_ops::_empty_dim_order.out"
    found += [Sample(key, list(order), expect=[np.zeros(order[0], "float32")], dim_order=CL)]
    found += [Sample(key, [[2, 3], None], expect=[np.zeros((2, 3), "int64")])]
    for key, rest in (("aten::full_like.out", [None]), ("aten::fill.Scalar_out", [])):
        found += [Sample(key, [normal(d, 2, 3), v, *rest]) for d in ALL for v in (1, 1.5, True)]
        found += [Sample(key, [normal("float32", *shape), 1e-3, *rest]) for shape in ((), (0, 2))]
        found += [Sample(key, [normal("int64", 2), -(2**53) - 1, *rest])]
        found += [Sample(key, [channels_last(normal("float32", 1, 2, 3, 2)), 4, *rest], dim_order=CL)]
    key = "aten::fill.Tensor_out"
    found += [Sample(key, [normal(d, 2, 3), array(3, e)]) for d in ALL for e in ("float32", "int64", d)]
    found += [Sample(key, [normal("float32", 0, 2), array(1)]), Sample(key, [normal("int64", 2), np.array(2**53 + 1)])]
    found += [Sample("aten::scalar_tensor.out", [v], out=[d]) for d in ALL for v in (1, 1.5, True)]
    found += [Sample("aten::scalar_tensor.out", [2**53 + 1], out=["int64"])]
    return found


def ranges() -> list[Sample]:
    key, start = "aten::arange.out", "aten::arange.start_out"
    found = [Sample(key, [n], out=[d]) for d in (*FLOATS, *INTS) for n in (0, 1, 7)]
    found += [Sample(key, [4.5], out=[d]) for d in FLOATS]
    found += [Sample(start, list(v), out=[d]) for d in (*FLOATS, "int8", "int32", "int64")
              for v in ((2, 9, 3), (9, 2, -3), (-5, 6, 1), (3, 3, 1), (0, 12, 4))]  # fmt: skip
    found += [Sample(start, list(v), out=[d]) for d in ("float32", "float64")
              for v in ((0, 1, 0.1), (1, 0, -0.3), (0.5, 4.5, 1), (-1.5, 2.0, 0.7), (0.0, 5, 0.7))]  # fmt: skip
    found += [Sample(start, list(v), out=["int64"]) for v in ((2**53, 2**53 + 4, 1), (-(2**63), -(2**63) + 5, 2))]
    return found


def casts() -> list[Sample]:
    key = "aten::_to_copy.out"
    found = [Sample(key, [normal(a, 2, 3), False, None], out=[b]) for a in (*ALL, *COMPLEX) for b in (*ALL, *COMPLEX)
             if a not in COMPLEX or b in COMPLEX]  # fmt: skip
    found += [Sample(key, [edges(a), False, None], out=[b]) for a in FLOATS for b in (*FLOATS, "bool")]
    found += [Sample(key, [edges(a), False, None], out=[b]) for a in INTS for b in (*FLOATS, *INTS, "bool")]
    found += [
        Sample(key, [array([-1.9, 1.9, 0.3, -0.3], a), False, None], out=[b]) for a in FLOATS for b in ("int8", "int64")
    ]
    key = "dim_order_ops::_to_dim_order_copy.out"
    image = normal("float32", 2, 3, 4, 2)
    for source, dtype in (("int64", "float32"), ("float32", "bfloat16"), ("float32", "int32"), ("bool", "float16")):
        value = normal(source, 2, 3)
        found += [Sample(key, [value, False, None], expect=[value.astype(dtype_of(dtype))])]
        found += [Sample(key, [value, False, [0, 1]], expect=[value.astype(dtype_of(dtype))])]
    found += [Sample(key, [array(2, "int64"), False, []], expect=[array(2, "float32")])]
    for key in ("dim_order_ops::_to_dim_order_copy.out", "dim_order_ops::_clone_dim_order.out"):
        found += [
            Sample(key, [image, False, [0, 2, 3, 1]], expect=[image], dim_order=CL),
            Sample(key, [channels_last(image), False, [0, 1, 2, 3]], expect=[image]),
            Sample(key, [channels_last(image), False, [0, 2, 3, 1]], expect=[image], dim_order=CL),
        ]
    found += [
        Sample(key, [v, False, None], expect=[v]) for v in (normal("int8", 3), normal("float32"), normal("float32", 0))
    ]
    return found


def copies() -> list[Sample]:
    image = normal("float32", 2, 3, 4, 2)
    found = []
    for name, rest in (("clone", [None]), ("alias_copy", []), ("detach_copy", []), ("lift_fresh_copy", [])):
        key = f"aten::{name}.out"
        found += [Sample(key, [normal(d, 2, 3), *rest]) for d in (*ALL, *COMPLEX)]
        found += [Sample(key, [v, *rest]) for v in (normal("float32"), normal("float32", 0, 2), BIG, edges("float32"))]
        found += [Sample(key, [channels_last(image), *rest]), Sample(key, [image, *rest], dim_order=CL)]
    for key in ("et_copy::_d2h_copy.out", "et_copy::_h2d_copy.out"):
        values = (normal("float32", 2, 3), normal("int64"), normal("bfloat16", 0, 2), normal("bool", 3))
        found += [Sample(key, [v], expect=[v]) for v in values]
    for key in ("aten::copy.out", "aten::copy_"):
        found += [Sample(key, [normal(d, 2, 3), normal(d, 2, 3, seed=5), False]) for d in ALL]
        found += [
            Sample(key, [normal(d, 2, 3), normal(e, 3), False]) for d, e in (("float32", "int64"), ("int64", "float32"))
        ]
        found += [
            Sample(key, [normal("float32", 2, 3), normal("float32"), False]),
            Sample(key, [normal("float32"), normal("float32", seed=5), False]),
            Sample(key, [normal("float32", 0, 3), normal("float32", 1), False]),
            Sample(key, [np.zeros_like(BIG), BIG, False]),
            Sample(key, [channels_last(image), 2 * image, False], dim_order=None if key.endswith("_") else CL),
        ]
    pairs = zip(COMPLEX, ("float32", "float64"), strict=True)
    key = "aten::view_as_real_copy.out"
    found += [Sample(key, [normal(d, *s)], out=[r]) for d, r in pairs for s in ((2, 3), (), (0, 2), (2, 1, 2))]
    found += [Sample(key, [normal("complex64", 3, 2).T], out=["float32"])]
    return found


SAMPLES = unlike_stock([*constants(), *ranges(), *casts(), *copies()], reason)
