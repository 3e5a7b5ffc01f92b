"""``edgewright bench``: latency of a program on this machine, next to other installed runtimes."""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from edgewright.backends.registry import discover
from edgewright.cli import bench_language_model
from edgewright.cli.run_method import Job, add_measurement_arguments, load, measured_inputs
from edgewright.console import clean, console, note, progress, table
from edgewright.engine.jit.thread_count import thread_count
from edgewright.errors import MissingError, UsageError, VendorError
from edgewright.formats.pte_reader import read_program
from edgewright.llm.description import read_description
from edgewright.peers import PEERS, Peer, measure, peer_of
from edgewright.units import duration, number

EXAMPLES = """examples:
  edgewright bench m.pte
  edgewright bench m.pte --peers                                     # ExecuTorch's own runtime on the same file
  edgewright bench m.pte --peer m.onnx --peer m.tflite --peer m.xml  # ONNX Runtime, LiteRT, OpenVINO
  edgewright bench m.pte --inputs x.npz --seconds 10 --json
  edgewright bench lm.pte --peer lm.gguf                             # a language model, and llama.cpp: tokens/s

A peer's file comes from its own converter. EDGEWRIGHT_PEERS_PYTHON names the Python in which the peers are installed.
"""


@dataclass(frozen=True)
class Timing:
    """Latency of a runtime in milliseconds; ``sqnr`` compares its first output with Edgewright's, in dB."""

    runtime: str
    runs: int
    median: float
    fastest: float
    p90: float
    version: str = ""
    file: str = ""
    sqnr: float | None = None
    simulates: tuple[str, ...] = ()  # devices that this machine stands in for, and how

    @classmethod
    def of(cls, runtime: str, times: list[float], **facts: Any) -> Timing:
        ordered = sorted(t * 1e3 for t in times)
        at = min(len(ordered) - 1, int(0.9 * len(ordered)))
        return cls(runtime, len(ordered), statistics.median(ordered), ordered[0], ordered[at], **facts)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add_measurement_arguments(parser)
    add = parser.add_argument
    add("--seconds", type=float, default=2.0, metavar="S", help="measure for this long (default: 2)")
    add("--peers", action="store_true", help="also measure ExecuTorch's runtime on the same file")
    add(
        "--peer", action="append", default=[], metavar="FILE",
        help="also measure the same model in another runtime: .onnx, .tflite, .xml (OpenVINO), .pte (ExecuTorch) or "
             ".gguf (llama.cpp)",
    )  # fmt: skip
    add("--json", action="store_true", help="print the result as JSON")
    bench_language_model.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    if _is_language_model(args):
        return bench_language_model.run(args)
    if not 0 < args.seconds <= 3600:
        raise UsageError("--seconds", "must be more than 0, and at most 3600", value=args.seconds)
    requested = [(peer_of(path), path) for path in args.peer]
    if args.peers:
        requested.insert(0, (PEERS[".pte"], args.model))
    method = load(Job(args.model, args.data, args.method, twin=args.twin))
    inputs = measured_inputs(args, method.metadata)
    simulates = simulated_devices(method)
    timing, output = _measure(args, method, inputs)
    timing = replace(timing, simulates=simulates)
    timings = [timing, *_peers(args, requested, inputs, output)]
    if args.json:
        print(json.dumps([asdict(t) for t in timings], indent=2))
    else:
        _show(args, timings)
    return 0


def _is_language_model(args: argparse.Namespace) -> bool:
    """Whether to measure tokens per second: for files that say what they are, or beside a file of llama.cpp."""
    if any(Path(path).suffix == ".gguf" for path in args.peer):
        return True
    if args.inputs or args.method != "forward":
        return False
    return read_description(read_program(args.model)) is not None


def _show(args: argparse.Namespace, timings: list[Timing]) -> None:
    heads = ["runtime", ">runs", ">median", ">fastest", ">90 %", ">per second"]
    rows = [
        [
            f"{t.runtime}, emulator" if t.simulates else t.runtime,
            t.runs,
            *(duration(ms / 1e3) for ms in (t.median, t.fastest, t.p90)),
            number(1e3 / t.median),
        ]
        for t in timings
    ]
    if len(timings) > 1:
        heads.append(">agrees")
        for row, timing in zip(rows, timings, strict=True):
            row.append("" if timing.sqnr is None else f"{timing.sqnr:.0f} dB")
    threads = thread_count()
    title = f"{args.model}: {args.method}, on this machine, {threads} thread{'s' if threads > 1 else ''}"
    console().print(table(title, heads, rows))
    if timings[0].simulates:
        console().print()
    for how in timings[0].simulates:
        line = f"{how}: an emulator's times, not the device's (`edgewright inspect` shows the estimate)"
        console().print(clean(line), style="yellow", soft_wrap=True)
    if len(timings) > 1:
        console().print("\ncompared by the fastest run, which background load affects least:", style="dim")
    for other in timings[1:]:
        ratio = other.fastest / timings[0].fastest
        word = "faster" if ratio >= 1 else "slower"
        word += " (emulator)" if timings[0].simulates else ""
        line = f"Edgewright is {number(max(ratio, 1 / ratio))} times {word} than {other.runtime} {other.version}"
        console().print(line, style="bold", soft_wrap=True)


def simulated_devices(method: Any) -> tuple[str, ...]:
    """How this machine runs delegates of other devices; empty if the method runs on CPUs only."""
    devices = {info.id for info in discover().values() if info.targets}
    return tuple(dict.fromkeys(how for backend, how in method.delegate_runners() if backend in devices))


def _measure(args: argparse.Namespace, method: Any, inputs: Any) -> tuple[Timing, Any]:
    """Edgewright's timing and its first output."""
    times: list[float] = []
    begin = time.perf_counter()
    outputs = method.execute(inputs)  # compiles
    output = np.array(outputs[0], np.float64).reshape(-1) if outputs else None
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
    return Timing.of("Edgewright", times, file=args.model), output


def _peers(args: argparse.Namespace, requested: list[tuple[Peer, str]], inputs: Any, output: Any) -> Iterator[Timing]:
    """Timings of the peers; prints why a peer cannot be measured."""
    if requested and (args.data or args.method != "forward" or not all(isinstance(v, np.ndarray) for v in inputs)):
        note("Peers are measured only on 'forward', with tensor inputs and without external weights.")
        return
    with tempfile.TemporaryDirectory(prefix="edgewright-bench-") as folder:
        inputs_file = Path(folder) / "inputs.npz"
        np.savez(inputs_file, **{f"in{i}": x for i, x in enumerate(inputs)})
        for peer, path in requested:
            try:
                result = measure(peer, path, inputs_file, args.seconds, thread_count())
            except (MissingError, VendorError) as error:
                for line in str(error).splitlines():
                    note(line)
                continue
            facts = {"version": result.version, "file": os.fspath(path), "sqnr": _agreement(output, result.output)}
            yield Timing.of(peer.title, result.times, **facts)


def _agreement(output: Any, peer_output: list[float]) -> float | None:
    """SQNR between two outputs in dB; None if their sizes differ."""
    other = np.asarray(peer_output, np.float64)
    if output is None or output.shape != other.shape or not np.isfinite(output).all() or not np.isfinite(other).all():
        return None
    error, signal = float(((output - other) ** 2).sum()), float((output**2).sum())
    return min(200.0, 10 * math.log10(max(signal, 1e-300) / max(error, 1e-300)))
