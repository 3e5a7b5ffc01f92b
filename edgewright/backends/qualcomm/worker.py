"""Compiles one graph in a subprocess: ``python -m edgewright.backends.qualcomm.worker JOB RESULT PARENT``.

Qualcomm's compiler continues tensor numbering from the previous graph, so only a fresh process is reproducible; and a
crash ends only the subprocess. Both files are pickles in a private temporary folder that exists for the duration of the
call.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from edgewright.backends.qualcomm.emit import compile_graphs
from edgewright.backends.qualcomm.emulator_process import TIMEOUT, timeout
from edgewright.backends.qualcomm.parent_process import exit_with_parent
from edgewright.backends.qualcomm.target import QnnTarget
from edgewright.errors import EdgewrightError, VendorError
from edgewright.ir.graph import Graph

_MODULE = "edgewright.backends.qualcomm.worker"
_MAX_OUTPUT_CHARS = 400  # characters of a crashed compiler's output to show


def compile_in_subprocess(device: Graph, target: QnnTarget, name: str) -> bytes:
    """Compile a device graph to a context binary in a subprocess."""
    return compile_graphs_in_subprocess([(name, device)], target)


def compile_graphs_in_subprocess(graphs: Sequence[tuple[str, Graph]], target: QnnTarget) -> bytes:
    """Compile several device graphs, by method name, to one context binary."""
    name = ", ".join(method for method, _ in graphs)
    with tempfile.TemporaryDirectory(prefix="edgewright-qnn-") as folder:
        job, result_file = Path(folder) / "job", Path(folder) / "made"
        job.write_bytes(pickle.dumps((graphs, target)))
        paths = [str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in paths if p)}
        command = [sys.executable, "-m", _MODULE, str(job), str(result_file), str(os.getpid())]
        process = _run(command, environment, name)
        if process.returncode or not result_file.exists():
            rule = f"Qualcomm's compiler ended with {process.returncode}"
            output = (process.stderr or process.stdout).strip()[-_MAX_OUTPUT_CHARS:]
            remedy = "Leave operators out with skip_node_op_set={...} to find the one that it cannot compile."
            raise VendorError(f"graph {name!r}", rule, value=output or "nothing more", remedy=remedy)
        result: bytes | EdgewrightError = pickle.loads(result_file.read_bytes())
    if isinstance(result, EdgewrightError):
        raise result
    return result


def _run(command: list[str], environment: dict[str, str], name: str) -> subprocess.CompletedProcess[str]:
    seconds = timeout()
    try:
        return subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace", check=False,
                              timeout=seconds)  # fmt: skip
    except subprocess.TimeoutExpired:
        rule = f"Qualcomm's compiler must end within {seconds:g} s; it was killed"
        remedy = f"Raise {TIMEOUT}, in seconds, or leave operators out with skip_node_op_set={{...}}."
        raise VendorError(f"graph {name!r}", rule, remedy=remedy) from None


def main(job: str, result_file: str, parent: str) -> None:
    """Run a job. An ``EdgewrightError`` is written as its result."""
    exit_with_parent(int(parent))
    result: bytes | EdgewrightError
    try:
        result = compile_graphs(*pickle.loads(Path(job).read_bytes()))
    except EdgewrightError as error:
        result = error
    Path(result_file).write_bytes(pickle.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
