"""Stages of a long call: timed, with a progress bar if stderr is a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

Step = Callable[[], None]


class Stages:
    """``with stages("calibrate", total=32) as step`` times a stage; ``step()`` advances its progress bar.

    ``times`` holds the seconds of every stage, summed by name.
    """

    def __init__(self, quiet: bool = False) -> None:
        self.times: dict[str, float] = {}
        self._bar: Any = None
        self._visible = not quiet and sys.stderr.isatty()

    @property
    def total(self) -> float:
        return sum(self.times.values())

    def __enter__(self) -> Stages:
        if self._visible:
            from edgewright.console import stage_bar

            self._bar = stage_bar()
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

    @contextmanager
    def __call__(self, name: str, label: str = "", total: int | None = None) -> Iterator[Step]:
        task = None if self._bar is None else self._bar.add_task(label or name, total=total)
        start = time.perf_counter()
        try:
            yield (lambda: None) if task is None else (lambda: self._bar.advance(task))
        finally:
            self.times[name] = self.times.get(name, 0.0) + time.perf_counter() - start
            if task is not None:
                self._bar.remove_task(task)
