"""The site: its hook, and the pages about migration and tools, whose snippets run."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import golden

DOCS = Path(__file__).parents[2] / "docs"


def snippets(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)


def run(folder: Path, code: str, *command: str) -> str:
    script = folder / "snippet.py"
    script.write_text(code)
    words = [sys.executable, *command, str(script)]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_migration(tmp_path: Path) -> None:
    theirs, ours = snippets("migration.md")
    assert run(tmp_path, theirs, "-m", "edgewright.compat") == "torch.Size([2, 3])\n"
    assert run(tmp_path, ours) == "(2, 3)\n"


@pytest.mark.slow
def test_tools(tmp_path: Path) -> None:
    profile, inspector = snippets("tools.md")
    run(tmp_path, profile)
    told = run(tmp_path, inspector)
    assert "DELEGATE_CALL ['linear.default', 'relu.default']" in told


def test_run(tmp_path: Path) -> None:
    shutil.copy(golden.path("linear_fp32_portable"), tmp_path / "m.pte")
    assert "(2, 3)" in run(tmp_path, "\n".join(snippets("run.md")))
    assert (tmp_path / "etdump.etdp").is_file() and (tmp_path / "trace.json").is_file()


@pytest.mark.slow
def test_hugging_face(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="docs/huggingface.md compiles a model of transformers")
    shown = run(tmp_path, "\n".join(snippets("huggingface.md")))
    assert "delegated to xnnpack" in shown and "sm8550" in shown


def test_links_out_of_the_site_become_paths() -> None:
    spec = importlib.util.spec_from_file_location("site_hooks", DOCS / "site_hooks.py")
    assert spec is not None and spec.loader is not None
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    text = "[examples/arm](../examples/arm), [how to report](../SECURITY.md#how) and [errors](errors.md)"
    wanted = "`examples/arm`, how to report (`SECURITY.md`) and [errors](errors.md)"
    assert hooks.on_page_markdown(text, page=None) == wanted


def test_code_fits_a_laptop() -> None:
    """The column of the text is 990 of 1,280 pixels wide, a character of code 7.5."""
    for page in sorted(DOCS.rglob("*.md")):
        for block in re.findall(r"^```.*?^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
            assert all(len(line) <= 128 for line in block.splitlines()), f"{page.name}: {block[:60]}"
