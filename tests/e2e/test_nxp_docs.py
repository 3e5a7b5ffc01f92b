"""``docs/nxp.md`` and ``examples/nxp``: what they show runs."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "nxp"
TEXT = (ROOT / "docs" / "nxp.md").read_text(encoding="utf-8")


def test_the_snippets_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    printed: list[str] = []
    names: dict[str, Any] = {"__name__": "snippets", "print": lambda *v: printed.append(" ".join(map(str, v)))}
    for snippet in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL):
        exec(compile(snippet, "docs/nxp.md", "exec"), names)
    shown = "\n".join(printed)
    for words in ("analytic estimate for imxrt700", "torch.Size([1, 10])", "['input0', 'output0']", "b'TFL3'"):
        assert words in shown


@pytest.mark.parametrize("model", ["cifar10", "mlperf_tiny_image_classification"])
@pytest.mark.parametrize("more", [[], ["--use_channels_last_dim_order"]])
def test_the_example_runs(
    model: str, more: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(EXAMPLE))
    main = runpy.run_path(str(EXAMPLE / "aot_neutron_compile.py"))["main"]
    assert main(["-m", model, "-q", "-d", "--simulate_only", "-e", *more]) == 0
    shown = capsys.readouterr().out
    assert "100.0% of multiply-accumulates" in shown
    assert (tmp_path / f"{model}_nxp_delegate.pte").exists()
    difference = float(shown.rpartition(": ")[2])
    assert difference < 0.02
    sys.modules.pop("models", None)
