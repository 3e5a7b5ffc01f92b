"""How long it takes to lower MobileNetV2 to a portable program, here and in stock, in the same run.

Each measurement is a process of its own: export (not counted), then lowering to the file's bytes, once, as a user's
script does it. Memory is how far the peak of the process rises above what it held when lowering began. The two take
turns, so that a busy machine is busy for both.

    python benchmarks/lowering.py [--rounds 5]          (Linux: it reads /proc)
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

ROOT = Path(__file__).parent.parent

# Runs in the child. The peak is reset (Linux) so that exporting does not hide what lowering takes.
CHILD = """
import json, sys, time, warnings
warnings.simplefilter("ignore")
import torch
from tests.compile.models import MODELS
if sys.argv[1] == "edgewright":
    from edgewright.program.lower import to_edge_transform_and_lower
else:
    from executorch.exir import to_edge_transform_and_lower

def status(key):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(key)) / 1024

model, inputs = MODELS["mobilenet_v2"]()
start = time.perf_counter()
exported = torch.export.export(model, inputs)
export = time.perf_counter() - start
with open("/proc/self/clear_refs", "w") as reset:
    reset.write("5")
before = status("VmRSS")
start = time.perf_counter()
data = to_edge_transform_and_lower(exported).to_executorch().buffer
seconds = time.perf_counter() - start
print(json.dumps({"export": export, "seconds": seconds, "memory": status("VmHWM") - before, "bytes": len(data)}))
"""


def measure(who: str) -> dict[str, float]:
    """One lowering in a fresh process."""
    command = [sys.executable, "-c", CHILD, who]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    found: dict[str, list[dict[str, float]]] = {"edgewright": [], "stock": []}
    for _ in track(range(rounds), "measuring", console=Console(stderr=True)):
        for who, results in found.items():
            results.append(measure(who))
    middle = {
        who: {key: statistics.median(r[key] for r in results) for key in results[0]} for who, results in found.items()
    }
    table = Table("lowering MobileNetV2", "seconds", "fastest", "peak memory, MiB", "file, bytes", "export, s")
    for who, numbers in middle.items():
        fastest = min(r["seconds"] for r in found[who])
        table.add_row(
            who, f"{numbers['seconds']:.3f}", f"{fastest:.3f}", f"{numbers['memory']:.1f}", f"{numbers['bytes']:.0f}",
            f"{numbers['export']:.2f}",
        )  # fmt: skip
    ours, theirs = middle["edgewright"], middle["stock"]
    Console().print(table)
    Console().print(
        f"{theirs['seconds'] / ours['seconds']:.1f} times as fast, "
        f"{theirs['memory'] / max(ours['memory'], 0.1):.1f} times less memory (medians of {rounds})"
    )


if __name__ == "__main__":
    main()
