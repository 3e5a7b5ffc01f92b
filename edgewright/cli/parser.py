"""Arguments of commands: argparse's parser, which also hints at what a misspelt command, option or choice may be."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from typing import NoReturn

from edgewright.hints import did_you_mean

_CHOICE = re.compile(r"invalid choice: '?(.*?)'? \(choose from (.*)\)", re.DOTALL)
_UNKNOWN = "unrecognized arguments: "


class Parser(argparse.ArgumentParser):
    """The parsers of its commands are of the same kind."""

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


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Long options of a parser and of its commands', of which only the chosen one's are known."""
    for action in parser._actions:
        yield from (name for name in action.option_strings if name.startswith("--"))
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _options(command)
