"""What the command line knows of Qualcomm's own SDK."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from edgewright.errors import MissingError
from tests.cli.cli import Cli

NET = "import torch\n\ndef make():\n    return torch.nn.Linear(4, 2), (torch.ones(1, 4),)\n"


@pytest.mark.parametrize("variable", ["QNN_SDK_ROOT", "ANDROID_NDK_ROOT", "EXECUTORCH_ROOT"])
def test_doctor_looks_into_the_folders_that_are_named(cli: Cli, monkeypatch, tmp_path: Path, variable: str) -> None:
    def finding() -> dict[str, str]:
        found = json.loads(cli("doctor", "--json").out)["findings"]
        return next(f for f in found if f["what"] == variable)

    monkeypatch.delenv(variable, raising=False)
    assert finding()["state"] == "not set" and variable in finding()["fix"]
    monkeypatch.setenv(variable, str(tmp_path))
    assert finding()["state"] == "wrong folder" and "must contain" in finding()["purpose"]
    for name in finding()["purpose"].rpartition("must contain ")[2].split(", "):
        assert finding()["state"] == "wrong folder"
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    assert (finding()["state"], finding()["version"]) == ("ok", str(tmp_path))


def test_doctor_says_the_release_of_qnn_that_phones_know(cli: Cli, monkeypatch, tmp_path: Path) -> None:
    for name in ("aarch64-android", "x86_64-linux-clang"):
        (tmp_path / "lib" / name).mkdir(parents=True)
        (tmp_path / "lib" / name / "libQnnHtp.so").write_bytes(b"\x7fELF v2.37.0.250724175447 \0")
    monkeypatch.setenv("QNN_SDK_ROOT", str(tmp_path))
    found = {f["what"]: f["version"] for f in json.loads(cli("doctor", "--json").out)["findings"]}
    assert found["QNN_SDK_ROOT"] == f"{tmp_path}, QNN 2.37"
    assert re.fullmatch(r"2\.\d+\.\d+, QNN 2\.\d+", found["QNN"])


def test_compile_takes_a_folder_of_libraries(cli: Cli, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("QNN_SDK_ROOT", "")
    monkeypatch.chdir(tmp_path)
    Path("qnn_net.py").write_text(NET)
    done = cli("compile", "qnn_net:make", "--backend", "qualcomm:SM8650", "--qnn-sdk", tmp_path, "-o", "m.pte")
    assert done.code == 6 and "must hold lib/x86_64-linux-clang/libQnnHtp.so" in done.err
    assert not Path("m.pte").exists()


def test_a_program_for_this_machine_only_needs_no_libraries(cli: Cli, monkeypatch, tmp_path: Path) -> None:
    def missing() -> Path:
        raise MissingError("onnxruntime-qnn", "is not installed")

    monkeypatch.setattr("edgewright.backends.qualcomm.partitioner.probe_for", None)
    monkeypatch.setattr("edgewright.backends.qualcomm.delegate.find_folder", missing)
    monkeypatch.chdir(tmp_path)
    Path("qnn_net.py").write_text(NET)
    done = cli("compile", "qnn_net:make", "--backend", "qualcomm:SM8650", "--simulate-only", "-o", "m.pte")
    assert done.code == 0, done.err
    assert cli("run", "m.pte").code == 0
    assert "simulation only: will not run on the device" in cli("inspect", "m.pte").out
