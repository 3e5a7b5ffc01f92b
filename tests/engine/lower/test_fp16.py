"""fp16 and bf16: what the reference stores, but for sums that round the other way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgewright.backends.xnnpack.numerics import XNNPACK
from edgewright.engine import make_plan
from edgewright.ir.core.execute import Executor
from edgewright.ir.dtypes import bfloat16
from edgewright.ir.graph import Graph, Op, Value
from tests.backends.node_cases import FLOAT
from tests.engine.graphs import constant, cpus, graph, run, steps_in_python

SUMS = ("conv", "linear", "bmm", "softmax", "pool", "resize")  # in another order than the reference's
HALVES = sorted(name for name in FLOAT if name.endswith("fp16"))


def check(made: Graph, given: list[Any], cpu: str, exact: bool) -> None:
    wanted = Executor(made, XNNPACK).run(given)
    for got, want in zip(run(made, given, cpu), wanted, strict=True):
        assert got.dtype == want.dtype
        a, b = (x.astype(np.float32) for x in (got, want))
        steps = np.finfo(np.float16).eps if want.dtype == np.float16 else 2.0**-7
        assert np.abs(a - b).max() <= (0 if exact else steps * max(float(np.abs(b).max()), 1e-3)), made.ops[0].kind


@pytest.mark.sample(1)
@pytest.mark.parametrize("cpu", cpus())
def test_every_node_of_half_precision(cpu: str) -> None:
    for name in HALVES:
        made, given = FLOAT[name]()
        simple = name.partition("_fp16")[0] in ("add", "sub", "mul", "maximum", "permute", "pad", "neg", "abs", "floor")
        with np.errstate(all="ignore"):
            check(made, list(given), cpu, simple)


def values(dtype: Any, *names: str) -> list[Value]:
    return [Value(n, np.dtype(dtype), (5, 40), (0, 1)) for n in names]


@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize("dtype", [np.float16, bfloat16])
def test_each_result_is_rounded(cpu: str, dtype: Any) -> None:
    """A sum, a product and a function in a row: three times rounded."""
    x, y, a, b, c = values(dtype, "x", "y", "a", "b", "c")
    scale = constant(np.array([1.1]).astype(dtype))
    ops = [Op("core.add", {"self": x, "other": y}, [a]), Op("core.mul", {"self": a, "other": scale}, [b]),
           Op("core.abs", {"self": b}, [c])]  # fmt: skip
    made = graph([x, y], [c, b], *ops)
    rng = np.random.default_rng(0)
    given = [(rng.standard_normal((5, 40)) * 100).astype(dtype) for _ in range(2)]
    assert steps_in_python(made, cpu) == []
    check(made, given, cpu, exact=True)


def moves() -> list[Graph]:
    x, y = values(np.float16, "x", "y")
    transposed = Value("t", np.dtype(np.float16), (40, 5), (0, 1))
    return [
        graph([x], [transposed], Op("core.permute", {"self": x, "dims": [1, 0]}, [transposed])),
        graph([x], [x, y], Op("core.clone", {"self": x}, [y])),
    ]


@pytest.mark.parametrize("made", moves(), ids=["permute", "clone"])
def test_fp16_that_is_only_moved_is_exact(made: Graph) -> None:
    check(made, [np.arange(200).astype(np.float16).reshape(5, 40)], cpus()[-1], exact=True)
    assert make_plan(made, 1).inputs[0].dtype == np.dtype(np.float16)


@pytest.mark.xfail(strict=True, reason="widen_fp16 converts to float32 and back around operators that compute nothing")
@pytest.mark.parametrize("made", moves(), ids=["permute", "clone"])
def test_graphs_that_only_move_fp16_are_not_widened(made: Graph) -> None:
    assert "convert" not in {s.label for s in make_plan(made, 1).steps}
