"""Nodes of XNNPACK one by one: they survive the blob, and our executor gives what stock gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from edgewright.backends.xnnpack.blob import read_blob, write_blob
from edgewright.backends.xnnpack.blob_reader import from_blob
from edgewright.backends.xnnpack.blob_writer import to_blob
from edgewright.backends.xnnpack.nodes import NODES
from edgewright.backends.xnnpack.numerics import XNNPACK
from edgewright.errors import FormatError
from edgewright.ir.core.execute import Executor
from edgewright.ir.graph import Graph, QParams
from edgewright.runtime import Runtime
from tests.backends.device import program, q8, single, value
from tests.backends.lowered import relative
from tests.backends.node_cases import EXACT, FLOAT, ROWS, Made
from tests.backends.xnnpack.test_blob_reader import shown
from tests.support.stock import StockError, stock


def _argmax() -> Made:
    x, out, place = value((1, 4, 4, 2)), value((1, 2, 2, 2)), value((1, 2, 2, 2), np.int32)
    return single("argmax_pool2d", [x], [out, place], self=x, kernel_size=[2, 2], padding=[0, 0, 0, 0]), []


def _attention() -> Made:
    parts = [value((1, 2, 3, 4)) for _ in range(3)]
    names = dict(zip(("query", "key", "value"), parts, strict=True))
    out = value((1, 2, 3, 4))
    return single("scaled_dot_product_attention", parts, [out], **names, scale=None, attn_mask=None), []


FORMAT_ONLY: dict[str, Callable[[], Made]] = {"argmax_pool2d": _argmax, "attention": _attention}
ALL = {
    **{f"float-{k}": m for k, m in FLOAT.items()},
    **{f"int8-{k}": m for k, m in EXACT.items()},
    **{f"rows-{k}": m for k, m in ROWS.items()},
    **FORMAT_ONLY,
}


def reread(graph: Graph) -> Graph:
    blob, named = to_blob(graph)
    return from_blob(read_blob(write_blob(blob)), named)


def names(graph: Graph) -> set[str]:
    return {node.row.name for node in to_blob(graph)[0].graph.xnodes}


def test_every_node_has_a_case() -> None:
    assert {name for make in ALL.values() for name in names(make()[0])} == {node.name for node in NODES}


@pytest.mark.parametrize("name", ALL)
def test_nodes_survive_the_blob(name: str) -> None:
    once = reread(ALL[name]()[0])
    assert shown(reread(once)) == shown(once)


def both(made: Made) -> tuple[list[Any], list[Any]]:
    graph, arrays = made
    data = program(graph)
    ours = Runtime.get().load_program(data).load_method("forward").execute(arrays)
    return [np.asarray(o) for o in ours], stock().run(data, "forward", arrays)


@pytest.mark.sample(34)
@pytest.mark.parametrize("name", FLOAT)
def test_floats_are_stocks(name: str) -> None:
    tolerance = 2e-3 if name.endswith("fp16") else 2e-6
    for ours, theirs in zip(*both(FLOAT[name]()), strict=True):
        assert ours.dtype == theirs.dtype
        assert relative(ours, theirs) <= tolerance


@pytest.mark.sample(16)
@pytest.mark.parametrize("name", EXACT)
def test_integers_are_stocks_bit_for_bit(name: str) -> None:
    for ours, theirs in zip(*both(EXACT[name]()), strict=True):
        np.testing.assert_array_equal(ours, theirs)
        assert np.unique(ours).size > 2  # a test of clamped ends only would show nothing


_MOVEMENT: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "clone": ((2, 3, 4), {}), "view": ((2, 12), {"size": [2, 12]}), "permute": ((4, 2, 3), {"dims": [2, 0, 1]}),
    "slice": ((1, 3, 4), {"start": [1, 0, 0], "length": [1, 3, 4]}),
    "pad": ((2, 4, 4), {"before": [0, 1, 0], "after": [0, 0, 0], "value": 0.0}), "cat": ((2, 6, 4), {"dim": 1}),
}  # fmt: skip


@pytest.mark.parametrize("name", _MOVEMENT)
def test_data_movement_keeps_quantization_parameters_as_in_stock(name: str) -> None:
    """Other parameters of the result would be a silent requantization: stock does not load such a blob either."""
    shape, args = _MOVEMENT[name]
    x, arrays = value((2, 3, 4), q=q8(0.5, 3)), [np.arange(24, dtype=np.int8).reshape(2, 3, 4)]
    operands: dict[str, Any] = {"tensors": [x, x]} if name == "cat" else {"self": x}

    def made(q: QParams) -> Made:
        return single(name, [x], [value(shape, q=q)], **operands, **args), arrays

    ours, theirs = both(made(q8(0.5, 3)))
    np.testing.assert_array_equal(ours[0], theirs[0])
    for other in (q8(0.25, 3), q8(0.5, 4)):
        data = program(made(other)[0])
        with pytest.raises(FormatError, match="must have the scale and zero point of"):
            Runtime.get().load_program(data).load_method("forward")
        with pytest.raises(StockError):
            stock().run(data, "forward", arrays)


@pytest.mark.parametrize("name", ROWS)
def test_dynamically_quantized_rows_are_stocks(name: str) -> None:
    for ours, theirs in zip(*both(ROWS[name]()), strict=True):
        assert relative(ours, theirs) <= 1e-5


def test_blob_and_graph_compute_the_same() -> None:
    graph, arrays = EXACT["conv2d_by_channel"]()
    direct, through = Executor(graph, XNNPACK).run(arrays), Executor(reread(graph), XNNPACK).run(arrays)
    np.testing.assert_array_equal(direct[0], through[0])
