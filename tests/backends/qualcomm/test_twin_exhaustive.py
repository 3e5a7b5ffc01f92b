"""The host twin beside the emulator over what tensors can hold: the same integers, or a counted share of them."""

from __future__ import annotations

import pytest

from tests.backends.qualcomm.exhaustive_inputs import COUNTED, REFUSED, ROWS, Agreement, agreement, walks

CASES = [(op, bits) for bits in (8, 16) for op in ROWS if (op, bits) not in REFUSED]


@pytest.mark.sample(7)
@pytest.mark.parametrize(("op", "bits"), CASES)
def test_the_twin_gives_the_emulators_integers(op: str, bits: int) -> None:
    found = Agreement()
    for case in walks(op, bits):
        found = found + agreement(case)
    least, steps = COUNTED.get((op, bits), (100, 0))
    assert found.results >= 256
    assert found.steps <= steps and 100 * found.share >= least, found


def test_what_is_counted_is_walked() -> None:
    assert COUNTED.keys() <= set(CASES)
