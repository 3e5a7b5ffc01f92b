"""Other runtimes, measured beside Edgewright: which there are, where they are installed, and what they say.

Each runs in a process of its own (``serve.py``), on the file that its own tools made; nothing of ours imports it.
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
_PATIENCE = 180  # seconds that a peer may take to start, beyond those it is measured for
_FIRST, _MOST = 3, 100_000  # inferences


@dataclass(frozen=True)
class Peer:
    """A runtime: its name in ``serve.py``, its title, the module that it is, and the package that brings it."""

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
class Answer:
    """What a peer measured: seconds of inferences, and its first output."""

    peer: Peer
    version: str
    times: list[float]
    output: list[float]


def peer_of(path: str) -> Peer:
    """The runtime that a file is for, by its suffix."""
    found = PEERS.get(Path(path).suffix)
    if found is None:
        known = ", ".join(f"{suffix} ({peer.title})" for suffix, peer in PEERS.items())
        raise UsageError("--peer", f"takes {known}", value=path)
    if not Path(path).is_file():
        raise UsageError("--peer", "must be a file", value=path)
    return found


def find_python(peer: Peer) -> str:
    """The Python that has a peer: this one, or the one that ``EDGEWRIGHT_PEERS_PYTHON`` names."""
    probe = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({peer.module!r}) is None)"
    for python in filter(None, (sys.executable, os.environ.get(PYTHON, ""))):
        try:
            if subprocess.run([python, "-c", probe], capture_output=True, check=False).returncode == 0:
                return python
        except OSError as error:
            raise UsageError(PYTHON, f"cannot be started: {error.strerror}", value=python) from error
    remedy = f"pip install {peer.package}; or name a Python that has it: {PYTHON}=/path/to/python."
    raise MissingError(peer.title, "is not installed", remedy=remedy)


def measure(peer: Peer, path: str, inputs: str | os.PathLike[str], seconds: float, threads: int) -> Answer:
    """Run a file in its runtime for some seconds; ``inputs`` is an .npz of what it is given, in order."""
    command = [find_python(peer), str(SERVE), peer.name, os.path.abspath(path), os.fspath(inputs), str(threads)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "TF_CPP_MIN_LOG_LEVEL": "3"}
    first = _ask(peer, path, command, environment, [_FIRST], _PATIENCE)
    spent = sorted(first[1]["times"])[0] / 1e3
    count = max(_FIRST, min(_MOST, int(seconds / max(spent, 1e-6))))
    facts, *answers = _ask(peer, path, command, environment, [_FIRST, count], _PATIENCE + 3 * seconds)
    return Answer(peer, str(facts["version"]), [t / 1e3 for t in answers[-1]["times"]], facts["logits"])


def _ask(
    peer: Peer, path: str, command: Sequence[str], environment: dict[str, str], counts: Sequence[int], patience: float
) -> list[dict[str, Any]]:
    try:
        done = subprocess.run(
            command, input="".join(f"{n}\n" for n in counts), capture_output=True, text=True, timeout=patience,
            check=False, env=environment,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise VendorError(f"{peer.title} on {path}", "did not finish in time", value=f"{patience:g} s") from error
    if done.returncode or len(done.stdout.splitlines()) != len(counts) + 1:
        told = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise VendorError(f"{peer.title} on {path}", "failed", value=told)
    return [json.loads(line) for line in done.stdout.splitlines()]
