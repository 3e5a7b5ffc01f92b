"""Kernel calls of portable programs in machine code: every sample that a row takes, beside eager torch.

Many calls are one graph, as they would be in a program. A quick run has some of each kernel, ``-m slow`` all of them.
"""

from __future__ import annotations

import numpy as np
import pytest

from edgewright.engine import compile
from edgewright.ir.graph import Graph
from tests.engine.coverage.calls import TYPES, Taken, samples, taken
from tests.engine.coverage.vendors import native
from tests.engine.graphs import cpus, dirty
from tests.ir.aten.harness import assert_close

FAMILIES = 8
FEW = {"aten::grid_sampler_2d.out": 2}  # calls of many operators each


def kernels(family: int) -> list[str]:
    return [key for i, key in enumerate(samples()) if i % FAMILIES == family]


def calls(family: int, most: int) -> list[Taken]:
    """Of each kernel, so many samples that are machine code altogether."""
    made = []
    for key in kernels(family):
        chosen = samples()[key]
        found = (taken(s) for s in chosen[:: max(1, len(chosen) // min(most, FEW.get(key, most)))])
        made += [c for c in found if c is not None and {str(w.dtype) for w in c.wanted} <= TYPES and native(c.graph)]
    return made


def check(made: list[Taken], cpu: str) -> None:
    graph = Graph("calls")
    for call in made:
        graph.inputs += call.graph.inputs
        graph.outputs += call.graph.outputs
        graph.ops += call.graph.ops
    compiled = compile(graph, threads=1, cpu=cpu)
    dirty(compiled)
    with np.errstate(all="ignore"):
        results = iter(compiled.run([array for call in made for array in call.given]))
    for call in made:
        for want in call.wanted:
            assert_close(next(results), want, call.sample)


@pytest.mark.sample(2)
@pytest.mark.parametrize("family", range(FAMILIES))
def test_calls_give_what_eager_torch_gives(family: int) -> None:
    made = calls(family, 5)
    assert len(made) > 50
    check(made, cpus()[-1])


@pytest.mark.sample(1)
@pytest.mark.parametrize("family", range(FAMILIES))
def test_calls_on_the_least_instructions(family: int) -> None:
    check(calls(family, 2), cpus()[0])


@pytest.mark.slow
@pytest.mark.parametrize("family", range(FAMILIES))
@pytest.mark.parametrize("cpu", cpus())
def test_all_calls(family: int, cpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.runtime.jit.test_kernel_calls.FEW", {})
    check(calls(family, 1000), cpu)
