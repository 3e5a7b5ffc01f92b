"""The code cache finds a kernel by its name, so a name must say everything that the kernel's text depends on."""

from __future__ import annotations

import pytest

from edgewright.engine.compiler import make_plan
from edgewright.errors import ExecutionError
from tests.engine.coverage.vendors import VENDORS
from tests.support.dialects import NUMERICS

FEW = ("max_pool2d", "amax", "mean", "add", "softmax")


def _texts(op: str) -> dict[str, set[str]]:
    """The texts of each kernel that any vendor's samples of an operator need."""
    texts: dict[str, set[str]] = {}
    for vendor in VENDORS.values():
        if op not in vendor.rows:
            continue
        graphs = (vendor.lower(case) for held in vendor.types.values() for case in vendor.samples(op, held))
        for graph in graphs:
            try:
                plan = None if graph is None else make_plan(graph, 1, NUMERICS[vendor.numerics])
            except ExecutionError:
                continue
            for name, text in {} if plan is None else plan.kernels.items():
                texts.setdefault(name, set()).add(text if isinstance(text, str) else text())
    return texts


def _ambiguous(texts: dict[str, set[str]]) -> set[str]:
    return {name for name, found in texts.items() if len(found) > 1}


@pytest.mark.sample(1)
@pytest.mark.parametrize("op", FEW)
def test_kernels_of_one_name_have_one_text(op: str) -> None:
    texts = _texts(op)
    assert texts
    assert _ambiguous(texts) == set()


@pytest.mark.slow
@pytest.mark.parametrize("op", sorted({op for vendor in VENDORS.values() for op in vendor.rows} - set(FEW)))
def test_kernels_of_every_operator_have_one_text_a_name(op: str) -> None:
    assert _ambiguous(_texts(op)) == set()  # constants need no kernel
