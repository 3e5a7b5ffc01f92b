"""The page for users of Hugging Face: every example runs, and prints what the page shows. Needs transformers."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "huggingface.md"
BLOCK = re.compile(r"```(python|text)\n(.*?)```", re.DOTALL)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("transformers") is None, reason="transformers is not installed")
def test_every_example_runs_and_prints_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.zoo.torchvision_models import library

    library()  # transformers imports torchvision
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    printed = ""
    for kind, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if kind == "python":
            capsys.readouterr()
            exec(text, names)
            printed = capsys.readouterr().out
        else:
            for line in text.splitlines():
                assert _shape(line) in [_shape(p) for p in printed.splitlines()] or "..." in line, line


def _shape(line: str) -> str:
    """A line without what another machine or random state prints: numbers and the space around them."""
    return re.sub(r"[\s─]+", " ", re.sub(r"[\d.,]+ ?(µs|ms|ns)?", "#", line)).strip()
