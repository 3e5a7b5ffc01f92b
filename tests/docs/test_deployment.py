"""``docs/deployment.md``: its C++ is built with ExecuTorch's own libraries and run; its Python needs no torch."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edgewright.runtime import Runtime
from tests.support.programs import require

TEXT = (Path(__file__).parents[2] / "docs" / "deployment.md").read_text(encoding="utf-8")


def block(language: str, number: int = 0) -> str:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)[number]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the program that the page compiles."""
    made = tmp_path_factory.mktemp("deployment")
    subprocess.run([sys.executable, "-c", block("python")], cwd=made, check=True, timeout=300)
    return made


def wanted(folder: Path) -> np.ndarray:
    method = Runtime.get().load_program(folder / "m.pte").load_method("forward")
    return np.asarray(method.execute([np.ones((1, 3, 8, 8), np.float32)])[0]).reshape(-1)


@pytest.mark.slow
def test_cpp(folder: Path) -> None:
    cmake = require("cmake", "it builds the page's program")
    require("c++", "it compiles the page's program")
    (folder / "main.cpp").write_text(block("cpp"))
    (folder / "CMakeLists.txt").write_text(block("cmake"))
    spec = importlib.util.find_spec("executorch")
    assert spec is not None
    root = next(iter(spec.submodule_search_locations or ()))
    for command in (
        [cmake, "-S", ".", "-B", "build", f"-DCMAKE_PREFIX_PATH={root}"],
        [cmake, "--build", "build"],
    ):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    libraries = os.environ | {"LD_LIBRARY_PATH": f"{root}/lib"}
    app = subprocess.run(
        ["build/app", "m.pte"], cwd=folder, capture_output=True, text=True, timeout=600, check=False, env=libraries
    )
    assert app.returncode == 0, app.stderr
    np.testing.assert_allclose([float(line) for line in app.stdout.split()], wanted(folder), atol=2e-6)


@pytest.mark.slow
def test_python_without_torch(folder: Path) -> None:
    code = "import sys\nsys.modules['torch'] = None\n" + block("python", 1)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=600, check=True
    )
    assert int(done.stdout) == int(wanted(folder).argmax())


def test_what_is_not_run_says_so() -> None:
    for title in ("Android", "iOS", "Cortex-M"):
        section = re.split(rf"\n## {title}\n", TEXT)[1].split("\n## ")[0]
        assert section.strip().startswith("Not run here: it needs")
