"""The stock runtime takes what our writers make, and gives with it what it always gave."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgewright.formats import read_program, write_program
from edgewright.formats.bpte import BundledProgram, TestCase, read_bundled, write_bundled
from edgewright.formats.ptd import read_data, write_data
from edgewright.runtime import Profile, Runtime
from tests.support import golden
from tests.support.stock import StockError, stock


def rewritten(name: str) -> bytes:
    return write_program(read_program(golden.path(name)))


@pytest.mark.parametrize("name", golden.PROGRAMS)
def test_stock_verifies_and_accepts_every_rewritten_program(name: str) -> None:
    ours = rewritten(name)
    assert stock().methods(ours) == sorted(Runtime.get().load_program(ours).method_names)


@pytest.mark.parametrize("name", golden.RECORDED)
def test_stock_runs_rewritten_programs_as_the_originals(name: str, tmp_path: Path) -> None:
    data = None
    if golden.data(name) is not None:
        data = tmp_path / "rewritten.ptd"
        write_data(read_data(golden.data(name)), data)
    for case in golden.cases(name):
        outputs = stock().run(rewritten(name), case.method, case.inputs, data)
        for ours, theirs in zip(outputs, case.outputs, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_stock_verifies_a_bundle_of_ours_and_sees_a_wrong_one() -> None:
    original = read_bundled(golden.GOLDEN / "linear_relu.bpte")
    program = rewritten("linear_fp32_portable")
    case = next(golden.cases("linear_fp32_portable"))
    right = BundledProgram(program, {"forward": [TestCase(case.inputs, case.outputs)]})
    wrong = BundledProgram(program, {"forward": [TestCase(case.inputs, [case.outputs[0] + 1])]})
    assert len(original.suites["forward"]) == 2
    for index in range(2):
        stock().verify_bundle(write_bundled(original), "forward", index)
    stock().verify_bundle(write_bundled(right), "forward", 0)
    with pytest.raises(StockError):
        stock().verify_bundle(write_bundled(wrong), "forward", 0)


def test_stock_tools_read_our_profile(tmp_path: Path) -> None:
    method = Runtime.get().load_program(golden.path("linear_fp32_portable")).load_method()
    profile = Profile()
    case = next(golden.cases("linear_fp32_portable"))
    for _ in range(2):
        method.execute(case.inputs, profile=profile)
    profile.save_etdump(tmp_path / "etdump.etdp")
    events = stock().profile_events((tmp_path / "etdump.etdp").read_bytes())
    per_run = [
        ("Execute", "native_call_permute_copy.out", 0),
        ("Execute", "OPERATOR_CALL", 0),
        ("Execute", "native_call_addmm.out", 1),
        ("Execute", "OPERATOR_CALL", 1),
        ("Execute", "Method::execute", 0),
    ]
    assert events == per_run * 2
