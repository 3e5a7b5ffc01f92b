"""``docs/compile.md``: its snippets run, in order, and every option is in it."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path

import numpy as np
import pytest

import edgewright
from edgewright import EdgeCompileConfig, ExecutorchBackendConfig, MemoryPlanningPass
from edgewright.program.edge import EdgeProgramManager, ExecutorchProgramManager
from edgewright.runtime import Runtime

TEXT = (Path(__file__).parents[2] / "docs" / "compile.md").read_text(encoding="utf-8")


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


def test_what_the_snippets_print(printed: tuple[Path, str]) -> None:
    assert "return x if x.sum() > 0 else -x: branches on the contents of a tensor" in printed[1]
    assert "opcode" in printed[1] and "aten" in printed[1]
    assert "_default_external_constant.ptd" in printed[1]


def test_what_the_snippets_write(printed: tuple[Path, str]) -> None:
    load = Runtime.get().load_program
    for rows in (1, 16):
        (y,) = load(printed[0] / "dynamic.pte").load_method("forward").execute([np.ones((rows, 4), np.float32)])
        assert y.shape == (rows, 3)
    both = load(printed[0] / "both.pte")
    assert set(both.method_names) == {"forward", "half", "get_classes"}
    x = np.ones((2, 4), np.float32)
    whole, half = (both.load_method(name).execute([x])[0] for name in ("forward", "half"))
    np.testing.assert_allclose(whole / 2, half)
    data = printed[0] / "_default_external_constant.ptd"
    assert load(printed[0] / "small.pte", data).load_method("forward").execute([x])[0].shape == (2, 3)


@pytest.mark.parametrize("options", [EdgeCompileConfig, ExecutorchBackendConfig, MemoryPlanningPass])
def test_every_option_is_there(options: type) -> None:
    assert [f.name for f in dataclasses.fields(options) if f"`{f.name}`" not in TEXT] == []


@pytest.mark.parametrize("manager", [EdgeProgramManager, ExecutorchProgramManager])
def test_every_public_method_is_there(manager: type) -> None:
    names = [name for name, _ in inspect.getmembers(manager) if not name.startswith("_")]
    assert [name for name in names if name not in TEXT] == []


@pytest.mark.parametrize("function", [edgewright.export, edgewright.to_edge, edgewright.to_edge_transform_and_lower])
def test_every_argument_is_there(function: object) -> None:
    assert callable(function)
    assert [name for name in inspect.signature(function).parameters if name not in TEXT] == []
