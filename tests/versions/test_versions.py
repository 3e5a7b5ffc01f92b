"""The matrix of Python and torch: what is admitted is what is run, and outcomes are told apart."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from tests.compose.campaign import ROOT
from tests.versions import cells
from tests.versions.__main__ import main, read
from tests.versions.cells import ABSENT, FAILED, PASSED, PYTHON, TORCH, Outcome, StepError
from tests.versions.page import details, table

PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_the_matrix_has_every_python_that_the_package_names() -> None:
    (admitted,) = re.findall(r'^requires-python = "(.+)"$', PROJECT, re.MULTILINE)
    assert all(release in SpecifierSet(admitted) for release in PYTHON)
    assert "3.9" not in SpecifierSet(admitted)
    assert tuple(re.findall(r'"Programming Language :: Python :: (3\.\d+)"', PROJECT)) == PYTHON


def test_the_matrix_has_both_ends_of_the_range_of_torch() -> None:
    (admitted,) = re.findall(r'"torch(>=[^"]+)"', PROJECT)
    assert all(release in SpecifierSet(admitted) for release in TORCH)
    minors = [tuple(map(int, release.split(".")[:2])) for release in TORCH]
    assert admitted == f">={minors[0][0]}.{minors[0][1]},<{minors[-1][0]}.{minors[-1][1] + 1}"
    assert minors == [(2, n) for n in range(minors[0][1], minors[-1][1] + 1)]


def test_tests_of_the_part_exist() -> None:
    assert all((ROOT / name).is_file() for name in cells.PART)
    assert {Path(name).parts[2] for name in cells.PART if name.startswith("tests/backends")} == {
        path.name for path in (ROOT / "tests" / "backends").iterdir() if path.is_dir() and path.name != "__pycache__"
    }


def test_backends_whose_package_is_not_published_are_left_out() -> None:
    assert cells.choose("torch==2.15.0, onnxruntime-qnn==2.7.0, ethos-u-vela==5.2.0") == list(cells.PART)
    chosen = cells.choose("torch==2.11.0, ethos-u-vela==5.2.0")
    left_out = [name for name in cells.PART if name not in chosen]
    assert left_out == ["tests/api/test_compile.py", "tests/backends/qualcomm/test_flow.py"]


def test_a_run_continues_and_the_table_tells_outcomes_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    state, ran = tmp_path / "state.jsonl", []
    made = [
        Outcome("3.10", "2.15.0", ABSENT),
        Outcome("3.11", "2.15.0", PASSED, tests=40, skipped=2),
        Outcome("3.12", "2.15.0", FAILED, tests=40, detail="a::b; a::c"),
        Outcome("3.13", "2.15.0", FAILED, detail="pip ended with 1"),
    ]
    state.write_text("".join(json.dumps(asdict(outcome)) + "\n" for outcome in made[:-1]), encoding="utf-8")

    def run_cell(interpreter: Path, release: str, torch: str, wheel: Path, work: Path) -> Outcome:
        ran.append((release, torch))
        return made[-1]

    monkeypatch.setattr("tests.versions.__main__.run_cell", run_cell)
    monkeypatch.setattr("tests.versions.__main__.build_wheel", lambda folder: folder)
    monkeypatch.setattr("tests.versions.__main__.find_interpreter", lambda release, given: given.get(release))
    pythons = ("3.10", "3.11", "3.12", "3.13", "3.14")
    code = main(["run", "--state", str(state), "--torch", "2.15.0", "--python", *pythons, "--interpreters", "3.13=x"])
    assert (code, ran) == (1, [("3.13", "2.15.0")])
    assert "Python 3.14 is not here" in capsys.readouterr().out
    column = [line.split(" | ")[-1].removesuffix(" |") for line in table(read(state))[2:]]
    failed = "failed to install or to run the demo"
    assert column == ["not published", "40 passed, 2 skipped", "2 of 40 failed", failed, "untested"]
    assert details(read(state)) == [
        "- Python 3.12, torch 2.15.0: `a::b; a::c`",
        "- Python 3.13, torch 2.15.0: `pip ended with 1`",
    ]


def test_a_torch_that_is_not_published_is_not_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(command: list[object], **_: object) -> str:
        if "venv" in command:
            return ""
        raise StepError("ended with 1: ERROR: No matching distribution found for torch==2.15.0")

    monkeypatch.setattr(cells, "_run", refuse)
    outcome = cells.run_cell(Path("python"), "3.10", "2.15.0", Path("x.whl"), tmp_path)
    assert outcome.outcome == ABSENT
    assert not list(tmp_path.iterdir())
