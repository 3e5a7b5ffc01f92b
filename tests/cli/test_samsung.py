"""The command line for Exynos NPUs: programs for this machine, and what to do without Samsung's compiler."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from edgewright import read_program
from edgewright.program import manifest
from tests.backends.samsung.networks import mixed
from tests.cli.cli import Cli


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "mixed.pt2"
    torch.export.save(torch.export.export(*mixed()), path)
    return path


@pytest.mark.parametrize(("backend", "chip"), [("samsung", "E9955"), ("samsung:e9965", "E9965")])
def test_programs_for_this_machine_say_so(
    backend: str, chip: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "m.pte"
    done = Cli(capsys)("compile", model, "-o", output, "--backend", backend, "--simulate-only")
    assert done.code == 0, done.err
    assert f"analytic bound for {chip}" in done.out
    found = manifest.read(read_program(output))
    assert found is not None
    assert found["targets"] == [f"{chip.lower()} (simulation only: will not run on the chip)"]


def test_without_the_sdk_it_is_named(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("EXYNOS_AI_LITECORE_ROOT", raising=False)
    done = Cli(capsys)("compile", model, "-o", tmp_path / "m.pte", "--backend", "samsung:E9955")
    assert done.code == 6 and "EXYNOS_AI_LITECORE_ROOT" in done.err and "--simulate-only" in done.err
    assert not (tmp_path / "m.pte").exists()


@pytest.mark.parametrize(
    ("output", "options", "said"),
    [
        ("m.pte", ["--backend", "samsung:E1"], "must be one of E9955 (Exynos 2500), E9965 (Exynos 2600)"),
        ("m.tflite", ["--backend", "samsung", "--emit", "tflite"], "is for backends whose vendor's compiler reads"),
    ],
)
def test_wrong_options(
    output: str, options: list[str], said: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = Cli(capsys)("compile", model, "-o", tmp_path / output, *options)
    assert done.code == 2 and said in done.err
