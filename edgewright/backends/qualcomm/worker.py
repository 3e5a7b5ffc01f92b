"""Compiles one graph in a subprocess: ``python -m edgewright.backends.qualcomm.worker JOB RESULT``.

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
from edgewright.backends.qualcomm.target import QnnTarget
from edgewright.errors import EdgewrightError, VendorError
from edgewright.ir.graph import Graph

_MODULE = "edgewright.backends.qualcomm.worker"
_SHOWN = 400  # characters of what a crashed compiler said last


def compile_apart(device: Graph, target: QnnTarget, name: str) -> bytes:
    """The context binary of a device graph, compiled in another process."""
    return compile_together([(name, device)], target)


def compile_together(named: Sequence[tuple[str, Graph]], target: QnnTarget) -> bytes:
    """The context binary of several, by the names of their methods."""
    name = ", ".join(method for method, _ in named)
    with tempfile.TemporaryDirectory(prefix="edgewright-qnn-") as folder:
        job, made = Path(folder) / "job", Path(folder) / "made"
        job.write_bytes(pickle.dumps((named, target)))
        paths = [str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in paths if p)}
        command = [sys.executable, "-m", _MODULE, str(job), str(made)]
        done = _run(command, environment, name)
        if done.returncode or not made.exists():
            rule = f"Qualcomm's compiler ended with {done.returncode}"
            said = (done.stderr or done.stdout).strip()[-_SHOWN:]
            remedy = "Leave operators out with skip_node_op_set={...} to find the one that it cannot compile."
            raise VendorError(f"graph {name!r}", rule, value=said or "nothing more", remedy=remedy)
        result: bytes | EdgewrightError = pickle.loads(made.read_bytes())
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


def main(job: str, made: str) -> None:
    """Do what the job says; an error of ours is a result, too."""
    result: bytes | EdgewrightError
    try:
        result = compile_graphs(*pickle.loads(Path(job).read_bytes()))
    except EdgewrightError as error:
        result = error
    Path(made).write_bytes(pickle.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
