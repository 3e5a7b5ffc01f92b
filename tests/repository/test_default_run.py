"""Which cases of a parametrized test run by default."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import default_run


def matrix(sample: Any, *cases: dict[str, object]) -> list[Any]:
    marker = None if sample is None else pytest.mark.sample(*sample).mark
    return [
        SimpleNamespace(callspec=SimpleNamespace(params=case), get_closest_marker=lambda name: marker) for case in cases
    ]


CASES = [{"name": name, "threads": count} for name in ("a", "b", "c") for count in (1, 2)]


@pytest.mark.parametrize(
    ("sample", "selected"),
    [
        (None, {0, 1, 2, 3, 4, 5}),
        ((2,), {0, 3}),
        ((100,), {0, 1, 2, 3, 4, 5}),
        (("b",), {2, 3}),
        (("a", "c"), {0, 1, 4, 5}),
        (("2",), {1, 3, 5}),
        (("d",), {0, 1, 2, 3, 4, 5}),
    ],
)
def test_cases_are_selected_by_number_or_by_name(sample: Any, selected: set[int]) -> None:
    assert default_run(matrix(sample, *CASES)) == selected
