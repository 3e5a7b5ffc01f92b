"""Captures output of native code, which writes to file descriptors 1 and 2 and bypasses ``sys.stdout``."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from edgewright.forks import renew_in_child


class _Streams:
    """File descriptors 1 and 2 of the process; one thread at a time may redirect them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.thread = 0  # id of the redirecting thread
        self.saved: list[tuple[int, int]] = []
        renew_in_child(self)

    def restore(self) -> None:
        for stream, copy in self.saved:
            os.dup2(copy, stream)
            os.close(copy)
        self.saved = []

    def _renew(self) -> None:
        """After a fork: restore the parent's streams, unless the redirecting thread itself forked."""
        if self.saved and self.thread != threading.get_ident():
            self.restore()
        self.lock = threading.Lock()


_STREAMS = _Streams()
_MAX_CHARS = 1 << 22  # longer output is truncated at the start: the reason of a failure is at the end


@dataclass
class CapturedOutput:
    """The captured text; complete once the block has ended."""

    text: str = ""


@contextlib.contextmanager
def capture_streams() -> Iterator[CapturedOutput]:
    """Capture everything the process writes to stdout and stderr while the block runs, native code included."""
    output = CapturedOutput()
    with _STREAMS.lock, tempfile.TemporaryFile() as file:
        _STREAMS.thread = threading.get_ident()
        _STREAMS.saved = [(stream, os.dup(stream)) for stream in (1, 2) if _is_open(stream)]
        _flush()
        try:
            for stream, _ in _STREAMS.saved:
                os.dup2(file.fileno(), stream)
            yield output
        finally:
            _flush()
            _STREAMS.restore()
            file.seek(0)
            output.text = file.read().decode(errors="replace")[-_MAX_CHARS:]


def _is_open(stream: int) -> bool:
    try:
        os.fstat(stream)
    except OSError:  # a daemon may have closed it
        return False
    return True


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with contextlib.suppress(ValueError, OSError):
                stream.flush()
    with contextlib.suppress(OSError, AttributeError, TypeError):  # C stdio buffers; not every platform exposes them
        ctypes.CDLL(None).fflush(None)
