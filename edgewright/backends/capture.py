"""Catches what native code prints: it writes to the process's own streams, past Python's."""

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
    """The process's own streams, which one thread at a time may redirect."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.thread = 0  # that redirected them
        self.saved: list[tuple[int, int]] = []
        renew_in_child(self)

    def restore(self) -> None:
        for stream, copy in self.saved:
            os.dup2(copy, stream)
            os.close(copy)
        self.saved = []

    def _renew(self) -> None:
        """A forked child writes where its parent did, unless it was forked by the thread that collects."""
        if self.saved and self.thread != threading.get_ident():
            self.restore()
        self.lock = threading.Lock()


_STREAMS = _Streams()
_MOST = 1 << 22  # characters worth keeping; the end says why it failed


@dataclass
class Said:
    """What was printed, once the block has ended."""

    text: str = ""


@contextlib.contextmanager
def captured() -> Iterator[Said]:
    """Collect what is written to stdout and stderr by anyone in this process while the block runs."""
    said = Said()
    with _STREAMS.lock, tempfile.TemporaryFile() as file:
        _STREAMS.thread = threading.get_ident()
        _STREAMS.saved = [(stream, os.dup(stream)) for stream in (1, 2) if _is_open(stream)]
        _flush()
        try:
            for stream, _ in _STREAMS.saved:
                os.dup2(file.fileno(), stream)
            yield said
        finally:
            _flush()
            _STREAMS.restore()
            file.seek(0)
            said.text = file.read().decode(errors="replace")[-_MOST:]


def _is_open(stream: int) -> bool:
    try:
        os.fstat(stream)
    except OSError:  # a daemon without streams
        return False
    return True


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with contextlib.suppress(ValueError, OSError):
                stream.flush()
    with contextlib.suppress(OSError, AttributeError, TypeError):  # C's buffers; not every system lets us at them
        ctypes.CDLL(None).fflush(None)
