"""How long a cold process takes from nothing to a network's first result, and where the time goes.

    python benchmarks/first_result.py [model.pte] [--threads 1] [--rounds 7]

Without a model MobileNetV2 is made, in int8 and fp32 (which needs torch and torchvision). Every measurement is a fresh
Python that never imports torch, with the engine's cache empty (everything is compiled) and warm. Times are the least of
the rounds, in milliseconds of the wall clock and of the processor: on a busy machine the second is nearer to the truth.
Python's own cache of compiled modules is warm, as in any installed package.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

PEERS = Path(__file__).parent / "peers"
OUT = Console(width=120)

# What the fresh Python does: each line of the table is a stage. Imports are forced where they would happen anyway.
CHILD = """
import time
marks = [("interpreter", time.perf_counter(), time.process_time())]
def mark(name): marks.append((name, time.perf_counter(), time.process_time()))
import sys
import numpy as np
mark("numpy")
from edgewright.runtime import Runtime
runtime = Runtime(threads=int(sys.argv[2]))
mark("edgewright")
program = runtime.load_program(sys.argv[1])
mark("read and verify")
import edgewright.engine.runner as runner
from edgewright.engine.jit import build, driver, plan_cache as stored
spent = {}
def timed(module, name, label):
    inner = getattr(module, name)
    def outer(*args, **kwargs):
        before = time.perf_counter(), time.process_time()
        made = inner(*args, **kwargs)
        spent[label] = (time.perf_counter() - before[0], time.process_time() - before[1])
        return made
    setattr(module, name, outer)
    spent[label] = (0, 0)
timed(stored, "load_plan", "of that, the stored plan")
timed(driver, "_compile_image", "of that, compiling kernels")
timed(driver, "Library", "of that, linking")
method = program.load_method()
mark("load the method")
shape = [(i.shape, i.dtype) for i in program.metadata().inputs]
inputs = [np.zeros(s, d) for s, d in shape]
marks.append(("", time.perf_counter(), time.process_time()))
method.execute(inputs)
mark("first call")
method.execute(inputs)
mark("second call")
assert "torch" not in sys.modules
import resource
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
import json
stages = [[b[0], b[1] - a[1], b[2] - a[2]] for a, b in zip(marks, marks[1:]) if b[0]]
print(json.dumps({"stages": stages, "inside": [[k, *v] for k, v in spent.items()], "start": marks[0][2], "peak": peak}))
"""


def measure(model: Path, threads: int, cache: Path, compiled: Path) -> dict:
    """One cold process; what it says, with the wall clock of the whole."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"EDGEWRIGHT_CACHE": str(cache), "PYTHONPYCACHEPREFIX": str(compiled)}
    command = [sys.executable, "-c", CHILD, str(model), str(threads)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def least(results: list[dict]) -> list[tuple[str, float, float]]:
    """Stages with the least time of each over all rounds, and sums of those that count."""
    stages = [
        (row[0][0], min(r[1] for r in row) * 1e3, min(r[2] for r in row) * 1e3)
        for row in zip(*(r["stages"] for r in results), strict=True)
    ]
    inside = [
        (row[0][0], min(r[1] for r in row) * 1e3, min(r[2] for r in row) * 1e3)
        for row in zip(*(r["inside"] for r in results), strict=True)
    ]
    start = min(r["start"] for r in results) * 1e3
    counted = [s for s in stages if s[0] not in ("numpy", "second call")]
    total = ("edgewright to first result", sum(s[1] for s in counted), sum(s[2] for s in counted))
    at = next(i for i, s in enumerate(stages) if s[0] == "load the method") + 1
    return [("interpreter", start, start), *stages[:at], *inside, *stages[at:], total]


def models(folder: Path) -> list[Path]:
    made = []
    for precision in ("int8", "fp32"):
        path = folder / f"mobilenet_v2.{precision}.edgewright.pte"
        if not path.exists():
            command = [sys.executable, str(PEERS / "prepare.py"), "edgewright", "mobilenet_v2", precision, str(folder)]
            subprocess.run(command, check=True, capture_output=True)
        made.append(path)
    return made


def show(model: Path, empty: list[tuple[str, float, float]], warm: list[tuple[str, float, float]]) -> None:
    table = Table(title=model.name, title_justify="left")
    for column in ("stage", "warm: wall ms", "processor ms", "empty: wall ms", "processor ms"):
        table.add_column(column, justify="left" if column == "stage" else "right")
    cold = {name: times for name, *times in empty}
    for name, wall, used in warm:
        other = cold.get(name, [0.0, 0.0])
        table.add_row(name, f"{wall:.1f}", f"{used:.1f}", f"{other[0]:.1f}", f"{other[1]:.1f}")
    OUT.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, nargs="*")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "edgewright-benchmark")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    for model in args.model or models(args.folder):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            measure(model, args.threads, folder / "first", folder / "pyc")
            rounds = track(range(args.rounds), model.name, console=Console(stderr=True), transient=True)
            empty, warm = [], []
            for at in rounds:
                empty.append(measure(model, args.threads, folder / f"empty{at}", folder / "pyc"))
                warm.append(measure(model, args.threads, folder / f"empty{at}", folder / "pyc"))
            show(model, least(empty), least(warm))


if __name__ == "__main__":
    main()
