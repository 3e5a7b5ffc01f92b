"""Argument parser with spelling suggestions for commands, options and choices, and with examples that fit the
terminal."""

from __future__ import annotations

import argparse
import re
import shutil
from collections.abc import Iterator
from typing import Any, NoReturn

from edgewright.hints import did_you_mean

_CHOICE = re.compile(r"invalid choice: '?(.*?)'? \(choose from (.*)\)", re.DOTALL)
_TWO_COLUMNS = re.compile(r"  [a-z]+ {2,}")
_UNKNOWN = "unrecognized arguments: "
_REQUIRED = "the following arguments are required: "
# What other tools call the options, where the names are not similar.
_OTHER_WORDS = {
    "--target": ("--device", "--soc", "--soc-model", "--chip", "--board", "--accelerator"),
    "--quantize": ("--precision", "--dtype", "--bits", "--int8", "--quantization"),
    "--calibrate": ("--data", "--dataset", "--calibration-data"),
    "--output": ("--save", "--file"),
    "--c": ("-o", "--output", "--out", "--folder"),
}
_MODEL_INPUTS = ("--inputs", "--input", "--example-inputs", "--shape", "--input-shape", "--input_shape")


class Parser(argparse.ArgumentParser):
    """The argument parser of the command line; subcommands use the same class."""

    def format_help(self) -> str:
        width = shutil.get_terminal_size().columns
        return "".join(f"{part}\n" for line in super().format_help().splitlines() for part in wrap_line(line, width))

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse's, but the command's own parser reports what it does not know."""
        found, unknown = self.parse_known_args(args, namespace)
        if unknown:
            commands = next((a.choices for a in self._actions if isinstance(a, argparse._SubParsersAction)), {})
            parser = commands.get(str(found.command), self) if commands else self
            parser.error(f"{_UNKNOWN}{' '.join(unknown)}")
        return found

    def error(self, message: str) -> NoReturn:
        from edgewright.console import print_error

        lines = (f"usage: {self.prog}: {message}", self._hint(message), f"`{self.prog} --help` lists the options.")
        print_error("\n  ".join(filter(None, lines)))
        self.exit(2)

    def _hint(self, message: str) -> str:
        """A spelling suggestion, extracted from argparse's message."""
        choice = _CHOICE.search(message)
        if choice is not None:
            return did_you_mean(choice[1], [name.strip("'") for name in choice[2].split(", ")])
        if message.startswith(_UNKNOWN):
            words = [word.partition("=")[0] for word in message.removeprefix(_UNKNOWN).split()]
            wrong = next((word for word in words if word.startswith("-")), "")
            return self._instead_of(wrong) if wrong else self._option_for("".join(words[:1]))
        if message.startswith(_REQUIRED):
            return self._required(message.removeprefix(_REQUIRED).split(", "))
        return ""

    def _instead_of(self, wrong: str) -> str:
        """What to write instead of an option that does not exist: a word of other tools', or a similar name."""
        options = list(_options(self))
        if wrong in _MODEL_INPUTS and "--inputs" not in options and any(a.metavar == "SPEC" for a in self._actions):
            return "Example inputs come with the model: SPEC names a function that returns (module, inputs)."
        meant = next((option for option, words in _OTHER_WORDS.items() if wrong in words and option in options), "")
        return f"Did you mean {meant}?" if meant else did_you_mean(wrong, options)

    def _required(self, missing: list[str]) -> str:
        """An example of each option that must be given."""
        examples = [f"{a.option_strings[0]} {a.metavar}" for a in self._actions
                    if "/".join(a.option_strings) in missing and isinstance(a.metavar, str)]  # fmt: skip
        return f"Add {' '.join(examples)}." if examples else ""

    def _option_for(self, word: str) -> str:
        """The option that an argument without one may be meant for: inputs are not positional, as a model is."""
        if not word:
            return "An argument is empty: is a variable of the shell not set?"
        options = set(_options(self))
        names = [name for name in ("--inputs", "--calibrate", "--quantize", "--target") if name in options]
        if names[:1] == ["--inputs"]:
            return f"Inputs have an option: --inputs {word}"
        return f"{word!r} needs an option: {', '.join(names)} and others." if names else ""


def wrap_line(line: str, width: int) -> Iterator[str]:
    """Wrap a line of help: comments move above the command, commands continue after a backslash.

    >>> print(*wrap_line("  edgewright run m.pte --inputs x.npz --repeat 20  # its speed", 42), sep="\\n")
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
        yield from wrap_line(command.rstrip(), width)
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
        column = _TWO_COLUMNS.match(line)  # of a command and its summary: the rest is below the summary
        yield from wrap(line, width, subsequent_indent=" " * column.end() if column else margin)


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Long options of a parser and of its loaded subcommands."""
    for action in parser._actions:
        yield from (name for name in action.option_strings if name.startswith("--"))
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _options(command)
