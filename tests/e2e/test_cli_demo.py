"""``edgewright demo``: the shipped model on its shipped images."""

from __future__ import annotations

import os
import pty
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np

from edgewright.cli.demo import prepare
from edgewright.demo import IMAGES, MODEL
from edgewright.runtime import Runtime
from tests.e2e.cli import Cli


def test_demo(cli: Cli) -> None:
    result = cli("demo")
    assert (result.code, result.err) == (0, "")
    assert "164 of 200 images right: 82.0%" in result.out  # what the float model gets in torch
    assert re.search(r"\d+\.\d\d ms per image", result.out)
    assert re.search(r"compiled to a .pte of [\d.]+ KiB: import torch .* s, export .* s, lower .* s;", result.out)
    assert len(re.findall(r"^ +\d  ", result.out, re.MULTILINE)) == 8
    command = re.search(r"edgewright (inspect .*)", result.out)
    assert command is not None
    assert cli(*shlex.split(command[1])).code == 0


def test_the_shipped_program_is_what_the_demo_compiles() -> None:
    """After a change of the compiler, ``python -m edgewright.demo`` makes it afresh."""
    from edgewright.demo.model import exported, lowered

    assert lowered(exported()).buffer == MODEL.read_bytes()


def test_without_torch_the_shipped_program_runs(tmp_path: Path) -> None:
    script = "import sys; sys.modules['torch'] = None; from edgewright.cli import main; sys.exit(main(['demo']))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert "164 of 200 images right: 82.0%" in done.stdout
    assert done.stdout.count("torch is not installed, so this runs the .pte that comes with Edgewright") == 1


def test_quiet_demo_is_one_line(cli: Cli) -> None:
    assert cli("demo", "--quiet").out == "164 of 200 images right: 82.0%\n"


def test_demo_agrees_with_stock() -> None:
    from executorch.runtime import Runtime as Stock

    with np.load(IMAGES) as file:
        images = file["images"][:3]
    import torch

    stock = Stock.get().load_program(MODEL).load_method("forward")
    ours = Runtime.get().load_program(MODEL).load_method("forward")
    assert stock is not None
    for image in images:
        expected = stock.execute([torch.from_numpy(prepare(image))])[0].numpy()
        np.testing.assert_allclose(ours.execute([prepare(image)])[0], expected, rtol=1e-4, atol=1e-4)


def test_bar_on_a_terminal(tmp_path: Path) -> None:
    """A bar with a rate goes to stderr if that is a terminal, and stdout stays clean."""
    shown, terminal = pty.openpty()
    with open(tmp_path / "out", "wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "edgewright", "demo"],
            stdout=out,
            stderr=terminal,
            env={**os.environ, "TERM": "xterm"},
        )
        os.close(terminal)
        text = b""
        while True:
            try:
                chunk = os.read(shown, 65536)
            except OSError:  # how Linux says that the other end is closed
                break
            if not chunk:
                break
            text += chunk
    assert process.wait() == 0
    assert b"classifying" in text
    assert b"/200" in text
    assert b"\x1b" not in (tmp_path / "out").read_bytes()
