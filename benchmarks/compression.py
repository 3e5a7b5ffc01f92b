"""What pruning and clustering (edgewright.compress) save on an Ethos-U: MobileNetV2 trained on CIFAR-10.

For each compression, the model is compressed with 64 training images, quantized to int8 with 16 of them, and compiled.
Weights and cycles are Vela's: bytes of the weights before and after its compression, and its estimate. Accuracy: the
share of 1,000 test images that are classified correctly after compression, by the float model, and by the compiled
program as the runtime executes it here: of a U55, the NPU's own commands; of a U85, the graph that Vela compiled.

    python benchmarks/compression.py [--only 0.5,none] [--target ethos-u55-128]
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
IMAGES = 1000
COMPRESSIONS: tuple[tuple[float, int | None], ...] = (
    (0.0, None), (0.5, None), (0.75, None), (0.5, 32), (0.75, 32), (0.0, 32),
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="one compression: sparsity and clusters")
    parser.add_argument("--target", action="append", help=f"an Ethos-U; {' and '.join(TARGETS)} without it")
    args = parser.parse_args()
    heads = ["target", "sparsity", "clusters", "float", "int8", "weights", "compressed", "cycles"]
    table = Table(*heads)
    for sparsity, clusters in COMPRESSIONS:
        if args.only in (None, f"{sparsity},{clusters}".lower()):
            for row in measure(sparsity, clusters, args.target or TARGETS):
                table.add_row(*row)
    console = Console(width=160)
    console.print(table)
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    console.print(f"{date.today()}, commit {commit.stdout.strip()}, torch {torch.__version__}, {platform.machine()}")


def measure(sparsity: float, clusters: int | None, targets: Sequence[str]) -> Iterator[list[str]]:
    """A row for each target."""
    model, training = cifar.mobilenet(), list(cifar.calibration(64))
    if sparsity or clusters is not None:
        batch = (torch.cat(training),)
        model = ew.compress(model, batch, [batch], sparsity=sparsity, clusters=clusters)
    with torch.no_grad():
        floats = cifar.accuracy(model, IMAGES)
    for target in targets:
        started = time.perf_counter()
        result = ew.compile(model, (training[0],), target, quantize="int8", calibration=[(x,) for x in training[:16]],
                            evaluate=0, check=False, quiet=True)  # fmt: skip
        (estimate,) = result.report.estimates
        accuracies = [f"{floats:.1f} %", f"{cifar.accuracy(result.run, IMAGES):.1f} %"]
        weights = estimate["weights"]
        row = [target, f"{sparsity:.0%}", str(clusters or ""), *accuracies,
               *(f"{weights[kind] / 1024:,.0f} KiB" for kind in ("original", "encoded")),
               f"{estimate['cycles'] / 1e6:.3f} M"]  # fmt: skip
        print(*row, f"{time.perf_counter() - started:.0f} s", sep=" | ", flush=True)
        yield row


if __name__ == "__main__":
    main()
