"""``edgewright verify``: bundles against their own cases, and every file against its format."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgewright.backends.registry import available_delegates
from edgewright.formats import read_program, write_program
from edgewright.formats.bpte import BundledProgram, TestCase, read_bundled, write_bundled
from tests.cli.cli import GOLDEN, Cli, recorded

BUNDLE = GOLDEN / "linear_relu.bpte"


def test_bundle_passes(cli: Cli) -> None:
    result = cli("verify", BUNDLE)
    assert (result.code, result.err) == (0, "")
    assert result.out.count("passed") == 3


def test_bundle_mismatch_is_9(cli: Cli, tmp_path: Path) -> None:
    bundle = read_bundled(BUNDLE)
    good, other = bundle.suites["forward"]
    wrong = TestCase(good.inputs, [np.asarray(good.expected[0]) + np.float32(0.25)])
    write_bundled(BundledProgram(bundle.program, {"forward": [wrong, other]}), tmp_path / "m.bpte")
    result = cli("verify", tmp_path / "m.bpte")
    assert result.code == 9
    assert "FAILED" in result.out
    assert "1 of 2 that differ" in result.err
    assert "case 0 of 'forward'" in result.err
    assert cli("verify", tmp_path / "m.bpte", "--atol", "0.3").code == 0


def test_bundle_of_another_shape(cli: Cli, tmp_path: Path) -> None:
    bundle = read_bundled(BUNDLE)
    case = bundle.suites["forward"][0]
    wrong = TestCase(case.inputs, [np.zeros((3, 2), np.float32)])
    write_bundled(BundledProgram(bundle.program, {"forward": [wrong]}), tmp_path / "m.bpte")
    result = cli("verify", tmp_path / "m.bpte", "--atol", "100")
    assert result.code == 9
    assert "not comparable" in result.out


def test_bundle_with_external_data(cli: Cli, tmp_path: Path) -> None:
    inputs, expected = recorded("mlp_ptd_portable")
    program = (GOLDEN / "mlp_ptd_portable.pte").read_bytes()
    write_bundled(BundledProgram(program, {"forward": [TestCase(inputs, expected)]}), tmp_path / "m.bpte")
    tolerance = ("--rtol", "1e-4", "--atol", "1e-5")
    assert cli("verify", tmp_path / "m.bpte", "--data", GOLDEN / "mlp_portable_weights.ptd", *tolerance).code == 0
    assert cli("verify", tmp_path / "m.bpte", *tolerance).code == 6


@pytest.mark.parametrize("name", ["cond.pte", "mlp_portable_weights.ptd", "portable.etdp"])
def test_sound_files(cli: Cli, name: str) -> None:
    result = cli("verify", GOLDEN / name)
    assert result.code == 0
    assert "the file is valid" in result.out
    assert cli("verify", GOLDEN / name, "--quiet").out == ""


def test_program_names_all_that_is_missing(cli: Cli, tmp_path: Path) -> None:
    program = read_program(GOLDEN / "multi_method.pte")
    encode = next(plan for plan in program.execution_plan if plan.name == "encode")
    assert encode.operators
    encode.operators[0].name = "my::op"
    encode.operators[1].name = "my::other"
    forward = next(plan for plan in program.execution_plan if plan.name == "forward")
    forward.delegates[0].id = "TestBackend"
    write_program(program, tmp_path / "m.pte")
    result = cli("verify", tmp_path / "m.pte")
    assert "TestBackend" not in available_delegates()
    assert result.code == 6
    assert "encode: operators my::op.out, my::other.out" in result.err
    assert "forward: delegates TestBackend" in result.err


def test_program_with_wrong_arguments(cli: Cli, tmp_path: Path) -> None:
    program = read_program(GOLDEN / "linear_fp32_portable.pte")
    call = program.execution_plan[0].chains[0].instructions[0]
    call.args = list(call.args)[:-1]  # type: ignore[union-attr]
    write_program(program, tmp_path / "m.pte")
    result = cli("verify", tmp_path / "m.pte")
    assert result.code == 4
    assert "instructions[0]" in result.err


@pytest.mark.parametrize("name", ["cond.pte", "linear_relu.bpte", "mlp_portable_weights.ptd", "portable.etdp"])
def test_truncated(cli: Cli, tmp_path: Path, name: str) -> None:
    whole = (GOLDEN / name).read_bytes()
    (tmp_path / name).write_bytes(whole[: len(whole) // 2])
    result = cli("verify", tmp_path / name)
    assert result.code == 4
    assert name in result.err
