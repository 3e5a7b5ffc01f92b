"""Processes that run Qualcomm's emulator: each has its own lock and answers within a time, or is killed.

A thread that opens a context gets a process that no other thread is waiting for. So a program of one thread has one
process, several threads do not wait for each other, and a context that never ends delays only those in its process.
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

from edgewright.backends.qualcomm.messages import Ended, raise_error, receive, send
from edgewright.backends.qualcomm.qnn.library import find_folder
from edgewright.errors import UsageError, VendorError
from edgewright.forks import renew_in_child

TIMEOUT = "EDGEWRIGHT_QNN_TIMEOUT"
MODULE = "edgewright.backends.qualcomm.emulator_server"
_USUAL_TIMEOUT = 3600.0  # seconds; networks that people run here take minutes
_SHOWN = 400  # characters of what a crashed emulator said last
_MOST = 4  # processes: each has the libraries and its contexts in memory
_TWIN = "EDGEWRIGHT_QNN=twin runs the program without Qualcomm's libraries."


def timeout() -> float:
    """Seconds that Qualcomm's software may take for an answer."""
    text = os.environ.get(TIMEOUT, "")
    try:
        seconds = float(text or _USUAL_TIMEOUT)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < threading.TIMEOUT_MAX:
        remedy = f"Such as {TIMEOUT}={_USUAL_TIMEOUT:g}, which is what holds without it."
        raise UsageError(TIMEOUT, "must be a number of seconds above 0", value=text, remedy=remedy)
    return seconds


class Process:
    """A running emulator. Hold ``lock`` to ask it something."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.owner = folder, os.getpid()
        self.lock = threading.Lock()
        self.contexts = 0
        ours, theirs = socket.socketpair()
        self.said = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        paths = [str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in paths if p)}
        command = [sys.executable, "-m", MODULE, str(theirs.fileno())]
        with theirs:
            self.child = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=self.said,
                                          stderr=self.said, pass_fds=(theirs.fileno(),))  # fmt: skip
        self.line = ours

    @property
    def usable(self) -> bool:
        return self.owner == os.getpid() and self.child.poll() is None

    def ask(self, header: dict[str, Any], parts: Sequence[Any], most: int) -> tuple[dict[str, Any], list[bytes]]:
        """The answer, of at most ``most`` bytes; errors that it tells of are raised. Hold ``lock``."""
        seconds = timeout()
        deadline = time.monotonic() + seconds
        try:
            send(self.line, header, parts, deadline)
            answer, made = receive(self.line, most, deadline)
        except Ended:
            raise self._ended() from None
        except TimeoutError:
            self.stop()
            rule = f"must answer within {seconds:g} s; it was killed"
            raise VendorError("QNN emulator", rule, remedy=f"Raise {TIMEOUT}, in seconds; {_TWIN}") from None
        except BaseException:  # an answer is still on its way: nobody could tell whose
            self.stop()
            raise
        raise_error(answer)
        return answer, made

    def _ended(self) -> VendorError:
        code = self.child.wait()
        self.line.close()
        self.said.seek(max(0, self.said.seek(0, os.SEEK_END) - _SHOWN))
        words = self.said.read().decode(errors="replace").strip()
        remedy = f"Compile the model again; {_TWIN}"
        return VendorError("QNN emulator", f"ended with {code}", value=words or "nothing more", remedy=remedy)

    def stop(self) -> None:
        self.line.close()
        if self.owner == os.getpid():
            self.child.kill()
            self.child.wait()


class Processes:
    """All processes of this program. ``lock`` guards the list, and is never held while one of them works."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.running: list[Process] = []
        renew_in_child(self)

    def _renew(self) -> None:
        """A forked child starts processes of its own; its parent's must still see it when the parent closes them."""
        for process in self.running:
            process.line.close()
            process.said.close()
        self.lock, self.running = threading.Lock(), []

    @contextmanager
    def claimed(self) -> Iterator[Process]:
        """A process for a new context, with its lock: a free one, a new one, or the first that becomes free."""
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
                self._end(process)  # of other libraries; its contexts are loaded anew when they are run
            self.running = [p for p in self.running if p.usable]
            fitting = [p for p in self.running if p.folder == folder]
            for process in fitting:
                if process.lock.acquire(blocking=False):
                    return process
            if len(fitting) < _MOST:
                process = Process(folder)
                process.lock.acquire()
                self.running.append(process)
                return process
        process = min(fitting, key=lambda p: p.contexts)
        process.lock.acquire()
        return process

    def release(self, process: Process) -> None:
        """A context was closed: a process that has none left is ended, but for the last, which is kept ready."""
        with self.lock:
            self.running = [p for p in self.running if p.usable]
            if len(self.running) > 1 and not process.contexts:
                self._end(process)

    @staticmethod
    def _end(process: Process) -> None:
        """Stop a process unless somebody waits for its answer."""
        if process.lock.acquire(blocking=False):
            process.stop()
            process.lock.release()

    def stop(self) -> None:
        """At the end of the program: one that never answers would not notice it."""
        for process in self.running:
            process.stop()


PROCESSES = Processes()
atexit.register(PROCESSES.stop)
