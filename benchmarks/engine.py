"""How fast the engine is, beside other engines: same machine, same run, same threads, batch 1.

    python benchmarks/engine.py [--network mobilenet_v2] [--precision int8] [--threads 1] [--rounds 30] [--only litert]

Every engine runs in a process of its own and is told through a pipe when to measure; rounds are interleaved, so that a
busy machine is busy for all, and the least time of each counts. Where others keep the cores busy even the least time is
too long, and the table says so; the processor time of one thread is then nearer to the truth.

Applications pause between inferences, and threads that slept must be woken: a second table has the median time after
pauses of some milliseconds.

Engines that are not installed are named and left out. They are looked for in this interpreter and in the one that
``EDGEWRIGHT_PEERS_PYTHON`` names, which is where a peer's own converter and quantizer make its file too (torch and
torchvision are needed). Files are kept in ``--folder``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

PEERS = Path(__file__).parent / "peers"
sys.path.insert(0, str(PEERS))

import networks  # noqa: E402
from prepare import SUFFIX  # noqa: E402

NETWORKS = ("mobilenet_v2", "mobilenet_v3_small", "resnet18", "resnet50", "vit_b_16", "bert_base_128", "decoder",
            "linear4", "lstm")  # fmt: skip
MODULES = {
    "edgewright": "edgewright",
    "executorch": "executorch.extension.pybindings.portable_lib",
    "onnxruntime": "onnxruntime",
    "openvino": "openvino",
    "litert": "ai_edge_litert",
}
MACS = {"mobilenet_v2": 300.8e6, "mobilenet_v3_small": 56.5e6, "resnet18": 1814.1e6, "resnet50": 4089.2e6,
        "vit_b_16": 17_564e6, "bert_base_128": 11_174e6, "decoder": 27.3e6 + 4.2e6, "linear4": 100.7e6,
        "lstm": 0.68e6}  # fmt: skip
# Weights that are read once for each inference, and are more than caches hold: 4 bits, and a scale for each group.
BYTES = {"linear4": 6 * 4096 * 4096 // 2 + 6 * 4096 * 4096 // networks.GROUP * 2}
REST = 0.02  # seconds between engines: some threads keep spinning for a while
ROUND = 0.15  # seconds an engine measures in a round, and at least one inference
PAUSES = (0, 1, 10, 30)  # milliseconds
PAUSE_ROUNDS, AFTER_PAUSE = 4, 10  # rounds, and inferences in each
OUT = Console(width=160)


@dataclass
class Engine:
    """A peer, ready to be measured."""

    name: str
    process: subprocess.Popen[str]
    facts: dict
    times: list[float] = field(default_factory=list)
    cpu: float = float("inf")  # the least processor time of an inference, over all threads
    peak_mb: float = 0.0
    after: dict[int, list[float]] = field(default_factory=dict)  # times by the pause before, in milliseconds

    def measure(self) -> None:
        least = min(self.times, default=self.facts["first_ms"])
        answer = self._ask(str(max(1, min(200, int(ROUND * 1e3 / least)))))
        self.times += answer["times"]
        self.cpu = min(self.cpu, answer["cpu"])
        self.peak_mb = answer["peak_mb"]

    def measure_after(self, pause: int) -> None:
        self.after.setdefault(pause, []).extend(self._ask(f"{AFTER_PAUSE} {pause}")["times"])

    def _ask(self, what: str) -> dict:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()
        return _answer(self.process)


def _answer(process: subprocess.Popen[str]) -> dict:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"ended with {process.wait()}")
    return json.loads(line)


def interpreters() -> dict[str, str]:
    """Where each engine is installed; those that are nowhere are missing."""
    candidates = [sys.executable, os.environ.get("EDGEWRIGHT_PEERS_PYTHON", "")]
    found = {}
    for name, module in MODULES.items():
        for python in filter(None, candidates):
            probe = [python, "-c", f"import importlib.util, sys; sys.exit(not importlib.util.find_spec({module!r}))"]
            if subprocess.run(probe, capture_output=True, check=False).returncode == 0:
                found[name] = python
                break
    return found


def prepare(name: str, python: str, network: str, precision: str, folder: Path) -> Path:
    """The engine's file of a network; made if it is not there."""
    path = folder / f"{network}.{precision}.{name}{SUFFIX[name]}"
    if name == "edgewright" or not path.exists():
        with open(path.with_suffix(".log"), "w") as log:
            command = [python, str(PEERS / "prepare.py"), name, network, precision, str(folder)]
            subprocess.run(command, stdout=log, stderr=log, check=True)
    return path


def start(name: str, python: str, path: Path, inputs: Path, threads: int) -> Engine:
    command = [python, str(PEERS / "serve.py"), name, str(path), str(inputs), str(threads)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "TF_CPP_MIN_LOG_LEVEL": "3"}
    with open(path.with_suffix(".serve.log"), "w") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=environment
        )
    return Engine(name, process, _answer(process))


def measure(network: str, precision: str, threads: int, args: argparse.Namespace, pythons: dict[str, str]) -> dict:
    inputs = args.folder / f"{network}.npz"
    engines = []
    for name, python in pythons.items():
        try:
            path = prepare(name, python, network, precision, args.folder)
            engines.append(start(name, python, path, inputs, threads))
        except (RuntimeError, subprocess.CalledProcessError) as error:
            OUT.print(f"{name}: {network} {precision} cannot be measured: {error}", style="red")
    measure_in_turns(engines, args.rounds, f"{network} {precision} {threads}")
    for _, pause in product(range(PAUSE_ROUNDS if args.pauses else 0), PAUSES):
        for engine in engines:
            engine.measure_after(pause)
            time.sleep(REST)
    stop(engines)
    return {engine.name: engine for engine in engines}


def stop(engines: list[Engine]) -> None:
    for engine in engines:
        assert engine.process.stdin is not None
        engine.process.stdin.close()
        engine.process.wait()


def measure_in_turns(engines: list[Engine], rounds: int, title: str) -> None:
    for at in track(range(rounds), title, console=Console(stderr=True), transient=True):
        for engine in engines[at % len(engines) :] + engines[: at % len(engines)]:
            engine.measure()
            time.sleep(REST)


def peak(precision: str, threads: int) -> float:
    """Products a millisecond, measured now."""
    from edgewright.engine.isa import host_isa
    from edgewright.engine.roofline import measure as measure_peaks

    return measure_peaks(threads, host_isa()).gmacs(precision != "fp32") * 1e6


def agreement(expected: np.ndarray, logits: list[float]) -> str:
    """How much an engine's logits are those of the float network, in decibels."""
    error = np.asarray(logits) - expected
    return f"{10 * np.log10((expected**2).sum() / max((error**2).sum(), 1e-30)):.0f} dB"


def show(network: str, precision: str, threads: int, engines: dict[str, Engine], expected: np.ndarray) -> dict:
    best = min((min(e.times) for e in engines.values() if e.name != "edgewright"), default=None)
    most = peak(precision, threads)
    title = f"{network} {precision}, {threads} thread{'s' if threads > 1 else ''}"
    table = Table(title=title, title_justify="left")
    columns = (
        "engine",
        "min ms",
        "median ms",
        "cpu ms",
        "best peer / it",
        "of peak",
        "agrees",
        "load ms",
        "first ms",
        "peak MB",
    )
    for column in columns:
        table.add_column(column, justify="left" if column == "engine" else "right")
    for e in sorted(engines.values(), key=lambda e: min(e.times)):
        least = min(e.times)
        table.add_row(
            f"{e.name} {e.facts['version']}",
            f"{least:.3f}",
            f"{np.median(e.times):.3f}",
            f"{e.cpu:.3f}",
            "-" if best is None else f"{best / least:.2f}",
            f"{MACS[network] / least / most:.0%}",
            agreement(expected, e.facts["logits"]),
            f"{e.facts['load_ms']:.0f}",
            f"{e.facts['first_ms']:.1f}",
            f"{e.peak_mb:.0f}",
        )
    OUT.print(table)
    if network in BYTES:
        show_reading(BYTES[network], threads, engines)
    show_pauses(engines)
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if load > threads + 0.5:
        OUT.print(f"load average {load:.1f}: other programs are running, and times are longer than they should be\n")
    return {
        "network": network,
        "precision": precision,
        "threads": threads,
        "ms": {n: min(e.times) for n, e in engines.items()},
        "after_pause": {n: {p: float(np.median(t)) for p, t in e.after.items()} for n, e in engines.items()},
    }


def show_reading(size: int, threads: int, engines: dict[str, Engine]) -> None:
    """How much of the memory's bandwidth each engine uses: of what a loop gets that only reads as much."""
    from edgewright.engine.isa import host_isa
    from edgewright.engine.roofline import measure_read_bandwidth

    most = max(measure_read_bandwidth(size, threads, host_isa()) for _ in range(8))
    shares = {e.name: size / min(e.times) / 1e6 for e in engines.values()}
    listed = ", ".join(f"{name} {rate:.1f} ({rate / most:.0%})" for name, rate in shares.items())
    OUT.print(f"GB/s of {size / 1e6:.0f} MB of weights: {listed}; only reading them: {most:.1f}")


def show_pauses(engines: dict[str, Engine]) -> None:
    if not any(e.after for e in engines.values()):
        return
    table = Table(title="median ms after a pause of", title_justify="left")
    for column in ("engine", *(f"{pause} ms" for pause in PAUSES)):
        table.add_column(column, justify="left" if column == "engine" else "right")
    for e in sorted(engines.values(), key=lambda e: min(e.times)):
        table.add_row(e.name, *(f"{np.median(e.after[pause]):.3f}" for pause in PAUSES))
    OUT.print(table)


def reference(network: str, folder: Path) -> np.ndarray:
    """The float network's logits, by torch."""
    import torch

    with torch.no_grad():
        model = networks.make(network, folder / f"{network}.pt")
        given = networks.examples(network)[0]
        np.savez(folder / f"{network}.npz", *(np.ascontiguousarray(x.numpy()) for x in given))
        made = model(*given)
        return (made if isinstance(made, torch.Tensor) else made[0]).numpy().reshape(-1).astype(float)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--network", action="append", choices=NETWORKS)
    add("--precision", action="append", choices=("fp32", "int8", "int4"))
    add("--threads", action="append", type=int)
    add("--rounds", type=int, default=30)
    add("--no-pauses", dest="pauses", action="store_false", help="leave out what comes after idle time")
    add("--only", action="append", choices=tuple(MODULES), help="measure this engine; may be given several times")
    add("--folder", type=Path, default=Path(tempfile.gettempdir()) / "edgewright-benchmark")
    add("--json", type=Path, help="write the least times there too")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    pythons = interpreters()
    for name in sorted(set(MODULES) - set(pythons)):
        OUT.print(f"{name} is not installed, and not measured", style="yellow")
    pythons = {name: python for name, python in pythons.items() if not args.only or name in args.only}
    results = []
    for network in args.network or NETWORKS:
        expected = reference(network, args.folder)
        asked = [p for p in networks.SUITE[network].precisions if not args.precision or p in args.precision]
        for precision, threads in product(asked, args.threads or (1, 2)):
            engines = measure(network, precision, threads, args, pythons)
            results.append(show(network, precision, threads, engines, expected))
            if args.json:
                args.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
