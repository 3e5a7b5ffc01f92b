"""Ends a subprocess when the process that started it is gone, even if it was killed.

Qualcomm's compiler and emulator may run for minutes, or forever, in many gigabytes, and nobody waits for
their results then.
"""

from __future__ import annotations

import os
import threading
import time

_SECONDS = 1.0  # between two looks


def exit_with_parent(parent: int) -> None:
    """Watch the process ``parent``, which started this one, in a thread."""
    threading.Thread(target=_watch, args=(parent,), name="parent", daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:  # that of an orphan is another process
        time.sleep(_SECONDS)
    os._exit(1)  # the main thread may never return from the vendor's library
