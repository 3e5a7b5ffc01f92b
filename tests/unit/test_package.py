"""The package's public face: names, laziness, typing, documentation that runs."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import edgewright
from tests.support import golden

ROOT = Path(__file__).parent.parent.parent
MODULES = sorted(
    m.name for m in pkgutil.walk_packages(edgewright.__path__, "edgewright.") if not m.name.endswith("__main__")
)


@pytest.mark.parametrize(
    "package",
    ["edgewright", "edgewright.pte", "edgewright.runtime", "edgewright.partition", "edgewright.backends.xnnpack"],
)
def test_public_names_exist_and_are_listed(package: str) -> None:
    module = importlib.import_module(package)
    for name in module.__all__:
        assert getattr(module, name) is not None
        assert name in dir(module)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = module.nothing


def test_importing_the_package_imports_nothing_heavy() -> None:
    script = (
        "import sys, edgewright, edgewright.pte, edgewright.runtime, edgewright.partition; print(*sorted(sys.modules))"
    )
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert not {"numpy", "torch", "llvmlite", "rich", "flatbuffers"} & set(loaded.stdout.split())


COMPILER = (
    "edgewright.frontend", "edgewright.program", "edgewright.quantize", "edgewright.demo.model", "edgewright.partition",
    "edgewright.workbench", "edgewright.compat",
)  # fmt: skip
OF_BACKENDS = (".partitioner", ".quantizer", ".compat", ".export_utils", ".passes")


def test_no_module_but_the_compilers_imports_torch() -> None:
    free = [m for m in MODULES if not m.startswith(COMPILER) and not m.endswith(OF_BACKENDS)]
    script = (
        f"import sys, importlib\nsys.modules['torch'] = None\nfor name in {free!r}: importlib.import_module(name)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT)


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings_run(module: str) -> None:
    assert doctest.testmod(importlib.import_module(module)).failed == 0


def test_the_readmes_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(golden.path("linear_fp32_portable"), tmp_path / "m.pte")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert blocks
    names: dict[str, object] = {}  # blocks follow one another
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)


def test_nothing_in_the_package_reads_the_test_or_build_tree() -> None:
    for path in (ROOT / "edgewright").rglob("*.py"):
        assert "tests" not in re.findall(r"^(?:from|import) (\w+)", path.read_text(), re.M), path
