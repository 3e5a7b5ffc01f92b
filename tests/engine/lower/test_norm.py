"""Normalisations and reductions: within what they state of the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgewright.ir.graph import Graph, Op
from tests.engine.graphs import compare, constant, cpus, graph, random, real


def norm(kind: str, shape: tuple[int, ...], factors: int, biased: bool = True, weighted: bool = True,
         **args: Any) -> Graph:  # fmt: skip
    rng = np.random.default_rng(3)
    x, y = real("x", *shape), real("y", *shape)
    weight, bias = (constant(rng.standard_normal(factors).astype(np.float32)) for _ in range(2))
    given = {
        "weight": weight if weighted else None,
        **({"bias": bias if biased else None} if kind != "rms_norm" else {}),
    }
    return graph([x], [y], Op(f"core.{kind}", {"input": x, **given, **args}, [y]))


@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize("kind", ["layer_norm", "rms_norm"])
@pytest.mark.parametrize("shape", [(3, 5), (1, 4, 64), (2, 3, 100), (7, 1), (33,)])
@pytest.mark.parametrize("weighted", [False, True])
def test_rows(cpu: str, kind: str, shape: tuple[int, ...], weighted: bool) -> None:
    made = norm(kind, shape, shape[-1], weighted, weighted, normalized_shape=[shape[-1]], eps=1e-5)
    compare(made, [random(made.inputs[0]) * 3 + 2], cpu, 3e-6)


@pytest.mark.sample(4)
@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize(("shape", "groups"), [((2, 6, 5, 5), 3), ((1, 8, 3), 8), ((2, 4, 16, 2), 1)])
@pytest.mark.parametrize("weighted", [False, True])
def test_groups(cpu: str, shape: tuple[int, ...], groups: int, weighted: bool) -> None:
    made = norm("group_norm", shape, shape[1], weighted, weighted, num_groups=groups, eps=1e-3)
    compare(made, [random(made.inputs[0])], cpu, 3e-6)


def test_large_numbers_and_none() -> None:
    """The mean is taken away before squares are summed; what is not a number stays so."""
    made = norm("layer_norm", (3, 40), 40, normalized_shape=[40], eps=1e-5)
    x = random(made.inputs[0]) + np.array([[1000], [0], [0]], np.float32)
    x[1, 3], x[2] = np.nan, 0
    compare(made, [x], cpus()[-1], 2e-4)


@pytest.mark.sample(14)
@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize("kind", ["sum", "mean", "prod", "amax", "amin"])
@pytest.mark.parametrize(
    ("shape", "dims"),
    [((40,), [0]), ((3, 70), [1]), ((3, 70), [0]), ((2, 5, 6, 7), [1, 3]), ((4, 3, 130), [-2]), ((2, 3, 4), None),
     ((2, 3, 4, 5), [0, 2]), ((), None), ((5, 1, 3), [1])],
)  # fmt: skip
def test_reductions(cpu: str, kind: str, shape: tuple[int, ...], dims: Any) -> None:
    x = real("x", *shape)
    axes = tuple(d % len(shape) for d in dims) if dims else tuple(range(len(shape)))
    for keep in (False, True):
        y = real("y", *np.zeros(shape).sum(axes, keepdims=keep).shape)
        made = graph([x], [y], Op(f"core.{kind}", {"self": x, "dim": dims or [], "keepdim": keep}, [y]))
        compare(made, [random(x)], cpu, 3e-6)


def test_extremes_of_what_is_no_number() -> None:
    x, y = real("x", 2, 20), real("y", 2)
    data = random(x)
    data[1, 7] = np.nan
    for kind in ("amax", "amin"):
        compare(graph([x], [y], Op(f"core.{kind}", {"self": x, "dim": [1], "keepdim": False}, [y])), [data], cpus()[-1])
