"""What the command line knows of Qualcomm's own SDK."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.cli import Cli

NET = "import torch\n\ndef make():\n    return torch.nn.Linear(4, 2), (torch.ones(1, 4),)\n"


@pytest.mark.parametrize("variable", ["QNN_SDK_ROOT", "ANDROID_NDK_ROOT", "EXECUTORCH_ROOT"])
def test_doctor_looks_into_the_folders_that_are_named(cli: Cli, monkeypatch, tmp_path: Path, variable: str) -> None:
    def finding() -> dict[str, str]:
        found = json.loads(cli("doctor", "--json").out)["findings"]
        return next(f for f in found if f["what"] == variable)

    monkeypatch.delenv(variable, raising=False)
    assert finding()["state"] == "not installed" and variable in finding()["fix"]
    monkeypatch.setenv(variable, str(tmp_path))
    assert finding()["state"] == "wrong folder" and "must hold" in finding()["purpose"]
    inside = tmp_path / finding()["purpose"].rpartition(" ")[2]
    inside.parent.mkdir(parents=True)
    inside.touch()
    assert finding()["state"] == "ok"


def test_compile_takes_a_folder_of_libraries(cli: Cli, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("QNN_SDK_ROOT", "")
    monkeypatch.chdir(tmp_path)
    Path("qnn_net.py").write_text(NET)
    done = cli("compile", "qnn_net:make", "--backend", "qualcomm:SM8650", "--qnn-sdk", tmp_path, "-o", "m.pte")
    assert done.code == 6 and "must hold lib/x86_64-linux-clang/libQnnHtp.so" in done.err
    assert not Path("m.pte").exists()


def test_a_program_for_this_machine_only_needs_no_libraries(cli: Cli, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("QNN_SDK_ROOT", "")
    monkeypatch.setenv("EDGEWRIGHT_QNN", "twin")
    monkeypatch.chdir(tmp_path)
    Path("qnn_net.py").write_text(NET)
    done = cli("compile", "qnn_net:make", "--backend", "qualcomm:SM8650", "--simulate-only", "-o", "m.pte")
    assert done.code == 0, done.err
    assert cli("run", "m.pte").code == 0
    assert "simulation only: will not run on the device" in cli("inspect", "m.pte").out
