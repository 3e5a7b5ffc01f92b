"""``docs/tutorial.md``, walked command by command: with a small model, and under ``slow`` with its own."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from edgewright.cli import main

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```console\n(.*?)```", TEXT, re.DOTALL)

# Stands for the tutorial's model where its weights are too large a download: the same names, the same kind of layers.
# Pictures come first: drawing them needs no torch.
SMALL = """
import sys

if __name__ == "__main__":
    from pathlib import Path

    if len(sys.argv) > 2:  # a file to classify with
        sys.exit(not Path(sys.argv[1]).is_file())

    import numpy as np
    from PIL import Image

    Path(sys.argv[1]).mkdir()
    random = np.random.default_rng(1)
    for number in range(32):
        picture = random.integers(0, 256, (20, 24, 3), np.uint8)
        Image.fromarray(picture).save(f"{sys.argv[1]}/{number:02}.png")
    sys.exit()

import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.stem = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, 2, 1), torch.nn.BatchNorm2d(8), torch.nn.ReLU6())
        self.depthwise = torch.nn.Sequential(torch.nn.Conv2d(8, 8, 3, 1, 1, groups=8), torch.nn.ReLU6())
        self.project = torch.nn.Conv2d(8, 8, 1)
        self.fc = torch.nn.Linear(8, 10)

    def forward(self, x):
        x = self.stem(x)
        return self.fc((x + self.project(self.depthwise(x))).mean((2, 3)))


def model():
    return Net().eval(), (torch.zeros(1, 3, 16, 16),)
"""


def walk(folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Run every command in order; what each printed."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "efficientnet_lite0", raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    shown = {}
    for command in re.findall(r"^\$ (.*)$", "\n".join(BLOCKS).replace("\\\n", " "), re.MULTILINE):
        words = shlex.split(command)
        capfd.readouterr()
        if words[0] == "python":
            subprocess.run([sys.executable, *words[1:]], check=True)
        else:
            assert main(words[1:]) == 0, command
        shown[command] = capfd.readouterr().out
    return shown


def told(shown: dict[str, str], start: str) -> str:
    return next(out for command, out in shown.items() if command.startswith(start))


def check(folder: Path, shown: dict[str, str]) -> None:
    """What the page says came of it, came of it; numbers differ from machine to machine."""
    for name in re.findall(r"^wrote (\S+)$", TEXT, re.MULTILINE):
        assert (folder / name).is_file(), name
    table = told(shown, "edgewright compile").splitlines()
    for line in re.findall(r"^\S+ +int8 .*%.*$", TEXT, re.MULTILINE):
        row = next(found for found in table if found.startswith(f"{line.split()[0]} "))
        assert row.split()[1:3] == line.split()[1:3]
    assert "4 test cases passed" in told(shown, "edgewright verify")
    assert '= "higher"' in (folder / "raised.toml").read_text()
    assert re.search(r"raise .* to 16 bits: -?[\d.]+ dB become -?[\d.]+ dB", told(shown, "edgewright compare"))


def test_the_walk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "efficientnet_lite0.py").write_text(SMALL)
    shown = walk(tmp_path, monkeypatch, capfd)
    check(tmp_path, shown)
    assert "100.0% of multiply-accumulates" in told(shown, "edgewright explain")


@pytest.mark.slow
def test_the_walk_with_its_own_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(ROOT / "examples" / "efficientnet_lite0.py", tmp_path)
    shown = walk(tmp_path, monkeypatch, capfd)
    check(tmp_path, shown)
    ranked = [line.split()[0] for line in told(shown, "edgewright compare").splitlines() if "conv2d" in line]
    assert ranked[0] in ("_blocks.0._depthwise_conv", "_conv_stem")
