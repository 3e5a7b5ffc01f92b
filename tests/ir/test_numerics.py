"""Rounding rules: each vendor's class is complete, and the reference and the engine ask the object they are given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgewright.engine import compile
from edgewright.engine.isa import host_isa
from edgewright.engine.jit.plan_cache import PlanSource
from edgewright.ir.core.execute import Executor
from edgewright.ir.graph import Graph, Op, QParams, Value
from edgewright.ir.numerics import FLOAT32, Float32Numerics, Limits, MeanParams, Numerics
from tests.support.dialects import NUMERICS

INT8 = np.dtype(np.int8)


@pytest.mark.parametrize("name", NUMERICS)
def test_a_vendors_rules_are_its_own(name: str) -> None:
    """A vendor's class inherits the common rules or none, never another vendor's."""
    kind = type(NUMERICS[name])
    assert kind.__bases__ in ((Numerics,), (Float32Numerics,))
    assert not kind.__abstractmethods__
    assert NUMERICS[name].name == ("xnnpack" if name == "core" else name)


class Coarse(Float32Numerics):
    """Rounds sums and means down to even numbers, and clamps one step earlier."""

    name = "coarse"

    def sum_factors(self, input_qs: tuple[QParams, QParams], q: QParams) -> tuple[int, int, int]:  # type: ignore[override]
        return 3, 5, 3

    def mean_steps(self, input_q: QParams, q: QParams, count: int) -> MeanParams:  # type: ignore[override]
        return MeanParams(7, np.float32(0.25), np.float32(0.125), -2)

    def limits(self, q: QParams, limits: Limits) -> tuple[int, int]:  # type: ignore[override]
        return q.qmin + 1, q.qmax - 1


def tensor(name: str, *shape: int, scale: float = 0.5, zero: int = 1) -> Value:
    return Value(name, INT8, shape, tuple(range(len(shape))), q=QParams(scale, zero, INT8, -128, 127))


def graphs() -> dict[str, Graph]:
    a, b, y = tensor("a", 2, 3, 5, 8), tensor("b", 2, 3, 5, 8, scale=0.75), tensor("y", 2, 3, 5, 8, scale=0.6)
    mean = tensor("m", 2, 1, 1, 8)
    return {
        "sum": Graph("sum", [a, b], [y], [Op("core.add", {"self": a, "other": b}, [y])]),
        "mean": Graph("mean", [a], [mean], [Op("core.global_avg_pool2d", {"self": a}, [mean])]),
    }


@pytest.mark.parametrize("name", ["sum", "mean"])
def test_the_engine_asks_the_object(name: str) -> None:
    graph, rng = graphs()[name], np.random.default_rng(0)
    inputs = [rng.integers(-128, 128, v.bound).astype(np.int8) for v in graph.inputs]
    results: dict[str, Any] = {}
    for numerics in (FLOAT32, Coarse()):
        (results[numerics.name],) = Executor(graph, numerics).run(inputs)
        np.testing.assert_array_equal(
            compile(graph, threads=1, numerics=numerics).run(inputs)[0], results[numerics.name]
        )
    assert not np.array_equal(*results.values())


def test_cached_plans_depend_on_numerics() -> None:
    source = PlanSource("blob", lambda name: None, ())
    keys = {source.key(host_isa(), 1, numerics, 1 << 20) for numerics in (*set(NUMERICS.values()), FLOAT32, Coarse())}
    assert len(keys) == len(set(NUMERICS.values())) + 2


def test_cached_plans_depend_on_the_source_of_the_numerics() -> None:
    class Moved(Float32Numerics):
        """The same name, defined in another file."""

    source = PlanSource("blob", lambda name: None, ())
    assert source.key(host_isa(), 1, Moved(), 1) != source.key(host_isa(), 1, FLOAT32, 1)
