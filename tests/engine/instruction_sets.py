"""Instruction sets: the newest by default, the others with ``-m slow``."""

from __future__ import annotations

import pytest

from tests.engine import graphs


@pytest.fixture(autouse=True, params=["newest", pytest.param("others", marks=pytest.mark.slow)])
def instruction_sets(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    every = graphs.cpus()
    chosen = every[-1:] if request.param == "newest" else every[:-1]
    if not chosen:
        pytest.skip("this machine has one instruction set")
    monkeypatch.setattr(graphs, "_chosen", chosen)
