"""The delegate: what runs a graph, as profiles show it."""

from __future__ import annotations

import re

import numpy as np
import pytest

from edgewright.backends.samsung.delegate import EnnDelegate
from edgewright.backends.samsung.dialect import DIALECT
from edgewright.formats.twin_writer import write_twin
from edgewright.ir.graph import Graph, Op, Value
from edgewright.runtime.delegates import DelegateBlob

SHAPE = (2, 3, 8)
X = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float16).astype(np.float32)


def tensor(name: str, *shape: int, dtype: str = "float32") -> Value:
    return Value(name, np.dtype(dtype), shape, tuple(range(len(shape))))


def relu() -> Graph:
    x, y = tensor("x", *SHAPE), tensor("y", *SHAPE)
    return Graph("g", [x], [y], [Op("enn.RELU", {"inputs": [x]}, [y])])


def top_k() -> Graph:
    x, values, indices = tensor("x", *SHAPE), tensor("v", 2, 3, 4), tensor("i", 2, 3, 4, dtype="int64")
    return Graph("g", [x], [values, indices], [Op("enn.TopK", {"inputs": [x], "k_dims": 4}, [values, indices])])


@pytest.mark.parametrize(
    ("graph", "runner"),
    [(relu(), r"engine, [\w-]+, 1 thread"), (top_k(), "numpy: TopK with several results")],
    ids=["compiled", "numpy"],
)
def test_profiles_say_what_runs(graph: Graph, runner: str) -> None:
    blob = DelegateBlob("EnnBackend", write_twin({"": graph}), {}, {}, memory=1 << 24, threads=1)
    delegate = EnnDelegate(blob)
    assert re.fullmatch(rf"ENN graph, for this machine only \({runner}\)", delegate.how)
    for found, expected in zip(delegate.execute([X]), DIALECT.execute(graph, [X]), strict=True):
        np.testing.assert_array_equal(found, expected)
