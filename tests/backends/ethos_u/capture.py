"""Arm's reference model talks on stdout; tests need not."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Nothing written to file descriptors 1 and 2 is seen meanwhile."""
    kept = [os.dup(n) for n in (1, 2)]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        for n in (1, 2):
            os.dup2(nowhere, n)
        yield
    finally:
        for n, old in zip((1, 2), kept, strict=True):
            os.dup2(old, n)
            os.close(old)
        os.close(nowhere)
