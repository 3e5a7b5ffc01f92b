"""Every row on the op table's own samples: refused by a rule, or compiled by Qualcomm's compiler and right in its
emulator. ``-m slow`` runs all samples; a quick run takes the first of each, on SoCs by turns."""

from __future__ import annotations

import pytest

from edgewright.backends.qualcomm.ops import BACKEND
from edgewright.backends.qualcomm.rules import CONSTANT_OPS
from edgewright.backends.qualcomm.target import QcomChipset
from edgewright.ir.aten.ops import OPS
from tests.backends.qualcomm.rows import FP16, cases, check

ROWS = [
    name for name in BACKEND.rows if name in OPS and name not in CONSTANT_OPS
]  # what makes constants has no operands
SOCS = [c.name for c in QcomChipset]
MOST = {FP16: 1e-2, 8: 1, 16: 66}  # of the largest result; last places: 66 are a thousandth of the range


def tried(op: str, bits: float, soc: str, most: int | None = None) -> int:
    """Check the samples of a row; gives how many were taken."""
    taken = 0
    for index, sample in enumerate(cases(op, bits)):
        if most is not None and index >= most:
            break
        outcome = check(sample, soc)
        assert all(outcome.rejections), sample.name
        taken += not outcome.rejections
        assert outcome.error <= MOST[bits], f"{sample.name}: off by {outcome.error} on {soc}"
    return taken


@pytest.mark.sample(25)
@pytest.mark.parametrize("op", ROWS)
@pytest.mark.parametrize("bits", [FP16, 8, 16])
def test_rows_are_refused_by_a_rule_or_compiled_and_right(op: str, bits: float) -> None:
    tried(op, bits, SOCS[(ROWS.index(op) // 7 + 5 * int(bits)) % len(SOCS)], most=6)  # neighbours share a session


@pytest.mark.slow
@pytest.mark.parametrize("op", ROWS)
@pytest.mark.parametrize("bits", [FP16, 8, 16])
def test_rows_on_all_samples(op: str, bits: float) -> None:
    tried(op, bits, "SM8650")


@pytest.mark.sample(16)
@pytest.mark.parametrize("op", ROWS)
def test_every_row_takes_something(op: str) -> None:
    """A row that refuses all its samples would be no row."""
    assert any(not check(sample).rejections for bits in (8, FP16) for sample in cases(op, bits)), op
