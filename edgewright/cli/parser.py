"""Arguments of commands: argparse's parser, which also hints at what a misspelt command, option or choice may be, and
whose examples fit the terminal."""

from __future__ import annotations

import argparse
import re
import shutil
from collections.abc import Iterator
from typing import NoReturn

from edgewright.hints import did_you_mean

_CHOICE = re.compile(r"invalid choice: '?(.*?)'? \(choose from (.*)\)", re.DOTALL)
_UNKNOWN = "unrecognized arguments: "


class Parser(argparse.ArgumentParser):
    """The parsers of its commands are of the same kind."""

    def format_help(self) -> str:
        width = shutil.get_terminal_size().columns
        return "".join(f"{part}\n" for line in super().format_help().splitlines() for part in fitted(line, width))

    def error(self, message: str) -> NoReturn:
        super().error("\n  ".join(filter(None, (message, self._hint(message)))))

    def _hint(self, message: str) -> str:
        """What may have been meant; argparse says what was wrong in its message only."""
        choice = _CHOICE.search(message)
        if choice is not None:
            return did_you_mean(choice[1], [name.strip("'") for name in choice[2].split(", ")])
        if message.startswith(_UNKNOWN):
            words = [word.partition("=")[0] for word in message.removeprefix(_UNKNOWN).split()]
            wrong = next((word for word in words if word.startswith("-")), "")
            return did_you_mean(wrong, list(_options(self))) if wrong else ""
        return ""


def fitted(line: str, width: int) -> Iterator[str]:
    """A line of help in as many as it takes: a remark goes above its command, a command goes on after a backslash.

    >>> print(*fitted("  edgewright run m.pte --inputs x.npz --repeat 20  # its speed", 42), sep="\\n")
      # its speed
      edgewright run m.pte --inputs x.npz \\
          --repeat 20
    """
    from textwrap import wrap

    command, hash_mark, remark = line.partition("  # ")
    margin = " " * (len(line) - len(line.lstrip()))
    if len(line) <= width:
        yield line
    elif hash_mark:
        yield from wrap(remark, width, initial_indent=f"{margin}# ", subsequent_indent=f"{margin}# ")
        yield from fitted(command.rstrip(), width)
    elif line.startswith("  edgewright "):
        first, *options = command.replace(" -", "\0-").split("\0")
        for option in options:
            if len(first) + 1 + len(option) + 2 > width:
                yield f"{first} \\"
                first = f"{margin}    {option}"
            else:
                first = f"{first} {option}"
        yield first
    else:
        yield from wrap(line, width, subsequent_indent=margin)


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Long options of a parser and of its commands', of which only the chosen one's are known."""
    for action in parser._actions:
        yield from (name for name in action.option_strings if name.startswith("--"))
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _options(command)
