"""Parameters of a test of which some run by default, and the others with ``-m slow``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def by_default(values: Iterable[Any], *chosen: Any) -> list[Any]:
    """All values, in order; those that are not among the chosen ones are slow."""
    listed = list(values)
    assert all(value in listed for value in chosen)
    return [value if value in chosen else pytest.param(value, marks=pytest.mark.slow) for value in listed]
