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


def has_examples(module: str) -> bool:
    path = ROOT / module.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ">>> " in file.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "package",
    [
        "edgewright",
        "edgewright.formats",
        "edgewright.runtime",
        "edgewright.lowering.partition",
        "edgewright.backends.xnnpack",
    ],
)
def test_public_names_exist_and_are_listed(package: str) -> None:
    module = importlib.import_module(package)
    for name in module.__all__:
        assert getattr(module, name) is not None
        assert name in dir(module)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = module.nothing


def test_importing_the_package_imports_nothing_heavy() -> None:
    modules = "edgewright, edgewright.formats, edgewright.runtime, edgewright.lowering.partition"
    script = f"import sys, {modules}; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert not {"numpy", "torch", "llvmlite", "rich", "flatbuffers"} & set(loaded.stdout.split())


# Rooms that may import torch, with what in them must not; then single modules of rooms that may not.
COMPILER = ("edgewright.frontend.", "edgewright.program.", "edgewright.quantize.", "edgewright.demo.model")
FREE = {
    "frontend.export_advice", "frontend.origin", "program.config", "program.constants", "program.delegates",
    "program.inplace", "program.manifest", "program.memory", "program.storage",
    "quantize.evaluate", "quantize.methods", "quantize.shared_scales",
}  # fmt: skip
NEED_TORCH = {
    "backends.ethos_u.compat", "backends.nxp.passes", "backends.qualcomm.compat", "backends.qualcomm.schemes",
    "backends.qualcomm.exclude", "backends.qualcomm.script_helpers", "compat.devtools", "compat.dialects",
    "compat.export_util", "compat.quantize_io", "api.pipeline", "lowering.kernel_resolution",
    "lowering.partition.apply", "lowering.partition.exclude", "api.accuracy", "api.self_check", "api.compare",
    "api.compile", "api.data", "api.deviation", "api.half_overflow", "api.quantized_graph", "api.layers",
    "api.named_inputs",
    "api.best", "api.compress", "api.locate", "api.quantization", "api.training", "api.graph_interpreter",
    "api.shape_samples", "api.state_writes", "api.checked_method", "api.model_report", "explore.model_inputs",
    "explore.plan", "explore.precision_search", "explore.proposer", "explore.search", "explore.sensitivity",
    "explore.space",
}  # fmt: skip
OF_BACKENDS = (".partitioner", ".quantizer", ".export_utils")


def may_import_torch(module: str) -> bool:
    inside = module.removeprefix("edgewright.")
    return inside not in FREE and (inside in NEED_TORCH or module.startswith(COMPILER) or module.endswith(OF_BACKENDS))


def test_the_lists_name_modules_that_there_are() -> None:
    assert {f"edgewright.{name}" for name in FREE | NEED_TORCH} <= set(MODULES)


def test_no_module_but_the_compilers_imports_torch() -> None:
    free = [m for m in MODULES if not may_import_torch(m)]
    assert len(free) > len(MODULES) / 2
    script = (
        f"import sys, importlib\nsys.modules['torch'] = None\nfor name in {free!r}: importlib.import_module(name)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT)


def test_every_module_is_importable() -> None:
    for module in MODULES:
        importlib.import_module(module)


@pytest.mark.parametrize("module", [m for m in MODULES if has_examples(m)])
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
