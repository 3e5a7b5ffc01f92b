"""Properties that hypothesis checks with a few examples by default, and with many under ``-m slow``."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis.strategies import SearchStrategy

Test = Callable[..., None]


def given_examples(*strategies: SearchStrategy, few: int, many: int) -> Callable[[Test], Test]:
    """Like ``given``, of which hypothesis would have to know the number of examples beforehand."""

    def decorate(check: Test) -> Test:
        @pytest.mark.parametrize("examples", [few, pytest.param(many, marks=pytest.mark.slow)])
        def test(examples: int) -> None:
            settings(max_examples=examples, deadline=None)(given(*strategies)(check))()

        test.__name__, test.__doc__, test.__module__ = check.__name__, check.__doc__, check.__module__
        return test

    return decorate
