"""Products of two tensors: close to the reference, whatever their sizes, batches and strides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewright.engine import make_plan
from edgewright.ir.graph import Graph, Op
from tests.engine.graphs import compare, constant, cpus, graph, random, real

Shape = tuple[int, ...]


def matmul(a: Shape, b: Shape, turned: bool = False, held: bool = False, **args: Any) -> Graph:
    """``turned``: the second operand is given with its last dimensions exchanged; ``held``: it is a constant."""
    shape = (*b[:-2], b[-1], b[-2]) if turned else b
    x, y = real("x", *a), real("y", *shape)
    if held:
        y = constant(random(y, 5))
    out = real("z", *np.broadcast_shapes(a[:-2], b[:-2]), a[-2], b[-1])
    ops, other = [], y
    if turned:
        dims = list(range(len(b)))
        other = real("t", *b)
        ops = [Op("core.permute", {"self": y, "dims": [*dims[:-2], dims[-1], dims[-2]]}, [other])]
    return graph([x] if held else [x, y], [out], *ops, Op("core.bmm", {"self": x, "other": other, **args}, [out]))


def check(made: Graph, cpu: str) -> None:
    compare(made, [random(v, i) for i, v in enumerate(made.inputs)], cpu, 3e-6)


SHAPES = [((2, 3, 4), (2, 4, 5)), ((40, 33), (33, 70)), ((3, 17, 5), (3, 5, 16)), ((2, 2, 19, 64), (2, 2, 64, 21)),
          ((6, 30, 20), (1, 20, 8)), ((2, 3, 8, 16), (3, 16, 40)), ((1, 1, 1), (1, 1, 1)),
          ((1, 7, 300), (1, 300, 3))]  # fmt: skip
THIN = [
    ((4, 1, 64), (4, 64, 37)),
    ((2, 3, 40), (2, 40, 100)),
    ((1, 7), (7, 5)),
    ((2, 4, 3), (2, 3, 65)),
    ((1, 33), (33, 1)),
]


@pytest.mark.sample(9)
@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("shapes", SHAPES + THIN)
def test_products(cpu: str, turned: bool, shapes: tuple[Shape, Shape]) -> None:
    check(matmul(*shapes, turned), cpu)


@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize("shapes", [((9, 12), (12, 20)), ((2, 12), (12, 20))])
def test_constants_and_limits(cpu: str, shapes: tuple[Shape, Shape]) -> None:
    check(matmul(*shapes, held=True, limits=(-0.5, 1.0)), cpu)


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 20), st.integers(1, 40), st.integers(1, 70), st.integers(1, 3), st.booleans())
def test_any_size(rows: int, depth: int, columns: int, batch: int, turned: bool) -> None:
    check(matmul((batch, rows, depth), (batch, depth, columns), turned), cpus()[-1])


@pytest.mark.parametrize("rows", [2, 30])
def test_what_follows_is_done_at_once(rows: int) -> None:
    """A scale and another tensor are taken in."""
    x, y, m = real("x", 2, rows, 8), real("y", 2, 8, 20), real("m", 2, rows, 20)
    a, b, c = (real(n, 2, rows, 20) for n in "abc")
    scale = constant(np.float32([0.25]))
    ops = [Op("core.bmm", {"self": x, "other": y}, [a]), Op("core.mul", {"self": a, "other": scale}, [b]),
           Op("core.add", {"self": b, "other": m}, [c])]  # fmt: skip
    made = graph([x, y, m], [c], *ops)
    check(made, cpus()[-1])
    assert {s.label for s in make_plan(made, 1).steps} == {"bmm+mul+add"}


@pytest.mark.sample(4)
@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize("columns", [1, 2, 3, 5, 6])
def test_functions_follow_products_of_few_columns(columns: int, cpu: str) -> None:
    """Vectors shorter than any instruction's: each function is compiled for them, too."""
    x, w = real("x", 3, 4), constant(np.abs(random(real("w", 4, columns), 1)))
    ops: list[Op] = []
    results = []
    for kind in ("exp", "sigmoid", "tanh", "silu", "elu", "gelu", "erf", "sin", "cos", "tan", "atan", "round", "asinh"):
        product, result = real("p", 3, columns), real(kind, 3, columns)
        args = {"alpha": 1.0} if kind == "elu" else {}
        ops += [
            Op("core.bmm", {"self": x, "other": w}, [product]),
            Op(f"core.{kind}", {"self": product, **args}, [result]),
        ]
        results.append(result)
    made = graph([x], results, *ops)
    assert [s.label for s in make_plan(made, 1, cpu=cpu).steps] == [f"bmm+{r.name}" for r in results]
    compare(made, [random(x)], cpu, 3e-6)
