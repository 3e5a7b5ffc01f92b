"""Every row of Neutron on the op table's samples: LiteRT computes what the host does, and that is the operator's."""

from __future__ import annotations

import pytest

from edgewright.ir.opset import OPS
from tests.backends.nxp.rows import BACKEND, cases, check

# Rounding twice (or of a mean, half a step off) may be a step away from the rounded real number.
_STEPS = 1
# Their samples are all of sizes, factors or biases that Neutron does not take; made for them below or in networks.
_REFUSED = {"addmm", "adaptive_avg_pool1d", "resize_nearest2d", "resize_bilinear2d"}


@pytest.mark.parametrize("op", [name for name in BACKEND.rows if name in OPS])
def test_rows_compute_what_litert_does_or_are_refused_by_a_rule(op: str) -> None:
    outcomes = [(case, check(case)) for case in cases(op)]
    taken = [pair for pair in outcomes if not pair[1].refusals]
    assert bool(taken) == (op not in _REFUSED)
    for case, outcome in taken:
        assert outcome.differences == 0, f"{case.name}: {outcome.differences} elements differ from LiteRT's"
        assert outcome.steps <= _STEPS, f"{case.name}: {outcome.steps} steps from the operator's own result"
