"""Small modules: eager torch, our runtime and stock's agree, at every end of every dynamic dimension."""

from __future__ import annotations

from functools import cache

import pytest

from edgewright.runtime import Runtime
from tests.program.case import Case, assert_same, compile_exported
from tests.program.check import check_ours, check_stock
from tests.program.modules import BY_NAME, CASES


def names(case: Case) -> str:
    return case.name


@cache
def program(name: str) -> bytes:
    return compile_exported(BY_NAME[name].export(), BY_NAME[name].runtime)


def test_enough_modules_of_different_names() -> None:
    assert len(BY_NAME) == len(CASES) >= 240


@pytest.mark.sample(40)
@pytest.mark.parametrize("case", CASES, ids=names)
def test_our_runtime_agrees_with_eager(case: Case) -> None:
    for sizes in case.points():
        check_ours(case, program(case.name), sizes)


@pytest.mark.sample(40)
@pytest.mark.parametrize("case", CASES, ids=names)
def test_stock_agrees_with_eager(case: Case) -> None:
    for sizes in case.points():
        check_stock(case, program(case.name), sizes)


@pytest.mark.parametrize("name", ["state_versions", "state_mixed", "state_slice_write"])
def test_state_starts_again_in_a_new_method(name: str) -> None:
    case = BY_NAME[name]
    loaded = Runtime.get().load_program(program(name))
    for _ in range(2):
        method = loaded.load_method("forward")
        for inputs, wanted in zip(case.calls({}), case.expected({}), strict=True):
            assert_same(method.execute(inputs), wanted, case, "ours")


def test_compiling_again_gives_the_same_bytes() -> None:
    for name in ("dynamic_encoder", "state_versions", "lstm", "quantized_per_channel"):
        assert compile_exported(BY_NAME[name].export()) == program(name), name
