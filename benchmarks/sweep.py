"""How much faster a sweep is on two workers than on one: ``python -m benchmarks.sweep [--rows 12]``.

The same sweep, of MobileNetV2 for CIFAR-10, as a command of its own each time. Efficiency is the time with one worker
over twice the time with two, so that the start of the workers counts. Both must have the same table.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from edgewright.explore.table import stable

ROOT = Path(__file__).parent.parent
MIX = [
    (target, preset)
    for target, presets in {
        "ethos-u55-128": ["int8", "a16w8"], "ethos-u55-256": ["int8", "a16w8"], "ethos-u85-256": ["int8", "a16w8"],
        "xnnpack": ["int8", "dynamic"], "e9955": ["int8", "a16w16"], "imxrt700": ["int8"], "sm8550": ["int8"],
    }.items()
    for preset in presets
]  # fmt: skip
FACTORIES = """
from tests.support import cifar

def mobilenet():
    model = cifar.mobilenet()
    model.example_inputs = lambda: (cifar.images(1),)
    return model

def calibration():
    return list(cifar.calibration(48))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=len(MIX))
    rows = MIX[: parser.parse_args().rows]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "sweep_factories.py").write_text(FACTORIES)
        Path(folder, "sweep.toml").write_text(_toml(rows))
        (one, table), (two, again) = (_sweep(folder, workers) for workers in (1, 2))
    assert len(table) == len(rows) and table == again, "the tables differ"
    print(f"{len(rows)} rows: {one:.1f} s with one worker, {two:.1f} s with two: efficiency {one / two / 2:.2f}")


def _toml(rows: list[tuple[str, str]]) -> str:
    targets, presets = (list(dict.fromkeys(row[n] for row in rows)) for n in (0, 1))
    lines = [f"targets = {json.dumps(targets)}", f"quantize = {json.dumps(presets)}"]
    lines += ['calibrate = "sweep_factories:calibration"', "[models]", 'mobilenet = "sweep_factories:mobilenet"']
    left = [(t, p) for t in targets for p in presets if (t, p) not in rows]
    return "\n".join(lines + [f'[[exclude]]\ntarget = "{t}"\nquantize = "{p}"' for t, p in left])


def _sweep(folder: str, workers: int) -> tuple[float, list[dict[str, Any]]]:
    """Seconds of a sweep, and its table without what differs from run to run."""
    command = [sys.executable, "-m", "edgewright", "sweep"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), folder]), "OMP_NUM_THREADS": "1"}
    results = f"results-{workers}"
    start = time.monotonic()
    subprocess.run([*command, "sweep.toml", "-o", results, "--workers", str(workers), "--quiet"], cwd=folder,
                   env=environment, check=True)  # fmt: skip
    seconds = time.monotonic() - start
    shown = subprocess.run([*command, "--show", results, "--json"], cwd=folder, env=environment, check=True,
                           capture_output=True, text=True)  # fmt: skip
    return seconds, [stable(record) for record in json.loads(shown.stdout)]


if __name__ == "__main__":
    main()
