"""Every row of every backend, on the op table's samples."""

from __future__ import annotations

import pytest

from edgewright.backends import discover, load_backend
from edgewright.backends.table import FLOAT
from tests.support.rows import check_row, samples

ROWS = [
    pytest.param(name, row.op, id=f"{name}-{row.op}")
    for name in discover()
    for row in load_backend(name).rows.values()
    if FLOAT in row.precisions and samples(row.op)
]


@pytest.mark.sample(20)
@pytest.mark.parametrize(("backend", "op"), ROWS)
def test_rows_are_taken_or_refused_by_a_rule_and_compute_what_eager_does(backend: str, op: str) -> None:
    outcome = check_row(backend, op)
    assert outcome.taken or outcome.refused or not outcome.seen
    assert all(outcome.refused)
