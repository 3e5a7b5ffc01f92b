"""Compiles one graph in a subprocess: ``python -m edgewright.backends.samsung.worker JOB RESULT``.

A crash of native code ends only the subprocess. Both files are pickles in a private temporary folder that exists for
the duration of the call.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

from edgewright.backends.samsung import adaptors, litecore
from edgewright.backends.samsung.graph_record import GraphRecord, record_graph
from edgewright.backends.samsung.sdk import Sdk, require
from edgewright.backends.samsung.target import EnnTarget
from edgewright.errors import EdgewrightError, VendorError
from edgewright.ir.graph import Graph

_MODULE = "edgewright.backends.samsung.worker"
_MAX_STDERR = 400  # characters of a crashed compiler's output to show
_TIMEOUT_SECONDS = 3600


def compile_graph(device: Graph, target: EnnTarget) -> bytes:
    """Compile a device graph; returns the SDK's output unchanged."""
    return compile_in_subprocess(record_graph(device), target, require())


def compile_in_subprocess(graph: GraphRecord, target: EnnTarget, sdk: Sdk) -> bytes:
    """Compile a graph in a subprocess."""
    with tempfile.TemporaryDirectory(prefix="edgewright-enn-") as folder:
        job, result_file = Path(folder) / "job", Path(folder) / "made"
        job.write_bytes(pickle.dumps((graph, target, sdk)))
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        command = [sys.executable, "-m", _MODULE, str(job), str(result_file)]
        process = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_TIMEOUT_SECONDS,
        )
        if process.returncode or not result_file.exists():
            output = (process.stderr or process.stdout).strip()[-_MAX_STDERR:]
            rule = f"ended with {process.returncode}"
            remedy = "Exclude operators with EnnPartitioner(..., exclude=[...]) to find the one it cannot compile."
            raise VendorError("AI LiteCore", rule, value=output or "nothing more", remedy=remedy)
        result: bytes | EdgewrightError = pickle.loads(result_file.read_bytes())
    if isinstance(result, EdgewrightError):
        raise result
    return result


def main(job: str, result_file: str) -> None:
    """Run a job; an ``EdgewrightError`` is a result, too."""
    graph, target, sdk = pickle.loads(Path(job).read_bytes())
    result: bytes | EdgewrightError
    try:
        if sdk.root is None:
            result = adaptors.compile_record(graph, target)
        else:
            result = litecore.compile_record(graph, target, sdk.root)
    except EdgewrightError as error:
        result = error
    Path(result_file).write_bytes(pickle.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
