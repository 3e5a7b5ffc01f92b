"""What pruning and clustering (edgewright.compress) save on an Ethos-U: MobileNetV2 trained on CIFAR-10.

For each compression, the model is compressed with 64 training images, quantized to int8 with 16 of them, and compiled.
Weights and cycles are Vela's: bytes of the weights before and after its compression, and its estimate. Accuracy: the
share of 1,000 test images that the float model classifies correctly after compression; with ``--int8``, also of the
first 200 by the compiled program on this machine, by the NPU's own commands, which takes many minutes.

    python benchmarks/compression.py [--int8] [--only 0.5,none] [--target ethos-u55-128]
"""

from __future__ import annotations

import argparse
import platform
import subprocess
import time
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

import edgewright as ew
from tests.support import cifar

ROOT = Path(__file__).parent.parent
TARGETS = ("ethos-u55-128", "ethos-u85-256")
_IMAGES, _INT8_IMAGES = 1000, 200
COMPRESSIONS: tuple[tuple[float, int | None], ...] = (
    (0.0, None), (0.5, None), (0.75, None), (0.5, 32), (0.75, 32), (0.0, 32),
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--int8", action="store_true", help="also run the compiled programs")
    parser.add_argument("--only", help="one compression: sparsity and clusters")
    parser.add_argument("--target", action="append", help=f"an Ethos-U; {' and '.join(TARGETS)} without it")
    args = parser.parse_args()
    heads = ["target", "sparsity", "clusters", "float", "int8", "weights", "compressed", "cycles"]
    table = Table(*heads)
    for sparsity, clusters in COMPRESSIONS:
        if args.only in (None, f"{sparsity},{clusters}".lower()):
            for row in measure(sparsity, clusters, args.target or TARGETS, args.int8):
                table.add_row(*row)
    console = Console(width=160)
    console.print(table)
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    console.print(f"{date.today()}, commit {commit.stdout.strip()}, torch {torch.__version__}, {platform.machine()}")


def measure(sparsity: float, clusters: int | None, targets: Sequence[str], integers: bool) -> Iterator[list[str]]:
    """A row for each target."""
    model, training = cifar.mobilenet(), list(cifar.calibration(64))
    if sparsity or clusters is not None:
        batch = (torch.cat(training),)
        model = ew.compress(model, batch, [batch], sparsity=sparsity, clusters=clusters)
    with torch.no_grad():
        floats = cifar.accuracy(model, _IMAGES)
    for target in targets:
        started = time.perf_counter()
        result = ew.compile(model, (training[0],), target, quantize="int8", calibration=[(x,) for x in training[:16]],
                            evaluate=0, check=False, quiet=True)  # fmt: skip
        (estimate,) = result.report.estimates
        accuracies = [f"{floats:.1f} %", f"{cifar.accuracy(result.run, _INT8_IMAGES):.1f} %" if integers else ""]
        weights = estimate["weights"]
        row = [target, f"{sparsity:.0%}", str(clusters or ""), *accuracies,
               *(f"{weights[kind] / 1024:,.0f} KiB" for kind in ("original", "encoded")),
               f"{estimate['cycles'] / 1e6:.3f} M"]  # fmt: skip
        print(*row, f"{time.perf_counter() - started:.0f} s", sep=" | ", flush=True)
        yield row


if __name__ == "__main__":
    main()
