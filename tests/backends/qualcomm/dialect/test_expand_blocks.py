"""Blockwise weights as 8-bit weights by channel: the same numbers."""

from __future__ import annotations

import numpy as np

from edgewright.backends.qualcomm.dialect.conv import integer_weights
from edgewright.backends.qualcomm.dialect.twin import expand_blocks
from edgewright.ir.graph import Graph, Op, QParams, Value

INPUTS, OUTPUTS, BLOCK = 64, 5, 32


def blockwise() -> Value:
    draw = np.random.default_rng(0)
    data = draw.integers(-8, 8, (1, 1, INPUTS, OUTPUTS)).astype(np.int8)
    count = OUTPUTS * INPUTS // BLOCK
    scales = tuple((draw.uniform(0.1, 1, count)).tolist())
    q = QParams(scales, (0,) * count, np.dtype(np.int8), -8, 7, axis=3, block=BLOCK)
    return Value("w", q.dtype, data.shape, (0, 1, 2, 3), data, q=q)


def convolution(weight: Value) -> Graph:
    q = QParams(0.01, 100, np.dtype(np.uint16), 0, 65535)
    x, y = (Value(n, q.dtype, (1, 1, 3, c), (0, 1, 2, 3), q=q) for n, c in (("x", INPUTS), ("y", OUTPUTS)))
    return Graph("g", [x], [y], [Op("Conv2d", {"inputs": [x, weight], "params": {}}, [y])])


def test_the_same_numbers_once_for_all_graphs() -> None:
    weight = blockwise()
    graphs = [convolution(weight), convolution(weight)]
    first, second = (graph.ops[0].args["inputs"][1] for graph in expand_blocks(graphs))
    assert first is second and first.q.block is None and first.q.axis == 3 and len(first.q.scale) == OUTPUTS
    for expanded, original in zip(
        integer_weights(first, first.data), integer_weights(weight, weight.data), strict=True
    ):  # type: ignore[arg-type]
        np.testing.assert_array_equal(expanded, original)
    assert first.data.dtype == np.int8 and first.data.min() < -100  # multiples up to 16
    assert graphs[0].ops[0].args["inputs"][1] is weight  # what the compiler gets stays blockwise
