"""Which instruction set code is made for."""

from __future__ import annotations

import pytest

from edgewright.engine.isa import VARIABLE, host
from edgewright.errors import UsageError


def test_the_lower_one_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "avx2")
    isa = host()
    assert (isa.name, isa.lanes, isa.registers, isa.dot) == ("avx2", 8, 16, False)
    assert "+avx512f" not in isa.features
    assert "+avx2" in isa.features


def test_other_names_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "sse9")
    with pytest.raises(UsageError, match="avx2 or avx512"):
        host()


def test_an_argument_comes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "sse9")
    assert host("avx2").name == "avx2"
