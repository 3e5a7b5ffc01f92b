"""Releases of ExecuTorch: the table of their operators, and what runs our programs in them.

Releases other than the installed one are tested if ``EDGEWRIGHT_EXECUTORCH_RELEASES`` names a folder that holds them.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

from edgewright.formats import write_program
from edgewright.formats.executorch_releases import NEWEST as NEWEST_KNOWN
from edgewright.formats.executorch_releases import RELEASES, first_release, operators_of
from edgewright.formats.operator_signatures import OPERATORS
from tests.interop.stock_releases.cases import Built, Case, all_cases, close
from tests.interop.stock_releases.cuda_stubs import write_stubs
from tests.interop.stock_releases.environments import NEWEST, OLDEST, TORCH, default_folder, is_made, paths
from tests.interop.stock_releases.outcomes import DIFFERS, EQUAL, KNOWN, NEWER, REFUSED, Outcome, Record, run_case
from tests.interop.stock_releases.page import table
from tests.ir.aten.harness import to_array
from tests.ir.aten.overload_calls import torch_argument
from tests.support import golden
from tests.support.build import one_call
from tests.support.rows import samples
from tests.support.stock import StockRuntime, stock

WRONG_BEFORE = {"aten::_upsample_bilinear2d_aa.out"}  # registered, but of no use before the release of the table


def _registered_as_in_the_table(release: str, runtime: StockRuntime) -> None:
    assert runtime.version().partition("+")[0] == release
    minor = release.rpartition(".")[0]
    registered = {key for key in runtime.operators() if key in OPERATORS}
    newer = {key for key in WRONG_BEFORE if RELEASES.index(first_release(key)) > RELEASES.index(minor)}
    assert registered - newer == operators_of(minor)


def test_the_table_lists_the_operators_of_the_installed_release() -> None:
    _registered_as_in_the_table(version("executorch"), stock())


def test_every_release_that_is_run_is_in_the_table() -> None:
    assert {release.rpartition(".")[0] for release in TORCH} == set(RELEASES)
    assert OLDEST.startswith(RELEASES[0]) and NEWEST.startswith(NEWEST_KNOWN)
    assert version("executorch") == NEWEST


@pytest.mark.slow
@pytest.mark.parametrize("release", TORCH)
def test_the_table_lists_the_operators_of_every_release(release: str) -> None:
    folder = default_folder()
    if folder is None or not is_made(folder, release):
        pytest.skip(f"needs ExecuTorch {release} (EDGEWRIGHT_EXECUTORCH_RELEASES)")
    runtime = StockRuntime(paths(folder, release))
    try:
        _registered_as_in_the_table(release, runtime)
    finally:
        runtime.close()


def test_cases_have_names_of_their_own_and_of_every_group() -> None:
    cases = all_cases()
    assert len({(case.group, case.name) for case in cases}) == len(cases) > 5000
    assert {case.group for case in cases} == {"kernels", "xnnpack", "networks"}


def test_inputs_of_rows_have_the_layout_that_the_program_declares() -> None:
    """Stock's Python interface refuses others: a transposed tensor of three dimensions, above all."""
    (call,) = [case for case in all_cases(["xnnpack"]) if case.name == "row bmm 2"]
    assert not to_array(torch_argument(samples("bmm")[2].args["self"], "Tensor")).flags.c_contiguous
    assert run_case(call, call.build(), NEWEST, stock(), frozenset(stock().operators())).outcome == EQUAL


def _built(program: bytes, wanted: np.ndarray) -> Built:
    case = next(golden.cases("linear_fp32_portable"))
    return Built(program, [case.inputs], [[wanted]], close(1e-5))


def test_outcomes_tell_equal_results_differences_refusals_and_missing_operators(tmp_path: Path) -> None:
    program = golden.path("linear_fp32_portable").read_bytes()
    recorded = next(golden.cases("linear_fp32_portable")).outputs[0]
    case = Case("networks", "linear", lambda: _built(program, recorded))
    operators = frozenset(stock().operators())

    def outcome(built: Built, known: frozenset[str] = operators) -> str:
        return run_case(case, built, NEWEST, stock(), known).outcome

    assert outcome(case.build()) == EQUAL
    assert outcome(_built(program, recorded + 1)) == DIFFERS
    assert outcome(Built(program, [[recorded[:0]]], [[recorded]], close(0))) == REFUSED
    assert outcome(case.build(), operators - {"aten::addmm.out"}) == DIFFERS  # it ran what it should not have
    absent = one_call("aten::abs.out", [recorded], [recorded])
    absent.execution_plan[0].operators[0].name = "aten::no_such"
    missing = Built(write_program(absent), [[recorded]], [[recorded]], close(0))
    assert outcome(missing) == NEWER


def test_a_record_continues_and_names_what_to_look_at(tmp_path: Path) -> None:
    record = Record(tmp_path / "r.jsonl")
    for release, group, kind in (
        ("1.0.0", "kernels", REFUSED),
        (NEWEST, "kernels", REFUSED),
        ("1.0.0", "networks", NEWER),
        (NEWEST, "networks", EQUAL),
        ("1.0.1", "kernels", KNOWN + DIFFERS),
    ):
        record.add([Outcome(release, group, "case", kind, commit="1111111" if release == NEWEST else "0000000")])
    again = Record(tmp_path / "r.jsonl")
    assert again.outcomes == record.outcomes
    assert again.commits() == ["0000000", "1111111"]
    assert "| 1.0.0 | networks | 0 | 1 | 0 | 0 | 0 | 0 | 0 | 0 |" in table(again)
    assert [(o.release, o.group) for o in again.failures()] == [("1.0.0", "networks")]
    case = Case("kernels", "case", lambda: _built(b"", np.zeros(1)))
    assert again.missing(case, ["1.0.0", "1.1.0"]) == ["1.1.0"]
    record.add([Outcome(NEWEST, "kernels", "case", EQUAL)])  # what the newest runs, older ones must run too
    assert [(o.release, o.group) for o in record.failures()] == [("1.0.0", "kernels"), ("1.0.0", "networks")]


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
def test_stubs_stand_in_for_libraries_that_are_not_here(tmp_path: Path) -> None:
    def compile_library(folder: Path, name: str, source: str, *options: str) -> None:
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.c").write_text(source)
        output = folder / f"lib{name}.so.1"
        command = [
            "gcc",
            "-shared",
            "-fPIC",
            f"-Wl,-soname,{output.name}",
            "-o",
            str(output),
            str(folder / f"{name}.c"),
        ]
        subprocess.run([*command, *options], check=True)

    script = tmp_path / "versions.map"
    script.write_text("libabsentcuda.so.1 { global: absent_function; };\n")
    compile_library(tmp_path / "elsewhere", "absentcuda", "int absent_function(void) { return 7; }\n",
                    f"-Wl,--version-script={script}")  # fmt: skip
    source = "int absent_function(void);\nint call(void) { return absent_function(); }\n"
    compile_library(
        tmp_path / "lib", "user", source, "-Wl,-rpath,$ORIGIN", str(tmp_path / "elsewhere/libabsentcuda.so.1")
    )
    with pytest.raises(OSError, match="libabsentcuda"):
        ctypes.CDLL(str(tmp_path / "lib/libuser.so.1"))
    assert write_stubs(tmp_path / "lib") == ["libabsentcuda.so.1"]
    assert ctypes.CDLL(str(tmp_path / "lib/libuser.so.1")).call() == 0
    assert write_stubs(tmp_path / "lib") == []
