"""The same model gives the same bytes, whatever the hash seed, the folder and the number of threads."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Prints one digest per model. Runs in a process of its own: the seed of hashes cannot be changed later.
SCRIPT = """
import hashlib
import torch
from torch import nn
from edgewright.program.config import ExecutorchBackendConfig
from edgewright.program.edge import to_edge, to_edge_transform_and_lower

class Step(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("memory", torch.ones(2, 8))
        self.cell = nn.Linear(8, 8)
    def forward(self, x):
        self.memory.copy_(torch.tanh(self.cell(x) + self.memory))
        return {"b": self.memory * 2, "a": x.sort(dim=1)}

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.heads = nn.LayerNorm(16), nn.MultiheadAttention(16, 4, batch_first=True)
    def forward(self, x):
        y = self.norm(x)
        return x + self.heads(y, y, y, need_weights=False)[0]

torch.manual_seed(1)
first = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU6(), nn.MaxPool2d(2)]
images = nn.Sequential(*first, nn.Flatten(), nn.Linear(72, 5))
batch = torch.export.Dim("batch", min=1, max=7)
exports = {
    "images": torch.export.export(images.eval(), (torch.randn(2, 3, 8, 8),)),
    "dynamic": torch.export.export(images.eval(), (torch.randn(2, 3, 8, 8),), dynamic_shapes=({0: batch},)),
    "state": torch.export.export(Step(), (torch.randn(2, 8),)),
    "attention": torch.export.export(Attention().eval(), (torch.randn(1, 5, 16),)),
}
def show(name, data):
    assert b"site-packages" not in data, "a file says where it was made"
    print(name, hashlib.sha256(data).hexdigest())
for name, exported in exports.items():
    show(name, to_edge_transform_and_lower(exported).to_executorch().buffer)
together = to_edge(exports, constant_methods={"get_b": 1, "get_a": [2.5, "x"]})
show("together", together.to_executorch().buffer)
apart = together.to_executorch(ExecutorchBackendConfig(external_constants=True))
show("apart", apart.buffer)
for name, data in apart.data_files.items():
    show(name, data)
"""


@cache
def digests(seed: str, threads: str, folder: str, *command: str, malloc: str = "pymalloc") -> str:
    """What a process of its own prints. ``malloc``: another allocator gives objects other addresses."""
    settings = {"PYTHONHASHSEED": seed, "OMP_NUM_THREADS": threads, "PYTHONPATH": str(ROOT), "PYTHONMALLOC": malloc}
    given = [sys.executable, *(command or ("-c", SCRIPT))]
    done = subprocess.run(given, env={**os.environ, **settings}, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "threads"), [("1", "1"), ("4242", "3"), ("random", "2")])
def test_compiling_again_gives_the_same_bytes(seed: str, threads: str, tmp_path: Path) -> None:
    usual = digests("0", "2", str(ROOT))
    assert len(usual.splitlines()) == 7, usual
    assert digests(seed, threads, str(tmp_path)) == usual


# Files, twins and reports of every backend. What the vendors' compilers make is in the files: Vela's command streams
# are the same each time, too. Qualcomm's context binaries are not, for some graphs: of its files all is compared but
# what is made from those.


@pytest.mark.slow
def test_every_backend_gives_the_same_bytes_again(tmp_path: Path) -> None:
    usual = digests("0", "2", str(ROOT), "-m", "tests.program.digests", "few")
    assert len(usual.splitlines()) == 22 and " error " not in usual, usual
    again = digests("77", "1", str(tmp_path), "-m", "tests.program.digests", "few", malloc="malloc")
    assert again.splitlines() == usual.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "threads", "malloc"), [("1", "2", "pymalloc"), ("4242", "1", "malloc")])
def test_every_model_for_every_target_gives_the_same_bytes_again(
    seed: str, threads: str, malloc: str, tmp_path: Path
) -> None:
    usual = digests("0", "2", str(ROOT), "-m", "tests.program.digests", "all")
    assert "error" not in usual, usual
    again = digests(seed, threads, str(tmp_path), "-m", "tests.program.digests", "all", malloc=malloc)
    assert again.splitlines() == usual.splitlines()
