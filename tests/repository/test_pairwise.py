"""A pairwise selection contains every pair of values."""

from __future__ import annotations

from itertools import product

from tests.support.pairwise import pairs, pairwise

AXES: dict[str, list[object]] = {
    "cpu": [0, 1],
    "kernel": ["a", "b", "c", "d"],
    "stride": [(1, 1), (2, 2), (3, 1)],
    "quantize": [False, True],
}
MATRIX = [dict(zip(AXES, values, strict=True)) for values in product(*AXES.values())]


def test_every_pair_is_kept() -> None:
    kept = [MATRIX[i] for i in pairwise(MATRIX)]
    assert set().union(*map(pairs, kept)) == set().union(*map(pairs, MATRIX))
    assert len(kept) <= len(MATRIX) // 3


def test_two_parameters_meet_in_full() -> None:
    matrix = [{"a": a, "b": b} for a in range(3) for b in range(4)]
    assert sorted(pairwise(matrix)) == list(range(12))
