"""``docs/ethos-u.md`` and ``examples/arm``: what they show runs, and every name in the tables is there."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgewright.backends.ethos_u.npu import supported
from edgewright.backends.ethos_u.target import ACCELERATORS, DEFAULTS, MEMORY_MODES, SYSTEM_CONFIGS
from edgewright.cli import build_parser, guard, main

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "arm"
TEXT = (ROOT / "docs" / "ethos-u.md").read_text(encoding="utf-8")
README = (EXAMPLE / "README.md").read_text(encoding="utf-8")


def test_the_snippets_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    printed: list[str] = []
    names: dict[str, Any] = {"__name__": "snippets", "print": lambda *v: printed.append(" ".join(map(str, v)))}
    for snippet in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL):
        exec(compile(snippet, "docs/ethos-u.md", "exec"), names)
    shown = "\n".join(printed)
    assert "Vela's estimate for ethos-u55-128" in shown and "torch.Size([1, 10])" in shown
    assert {p.name for p in tmp_path.iterdir()} >= {"net_u55.pte", "simulate_only.pte"}


def test_every_name_is_on_the_page() -> None:
    for name in (*SYSTEM_CONFIGS, *MEMORY_MODES):
        assert f"`{name}`" in TEXT
    for family, (system, mode) in DEFAULTS.items():
        row = next(line for line in TEXT.splitlines() if line.startswith(f"| {family.upper()} |"))
        assert row.endswith(f"| `{system}` | `{mode}` |")


def test_the_page_knows_what_is_simulated() -> None:
    rows = [line.split("|")[1:4] for line in TEXT.splitlines() if line.startswith("| `ethos-u")]
    simulated: dict[str, bool] = {}
    for targets, _, how in rows:
        first, *others = re.findall(r"`([^`]+)`", targets)
        for name in (first, *(first.rsplit("-", 1)[0] + other for other in others)):
            simulated[name] = "simulated" in how
    assert simulated == {name: supported(name) is None for name in ACCELERATORS}


def example(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "path", [str(EXAMPLE), *sys.path])
    monkeypatch.delitem(sys.modules, "tiny", raising=False)
    names = runpy.run_path(str(EXAMPLE / "aot_arm_compiler.py"))
    return guard(lambda: names["main"]([str(a) for a in arguments]))


@pytest.mark.parametrize("target", ["ethos-u55-128", "ethos-u85-256"])
def test_the_example_compiles_and_evaluates(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    flags = ("-q", "-d", "-e", "--bundleio", "-i", "graphs", "-o", "tiny.pte")
    assert example(monkeypatch, "-m", "tiny:make", "-t", target, *flags) == 0
    out = capsys.readouterr().out
    assert f"Vela's estimate for {target}" in out and "largest difference from the quantized model" in out
    assert list((tmp_path / "graphs").glob("*.tosa")) and (tmp_path / "tiny.bpte").exists()
    assert main(["verify", "tiny.bpte", "--atol", "0.05"]) == 0


def test_the_example_calibrates_with_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    for index in range(3):
        np.savez(tmp_path / "data" / f"{index}.npz", in0=np.random.rand(1, 3, 32, 32).astype(np.float32))
    flags = ("-q", "-d", "--per_tensor", "--report", "--calibration_data", "data", "--model_input", "data/0.npz")
    assert example(monkeypatch, "-m", "tiny:make", *flags) == 0
    written = (tmp_path / "tiny_make_ethos-u55-128.pte").read_bytes()
    assert "dequantize" in capsys.readouterr().out
    for path in (tmp_path / "data").iterdir():
        np.savez(path, in0=10 * np.load(path)["in0"])
    assert example(monkeypatch, "-m", "tiny:make", *flags) == 0
    assert (tmp_path / "tiny_make_ethos-u55-128.pte").read_bytes() != written, "scales follow the data"
    capsys.readouterr()
    assert example(monkeypatch, "-m", "tiny:make", "-q", "--calibration_data", ".") == 2
    assert "must be a folder with .npz files" in capsys.readouterr().err


def test_the_readme_uses_flags_that_exist() -> None:
    names = runpy.run_path(str(EXAMPLE / "aot_arm_compiler.py"))
    known = names["arguments"]()._option_string_actions
    commands = re.findall(r"^python aot_arm_compiler\.py (.*)$", README, re.MULTILINE)
    assert commands
    for command in commands:
        assert {word for word in command.split() if word.startswith("-")} - {"-h"} <= set(known)
    device = build_parser("device")._subparsers
    assert device is not None
    options = device._group_actions[0].choices["device"]._option_string_actions  # type: ignore[index]
    for command in re.findall(r"edgewright device fvp ([^`\n]*)", README):
        assert {word for word in command.split() if word.startswith("--")} <= set(options)
