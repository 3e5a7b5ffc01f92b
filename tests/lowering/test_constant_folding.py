"""Operators on constants: computed ahead where the result is small, and never where they draw numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgewright.backends.info import BackendInfo
from edgewright.backends.table import NOT_CONSTANT, Backend, OpSpec
from edgewright.ir.aten.ops import OPS
from edgewright.ir.graph import Graph, Op, QParams, Value
from edgewright.lowering.passes.constant_folding import fold_constants

FLOAT = np.dtype(np.float32)
INT8 = np.dtype(np.int8)


def value(name: str, shape: tuple[int, ...], data: Any = None, q: QParams | None = None) -> Value:
    return Value(name, INT8 if q else FLOAT, shape, tuple(range(len(shape))), data, q=q)


def constant(*shape: int) -> Value:
    rng = np.random.default_rng(0)
    return value("constant", shape, rng.standard_normal(shape).astype(np.float32))


def folded(*ops: Op, reads: Value) -> Graph:
    """A graph of these operators and a sum that reads the last's result, folded."""
    x, out = value("x", reads.shape, q=reads.q), value("out", reads.shape, q=reads.q)
    graph = Graph("g", [x], [out], [*ops, Op("add", {"self": x, "other": reads, "alpha": 1}, [out])])
    fold_constants(graph, OPS)
    return graph


def test_the_first_of_several_results_is_stored() -> None:
    source, weight = constant(4, 8), constant(8)
    normed = value("normed", (4, 8))
    args = {"input": source, "normalized_shape": [8], "weight": weight, "bias": None, "eps": 1e-5}
    graph = folded(Op("layer_norm", args, [normed]), reads=normed)
    assert [op.kind for op in graph.ops] == ["add"]
    data = source.data
    assert data is not None
    centred = data - data.mean(-1, keepdims=True)
    wanted = centred / np.sqrt(data.var(-1, keepdims=True) + 1e-5) * weight.data
    np.testing.assert_allclose(normed.data, wanted, 1e-5, 1e-5)


def test_all_results_of_a_split_are_stored() -> None:
    source = constant(4, 8)
    parts = [value("a", (2, 8)), value("b", (2, 8))]
    total = value("total", (2, 8))
    split = Op("split", {"self": source, "split_size": 2, "dim": 0}, list(parts))
    graph = folded(split, Op("sub", {"self": parts[0], "other": parts[1], "alpha": 1}, [total]), reads=total)
    assert [op.kind for op in graph.ops] == ["add"]
    data = source.data
    assert data is not None
    np.testing.assert_array_equal(total.data, data[:2] - data[2:])


def test_what_is_wide_in_between_is_computed_and_not_stored() -> None:
    """Two products: the hidden result is far larger than all constants, the last one is not."""
    table, first, last = constant(64, 2), constant(4096, 2), constant(4, 4096)
    hidden, result = value("hidden", (64, 4096)), value("result", (64, 4))
    graph = folded(
        Op("linear", {"input": table, "weight": first, "bias": None}, [hidden]),
        Op("linear", {"input": hidden, "weight": last, "bias": None}, [result]),
        reads=result,
    )
    assert [op.kind for op in graph.ops] == ["add"]
    assert hidden.data is None
    arrays = [v.data for v in (table, first, last)]
    assert result.data is not None
    np.testing.assert_allclose(result.data, arrays[0] @ arrays[1].T @ arrays[2].T, 1e-4, 1e-3)  # type: ignore[union-attr,operator]


def test_what_would_grow_is_left_and_refused_by_every_backend() -> None:
    source, large = constant(1, 64), value("large", (1024, 64))
    graph = folded(Op("expand", {"self": source, "size": [1024, 64]}, [large]), reads=large)
    assert [op.kind for op in graph.ops] == ["expand", "add"]
    backend = Backend(BackendInfo("any"), [OpSpec("expand", lambda low, op: None), OpSpec("add", lambda low, op: None)])
    refused = [[r.rule for r in backend.rejections(op)] for op in graph.ops]
    assert refused == [[NOT_CONSTANT.text], []]


@pytest.mark.parametrize("kind", ["rand_like", "randn_like"])
def test_numbers_that_are_drawn_are_drawn_anew(kind: str) -> None:
    source, noise = constant(4), value("noise", (4,))
    graph = folded(Op(kind, {"self": source}, [noise]), reads=noise)
    assert [op.kind for op in graph.ops] == [kind, "add"]


def test_results_of_integers_are_those_of_the_fake_quantized_graph() -> None:
    """Also without dimensions: numpy makes numbers of such arrays."""
    coarse, fine = QParams(0.1, 3, INT8, -128, 127), QParams(0.02, -5, INT8, -128, 127)
    source = value("source", (), np.array(13, np.int8), coarse)
    scaled, result = value("scaled", (), q=fine), value("result", (), q=fine)
    graph = folded(
        Op("mul", {"self": source, "other": 2.0}, [scaled]), Op("relu", {"self": scaled}, [result]), reads=result
    )
    assert [op.kind for op in graph.ops] == ["add"]
    assert result.data is not None
    assert (result.data.dtype, result.data.shape, int(result.data)) == (INT8, (), 2 * 50 - 5)


def test_a_constant_that_is_an_output_stays_computed() -> None:
    source, out = constant(4), value("out", (4,))
    graph = Graph("g", [], [out], [Op("relu", {"self": source}, [out])])
    fold_constants(graph, OPS)
    assert [op.kind for op in graph.ops] == ["relu"]


def test_what_is_created_of_numbers_is_stored_if_it_is_small_and_finite() -> None:
    steps, angles = value("steps", (4,)), value("angles", (4,))
    args = {"start": 0, "end": 4, "step": 1}
    graph = folded(Op("arange", args, [steps]), Op("cos", {"self": steps}, [angles]), reads=angles)
    assert [op.kind for op in graph.ops] == ["add"]
    np.testing.assert_allclose(angles.data, np.cos(np.arange(4)), 1e-6)
    steps = value("steps", (4,))
    graph = folded(Op("arange", args, [steps]), reads=steps)
    assert [op.kind for op in graph.ops] == ["add"]
    np.testing.assert_array_equal(steps.data, np.arange(4))
    for size, number in (((1 << 14) + 1, 1.0), (4, -np.inf)):
        filled = value("filled", (size,))
        graph = folded(Op("full", {"size": [size], "fill_value": number}, [filled]), reads=filled)
        assert [op.kind for op in graph.ops] == ["full", "add"]
        assert filled.data is None


def test_only_the_shape_of_an_operand_may_count() -> None:
    source, x, filled, out = (value(name, (2, 3)) for name in ("source", "x", "filled", "out"))
    ops = [Op("relu", {"self": x}, [source]), Op("full_like", {"self": source, "fill_value": 0.5}, [filled]),
           Op("add", {"self": x, "other": filled, "alpha": 1}, [out])]  # fmt: skip
    graph = Graph("g", [x], [out], ops)
    fold_constants(graph, OPS)
    assert [op.kind for op in graph.ops] == ["relu", "add"]
    np.testing.assert_array_equal(filled.data, np.full((2, 3), 0.5))
