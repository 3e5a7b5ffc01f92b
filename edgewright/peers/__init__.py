"""Other runtimes to benchmark against: registry, discovery, measurement.

Each runs in its own process (``serve.py``) on a file of its own format; Edgewright imports none of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgewright.errors import MissingError, UsageError, VendorError

SERVE = Path(__file__).with_name("serve.py")
PYTHON = "EDGEWRIGHT_PEERS_PYTHON"
_START_TIMEOUT = 180  # seconds, in addition to the measurement
_WARMUP_RUNS, _MAX_RUNS = 3, 100_000  # inferences


@dataclass(frozen=True)
class Peer:
    """A runtime: its name in ``serve.py``, title, Python module and package."""

    name: str
    title: str
    module: str
    package: str


PEERS: dict[str, Peer] = {
    ".pte": Peer("executorch", "ExecuTorch", "executorch", "executorch"),
    ".onnx": Peer("onnxruntime", "ONNX Runtime", "onnxruntime", "onnxruntime"),
    ".tflite": Peer("litert", "LiteRT", "ai_edge_litert", "ai-edge-litert"),
    ".xml": Peer("openvino", "OpenVINO", "openvino", "openvino"),
}


@dataclass(frozen=True)
class Measurement:
    """Latencies in seconds, and the first output."""

    peer: Peer
    version: str
    times: list[float]
    output: list[float]


def peer_of(path: str) -> Peer:
    """The runtime of a file, by its suffix."""
    match = PEERS.get(Path(path).suffix)
    if match is None:
        choices = ", ".join(f"{suffix} ({peer.title})" for suffix, peer in PEERS.items())
        raise UsageError("--peer", f"takes {choices}", value=path)
    if not Path(path).is_file():
        raise UsageError("--peer", "must be a file", value=path)
    return match


def find_python(peer: Peer) -> str:
    """A Python with the peer installed: this one, or ``EDGEWRIGHT_PEERS_PYTHON``."""
    probe = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({peer.module!r}) is None)"
    for python in filter(None, (sys.executable, os.environ.get(PYTHON, ""))):
        try:
            if subprocess.run([python, "-c", probe], capture_output=True, check=False).returncode == 0:
                return python
        except OSError as error:
            raise UsageError(PYTHON, f"cannot be started: {error.strerror}", value=python) from error
    remedy = f"pip install {peer.package}; or name a Python that has it: {PYTHON}=/path/to/python."
    raise MissingError(peer.title, "is not installed", remedy=remedy)


def measure(peer: Peer, path: str, inputs: str | os.PathLike[str], seconds: float, threads: int) -> Measurement:
    """Run a file in its runtime for ``seconds``; ``inputs`` is an .npz of the inputs in order."""
    command = [find_python(peer), str(SERVE), peer.name, os.path.abspath(path), os.fspath(inputs), str(threads)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "TF_CPP_MIN_LOG_LEVEL": "3"}
    warmup = _run_peer(peer, path, command, environment, [_WARMUP_RUNS], _START_TIMEOUT)
    latency = sorted(warmup[1]["times"])[0] / 1e3
    count = max(_WARMUP_RUNS, min(_MAX_RUNS, int(seconds / max(latency, 1e-6))))
    info, *answers = _run_peer(peer, path, command, environment, [_WARMUP_RUNS, count], _START_TIMEOUT + 3 * seconds)
    return Measurement(peer, str(info["version"]), [t / 1e3 for t in answers[-1]["times"]], info["logits"])


def _run_peer(
    peer: Peer, path: str, command: Sequence[str], environment: dict[str, str], counts: Sequence[int], timeout: float
) -> list[dict[str, Any]]:
    try:
        process = subprocess.run(
            command, input="".join(f"{n}\n" for n in counts), capture_output=True, text=True, timeout=timeout,
            check=False, env=environment,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise VendorError(f"{peer.title} on {path}", "did not finish in time", value=f"{timeout:g} s") from error
    if process.returncode or len(process.stdout.splitlines()) != len(counts) + 1:
        reason = (process.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise VendorError(f"{peer.title} on {path}", "failed", value=reason)
    return [json.loads(line) for line in process.stdout.splitlines()]
