"""A command with its stderr on a terminal, in this process."""

from __future__ import annotations

import os
import pty
import sys
import threading

import pytest
from rich.progress import Progress, TaskID

from edgewright.cli import main


def run_on_terminal(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[int, bytes]:
    """The exit code, and what the terminal was sent."""
    shown, terminal = pty.openpty()
    sent = bytearray()
    reader = threading.Thread(target=_read, args=(shown, sent))
    reader.start()  # a terminal takes a few KiB before somebody must read them
    monkeypatch.setenv("TERM", "xterm")
    with open(terminal, "w", encoding="utf-8") as stream, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", stream)
        patch.setattr(Progress, "advance", _advance_and_draw)
        code = main(list(arguments))
    reader.join()
    os.close(shown)
    return code, bytes(sent)


def _advance_and_draw(bar: Progress, task: TaskID, advance: float = 1) -> None:
    """Progress bars are drawn ten times a second, which a fast stage does not last."""
    bar.update(task, advance=advance, refresh=True)


def _read(shown: int, sent: bytearray) -> None:
    try:
        while chunk := os.read(shown, 65536):
            sent += chunk
    except OSError:  # how Linux says that the other end is closed
        pass
