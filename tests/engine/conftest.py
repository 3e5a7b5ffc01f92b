"""Large matrices: of a test with many combinations, enough are run that every pair of values meets; the rest is slow.

Every value of every parameter is still tried, together with each value of every other; ``-m slow`` runs what is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ENOUGH = 16  # combinations that are simply all run
Pair = tuple[tuple[str, str], ...]


def pairs(values: dict[str, Any]) -> set[Pair]:
    """Every two parameters of a combination, with their values."""
    return set(combinations(sorted((name, repr(value)) for name, value in values.items()), 2))


def chosen(matrix: Sequence[dict[str, Any]]) -> list[int]:
    """Combinations that have all the pairs: the one with the most new ones first, then so on."""
    left = [pairs(values) for values in matrix]
    missing = set().union(*left)
    taken = []
    while missing:
        best = max(range(len(left)), key=lambda i: (len(left[i] & missing), -i))
        missing -= left[best]
        taken.append(best)
    return taken


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    matrices: dict[str, list[Any]] = {}
    for item in items:
        if item.path.parent == HERE and hasattr(item, "callspec"):
            matrices.setdefault(item.nodeid.split("[")[0], []).append(item)
    for matrix in matrices.values():
        if len(matrix) <= ENOUGH or len(matrix[0].callspec.params) < 3:
            continue
        kept = set(chosen([item.callspec.params for item in matrix]))
        for at, item in enumerate(matrix):
            if at not in kept:
                item.add_marker(pytest.mark.slow)
