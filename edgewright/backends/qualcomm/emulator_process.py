"""Pool of processes that run Qualcomm's emulator.

Protocol: the host sends one request (``open``, ``run`` or ``close``) over a socket pair and waits for one response,
with a deadline. ``Process.lock`` serializes requests, so a response always belongs to the request before it; if a
request is interrupted or times out, the process is killed, because a late response would be read as the next one. A
thread that opens a context gets an idle process, or a new one up to a limit: single-threaded programs use one process,
threads do not wait for each other, and a context that hangs blocks only the contexts of its process.
"""

from __future__ import annotations

import atexit
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edgewright.backends.qualcomm.messages import PeerClosed, raise_error, receive, send
from edgewright.backends.qualcomm.qnn.library import find_folder
from edgewright.errors import UsageError, VendorError
from edgewright.forks import renew_in_child

TIMEOUT = "EDGEWRIGHT_QNN_TIMEOUT"
MODULE = "edgewright.backends.qualcomm.emulator_server"
_DEFAULT_TIMEOUT = 3600.0  # seconds; large networks take minutes
_MAX_OUTPUT_CHARS = 400  # characters of a crashed emulator's output to show
_MAX_PROCESSES = 4  # processes: each has the libraries and its contexts in memory
_TWIN_HINT = "EDGEWRIGHT_QNN=twin runs the program without Qualcomm's libraries."


def timeout() -> float:
    """Timeout of a request in seconds."""
    text = os.environ.get(TIMEOUT, "")
    try:
        seconds = float(text or _DEFAULT_TIMEOUT)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < threading.TIMEOUT_MAX:
        remedy = f"Such as {TIMEOUT}={_DEFAULT_TIMEOUT:g}, the default."
        raise UsageError(TIMEOUT, "must be a number of seconds above 0", value=text, remedy=remedy)
    return seconds


class Process:
    """A running emulator. Acquire ``lock`` before ``ask``."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.owner = folder, os.getpid()
        self.lock = threading.Lock()
        self.contexts = 0
        host_end, child_end = socket.socketpair()
        self.output = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        paths = [str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in paths if p)}
        command = [sys.executable, "-m", MODULE, str(child_end.fileno()), str(self.owner)]
        with child_end:
            self.child = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=self.output,
                                          stderr=self.output, pass_fds=(child_end.fileno(),))  # fmt: skip
        self.connection = host_end

    @property
    def usable(self) -> bool:
        return self.owner == os.getpid() and self.child.poll() is None

    def ask(self, header: dict[str, Any], parts: Sequence[Any], max_bytes: int) -> tuple[dict[str, Any], list[bytes]]:
        """Send a request and return its response, of at most ``max_bytes``; raises errors the response reports.
        Requires ``lock``."""
        seconds = timeout()
        deadline = time.monotonic() + seconds
        try:
            send(self.connection, header, parts, deadline)
            response, parts_out = receive(self.connection, max_bytes, deadline)
        except PeerClosed:
            raise self._crash_error() from None
        except TimeoutError:
            self.stop()
            rule = f"must answer within {seconds:g} s; it was killed"
            raise VendorError("QNN emulator", rule, remedy=f"Raise {TIMEOUT}, in seconds; {_TWIN_HINT}") from None
        except BaseException:  # the response is still in flight and would be read as the next one
            self.stop()
            raise
        raise_error(response)
        return response, parts_out

    def _crash_error(self) -> VendorError:
        code = self.child.wait()
        self.connection.close()
        self.output.seek(max(0, self.output.seek(0, os.SEEK_END) - _MAX_OUTPUT_CHARS))
        output = self.output.read().decode(errors="replace").strip()
        remedy = f"Compile the model again; {_TWIN_HINT}"
        return VendorError("QNN emulator", f"ended with {code}", value=output or "nothing more", remedy=remedy)

    def stop(self) -> None:
        self.connection.close()
        if self.owner == os.getpid():
            self.child.kill()
            self.child.wait()


class ProcessPool:
    """The process pool. ``lock`` guards the list and is never held during a request."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.running: list[Process] = []
        renew_in_child(self)

    def _renew(self) -> None:
        """After a fork: close inherited sockets, so that the parent's processes see when the parent closes theirs."""
        for process in self.running:
            process.connection.close()
            process.output.close()
        self.lock, self.running = threading.Lock(), []

    @contextmanager
    def lease(self) -> Iterator[Process]:
        """A locked process for a new context: an idle one, a new one, or the one with the fewest contexts."""
        process = self._acquire()
        while not process.usable:  # killed while this thread waited for it
            process.lock.release()
            process = self._acquire()
        try:
            yield process
        finally:
            process.lock.release()

    def _acquire(self) -> Process:
        folder = find_folder()
        with self.lock:
            for process in [p for p in self.running if p.folder != folder]:
                self._stop_idle(process)  # of other libraries; its contexts are loaded anew when they are run
            self.running = [p for p in self.running if p.usable]
            matching = [p for p in self.running if p.folder == folder]
            for process in matching:
                if process.lock.acquire(blocking=False):
                    return process
            if len(matching) < _MAX_PROCESSES:
                process = Process(folder)
                process.lock.acquire()
                self.running.append(process)
                return process
        process = min(matching, key=lambda p: p.contexts)
        process.lock.acquire()
        return process

    def release(self, process: Process) -> None:
        """After closing a context: stop a process without contexts, unless it is the last one."""
        with self.lock:
            self.running = [p for p in self.running if p.usable]
            if len(self.running) > 1 and not process.contexts:
                self._stop_idle(process)

    @staticmethod
    def _stop_idle(process: Process) -> None:
        """Stop a process unless a request is in progress."""
        if process.lock.acquire(blocking=False):
            process.stop()
            process.lock.release()

    def stop(self) -> None:
        """At exit: a process that hangs would not notice that its socket was closed."""
        for process in self.running:
            process.stop()


POOL = ProcessPool()
atexit.register(POOL.stop)
