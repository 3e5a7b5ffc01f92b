"""``docs/language-models.md``: its snippets run, and it names every option and parameter."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import edgewright as ew
from edgewright.llm import prompt_cache, server_requests
from edgewright.llm.calibrate import TOKENS
from edgewright.llm.generate import OPTION_NAMES
from edgewright.llm.sampling import SamplingOptions
from edgewright.llm.stored_tensor import BLOCKS
from edgewright.llm.weights import GROUP_SIZES, LINEAR_PRECISIONS
from tests.llm.live_server import serve
from tests.llm.tiny_model import tiny_model_bytes

TEXT = (Path(__file__).parents[2] / "docs" / "language-models.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "smol.pte").write_bytes(tiny_model_bytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_python(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile("\n".join(SNIPPETS[:2]), "snippets", "exec"), {})
    assert re.search(r"^(stop|length) \d+$", capsys.readouterr().out, re.MULTILINE)


def test_the_client(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serve(ew.llm.load("smol.pte")) as live:
        exec(compile(SNIPPETS[2].replace("http://127.0.0.1:8080", live.url), "snippet", "exec"), {})
    assert capsys.readouterr().out


@pytest.mark.slow
def test_a_module_of_ones_own(folder: Path) -> None:
    exec(compile(SNIPPETS[3], "snippet", "exec"), {})
    (logits,) = (
        ew.runtime.Runtime.get().load_program("decoder.pte").load_method("forward").execute([np.ones((1, 8), np.int64)])
    )
    assert logits.shape == (1, 8, 96)


def test_precisions() -> None:
    for name in LINEAR_PRECISIONS:
        assert f"| `{name}`" in TEXT
    for size in GROUP_SIZES:
        assert re.search(rf"\b{size}\b", TEXT)
    assert f"Up to {TOKENS:,} tokens of the text" in TEXT
    assert all(kind in TEXT for kind in BLOCKS if kind not in ("F64", "Q3_K", "Q4_K", "Q5_K"))  # Q2_K to Q6_K


def test_every_option_is_there() -> None:
    assert [name for name in OPTION_NAMES if f"`{name}`" not in TEXT] == []
    defaults = SamplingOptions()
    assert f"| {defaults.temperature} |" in TEXT
    assert f"| {defaults.top_k}, {defaults.top_p}, {defaults.min_p} |" in TEXT


def test_every_parameter_is_there() -> None:
    names = [*server_requests._PASSED, *server_requests._RENAMED, *server_requests._READ]
    assert [name for name in names if f"`{name}`" not in TEXT] == []


def test_figures() -> None:
    *sizes, last = map(str, prompt_cache.CHUNKS)
    assert f"chunks of {', '.join(sizes)} or {last} tokens" in TEXT
    assert f"(up to {server_requests.MAX_STOPS})" in TEXT and f"up to {server_requests.MAX_PROMPTS} of them" in TEXT
    assert f"more than {server_requests.MAX_BODY_BYTES >> 20} MiB" in TEXT
