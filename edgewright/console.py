"""Console output: tables, progress bars, and sanitized text from files."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TextIO

from rich import box
from rich.console import Console, Group
from rich.padding import Padding
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from edgewright.units import duration, number

_UNITS = re.compile(r"(?<=\d) (?=(?:[nµm]?s|[KMG]?i?B|dB|cycles)\b|%)")
_BELOW_BRANCH = str.maketrans("├└─", "│  ")
_PIPE_WIDTH = 200  # a pipe has no right edge: tables keep their full width


class _Console(Console):
    """``print(..., soft_wrap=True)`` prints one line: a terminal wraps it between words, a pipe gets it whole."""

    def print(self, *objects: Any, soft_wrap: bool | None = None, **options: Any) -> None:
        wraps = soft_wrap and self.is_terminal and not self.is_dumb_terminal
        if wraps and len(objects) == 1 and isinstance(objects[0], str):
            objects = (wrap_words(objects[0], self.width),)
        super().print(*objects, soft_wrap=False if wraps else soft_wrap, **options)


def wrap_words(text: str, width: int) -> str:
    """Wrap each line between words, but not between a number and its unit, and below its indentation or its branch of
    a tree.

    >>> wrap_words("load 4.41 s, export 1.72 s, lower 300 ms", 25)
    'load 4.41 s, export\\n1.72 s, lower 300 ms'
    >>> print(wrap_words("├─ conv: must be quantized", 20))
    ├─ conv: must be
    │  quantized
    """
    from textwrap import wrap

    lines = []
    for line in _UNITS.sub("\N{NO-BREAK SPACE}", text).split("\n"):
        indent = line[: len(line) - len(line.lstrip("│├└─ "))].translate(_BELOW_BRANCH)
        parts = wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
        lines += parts or [line]
    return "\n".join(lines).replace("\N{NO-BREAK SPACE}", " ")


def console(stream: TextIO | None = None) -> Console:
    """A console on ``stream`` (default: stdout), as wide as the terminal, or ``_PIPE_WIDTH`` for a pipe."""
    target = stream or sys.stdout
    fixed = None if target.isatty() or "COLUMNS" in os.environ else _PIPE_WIDTH
    return _Console(file=target, width=fixed, highlight=False, markup=False, emoji=False)


def clean(text: object) -> str:
    """Escape control and other invisible characters: text from a file must not steer a terminal.

    >>> clean("conv\\x1b[2J")
    'conv\\\\x1b[2J'
    """
    raw = str(text)
    if raw.isprintable():
        return raw
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in raw)


def print_error(message: str) -> None:
    """Print an error to stderr in red: the problem, then the remedy, indented."""
    target = console(sys.stderr)
    for line in message.split("\n"):
        text = Text(clean(line.lstrip(" ")), style="red")
        if sys.stderr.isatty():
            target.print(Padding(text, (0, 0, 0, len(line) - len(line.lstrip(" ")))))  # wrapped lines stay indented
        else:
            target.print(Text(" " * (len(line) - len(line.lstrip(" ")))) + text, soft_wrap=True)


def note(message: str) -> None:
    """Print a remark to stderr, separate from the result on stdout."""
    console(sys.stderr).print(clean(message), soft_wrap=True)


def table(
    title: str, columns: Iterable[str], rows: Iterable[Iterable[object]], *, flexible: str = "", tight: bool = False
) -> Group:  # fmt: skip
    """A table with a title.

    A column whose name starts with ``>`` is right-aligned; the ``flexible`` column wraps when space is short. ``tight``
    reduces padding so that tables with many columns fit narrow terminals.
    """
    result = Table(
        box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1 if tight else 2, 0, 0), header_style="dim"
    )
    for column in columns:
        name = column.lstrip(">")
        wraps = name == flexible
        result.add_column(
            name,
            justify="right" if column.startswith(">") else "left",
            overflow="ellipsis" if not wraps else "fold",
            no_wrap=not wraps,
        )
    for row in rows:
        result.add_row(*(cell if isinstance(cell, Text) else Text(clean(cell)) for cell in row))
    return Group("", *([Text(clean(title), style="bold")] if title else []), result)


def plain_table(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A table as plain text without colors, for callers that do not print it."""
    target = Console(file=io.StringIO(), width=_PIPE_WIDTH, highlight=False, markup=False, emoji=False)
    with target.capture() as capture:
        target.print(table("", columns, rows))
    return "\n".join(line.rstrip() for line in capture.get().strip("\n").split("\n"))


def plural(count: int, noun: str) -> str:
    """
    >>> plural(1, "value"), plural(2, "value")
    ('1 value', '2 values')
    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def dims(shape: Iterable[int], dynamic: bool = False) -> str:
    """Format a shape: ``[1, 3, 32, 32]``, or with upper bounds ``[<=16, <=32]``."""
    return "[" + ", ".join(f"<={n}" if dynamic else str(n) for n in shape) + "]"


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text("" if task.speed is None else f"{number(task.speed)}/s", style="cyan")


@contextmanager
def progress(label: str, total: int, *, quiet: bool, columns: Iterable[ProgressColumn] = ()) -> Iterator[ProgressStep]:
    """A progress bar with a rate, and more ``columns``, on stderr; nothing if ``quiet`` or stderr is not a terminal."""
    if quiet or not sys.stderr.isatty():
        yield ProgressStep(None, 0)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Rate(), *columns)
    with Progress(*columns, console=console(sys.stderr), transient=True) as bar:
        yield ProgressStep(bar, int(bar.add_task(label, total=total)))


def rate_bar(label: str, total: int, *, quiet: bool) -> AbstractContextManager[ProgressStep]:
    """A progress bar for hours of work: with its rate, the time that it took and the time that is left."""
    left = (TimeElapsedColumn(), TextColumn("left"), _Left(elapsed_when_finished=False))
    return progress(label, total, quiet=quiet, columns=left)


class _Left(TimeRemainingColumn):
    """The time left by the mean rate since the start: rows differ too much for the rate of the last ones."""

    max_refresh = 1.0

    def render(self, task: Task) -> Text:
        if task.total is None or not task.completed or task.elapsed is None:
            return Text("-:--:--", style="progress.remaining")
        minutes, seconds = divmod(int(task.elapsed / task.completed * (task.total - task.completed)), 60)
        return Text(f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}", style="progress.remaining")


def stage_bar() -> Progress:
    """A progress bar on stderr for consecutive stages; stages of unknown length show their elapsed time."""
    columns = (TextColumn("{task.description}"), BarColumn(), _Done(), _Rate())
    return Progress(*columns, console=console(sys.stderr), transient=True)


class _Done(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(duration(task.elapsed or 0) if task.total is None else f"{task.completed:.0f}/{task.total:.0f}")


class ProgressStep:
    """Advances a progress bar by one step per call."""

    def __init__(self, bar: Progress | None, task: int) -> None:
        self._bar = bar
        self._task = task

    def __call__(self) -> None:
        if self._bar is not None:
            self._bar.advance(self._task)  # type: ignore[arg-type]

    def describe(self, label: str) -> None:
        """Set the bar's label."""
        if self._bar is not None:
            self._bar.update(self._task, description=label)  # type: ignore[arg-type]
