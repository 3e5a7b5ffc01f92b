"""``docs/qualcomm.md`` and ``examples/qualcomm``: what they show runs; the scripts' models are small here."""

from __future__ import annotations

import importlib
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edgewright.cli import build_parser
from edgewright.errors import UsageError
from tests.cli.test_device_phone import build, own_client, phones, sdk  # noqa: F401

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "qualcomm.md").read_text(encoding="utf-8")
README = (ROOT / "examples" / "qualcomm" / "README.md").read_text(encoding="utf-8")
SCRIPTS = ("deeplab_v3", "edsr", "inception_v3", "inception_v4", "mobilebert_fine_tune", "mobilenet_v2", "mobilenet_v3",
           "torchvision_vit", "wav2letter")  # fmt: skip


@pytest.fixture(autouse=True)
def from_the_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.chdir(tmp_path)
    yield
    for name in [n for n in sys.modules if n == "examples" or n.startswith("examples.")]:
        del sys.modules[name]


def script(name: str) -> Any:
    return importlib.import_module(f"examples.qualcomm.scripts.{name}").SCRIPT


def flow() -> Any:
    return importlib.import_module("examples.qualcomm.flow")


def test_the_snippets_run() -> None:
    printed: list[str] = []
    names: dict[str, Any] = {"__name__": "snippets", "print": lambda *v: printed.append(" ".join(map(str, v)))}
    for snippet in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL):
        exec(compile(snippet, "docs/qualcomm.md", "exec"), names)
    shown = "\n".join(printed)
    for words in (
        "operators delegated to qualcomm",
        "analytic bound for SM8650",
        "(1, 10)",
        "'45 TOPS': 'RunLocalAI: 45 TOPS of 8 bits (https://",
    ):
        assert words in shown


def small(name: str) -> Any:
    """A script with a model that takes no time."""
    found = script(name)
    models = {
        "deeplab_v3": lambda args: importlib.import_module("examples.qualcomm.models.deeplab").DeepLabV3(
            (1, 1, 1, 1), 3
        ),
        "edsr": lambda args: importlib.import_module("examples.qualcomm.models.small").EDSR(1, 8),
    }
    return replace(found, make=models[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["deeplab_v3", "edsr"])
def test_scripts_compile_and_run_here(name: str, capsys, monkeypatch) -> None:
    monkeypatch.setenv("EDGEWRIGHT_QNN", "twin")
    found = small(name)
    assert flow().main(found, ["-b", "build-android", "-m", "SM8550", "-x", "--size", "32"]) == 0
    shown = capsys.readouterr().out
    assert "weights: random" in shown and "inputs: random" in shown and "100.0% of multiply-accumulates" in shown
    assert float(re.findall(r"(-?\d+\.\d) dB", shown)[0]) > (20 if name == "edsr" else 10)
    folder = Path(name)
    assert (folder / f"{found.file}.pte").exists() and (folder / "input_list.txt").read_text() == "input_0_0.raw\n"
    assert np.fromfile(folder / "outputs" / "output_0_0.raw", np.float32).size


def test_a_script_runs_on_a_phone(build: Path, sdk: Path, own_client: None, capsys) -> None:  # noqa: F811
    found = small("edsr")
    flags = ["-b", str(build), "-m", "SM8550", "-s", "ABC123", "--qnn-sdk", str(sdk), "--size", "16", "--count", "2"]
    assert flow().main(found, flags) == 0
    shown = capsys.readouterr().out
    assert "Model executed successfully" in shown and "signal to noise against the model" in shown
    assert sorted(p.name for p in Path("edsr/outputs").iterdir()) == ["output_0_0.raw", "output_1_0.raw"]
    assert Path("edsr/etdump.etdp").exists()
    with pytest.raises(UsageError, match="--build_folder: is needed"):
        flow().main(found, ["-m", "SM8550", "--pre_gen_pte", "edsr", "--size", "16"])


def test_data_sets_and_weights_are_used(capsys, monkeypatch) -> None:
    monkeypatch.setenv("EDGEWRIGHT_QNN", "twin")
    np.savez("x.npz", a=np.ones((1, 3, 16, 16), np.float32), b=np.zeros((1, 3, 16, 16), np.float32))
    found = small("edsr")
    flags = ["-m", "SM8550", "-c", "--dataset", "x.npz", "--count", "2", "--size", "16", "--fp16"]
    assert flow().main(found, flags) == 0
    shown = capsys.readouterr().out
    assert "inputs: random" not in shown and "weights: random" in shown
    assert np.array_equal(np.fromfile("edsr/input_0_0.raw", np.float32), np.ones(3 * 16 * 16))
    assert np.array_equal(np.fromfile("edsr/input_1_0.raw", np.float32), np.zeros(3 * 16 * 16))
    torch.save(found.make(None).state_dict(), "w.pt")
    random = Path("edsr", f"{found.file}.pte").read_bytes()
    assert flow().main(found, [*flags, "--weights", "w.pt"]) == 0
    assert "weights: random" not in capsys.readouterr().out
    assert Path("edsr", f"{found.file}.pte").read_bytes() != random


def test_export_example_finds_models_by_name(monkeypatch) -> None:
    example = importlib.import_module("examples.qualcomm.scripts.export_example")
    assert sorted(example.MODELS.values()) == sorted(SCRIPTS)
    given = {}
    monkeypatch.setattr(
        example, "main", lambda chosen, flags: given.update(file=chosen.file, scheme=chosen.scheme) or 0
    )
    assert example.run(["-m", "mv2", "--soc_model", "SM8550"]) == 0
    assert given == {"file": "mv2", "scheme": None}


MODELS = {  # millions of parameters, and a size of inputs
    "deeplab_v3": (61.0, 33), "edsr": (1.37, 16), "inception_v3": (23.8, 139), "inception_v4": (42.7, 139),
    "mobilebert_fine_tune": (24.6, 8), "mobilenet_v2": (3.5, 33), "mobilenet_v3": (2.54, 33),
    "torchvision_vit": (85.8, 32), "wav2letter": (23.3, 64),
}  # fmt: skip


@pytest.mark.sample("edsr", "mobilenet_v2", "mobilenet_v3")
@pytest.mark.parametrize("name", MODELS)
def test_the_models_are_the_ones_they_are_named_after(name: str) -> None:
    """By their parameters; and they run."""
    millions, size = MODELS[name]
    found = script(name)
    args = flow().arguments(found).parse_args(["-m", "SM8550", "--size", str(size)])
    model = found.make(args).eval()
    assert sum(p.numel() for p in model.parameters()) / 1e6 == pytest.approx(millions, rel=0.01)
    with torch.no_grad():
        made = model(*found.example(torch.Generator(), size))
    assert all(torch.isfinite(m).all() for m in (made if isinstance(made, tuple) else [made]))
    assert f"`{found.name}`" in README and f"`{found.file}.pte`" in README


def test_the_documents_use_flags_that_exist() -> None:
    known = set(flow().arguments(script("deeplab_v3"))._option_string_actions)
    commands = re.findall(r"examples\.qualcomm\.scripts\.deeplab_v3 (.*)$", README, re.MULTILINE)
    assert len(commands) == 3
    for command in commands:
        assert {w for w in command.split() if w.startswith("-")} <= known
    device = build_parser("device")._subparsers
    assert device is not None
    options = set(device._group_actions[0].choices["device"]._option_string_actions)  # type: ignore[index]
    for command in re.findall(r"^edgewright device (.*)$", TEXT, re.MULTILINE):
        assert {w for w in command.split() if w.startswith("-")} <= options


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_compiles(name: str, tmp_path: Path) -> None:
    found = script(name)
    size = {"inception_v3": 139, "inception_v4": 139, "wav2letter": 64, "mobilebert_fine_tune": 16}.get(name, 64)
    assert flow().main(found, ["-m", "SM8550", "-c", "--ci", "--size", str(size)]) == 0
    assert (tmp_path / name / f"{found.file}.pte").exists()
    shutil.rmtree(tmp_path / name)
