"""The stages of a build: how long each took, and how much memory all of them needed."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from edgewright.console import ProgressStep


class Stages:
    """``with stages("export"): ...`` times a stage and moves the bar."""

    def __init__(self, step: ProgressStep) -> None:
        self._step = step
        self.times: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        self._step.describe(name)
        start = time.perf_counter()
        try:
            yield
        finally:
            self.times[name] = time.perf_counter() - start
        self._step()

    @property
    def total(self) -> float:
        return sum(self.times.values())


def peak_memory() -> int | None:
    """The most memory this process ever held, in bytes; None where the system does not say."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
