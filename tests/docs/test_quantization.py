"""``docs/quantization.md``: its snippets run, in order, and what they write runs in stock."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import numpy as np
import pytest

from edgewright.backends.xnnpack import XNNPACKQuantizer
from edgewright.runtime import Runtime
from tests.support.stock import stock

TEXT = (Path(__file__).parents[2] / "docs" / "quantization.md").read_text(encoding="utf-8")
SHAPES = {"static": (1, 3, 8, 8), "dynamic": (2, 64), "groups": (2, 64), "trained": (4, 3, 8, 8)}


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder the snippets wrote to, and what they printed."""
    folder = tmp_path_factory.mktemp("docs")
    source = folder / "snippets.py"
    source.write_text("\n".join(re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)))
    lines: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        names = {"__name__": "snippets", "print": lambda *values: lines.append(" ".join(map(str, values)))}
        exec(compile(source.read_text(), str(source), "exec"), names)
    return folder, "\n".join(lines)


@pytest.mark.slow
def test_what_the_snippets_print(printed: tuple[Path, str]) -> None:
    assert "in 1 group (100.0% of multiply-accumulates" in printed[1]
    assert "conv2d" in printed[1] and "linear" in printed[1]


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
def test_files_of_the_snippets_run_alike_here_and_in_stock(printed: tuple[Path, str], name: str) -> None:
    data = (printed[0] / f"{name}.pte").read_bytes()
    inputs = [np.random.default_rng(0).standard_normal(SHAPES[name], np.float32)]
    ours = Runtime.get().load_program(data).load_method("forward").execute(inputs)[0]
    theirs = stock().run(data, "forward", inputs)[0]
    np.testing.assert_allclose(ours, theirs, 1e-3, 1e-3 * np.abs(theirs).max())


def test_every_setter_is_on_the_page() -> None:
    setters = [n for n, _ in inspect.getmembers(XNNPACKQuantizer, inspect.isfunction) if n.startswith("set_")]
    assert len(setters) == 11
    assert all(f".{name}(" in TEXT for name in setters)
