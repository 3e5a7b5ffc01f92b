"""How the command line looks: tables, sizes, progress, and text from files made safe to show."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TextIO

from rich import box
from rich.console import Console, Group
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
from rich.table import Table
from rich.text import Text

from edgewright.units import duration, number

_PIPE_WIDTH = 200  # nobody sees the edge of a pipe: let tables be as wide as they are


def console(stream: TextIO | None = None) -> Console:
    """A console on ``stream`` (stdout), as wide as the terminal; wide enough for anything if it is none."""
    target = stream or sys.stdout
    fixed = None if target.isatty() or "COLUMNS" in os.environ else _PIPE_WIDTH
    return Console(file=target, width=fixed, highlight=False, markup=False, emoji=False)


def clean(text: object) -> str:
    """Text from a file with control and other invisible characters spelled out: a name must not steer a terminal.

    >>> clean("conv\\x1b[2J")
    'conv\\\\x1b[2J'
    """
    raw = str(text)
    if raw.isprintable():
        return raw
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in raw)


def print_error(message: str) -> None:
    """One red paragraph on stderr: what is wrong, then, indented, what to do."""
    target = console(sys.stderr)
    for line in message.split("\n"):
        text = Text(clean(line.lstrip(" ")), style="red")
        if sys.stderr.isatty():
            target.print(Padding(text, (0, 0, 0, len(line) - len(line.lstrip(" ")))))  # wrapped lines stay indented
        else:
            target.print(Text(" " * (len(line) - len(line.lstrip(" ")))) + text, soft_wrap=True)


def note(message: str) -> None:
    """A remark on stderr, apart from the result."""
    print(clean(message), file=sys.stderr)


def table(
    title: str, columns: Iterable[str], rows: Iterable[Iterable[object]], *, flexible: str = "", tight: bool = False
) -> Group:  # fmt: skip
    """A table under its title.

    A column whose name starts with ``>`` is aligned right; the ``flexible`` one gives way to the others. ``tight``
    tables have many columns, and fit narrow terminals.
    """
    result = Table(
        box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1 if tight else 2, 0, 0), header_style="dim"
    )
    for column in columns:
        name = column.lstrip(">")
        give_way = name == flexible
        result.add_column(
            name,
            justify="right" if column.startswith(">") else "left",
            overflow="ellipsis" if not give_way else "fold",
            no_wrap=not give_way,
        )
    for row in rows:
        result.add_row(*(cell if isinstance(cell, Text) else Text(clean(cell)) for cell in row))
    return Group("", *([Text(clean(title), style="bold")] if title else []), result)


def plain_table(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A table as text without colours, for what is not printed here."""
    target = Console(file=io.StringIO(), width=_PIPE_WIDTH, highlight=False, markup=False, emoji=False)
    with target.capture() as shown:
        target.print(table("", columns, rows))
    return "\n".join(line.rstrip() for line in shown.get().strip("\n").split("\n"))


def plural(count: int, noun: str) -> str:
    """
    >>> plural(1, "value"), plural(2, "value")
    ('1 value', '2 values')
    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def dims(shape: Iterable[int], dynamic: bool = False) -> str:
    """A shape: ``[1, 3, 32, 32]``; with upper bounds, ``[<=16, <=32]``."""
    return "[" + ", ".join(f"<={n}" if dynamic else str(n) for n in shape) + "]"


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text("" if task.speed is None else f"{number(task.speed)}/s", style="cyan")


@contextmanager
def progress(label: str, total: int, *, quiet: bool) -> Iterator[ProgressStep]:
    """A bar with a rate on stderr while work is done; nothing when stderr is no terminal or ``quiet``."""
    if quiet or not sys.stderr.isatty():
        yield ProgressStep(None, 0)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Rate())
    with Progress(*columns, console=console(sys.stderr), transient=True) as bar:
        yield ProgressStep(bar, int(bar.add_task(label, total=total)))


def stage_bar() -> Progress:
    """A bar on stderr for stages that come one after the other; those of unknown length show that they are alive."""
    columns = (TextColumn("{task.description}"), BarColumn(), _Done(), _Rate())
    return Progress(*columns, console=console(sys.stderr), transient=True)


class _Done(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(duration(task.elapsed or 0) if task.total is None else f"{task.completed:.0f}/{task.total:.0f}")


class ProgressStep:
    """Call it once for every piece of work done."""

    def __init__(self, bar: Progress | None, task: int) -> None:
        self._bar = bar
        self._task = task

    def __call__(self) -> None:
        if self._bar is not None:
            self._bar.advance(self._task)  # type: ignore[arg-type]

    def describe(self, label: str) -> None:
        """Say what is being done now."""
        if self._bar is not None:
            self._bar.update(self._task, description=label)  # type: ignore[arg-type]
