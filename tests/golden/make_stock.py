"""Makes the golden files that come from elsewhere: stock ExecuTorch, and data sets.

    python tests/golden/make_stock.py --models DIR [name ...]

``DIR`` holds ``cifar10_subset.npz``. One function makes one file; a new golden file is a new function in ``FILES``.
Needs the ``test`` extra. The demo's program is made by ``python -m edgewright.demo``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np

from edgewright.cli.outputs import npz_bytes
from edgewright.files import write_file

DEMO = Path(__file__).parents[2] / "edgewright" / "demo"
IMAGES = 200


def make_images(models: Path) -> None:
    """The demo's images: the first of the test set, as bytes, with their labels."""
    with np.load(models / "cifar10_subset.npz") as subset:
        arrays = {
            "images": subset["test_images"][:IMAGES].astype(np.uint8),
            "labels": subset["test_labels"][:IMAGES].astype(np.uint8),
        }
    write_file(DEMO / "images.npz", [npz_bytes(arrays, compress=True)])


FILES: dict[str, Callable[[Path], None]] = {"images": make_images}


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
