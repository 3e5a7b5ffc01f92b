"""Pairwise selection: of a parametrized test with many combinations, a subset in which every two values still meet.

Most faults depend on one parameter or on two together, so a set in which every pair of values occurs finds nearly as
much as the full product, at a fraction of its size (Kuhn, Wallace and Gallo, "Software Fault Interactions and
Implications for Software Testing", 2004).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

Pair = tuple[tuple[str, str], ...]


def pairs(values: dict[str, Any]) -> set[Pair]:
    """Every two parameters of a combination, with their values."""
    return set(combinations(sorted((name, repr(value)) for name, value in values.items()), 2))


def pairwise(matrix: Sequence[dict[str, Any]]) -> list[int]:
    """Indices of combinations that contain all pairs: greedily, the combination with the most missing pairs first."""
    left = [pairs(values) for values in matrix]
    missing = set().union(*left)
    indices = []
    while missing:
        best = max(range(len(left)), key=lambda i: (len(left[i] & missing), -i))
        missing -= left[best]
        indices.append(best)
    return indices
