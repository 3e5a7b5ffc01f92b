"""Checks of a plan's memory: mistakes that were planted are found, in what is declared and in what kernels do."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest

from edgewright.backends.xnnpack.numerics import XNNPACK
from edgewright.engine import compile
from edgewright.engine.graph import schedule
from edgewright.engine.graph.layout import Storage, dense_layout
from edgewright.engine.graph.memory import BufferLifetime
from edgewright.engine.graph.verify_plan import Access, PlanError, verify_plan
from edgewright.engine.lower import int8_conv
from edgewright.engine.plan import Address
from edgewright.ir.core.execute import Executor
from edgewright.ir.graph import Graph, Op
from tests.engine.graphs import check_alike, filters, graph, quantized, random, real
from tests.engine.layout_contexts import neighbours
from tests.engine.random_operators import SUBJECTS
from tests.engine.sanitize import sanitize


def _home(name: str, offset: int, size: int = 64) -> Storage:
    return Storage(real(name, size // 4), Address("arena", offset), dense_layout((size // 4,), 4))


def _node(reads: tuple[Storage, ...], writes: tuple[Storage, ...], **more: Any) -> Access:
    return Access("node", reads, writes, **more)


A, B, C = (_home(name, 64 * i) for i, name in enumerate("abc"))


def test_values_that_take_turns_may_share_memory() -> None:
    later = Storage(real("later", 16), A.address, A.layout)
    verify_plan([_node((), (A,)), _node((A,), (B,)), _node((B,), (later,)), _node((later,), (C,))], 192, [])


@pytest.mark.parametrize(
    ("accesses", "rule"),
    [
        ([_node((A,), (B,))], "is never written"),
        ([_node((), (A,)), _node((), (_home("other", 32),)), _node((A,), (C,))], "32"),
        ([_node((), (A,)), _node((), (B,), temporaries=((0, 64),)), _node((A,), (C,))], "64"),
        ([_node((), (_home("far", 160),))], "224"),
    ],
)
def test_what_a_node_reads_must_be_there(accesses: list[Access], rule: str) -> None:
    with pytest.raises(PlanError, match=rule):
        verify_plan(accesses, 192, [])


def test_a_view_is_read_where_its_source_is() -> None:
    view = Storage(real("view", 8), A.address, dense_layout((8,), 4))
    made = [_node((), (A,)), _node((), (view,), same=A.value), _node((), (B,))]
    verify_plan([*made, _node((view,), (C,))], 192, [])
    with pytest.raises(PlanError, match="view"):
        verify_plan([*made, _node((), (_home("over", 0, 32),)), _node((view,), (C,))], 192, [])


def _residual() -> Graph:
    x = real("x", 1, 6, 6, 8)
    a, b, c, y = (real(name, 1, 6, 6, 8) for name in "abcy")
    ops = [
        Op("core.hardswish", {"self": x}, [a]),
        Op("core.tanh", {"self": a}, [b]),
        Op("core.softmax", {"self": b}, [c]),
    ]
    return graph([x], [y], *ops, Op("core.mul", {"self": a, "other": c}, [y]))


def test_values_that_end_too_early_are_found_when_the_graph_is_compiled() -> None:
    def forgetful(size: int, first: int, last: int) -> BufferLifetime:
        return BufferLifetime(size, first, min(last, first + 1))

    compile(_residual(), threads=1)
    with mock.patch.object(schedule, "BufferLifetime", forgetful), pytest.raises(PlanError, match="overwrote"):
        compile(_residual(), threads=1)


def test_a_kernel_that_writes_beside_its_result_is_found() -> None:
    x, e, p, d = (quantized(name, 1, 4, 4, 16) for name in "xepd")
    both, y = quantized("both", 1, 4, 4, 32), quantized("y", 1, 4, 4, 32)
    args = {"stride": [1, 1], "padding": [1] * 4, "dilation": [1, 1], "groups": 16, "bias": None}
    made = graph(
        [x], [y],
        Op("core.tanh", {"self": x}, [e]),
        Op("core.hardswish", {"self": x}, [p]),
        Op("core.depthwise_conv2d", {"input": p, "weight": filters(1, 3, 3, 16, quantize=True, axis=3), **args}, [d]),
        Op("core.cat", {"tensors": [d, e], "dim": 3}, [both]),
        Op("core.hardswish", {"self": both}, [y]),
    )  # fmt: skip
    given = [random(x)]
    check_alike(sanitize(made, given), Executor(made, XNNPACK).run(given))
    with (
        mock.patch.object(int8_conv, "padded_channels", lambda channels: 2 * channels),
        pytest.raises(AssertionError, match="depthwise_conv2d writes to another value"),
    ):
        check_alike(sanitize(made, given), Executor(made, XNNPACK).run(given))


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", SUBJECTS)
def test_kernels_read_their_operands_and_write_their_results_only(name: str) -> None:
    made, inputs = SUBJECTS[name](np.random.default_rng(7))
    contexts = list(neighbours(made, list(inputs)))
    for _, (wrapped, given) in contexts[sum(name.encode()) % 6 :: 6]:
        check_alike(sanitize(wrapped, given), Executor(wrapped, XNNPACK).run(given), 3e-5)
