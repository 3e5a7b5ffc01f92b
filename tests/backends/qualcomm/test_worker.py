"""Compiling in a process of its own: crashes stay there, errors come back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from edgewright.backends.qualcomm import worker
from edgewright.backends.qualcomm.emulator_process import TIMEOUT
from edgewright.backends.qualcomm.worker import compile_in_subprocess
from edgewright.errors import VendorError
from edgewright.ir.graph import Graph, Op, QParams, Value
from tests.backends.qualcomm.rows import target_for

pytestmark = pytest.mark.usefixtures("compiler_process")
Q = QParams(0.1, 128, np.dtype(np.uint8), 0, 255)


def graph(kind: str, shape: tuple[int, ...], out: tuple[int, ...], **params: object) -> Graph:
    x, y = (Value(n, np.dtype(np.uint8), s, tuple(range(len(s))), q=Q) for n, s in (("x", shape), ("y", out)))
    return Graph("g", [x], [y], [Op(kind, {"inputs": [x], "params": params}, [y])])


def test_refusals_come_back_as_they_are() -> None:
    with pytest.raises(VendorError, match="Squeak 'node_0': must be an operator that the HTP supports"):
        compile_in_subprocess(graph("Squeak", (1, 4), (1, 4)), target_for(), "forward")


def test_a_crash_of_the_compiler_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_MODULE", "tests.backends.qualcomm.crashing")
    with pytest.raises(VendorError, match="Qualcomm's compiler ended with -11; got last words"):
        compile_in_subprocess(graph("Relu", (1, 4), (1, 4)), target_for(), "forward")


def test_the_same_graph_gives_the_same_bytes() -> None:
    relu = graph("Relu", (1, 4, 4, 8), (1, 4, 4, 8))
    assert compile_in_subprocess(relu, target_for(), "forward") == compile_in_subprocess(relu, target_for(), "forward")


def test_a_compiler_that_does_not_end_is_killed_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_MODULE", "tests.backends.qualcomm.endless")
    monkeypatch.setenv(TIMEOUT, "0.5")
    with pytest.raises(VendorError, match=r"Qualcomm's compiler must end within 0.5 s; it was killed\n  Raise EDGE"):
        compile_in_subprocess(graph("Relu", (1, 4), (1, 4)), target_for(), "forward")


CHILD = """
import os, sys, time
from edgewright.backends.qualcomm.parent_process import exit_with_parent
exit_with_parent(int(sys.argv[1]))
print(os.getpid(), flush=True)
time.sleep(600)
"""
PARENT = "import os, subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1], str(os.getpid())])"


def test_a_compiler_ends_when_its_parent_is_killed() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, CHILD], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    os.kill(child, 0)  # runs
    parent.kill()
    for _ in range(600):
        if not _is_running(child):
            return
        time.sleep(0.1)
    os.kill(child, signal.SIGKILL)
    pytest.fail("it still runs after a minute")


def _is_running(process: int) -> bool:
    """False for a process that ended and that nobody has waited for, too."""
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
