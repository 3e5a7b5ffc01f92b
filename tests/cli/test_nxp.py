"""The command line for Neutron: programs for this machine, and TFLite files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from edgewright import read_program
from edgewright.program import manifest
from tests.backends.nxp.litert import run
from tests.backends.nxp.lowered import Lowered
from tests.backends.nxp.networks import CifarNet
from tests.cli.cli import Cli


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("model") / "cifar.pt2"
    torch.export.save(Lowered(CifarNet(), (torch.randn(1, 3, 32, 32),)).exported, path)
    return path


def test_programs_for_this_machine_say_so(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "m.pte"
    done = Cli(capsys)("compile", model, "-o", output, "--backend", "nxp", "--simulate-only")
    assert done.code == 0, done.err
    assert "analytic estimate for imxrt700" in done.out
    found = manifest.read(read_program(output))
    assert found is not None
    assert "imxrt700 (simulation only: will not run on the chip)" in found["targets"]


def test_without_the_sdk_it_is_named(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = Cli(capsys)("compile", model, "-o", tmp_path / "m.pte", "--backend", "nxp:imxrt700")
    assert done.code != 0 and "eiq_neutron_sdk" in done.err and "--simulate-only" in done.err
    assert not (tmp_path / "m.pte").exists()


def test_tflite_files(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "m.tflite"
    done = Cli(capsys)("compile", model, "-o", output, "--backend", "nxp", "--emit", "tflite")
    assert done.code == 0, done.err
    (made,) = run(output.read_bytes(), [np.zeros((1, 3, 32, 32), np.int8)])
    assert made.shape == (1, 10)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("m.pte", ["--simulate-only"], "needs a --backend"),
        ("m.pte", ["--backend", "nxp", "--emit", "tflite"], "must end in .tflite"),
        ("m.pte", ["--backend", "xnnpack", "--simulate-only"], "vendor's compiler"),
    ],
)
def test_wrong_options(
    name: str, options: list[str], said: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = Cli(capsys)("compile", model, "-o", tmp_path / name, *options)
    assert done.code == 2 and said in done.err
