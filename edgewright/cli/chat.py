"""``edgewright chat``: a conversation with a language model in the terminal."""

from __future__ import annotations

import argparse
import contextlib
import sys
from typing import Any

from edgewright.cli.language_model import (
    add_generation_arguments,
    add_model_arguments,
    describe,
    generation_options,
    interruptible,
    load_model,
)
from edgewright.cli.reply_output import reply_output
from edgewright.console import console, note, print_error
from edgewright.errors import EdgewrightError, UsageError
from edgewright.hints import did_you_mean
from edgewright.llm.generate import LanguageModel
from edgewright.llm.generation import CANCELLED, LENGTH, Statistics

EXAMPLES = """examples:
  edgewright chat lm.pte
  edgewright chat lm.pte --system "You are a pirate." --temperature 0.7 --overflow slide
"""
_COMMANDS = {
    "/reset": "start a new conversation",
    "/stats": "tokens and speed of the last reply",
    "/help": "this list",
    "/exit": "end (also Ctrl-D)",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add_model_arguments(parser)
    add_generation_arguments(parser)


def run(args: argparse.Namespace) -> int:
    model = load_model(args)
    if model.template is None:
        raise UsageError(args.model, "has no chat template", remedy="Pass --chat-template, or use edgewright generate.")
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  editing and history of lines, in input()
    options = generation_options(args)
    model.options(**options)  # a wrong one ends the command, and not each reply
    terminal = sys.stdin.isatty()
    if terminal and not args.quiet:
        console().print(f"{model.name}: context {model.context_length} tokens. /help lists commands.", style="dim")
    Conversation(model, args.system, options).run("> " if terminal else "")
    return 0


class Conversation:
    """The messages so far, and the lines that a person types."""

    def __init__(self, model: LanguageModel, system: str | None, options: dict[str, Any]) -> None:
        self._model = model
        self._options = options
        self._start = [] if system is None else [{"role": "system", "content": system}]
        self._messages = list(self._start)
        self._statistics: Statistics | None = None

    def run(self, prompt: str) -> None:
        """Read lines until the end of the input."""
        while True:
            try:
                line = input(prompt).strip()
            except EOFError:
                if prompt:
                    print()
                return
            except KeyboardInterrupt:
                print()
                note("/exit or Ctrl-D ends the chat.")
                continue
            if line == "/exit":
                return
            if line.startswith("/"):
                self._command(line)
            elif line:
                self._answer(line)

    def _command(self, line: str) -> None:
        if line == "/reset":
            self._messages = list(self._start)
            self._model.reset()
            note("A new conversation.")
        elif line == "/stats":
            note("No reply yet." if self._statistics is None else describe(self._statistics))
        elif line == "/help":
            for name, meaning in _COMMANDS.items():
                note(f"{name:<8}{meaning}")
            note("Ctrl-C  stops a reply")
        else:
            note(f"{line.split()[0]} is no command. {did_you_mean(line, _COMMANDS) or '/help lists them.'}")

    def _answer(self, text: str) -> None:
        messages = [*self._messages, {"role": "user", "content": text}]
        try:
            reply = self._model.chat(messages, **self._options)
            with interruptible(reply), reply_output() as write:
                for piece in reply:
                    write(piece)
        except EdgewrightError as error:  # the conversation goes on without this message
            print_error(str(error))
            return
        print()
        self._statistics = reply.statistics
        if reply.finish_reason == CANCELLED:
            note("(stopped)")
        elif reply.finish_reason == LENGTH and not reply.context_full:
            note("(--max-tokens ends the reply here)")
        if reply.context_full:
            note("The context is full: /reset starts a new conversation; --overflow slide forgets the oldest turns.")
        if sys.stdout.isatty():
            print()  # between turns
        if reply.text:
            self._messages = [*messages, {"role": "assistant", "content": reply.text}]
