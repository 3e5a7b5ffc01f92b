"""Compiles one graph in a process of its own: ``python -m edgewright.backends.samsung.worker JOB RESULT``.

Where native code crashes, only that process does. Both files are this program's own and live as long as the call.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

from edgewright.backends.samsung import adaptors, litecore
from edgewright.backends.samsung.graph_record import Record
from edgewright.backends.samsung.sdk import Sdk
from edgewright.backends.samsung.target import EnnTarget
from edgewright.errors import EdgewrightError, VendorError

_MODULE = "edgewright.backends.samsung.worker"
_SHOWN = 400  # characters of what a crashed compiler said last
_SECONDS = 3600


def compile_apart(graph: Record, target: EnnTarget, sdk: Sdk) -> bytes:
    """The compiled graph, made in another process."""
    with tempfile.TemporaryDirectory(prefix="edgewright-enn-") as folder:
        job, made = Path(folder) / "job", Path(folder) / "made"
        job.write_bytes(pickle.dumps((graph, target, sdk)))
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        command = [sys.executable, "-m", _MODULE, str(job), str(made)]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, errors="replace", check=False, timeout=_SECONDS
        )
        if done.returncode or not made.exists():
            said = (done.stderr or done.stdout).strip()[-_SHOWN:]
            rule = f"ended with {done.returncode}"
            remedy = "Leave operators out with EnnPartitioner(..., exclude=[...]) to find the one it cannot compile."
            raise VendorError("AI LiteCore", rule, value=said or "nothing more", remedy=remedy)
        result: bytes | EdgewrightError = pickle.loads(made.read_bytes())
    if isinstance(result, EdgewrightError):
        raise result
    return result


def main(job: str, made: str) -> None:
    """Do what the job says; an error of ours is a result, too."""
    graph, target, sdk = pickle.loads(Path(job).read_bytes())
    result: bytes | EdgewrightError
    try:
        if sdk.root is None:
            result = adaptors.compile_record(graph, target)
        else:
            result = litecore.compile_record(graph, target, sdk.root)
    except EdgewrightError as error:
        result = error
    Path(made).write_bytes(pickle.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
