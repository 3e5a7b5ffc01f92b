"""Samples of reading and writing at places that other tensors name."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.ir.aten.harness import Sample, channels_last
from tests.ir.aten.samples.values import COMPLEX, FLOATS, INTS, array, edges, has_complex, normal, unlike_stock

ALL = (*FLOATS, *INTS, "bool", *COMPLEX)
X = normal("float32", 3, 4, 2)
EMPTY = array([], "int64")


def places(*values: Any) -> np.ndarray:
    return np.array(values, np.int64)


def below(size: int, *shape: int, seed: int = 5) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).integers(0, size, shape)


def distinct(size: int, *shape: int, dim: int) -> np.ndarray:
    """Indices without repetition along ``dim``, where repeated writes have no fixed order."""
    order = np.argsort(
        np.random.default_rng(7).random(np.r_[shape[:dim], size, shape[dim + 1 :]].astype(int)), axis=dim
    )
    return np.take(order, range(shape[dim]), axis=dim)


def gathers() -> list[Sample]:
    key = "aten::gather.out"
    found = [Sample(key, [normal(d, 3, 4), 1, below(4, 2, 5), False]) for d in ALL]
    found += [
        Sample(key, [X, d, below(X.shape[d], *s), False]) for d, s in ((0, (5, 4, 2)), (-1, (2, 3, 4)), (1, (3, 1, 1)))
    ]
    return [
        *found,
        Sample(key, [X, 1, below(4, 3, 0, 2), False]),
        Sample(key, [normal("float32"), 0, places(0, 0), False]),
        Sample(key, [normal("float32"), -1, np.array(0), False]),
        Sample(key, [normal("float32", 4), 0, np.array(2), False]),
        Sample(key, [X.transpose(2, 0, 1), 0, below(2, 2, 3, 4), False]),
        Sample(key, [edges("float32"), 0, places(0, 1, 4), False]),
        Sample(key, [channels_last(normal("float32", 1, 2, 3, 4)), 2, below(3, 1, 2, 2, 4), False]),
    ]


def scatters() -> list[Sample]:
    src, value, add = "aten::scatter.src_out", "aten::scatter.value_out", "aten::scatter_add.out"
    found = []
    for name in ALL:
        x, index = normal(name, 3, 4), distinct(4, 2, 3, dim=1)
        found.append(Sample(src, [x, 1, index, normal(name, 3, 3, seed=2)]))
        found.append(Sample(value, [x, -1, index, 3 if name not in COMPLEX else 2.5]))
        found.append(Sample(add, [x, 0, below(3, 3, 2), normal(name, 4, 4, seed=2)]))
    for dim, shape in ((0, (2, 4, 1)), (-1, (3, 2, 2)), (1, (1, 4, 2))):
        index = distinct(X.shape[dim], *shape, dim=dim % 3)
        found.append(Sample(src, [X, dim, index, normal("float32", 3, 4, 2, seed=2)]))
        found.append(Sample(value, [X, dim, index, -1.5]))
        found.append(Sample(add, [X, dim, below(X.shape[dim], *shape), normal("float32", 3, 4, 2, seed=2)]))
    for key, given in ((src, normal("float32", 4)), (value, 1.0), (add, normal("float32", 4))):
        found.append(Sample(key, [normal("float32", 4), 0, EMPTY, given]))
    return [
        *found,
        Sample(value, [normal("int32", 4), 0, places(1, 1), 2.7], note="whole number"),
        Sample(value, [normal("float32"), 0, np.array(0), 7]),
        Sample(src, [normal("float32"), 0, places(0), array([7.0])]),
        Sample(add, [array([120, 1], "int8"), 0, places(0, 0, 1), array([100, 100, 1], "int8")], note="wraps"),
        Sample(add, [normal("float32"), 0, places(0), array([7.0])]),
        Sample(add, [normal("float32", 3), 0, places(1, 1, 1, 1, 0), array([1, 2, 3, np.nan, 4])]),
        Sample(add, [X.T, 0, below(2, 2, 4, 3), normal("float32", 2, 4, 3)]),
    ]


def selections() -> list[Sample]:
    key, lookup = "aten::index_select.out", "aten::embedding.out"
    found = [Sample(key, [normal(d, 3, 4), 1, places(3, 0, 0)]) for d in ALL]
    found += [Sample(lookup, [normal(d, 5, 3), below(5, 2, 2), -1, False, False]) for d in ALL]
    return [
        *found,
        Sample(key, [X, 0, array([2, 1], "int32")]),
        Sample(key, [X, -2, np.array(3)]),
        Sample(key, [X, 2, EMPTY]),
        Sample(key, [normal("float32"), 0, places(0)]),
        Sample(key, [channels_last(normal("float32", 1, 3, 2, 2)), 1, places(2, 0)], dim_order=(0, 2, 3, 1)),
        Sample(lookup, [normal("float32", 5, 3), below(5, 4).astype(np.int32), 2, True, False]),
        Sample(lookup, [normal("float32", 5, 3), np.array(4), -1, False, False]),
        Sample(lookup, [normal("float32", 5, 3), EMPTY, -1, False, False]),
        Sample(lookup, [normal("float32", 3, 5).T, below(5, 2), -1, False, False]),
    ]


MASK2 = np.array([[True, False, True, False], [False] * 4, [True, True, False, False]])
INDEX: list[list[Any]] = [
    [places(2, 0)],
    [places(-1, 0, 0)],
    [None, places(1, 3)],
    [None, None, places([1, 0], [-2, 1])],
    [places(0, 2), places(1, 3)],
    [places([0], [2]), places(1, 3, 3)],
    [places(0, 2), None, places(1, 0)],
    [places(0), None, places(1, 0)],
    [None, places(1, 0), places(1, 1)],
    [np.array(1), places(2, 3)],
    [np.array(1), None, places(0, 1)],
    [places(0, 2), None, np.array(1)],
    [np.array([True, False, True])],
    [None, np.array([True, False, True, True])],
    [MASK2],
    [MASK2, places(1)],
    [np.array([True, False, True]), None, places(1, 0)],
    [None, MASK2.T[:, :2]],
    [np.zeros(3, bool)],
    [EMPTY],
    [places(1), places(2), places(0)],
    [array([2, 0], "int32"), array([1, 1], "int32")],
]


def indexes() -> list[Sample]:
    read, write, inplace = "aten::index.Tensor_out", "aten::index_put.out", "aten::index_put_"
    found = [Sample(read, [X, index]) for index in INDEX]
    found += [Sample(read, [normal(d, 3, 4), [places(2, -1), None]]) for d in ALL]
    for index in INDEX:
        shape = X[tuple(slice(None) if i is None else i for i in index)].shape
        for accumulate in (True, False):
            repeated = not accumulate and any(
                i is not None and len(np.unique(i)) < i.size and i.dtype != bool for i in index
            )
            if not repeated:
                values = normal("float32", *shape, seed=4)
                found.append(Sample(write, [X, index, values, accumulate]))
                found.append(Sample(inplace, [X, index, values, accumulate]))
    for name in ALL:
        x, values = normal(name, 3, 4), normal(name, 4, seed=4)
        found.append(Sample(write, [x, [places(2, 0)], values, False]))
        found.append(Sample(inplace, [x, [places(2, 0, 2)], values, True]))
    last = channels_last(normal("float32", 2, 3, 2, 2))
    return [
        *found,
        Sample(read, [normal("float32", 0, 3), [None, places(2)]]),
        Sample(read, [last, [None, places(2, 0)]], dim_order=(0, 2, 3, 1)),
        Sample(write, [X, [places(1, 2)], normal("float32"), False], note="one number"),
        Sample(write, [X, [MASK2], normal("float32", 2), False]),
        Sample(inplace, [last, [None, places(1)], array([[[5.0]]]), False]),
        Sample(
            write, [array([100, 1], "int8"), [places(0, 0, -2)], array([100, 100, 100], "int8"), True], note="wraps"
        ),
    ]


def slices() -> list[Sample]:
    select, cut = "aten::select_scatter.out", "aten::slice_scatter.out"
    top = 2**63 - 1
    found = []
    for name in ALL:
        found.append(Sample(select, [normal(name, 3, 4), normal(name, 3, seed=2), 1, -1]))
        found.append(Sample(cut, [normal(name, 3, 4), normal(name, 3, 2, seed=2), 1, 0, 4, 2]))
    spans = (
        (0, None, None, 1, 3),
        (1, 1, 3, 1, 2),
        (-2, -3, top, 2, 2),
        (1, -9, 2, 1, 2),
        (1, 3, 1, 1, 0),
        (1, 0, 99, 7, 1),
    )
    for dim, start, end, step, count in spans:
        shape = [*X.shape]
        shape[dim] = count
        found.append(Sample(cut, [X, normal("float32", *shape, seed=2), dim, start, end, step]))
    return [
        *found,
        Sample(select, [X, normal("float32", 4, 2, seed=2), 0, 1]),
        Sample(select, [X, normal("float32", 3, 4, seed=2), -1, 0]),
        Sample(select, [normal("float32", 3), normal("float32"), 0, -3]),
    ]


def masks() -> list[Sample]:
    pick, fill = "aten::masked_select.out", "aten::masked_scatter.out"
    found = []
    for name in ALL:
        found.append(Sample(pick, [normal(name, 3, 4), MASK2]))
        found.append(Sample(fill, [normal(name, 3, 4), MASK2, normal(name, 6, seed=2)]))
    row, column = np.array([True, False, True, True]), MASK2[:, :1]
    for mask in (row, column, np.array(True), np.array(False), np.zeros((3, 4), bool), MASK2.T.copy().T):
        found.append(Sample(pick, [normal("float32", 3, 4), mask]))
        found.append(Sample(fill, [normal("float32", 3, 4), mask, normal("float32", 4, 3, seed=2)]))
    return [
        *found,
        Sample(pick, [normal("float32", 4), MASK2], note="input broadcasts"),
        Sample(pick, [normal("float32", 3, 1), row]),
        Sample(pick, [normal("float32"), np.array(True)]),
        Sample(pick, [normal("float32", 0, 4), np.zeros((0, 4), bool)]),
        Sample(fill, [normal("float32", 4), MASK2, normal("float32", 3, 4, seed=2)], note="input broadcasts"),
    ]


def counts() -> list[Sample]:
    key, repeat = "aten::nonzero.out", "aten::repeat_interleave.Tensor_out"
    found = [Sample(key, [normal(d, 2, 3) * array([1, 0, 1], d)], out=["int64"]) for d in ALL if d != "bool"]
    for x in (
        MASK2,
        edges("float32"),
        normal("float32"),
        array(0.0),
        normal("float32", 0, 3),
        X.T,
        np.zeros((2, 2), bool),
    ):
        found.append(Sample(key, [x], out=["int64"]))
    found += [
        Sample(repeat, [array(r, d), size], out=[d])
        for d in ("int64", "int32")
        for r, size in (([2, 0, 3], None), ([1, 1], 2), ([], None), ([0], 0))
    ]
    return found


NO_COMPLEX = ("gather", "scatter", "index_put", "masked", "nonzero")


def reason(sample: Sample) -> str:
    if has_complex(sample) and any(name in sample.key for name in NO_COMPLEX):
        return "no complex numbers"
    if sample.dim_order:
        return "contiguous only"
    if sample.key == "aten::index_put_":
        given = [i for i in sample.args[1] if i is not None]
        if sample.args[3] or len(given) > 1 or given[0].dtype == bool:
            return "one list of places, written and not added"
        return "contiguous only" if not sample.args[0].flags.c_contiguous else ""
    return ""


SAMPLES = unlike_stock([*gathers(), *scatters(), *selections(), *indexes(), *slices(), *masks(), *counts()], reason)
