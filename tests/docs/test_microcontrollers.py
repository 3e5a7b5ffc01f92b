"""``docs/microcontrollers.md``: the walk gives the figures that the page shows."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.cli import Cli

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "microcontrollers.md").read_text(encoding="utf-8")


def test_boards_need_no_torch() -> None:
    path = ROOT / "tests" / "golden" / "ethos_u" / "ethos_u55_128.pte"
    code = (
        "import sys; from edgewright.cli import main; "
        f"assert main(['budget', {str(path)!r}, '-q']) == 0; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, cwd=ROOT)


@pytest.mark.slow
def test_the_walk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(ROOT / "examples" / "arm" / "kws.py", tmp_path / "kws.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("COLUMNS", "120")
    cli = Cli(capsys)
    compiled = ("--target", "ethos-u55-128", "--quantize", "int8", "--calibrate", "kws:data", "--no-check", "-q")
    assert cli("compile", "kws:make", *compiled, "-o", "kws.pte").code == 0
    shown = cli("budget", "kws.pte", "--flash", "128K", "--sram", "32K")
    assert shown.code == 0, shown.err
    table = TEXT.split("$ edgewright budget kws.pte", 1)[1].split("```", 1)[0].splitlines()[1:]
    lines = {" ".join(line.split()) for line in shown.out.splitlines()}
    rows = [" ".join(line.split()) for line in table if "exact" in line or "bound" in line or line.startswith("flash ")]
    assert len(rows) == 10 and set(rows) <= lines
    assert "softmax takes 10.0 KiB of tables and 2.14 KiB of commands, of 47.6 KiB" in shown.out
    assert cli("compile", "kws:without_softmax", *compiled, "--io", "int8", "-o", "kws.pte").code == 0
    done = cli("export", "kws.pte", "--c", "firmware", "--name", "kws", "--project", "cmake")
    assert done.code == 0, done.err
    files = {line.split("/")[1].split()[0] for line in done.out.splitlines() if line.startswith("wrote firmware/")}
    assert {"kws.h", "kws.c", "kws_runner.cpp", "CMakeLists.txt", "selected_operators.yaml"} <= files
    for line in re.findall(r"^edgewright (compile kws:make .*--emit object.*)$", TEXT, re.MULTILINE):
        done = cli(*line.split(), "--no-check", "-q")
        assert done.code == 0, done.err
        header = (tmp_path / "kws.h").read_text()
        assert "KWS_INPUT_0_SCALE" in header and "KWS_OUTPUT_0_SCALE" in header
    assert (tmp_path / "kws.o").read_bytes()[:4] == b"\x7fELF"
    assert cli("compile", "kws:make", "--runtime", "cortex-m", "--no-check", "-q", "-o", "cpu.pte").code == 0
    assert cli("export", "cpu.pte", "--c", "cpu").code == 0
