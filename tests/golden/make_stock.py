"""Makes the golden files that stock ExecuTorch writes, from trained weights.

    python tests/golden/make_stock.py --models DIR [name ...]

``DIR`` holds ``cn_cifar10.safetensors`` and ``cifar10_subset.npz``. One function makes one file; a new golden
file is a new function in ``FILES``. Needs the ``test`` extra and safetensors.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from executorch.exir import EdgeCompileConfig, to_edge
from safetensors.torch import load_file

from edgewright.cli.outputs import npz_bytes
from edgewright.files import write_file

DEMO = Path(__file__).parents[2] / "edgewright" / "demo"
IMAGES = 200


class CifarNet(torch.nn.Module):
    """Three 5x5 convolutions with pooling, and one linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = torch.nn.Conv2d(3, 32, 5, padding=2)
        self.conv2 = torch.nn.Conv2d(32, 32, 5, padding=2)
        self.conv3 = torch.nn.Conv2d(32, 64, 5, padding=2)
        self.fc = torch.nn.Linear(1024, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for conv in (self.conv1, self.conv2, self.conv3):
            x = torch.nn.functional.max_pool2d(conv(x).relu(), 2, 2)
        return self.fc(x.flatten(1))


def make_cifarnet(models: Path) -> None:
    """The demo's model: portable kernels only, batch 1, trained."""
    model = CifarNet().eval()
    model.load_state_dict(load_file(models / "cn_cifar10.safetensors"))
    exported = torch.export.export(model, (torch.zeros(1, 3, 32, 32),))
    program = to_edge(exported, compile_config=EdgeCompileConfig(_skip_dim_order=False)).to_executorch()
    write_file(DEMO / "cifarnet.pte", [program.buffer])


def make_images(models: Path) -> None:
    """The demo's images: the first of the test set, as bytes, with their labels."""
    with np.load(models / "cifar10_subset.npz") as subset:
        arrays = {
            "images": subset["test_images"][:IMAGES].astype(np.uint8),
            "labels": subset["test_labels"][:IMAGES].astype(np.uint8),
        }
    write_file(DEMO / "images.npz", [npz_bytes(arrays, compress=True)])


FILES: dict[str, Callable[[Path], None]] = {"cifarnet": make_cifarnet, "images": make_images}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=Path, required=True, help="folder with the trained weights and images")
    parser.add_argument("names", nargs="*", metavar="name", help=f"any of {', '.join(FILES)}; all if none is given")
    args = parser.parse_args()
    for name in args.names or FILES:
        FILES[name](args.models)
        print(f"made {name}")


if __name__ == "__main__":
    main()
