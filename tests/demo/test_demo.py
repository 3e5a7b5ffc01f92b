"""``edgewright demo``: the shipped model on its shipped images."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edgewright.cli.demo import default_targets
from edgewright.demo import IMAGES, MODEL
from edgewright.demo.images import prepare
from edgewright.runtime import Runtime
from tests.cli.cli import Cli
from tests.cli.terminal import run_on_terminal
from tests.support.stock import stock

ROOT = Path(__file__).parents[2]
FEW = ("--target", "xnnpack", "--target", "ethos-u55-128", "--images", "50")


def test_demo(cli: Cli) -> None:
    result = cli("demo", *FEW)
    assert (result.code, result.err) == (0, "")
    lines = {line.split("  ")[0]: line for line in result.out.splitlines() if "  " in line}
    assert "88.0%" in lines["torch, float"]  # 44 of 50 in torch
    for target in ("xnnpack", "ethos-u55-128"):
        words = lines[target].split()
        assert float(words[1].rstrip("%")) >= 80
        assert float(words[2]) > 30  # decibels
        assert words[3] == "100.0%"
    assert "time: xnnpack measured on this machine; ethos-u55-128 by Vela's estimate" in result.out
    assert "--calibrate edgewright.demo.model:calibration" in result.out


def test_what_is_named_after_the_demo_is_there() -> None:
    """The README's command, and what the demo says to type next."""
    from edgewright.frontend.model_spec import load_object, load_spec

    named = set(re.findall(r"edgewright\.demo\.model:\w+", (ROOT / "README.md").read_text(encoding="utf-8")))
    assert named == {"edgewright.demo.model:cifarnet", "edgewright.demo.model:calibration"}
    (example,) = load_spec("edgewright.demo.model:cifarnet").args
    inputs = load_object("edgewright.demo.model:calibration")()
    assert len(inputs) == 32
    assert {(x.shape, x.dtype) for x in inputs} == {(example.shape, example.dtype)}


def test_one_target_of_every_backend() -> None:
    from edgewright.backends import discover
    from edgewright.backends.targets import find_target

    assert sorted(find_target(name).backend for name in default_targets()) == sorted(discover())


def test_demo_as_json(cli: Cli) -> None:
    facts = json.loads(cli("demo", "--json", "--target", "xnnpack", "--images", "10").out)
    assert facts["original"] == 1.0
    assert facts["targets"]["xnnpack"]["metric"] == 0.9


@pytest.mark.parametrize("images", ["0", "169"])
def test_images_that_it_is_calibrated_with_are_not_classified(cli: Cli, images: str) -> None:
    result = cli("demo", "--images", images)
    assert result.code == 2
    assert "must be 1 to 168" in result.err and "calibrated with" in result.err


def test_the_shipped_program_is_what_the_demo_compiles() -> None:
    """After a change of the compiler, ``python -m edgewright.demo`` makes it afresh."""
    from edgewright.demo.model import export_cifarnet, lower_cifarnet

    assert lower_cifarnet(export_cifarnet()).buffer == MODEL.read_bytes()


def test_without_torch_the_shipped_program_runs(tmp_path: Path) -> None:
    script = (
        "import sys; sys.modules['torch'] = None; from edgewright.cli import main; "
        "sys.exit(main(['demo', '--images', '200']))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert "164 of 200 images correct: 82.0%" in done.stdout  # what the float model gets in torch
    assert done.stdout.count("torch is not installed, so this runs the .pte that comes with Edgewright") == 1


def test_quiet_demo_is_a_line_for_each_target(cli: Cli) -> None:
    assert cli("demo", "--quiet", "--target", "xnnpack", "--images", "10").out == "xnnpack 90.0%\n"


def test_demo_agrees_with_stock() -> None:
    with np.load(IMAGES) as file:
        calls = [[prepare(image)] for image in file["images"][:3]]
    method = Runtime.get().load_program(MODEL).load_method("forward")
    for call, expected in zip(calls, stock().run_many(MODEL.read_bytes(), "forward", calls), strict=True):
        np.testing.assert_allclose(method.execute(call)[0], expected[0], rtol=1e-4, atol=1e-4)


def test_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """A bar with a rate goes to stderr if that is a terminal, and stdout stays clean."""
    code, text = run_on_terminal(monkeypatch, "demo", "--target", "xnnpack", "--images", "20")
    assert code == 0
    assert b"classifying" in text
    assert b"/20" in text
    assert b"/s" in text
    assert "\x1b" not in capfd.readouterr().out
