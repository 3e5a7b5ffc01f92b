"""Every row of the XNNPACK table, with several shapes and attributes: eager torch, we and stock agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from edgewright.backends.xnnpack.ops import BACKEND
from tests.backends.float_cases import CASES, REFUSED, Case
from tests.backends.lowered import Lowered

HALF = 1e-2


def numbered(wanted: Callable[[Case], object] = bool) -> list[Any]:
    return [pytest.param(case, id=f"{case.op}-{i}") for i, case in enumerate(CASES) if wanted(case)]


CONVERSIONS = {"quantize", "dequantize", "convert"}  # only in quantized graphs
UNSEEN = {"square", "cast"}  # what reaches them is decomposed, or dropped, before


def test_every_row_has_cases() -> None:
    assert set(BACKEND.rows) - CONVERSIONS - UNSEEN <= {case.op for case in CASES}


@pytest.mark.sample(30)
@pytest.mark.parametrize("case", numbered())
def test_rows_take_and_compute_single_precision(case: Case) -> None:
    inputs = case.inputs()
    lowered = Lowered(case.module(), inputs, case.dynamic)
    assert case.op in lowered.taken
    assert lowered.whole, str(lowered.report)
    lowered.check(inputs)


@pytest.mark.sample(10)
@pytest.mark.parametrize("case", numbered(lambda c: c.halves))
def test_rows_take_and_compute_half_precision(case: Case) -> None:
    inputs = [i.half() for i in case.inputs()]
    lowered = Lowered(case.module().half(), inputs, case.dynamic)
    assert lowered.whole, str(lowered.report)
    lowered.check(inputs, HALF)


@pytest.mark.sample(9)
@pytest.mark.parametrize("case", numbered(lambda c: c.dynamic))
def test_sizes_vary_inside_a_delegate(case: Case) -> None:
    lowered = Lowered(case.module(), case.inputs(), case.dynamic)
    assert case.op in lowered.taken, str(lowered.report)
    for part in (0, 0.5, 1):
        shapes = [list(s) for s in case.shapes]
        for (position, dim), (least, most) in case.dynamic.items():
            shapes[position][dim] = round(least + part * (most - least))
        lowered.check(case.inputs(seed=3, shapes=shapes))


@pytest.mark.sample(9)
@pytest.mark.parametrize(
    ("case", "sentence"), [pytest.param(c, s, id=f"{c.op}-{i}") for i, (c, s) in enumerate(REFUSED)]
)
def test_what_is_refused_says_why_and_runs_without(case: Case, sentence: str) -> None:
    inputs = case.inputs()
    lowered = Lowered(case.module(), inputs, case.dynamic)
    assert case.op not in lowered.taken
    assert sentence in lowered.refusal(case.op)
    lowered.check(inputs)


@pytest.mark.sample(10)
@pytest.mark.parametrize("case", numbered(lambda c: len(c.shapes[0]) == 4))
def test_images_may_come_channels_last(case: Case) -> None:
    inputs = [i.to(memory_format=torch.channels_last) if i.dim() == 4 else i for i in case.inputs()]
    Lowered(case.module(), inputs).check(inputs)
