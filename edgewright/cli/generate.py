"""``edgewright generate``: one reply of a language model."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import nullcontext

from edgewright.cli import exit_codes
from edgewright.cli.language_model import (
    add_generation_arguments,
    add_model_arguments,
    describe,
    facts_of,
    generation_options,
    interruptible,
    load_model,
)
from edgewright.cli.reply_output import reply_output
from edgewright.console import note
from edgewright.errors import UsageError
from edgewright.llm.generate import LanguageModel
from edgewright.llm.generation import CANCELLED, Generation

EXAMPLES = """examples:
  edgewright generate lm.pte "Why is the sky blue?" --max-tokens 100
  edgewright generate lm.pte "Why is the sky blue?" --system "Be brief." --temperature 0.7 --seed 1 --json
  edgewright generate lm.pte --raw "Once upon a time" --temperature 0 --stop "The end"
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add_model_arguments(parser)
    parser.add_argument("prompt", help="the question or the text; - reads it from stdin")
    add_generation_arguments(parser)
    parser.add_argument("--raw", action="store_true", help="continue the text itself, without the chat template")
    parser.add_argument("--json", action="store_true", help="print text, token counts and speed as JSON")


def run(args: argparse.Namespace) -> int:
    prompt = sys.stdin.read() if args.prompt == "-" else args.prompt
    reply = _start(load_model(args), prompt, args)
    with interruptible(reply), nullcontext() if args.json else reply_output() as write:
        for piece in reply:
            if write is not None:
                write(piece)
    if args.json:
        print(json.dumps({"text": reply.text, **facts_of(reply)}, indent=2, ensure_ascii=False))
    else:
        print()
        if not args.quiet and sys.stderr.isatty():
            note(describe(reply.statistics))
    if reply.context_full and not args.quiet:
        note("The context is full: the reply ends here. --overflow slide goes on without the oldest text.")
    return exit_codes.INTERRUPTED if reply.finish_reason == CANCELLED else exit_codes.OK


def _start(model: LanguageModel, prompt: str, args: argparse.Namespace) -> Generation:
    if args.raw or model.template is None:
        if args.system is not None:
            remedy = "Put it into the prompt." if args.raw else "Pass --chat-template, or put it into the prompt."
            raise UsageError("--system", "needs a chat template", remedy=remedy)
        return model.generate(prompt, **generation_options(args))
    system = [] if args.system is None else [{"role": "system", "content": args.system}]
    return model.chat([*system, {"role": "user", "content": prompt}], **generation_options(args))
