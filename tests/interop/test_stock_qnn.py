"""Programs of ours in ExecuTorch's own QNN backend. The 1.5.1 wheel speaks to libraries up to QNN 2.49 (its device
options lie elsewhere in newer ones), so that these are installed apart, and compiled with as well."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

PACKAGE = "onnxruntime-qnn==2.5.0"


@pytest.fixture(scope="module")
def libraries() -> Path:
    """The older libraries, in a folder that later runs find again."""
    folder = Path(tempfile.gettempdir()) / f"edgewright-tests-{os.getuid()}" / PACKAGE.replace("==", "-")
    if not (folder / "onnxruntime_qnn" / "libQnnHtp.so").is_file():
        with tempfile.TemporaryDirectory(dir=_made(folder.parent)) as fresh:
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", fresh, PACKAGE]
            subprocess.run(command, check=True, timeout=600)
            Path(fresh).rename(folder)
            _made(Path(fresh))
    return folder


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def run(task: str, folder: Path, **environment: str) -> str:
    command = [sys.executable, "-m", "tests.interop.qnn_older", task, str(folder)]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=600,
                          check=False)  # fmt: skip
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
    return done.stdout


@pytest.mark.slow
def test_stock_runs_what_we_compile_bit_for_bit(libraries: Path, tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    said = run("compile", tmp_path, PYTHONPATH=f"{libraries}{os.pathsep}{root}")
    assert f"libraries: {libraries / 'onnxruntime_qnn'}" in said
    said = run("stock", tmp_path, PYTHONPATH=str(root), LD_LIBRARY_PATH=str(libraries / "onnxruntime_qnn"))
    assert {"fp16: off by 0.0", "8a8w: off by 0.0"} <= set(said.splitlines())


@pytest.mark.slow
def test_stock_runs_the_methods_of_a_language_model_bit_for_bit(libraries: Path, tmp_path: Path) -> None:
    """Both graphs of one context, with the caches and masks of five calls."""
    root = Path(__file__).parents[2]
    run("compile-llm", tmp_path, PYTHONPATH=f"{libraries}{os.pathsep}{root}", EDGEWRIGHT_QNN="emulator")
    said = run("stock-llm", tmp_path, PYTHONPATH=str(root), LD_LIBRARY_PATH=str(libraries / "onnxruntime_qnn"))
    lines = [line for line in said.splitlines() if "off by" in line]
    assert lines == ["prefill_forward: off by 0"] * 2 + ["kv_forward: off by 0"] * 3
