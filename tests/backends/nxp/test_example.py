"""The example script: the page's command, and its flags."""

from __future__ import annotations

import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from numpy._core import _multiarray_umath

from edgewright import read_program
from edgewright.backends.nxp import sdk
from edgewright.errors import MissingError, UsageError
from edgewright.program.etrecord import IDENTIFIER
from edgewright.runtime import Runtime

HERE = Path(__file__).parent
FOLDER = HERE.parents[2] / "examples" / "nxp"
NAMES = ("aot_neutron_compile", "data", "models", "page", "mine")
MINE = """
import torch

def make():
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(288, 4)), (torch.randn(1, 3, 8, 8),)
"""
Script = Callable[..., str]


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Script]:
    """Runs the script's main in an empty folder; what it prints."""
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.syspath_prepend(str(tmp_path))

    def run(*words: object) -> str:
        assert import_module("aot_neutron_compile").main([str(w) for w in words]) == 0
        return capsys.readouterr().out

    yield run
    for name in [n for n in sys.modules if n in NAMES or n.startswith(sdk.PACKAGE)]:
        del sys.modules[name]


@pytest.mark.slow
def test_the_pages_command(tmp_path: Path) -> None:
    words = [str(FOLDER / "aot_neutron_compile.sh"), "cifar10", "--simulate_only", "-t", "-e"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert "100.0% of multiply-accumulates" in done.stdout
    (line,) = [each for each in done.stdout.splitlines() if each.startswith("100 samples")]
    before, after = (float(word) for word in line.replace("%", "").split() if word[0].isdigit() and "." in word)
    assert before - after <= 2.0
    assert (tmp_path / "cifar10_nxp_delegate.pte").exists()


def test_any_model_with_integers_at_its_ends(script: Script) -> None:
    said = script("-m", "mine:make", "-q", "-d", "--simulate_only", "-r", "--visualize", "store", "-o", "m.pte")
    assert "input0: real = " in said and "output0: real = " in said
    method = Runtime.get().load_program(Path("m.pte")).load_method("forward")
    assert method.execute([np.zeros((1, 3, 8, 8), np.int8)])[0].dtype == np.int8
    page = Path("m.html").read_text()
    assert page.count("<td") >= 6 * 4 and "NPU, group" in page and "http" not in page


def test_operators_left_out_channels_last_and_reports(script: Script) -> None:
    said = script("-m", "mine:make", "-q", "-d", "--simulate_only", "-e", "--report", "--use_channels_last_dim_order",
                  "--operators_not_to_delegate", "aten::linear", "--per_tensor", "--use_random_dataset", "-t",
                  "--debug", "-s", _multiarray_umath.__file__)  # fmt: skip
    assert "excluded by operators_not_to_delegate" in said
    assert "classified as the model does" in said and "largest difference" in said


@pytest.mark.slow
def test_mlperf_tiny(script: Script) -> None:
    said = script("-m", "mlperf_tiny_image_classification", "-q", "-d", "--simulate_only", "-e")
    assert "in 1 group (100.0% of multiply-accumulates" in said
    assert float(said.rsplit(":", 1)[1]) < 0.02


def test_training(script: Script) -> None:
    said = script("-m", "mine:make", "-q", "-d", "--simulate_only", "--use_qat", "--use_random_dataset", "-e")
    assert "in 1 group (100.0% of multiply-accumulates" in said
    assert float(said.rsplit(":", 1)[1]) < 0.1


def test_samples_with_labels(script: Script) -> None:
    rng = np.random.default_rng(0)
    np.savez("x.npz", images=rng.standard_normal((5, 3, 8, 8)).astype(np.float32), labels=np.arange(5) % 4)
    said = script("-m", "mine:make", "-q", "-d", "--simulate_only", "-dst", "x.npz", "-t")
    assert "5 samples, classified as labelled" in said


@pytest.mark.parametrize(
    ("arrays", "rule"),
    [
        ({"a": np.zeros((1, 3, 9, 9), np.float32)}, "must hold samples of"),
        ({"images": np.zeros((2, 9, 9, 3), np.uint8)}, "must hold samples of"),
        ({"images": np.zeros((2, 8, 8, 3), np.uint8), "labels": np.zeros(3)}, "a label for each image"),
    ],
)
def test_samples_that_do_not_fit(arrays: dict[str, np.ndarray], rule: str, script: Script) -> None:
    np.savez("x.npz", **arrays)
    with pytest.raises(UsageError, match=rule):
        script("-m", "mine:make", "-q", "-dst", "x.npz")


def test_with_and_without_the_sdk(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("-m", "mine:make", "-q", "-d", "--use_profiling", "--fetch_constants_to_sram", "--intermediates",
             "between", "--dump_kernel_selection_code")  # fmt: skip
    with pytest.raises(MissingError, match="eiq_neutron_sdk"):
        script(*words)
    monkeypatch.syspath_prepend(str(HERE / "standin"))
    script(*words)
    assert {p.name for p in Path("between").iterdir()} == {"tag0_pure.et.tflite", "tag0_neutron.et.tflite"}
    (plan,) = read_program(Path("mine_nxp_delegate_profile.pte")).execution_plan
    specs = {s.key: bytes(s.value) for s in plan.delegates[0].compile_specs or ()}
    assert specs["use_profiling"] == specs["fetch_constants_to_sram"] == specs["dump_kernel_selection_code"] == b"True"
    assert IDENTIFIER.encode() in Path("mine_nxp_delegate_profile.etrecord").read_bytes()


def test_libraries_that_do_not_load(script: Script) -> None:
    Path("ops.so").write_bytes(b"no library")
    with pytest.raises(UsageError, match="this machine can load"):
        script("-m", "mine:make", "-s", "ops.so")


def test_what_is_wrong_ends_the_script_with_an_error(
    script: Script, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(FOLDER / "aot_neutron_compile.py")
    monkeypatch.setattr(sys, "argv", [path, "-m", "nosuch"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(path, run_name="__main__")
    assert ended.value.code == 2
    assert "nosuch: must be package.module:factory" in capsys.readouterr().err


def test_random_weights_are_not_compared_with_labels(script: Script) -> None:
    np.savez("x.npz", images=np.zeros((3, 32, 32, 3), np.uint8), labels=np.arange(3))
    said = script("-m", "mlperf_tiny_image_classification", "-q", "-d", "--simulate_only", "-t", "-dst", "x.npz")
    assert "weights: random" in said and "3 samples, classified as the model does: the model 100.0 %" in said
