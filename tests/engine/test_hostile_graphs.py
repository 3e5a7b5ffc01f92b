"""Vendors' graphs that do not hold together are refused, or fail as they run: they never read what is not theirs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import numpy as np
import pytest

from edgewright.backends.ethos_u.dialect.numerics import TOSA_NUMERICS
from edgewright.engine import compile, make_plan
from edgewright.engine.runner import make_runner
from edgewright.errors import EdgewrightError
from edgewright.ir.graph import Graph
from tests.backends.ethos_u.dialect import test_to_core as test_tosa
from tests.backends.nxp.dialect import test_to_core as test_tflite
from tests.engine.lower import test_int16
from tests.engine.vendors import anything, graph, numbers, plain, stored, tflite, tosa
from tests.support.dialects import NUMERICS


def _pool(kind: str) -> Graph:
    x, y = plain("x", (2, 6, 6, 4), "int8"), plain("y", (2, 3, 3, 4), "int8")
    zeros = {} if kind == "max_pool2d" else {"input_zp": 0, "output_zp": 0}
    return graph([y], tosa(kind, y, input=x, kernel=[2, 2], stride=[2, 2], pad=[0] * 4, **zeros))


def _sum() -> Graph:
    x, y = plain("x", (2, 6, 5), "int32"), plain("y", (2, 1, 5), "int32")
    return graph([y], tosa("reduce_sum", y, input=x, axis=1))


def _rescale() -> Graph:
    x, y = plain("x", (2, 6, 5), "int32"), plain("y", (2, 6, 5), "int8")
    return graph([y], test_tosa.rescale(x, y, *test_tosa.factors(5, 0.01)))


def _pair(kind: str) -> Graph:
    a, b, y = stored("a", (2, 6, 5), 0.1), stored("b", (1, 6, 5), 0.1), stored("y", (2, 6, 5), 0.1)
    return graph([y], tflite(kind, [a, b], y))


def _softmax() -> Graph:
    x, y = stored("x", (3, 7), 0.1), stored("y", (3, 7), 1 / 256, -128)
    return graph([y], tflite("SOFTMAX", [x], y, beta=1.0))


def _matmul() -> Graph:
    a, b, y = stored("a", (2, 3, 5), 0.1), stored("b", (2, 5, 4), 0.1), stored("y", (2, 3, 4), 0.1)
    return graph([y], tflite("BATCH_MATMUL", [a, b], y))


def _moved() -> Graph:
    x, y = plain("x", (2, 6, 5), "int16"), plain("y", (5, 2, 6), "int16")
    return graph([y], tosa("transpose", y, input=x, perms=[2, 0, 1]))


def _table() -> Graph:
    x, y = plain("x", (2, 6), "int16"), plain("y", (2, 6), "int32")
    return graph([y], tosa("table", y, input=x, table=numbers(np.arange(513), "int16")))


GRAPHS: dict[str, tuple[str, Callable[[], Graph]]] = {
    "tflite conv": ("tflite", lambda: test_tflite.convolution(5, 3, 1, 1, False, 1, (0.05, 7))),
    "tflite depthwise": ("tflite", lambda: test_tflite.convolution(5, 3, 1, 1, True, 1, (0.05, 7))),
    "tosa conv": ("tosa", lambda: test_tosa.convolution("conv2d", 0.01, "single", 1, 3, True)),
    "tosa conv of words": ("tosa", lambda: test_int16.convolution(False, 5, 3, 1, 1, False, 1.0)),
    "tosa depthwise of words": ("tosa", lambda: test_int16.convolution(True, 5, 3, 1, 1, False, 1.0)),
    "mean": ("tosa", lambda: _pool("avg_pool2d")),
    "most": ("tosa", lambda: _pool("max_pool2d")),
    "sum": ("tosa", _sum),
    "rescale": ("tosa", _rescale),
    "add": ("tflite", lambda: _pair("ADD")),
    "softmax": ("tflite", _softmax),
    "matmul": ("tflite", _matmul),
    "transpose": ("tosa", _moved),
    "table": ("tosa", _table),
}


def outcome(made: Graph, numerics: str) -> None:
    compile(made, threads=1, numerics=NUMERICS[numerics], memory=1 << 28).run([anything(v) for v in made.inputs])


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", GRAPHS)
def test_results_that_are_not_as_large_as_they_say(name: str) -> None:
    numerics, make = GRAPHS[name]
    outcome(make(), numerics)
    for dim in range(len(make().outputs[0].bound)):
        for by in (-1, 1, 1000):
            made = make()
            for value in {id(v): v for op in made.ops[-2:] for v in op.outputs if v is not None}.values():
                if value.bound == made.outputs[0].bound:
                    value.shape = tuple(n + by if d == dim else n for d, n in enumerate(value.bound))
            if 0 in made.outputs[0].bound:
                continue
            with pytest.raises(EdgewrightError):
                outcome(made, numerics)


def test_runners_reject_a_result_of_another_size() -> None:
    """Sizes follow from the inputs'; one that the graph contradicts is an error."""
    made = _pool("avg_pool2d")
    made.outputs[0].shape = (2, 3, 3, 5)
    runner = make_runner(lambda: made, TOSA_NUMERICS, 1 << 28, 1)
    with pytest.raises(EdgewrightError):
        runner.run([anything(v) for v in made.inputs])


def test_entries_that_a_table_does_not_have() -> None:
    made = _table()
    made.ops[0].args["table"] = numbers(np.arange(512), "int16")
    with pytest.raises(EdgewrightError):
        outcome(made, "tosa")


@pytest.mark.parametrize(("by", "bits"), [(-5, 31), (1 << 30, 0), (1 << 30, 63), (1 << 30, -1), (1 << 30, 127)])
def test_factors_that_are_none(by: int, bits: int) -> None:
    """Left to the reference, which gives whatever numpy does, or says that there is nothing."""
    x, y = plain("x", (4, 33), "int32"), plain("y", (4, 33), "int8")
    made = graph([y], test_tosa.rescale(x, y, by, bits))
    assert [s.label for s in make_plan(made, numerics=TOSA_NUMERICS).steps if s.python is not None] == ["tosa.rescale"]
    with contextlib.suppress(EdgewrightError):
        outcome(made, "tosa")
