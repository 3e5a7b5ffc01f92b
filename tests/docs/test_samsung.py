"""``docs/samsung.md``: what it shows runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "samsung.md").read_text(encoding="utf-8")


def test_the_snippets_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    printed: list[str] = []
    names: dict[str, Any] = {"__name__": "snippets", "print": lambda *v: printed.append(" ".join(map(str, v)))}
    for snippet in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL):
        exec(compile(snippet, "docs/samsung.md", "exec"), names)
    shown = "\n".join(printed)
    for words in ("analytic bound for E9955", "torch.Size([1, 10])", "operators delegated to samsung"):
        assert words in shown
