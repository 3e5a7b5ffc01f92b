"""Runs a compiled program in both runtimes and compares with eager torch."""

from __future__ import annotations

from collections.abc import Mapping

from edgewright.runtime import Runtime
from tests.program.case import Case, assert_same
from tests.support.stock import stock


def check_ours(case: Case, program: bytes, sizes: Mapping[str, int]) -> None:
    method = Runtime.get().load_program(program).load_method("forward")
    for step, (inputs, wanted) in enumerate(zip(case.calls(sizes), case.expected(sizes), strict=True)):
        assert_same(method.execute(inputs), wanted, case, f"ours at {dict(sizes)}, step {step}")


def check_stock(case: Case, program: bytes, sizes: Mapping[str, int]) -> None:
    given = stock().run_many(program, "forward", case.calls(sizes))
    for step, (outputs, wanted) in enumerate(zip(given, case.expected(sizes), strict=True)):
        assert_same(outputs, wanted, case, f"stock at {dict(sizes)}, step {step}")
