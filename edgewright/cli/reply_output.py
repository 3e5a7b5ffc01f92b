"""Writes a reply while it is generated: unchanged to a file, wrapped at words in a terminal."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.cells import cell_len

from edgewright.console import clean

_WAITING = "…"
_TAB = 8
_ERASE_LINE, _ERASE_REST = "\r\x1b[K", "\x1b[K"


@contextmanager
def reply_output() -> Iterator[Callable[[str], None]]:
    """A function that writes pieces of a reply at once. A terminal shows a sign until the first one, and does not echo
    what is typed meanwhile, which would be mixed with the reply; the next prompt shows it."""
    if not sys.stdout.isatty():
        yield _write
        return
    wrapped = WrappedText(shutil.get_terminal_size().columns - 1)
    with _without_echo():
        _write(_WAITING)
        waiting = True

        def show(piece: str) -> None:
            nonlocal waiting
            _write((_ERASE_LINE if waiting else "") + wrapped.add(piece))
            waiting = False

        try:
            yield show
        finally:
            if waiting:
                _write(_ERASE_LINE)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


@contextmanager
def _without_echo() -> Iterator[None]:
    if sys.platform == "win32" or not sys.stdin.isatty():
        yield
        return
    import termios

    before = termios.tcgetattr(sys.stdin)
    silent = [*before]
    silent[3] &= ~termios.ECHO
    termios.tcsetattr(sys.stdin, termios.TCSADRAIN, silent)
    try:
        yield
    finally:
        with contextlib.suppress(termios.error):
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


class WrappedText:
    """Turns pieces of text into what a terminal of ``width`` columns is sent: lines are broken between words, a word
    that turns out too long for its line moves to the next. Text of a model must not steer the terminal: control
    characters are escaped."""

    def __init__(self, width: int) -> None:
        self._width = max(width, 8)
        self._column = 0
        self._word = ""  # since the last space of the line

    def add(self, piece: str) -> str:
        return "".join(self._character(c) for c in piece)

    def _character(self, character: str) -> str:
        if character == "\n":
            self._column, self._word = 0, ""
            return character
        if character == "\t":
            return self.add(" " * (_TAB - self._column % _TAB))
        shown = clean(character)
        size = cell_len(shown)
        start = ""
        if self._column + size > self._width:
            start = self._new_line(character)
            if character == " ":
                return start
        self._word = "" if character == " " else self._word + shown
        self._column += size
        return start + shown

    def _new_line(self, character: str) -> str:
        size = cell_len(self._word)
        if character == " " or not 0 < size < self._column:  # a word as long as the line is cut
            self._column, self._word = 0, ""
            return "\n"
        self._column = size
        return "\b" * size + _ERASE_REST + "\n" + self._word
