"""``edgewright bench``: how fast a program runs on this machine, beside other runtimes where they are installed."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from importlib.util import find_spec

from edgewright.cli.console import console, note, progress, table
from edgewright.cli.execution import Job, add_measured, load
from edgewright.cli.inputs import load_inputs, ones
from edgewright.errors import UsageError

EXAMPLES = """examples:
  edgewright bench m.pte
  edgewright bench m.pte --peers            # and ExecuTorch's own runtime, if it is installed
  edgewright bench m.pte --inputs x.npz --seconds 10 --json
"""
_PATIENCE = 120  # seconds beyond those asked for, that a peer may take to start

# Runs in a process of its own: the program must not share libraries, threads or memory with a peer.
_EXECUTORCH = """
import json, sys, time
import numpy, torch
from executorch.runtime import Runtime
path, inputs, name, seconds = sys.argv[1:]
method = Runtime.get().load_program(path).load_method(name)
with numpy.load(inputs) as held:
    given = [torch.from_numpy(held[k]) for k in held.files]
times, end = [], time.perf_counter() + float(seconds)
method.execute(given)
while time.perf_counter() < end or len(times) < 3:
    start = time.perf_counter()
    method.execute(given)
    times.append(time.perf_counter() - start)
print(json.dumps(times))
"""


@dataclass(frozen=True)
class Timing:
    """Milliseconds of a runtime."""

    runtime: str
    runs: int
    median: float
    fastest: float
    p90: float

    @classmethod
    def of(cls, runtime: str, times: list[float]) -> Timing:
        ordered = sorted(t * 1e3 for t in times)
        at = min(len(ordered) - 1, int(0.9 * len(ordered)))
        return cls(runtime, len(ordered), statistics.median(ordered), ordered[0], ordered[at])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add_measured(parser)
    add = parser.add_argument
    add("--seconds", type=float, default=2.0, metavar="S", help="measure for this long (default: 2)")
    add("--peers", action="store_true", help="also measure ExecuTorch's runtime, if it is installed")
    add("--json", action="store_true", help="the same, as JSON")


def run(args: argparse.Namespace) -> int:
    if not 0 < args.seconds <= 3600:
        raise UsageError("--seconds", "must be more than 0, and at most 3600", value=args.seconds)
    timings = [_measure(args)]
    if args.peers:
        timings += _peers(args)
    if args.json:
        print(json.dumps([asdict(t) for t in timings], indent=2))
        return 0
    rows = [
        (t.runtime, t.runs, f"{t.median:.3f}", f"{t.fastest:.3f}", f"{t.p90:.3f}", f"{1e3 / t.median:,.1f}")
        for t in timings
    ]
    heads = ("runtime", ">runs", ">median ms", ">fastest", ">90 %", ">per second")
    console().print(table(f"{args.model}: {args.method}, on this machine", heads, rows))
    for other in timings[1:]:
        ratio = other.median / timings[0].median
        word = "faster" if ratio >= 1 else "slower"
        told = f"\nEdgewright is {max(ratio, 1 / ratio):.2f} times {word} than {other.runtime}"
        console().print(told, style="bold", soft_wrap=True)
    return 0


def _measure(args: argparse.Namespace) -> Timing:
    method = load(Job(args.model, args.data, args.method))
    inputs = load_inputs(args.inputs, method.metadata) if args.inputs else ones(method.metadata)
    times: list[float] = []
    begin = time.perf_counter()
    method.execute(inputs)  # compiles
    method.reset()
    first = time.perf_counter() - begin
    expected = max(3, min(10_000, int(args.seconds / max(first, 1e-4))))
    with progress("measuring", expected, quiet=args.quiet) as step:
        end = time.perf_counter() + args.seconds
        while time.perf_counter() < end or len(times) < 3:
            start = time.perf_counter()
            method.execute(inputs)
            times.append(time.perf_counter() - start)
            step()
    method.close()
    return Timing.of("Edgewright", times)


def _peers(args: argparse.Namespace) -> list[Timing]:
    """ExecuTorch's own runtime on the same file. It is asked for by name: nothing of ours imports it."""
    import tempfile
    from pathlib import Path

    import numpy as np

    if find_spec("executorch") is None:
        note("ExecuTorch is not installed: pip install executorch")
        return []
    method = load(Job(args.model, args.data, args.method))
    given = load_inputs(args.inputs, method.metadata) if args.inputs else ones(method.metadata)
    method.close()
    if args.data or not all(isinstance(v, np.ndarray) for v in given):
        note("ExecuTorch is measured on programs with tensors alone, and weights inside.")
        return []
    with tempfile.TemporaryDirectory(prefix="edgewright-bench-") as folder:
        path = Path(folder) / "inputs.npz"
        np.savez(path, *given)
        command = [sys.executable, "-c", _EXECUTORCH, args.model, str(path), args.method, str(args.seconds)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=args.seconds + _PATIENCE, check=False
            )
        except subprocess.TimeoutExpired:
            note("ExecuTorch did not finish in time.")
            return []
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no reason given"]
        note(f"ExecuTorch cannot run this program: {lines[-1]}")
        return []
    return [Timing.of("ExecuTorch", json.loads(done.stdout.strip().splitlines()[-1]))]
