"""What the commands for language models share: loading, options of generation, output, Ctrl-C."""

from __future__ import annotations

import argparse
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edgewright.console import plural
from edgewright.errors import FileAccessError
from edgewright.llm.generate import LanguageModel, load
from edgewright.llm.generation import OVERFLOW, Generation, Statistics
from edgewright.units import duration, number

_OPTIONS = (
    "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "frequency_penalty", "presence_penalty", "seed",
    "max_tokens", "stop", "overflow",
)  # fmt: skip


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("model", metavar="lm.pte", help="the language model")
    add("--tokenizer", metavar="tokenizer.json", help="the tokenizer, if the file has none")
    add("--chat-template", metavar="t.jinja", help="a chat template instead of the file's")
    add("--threads", type=int, metavar="N", help="threads of the model (default: one per physical core)")


def add_generation_arguments(parser: argparse.ArgumentParser) -> None:
    """Defaults are the model's own, which the file records."""
    add = parser.add_argument
    add("--temperature", type=float, metavar="T", help="0 takes the most likely token; more is more varied")
    add("--top-k", type=int, metavar="K", help="choose among the K most likely tokens; 0 is all")
    add("--top-p", type=float, metavar="P", help="choose among the most likely tokens that together reach P")
    add("--min-p", type=float, metavar="P", help="leave out tokens less likely than P times the most likely")
    add("--repetition-penalty", type=float, metavar="R", help="make the last 64 tokens less likely; 1 is off")
    add("--frequency-penalty", type=float, metavar="F", help="make tokens less likely each time they were used")
    add("--presence-penalty", type=float, metavar="F", help="make tokens less likely once they were used")
    add("--seed", type=int, metavar="N", help="the same seed gives the same text")
    add("--max-tokens", type=int, metavar="N", help="end after N tokens (default: when the context is full)")
    add("--stop", action="append", metavar="TEXT", help="end before this text; repeatable")
    add("--overflow", choices=OVERFLOW, help="when the context is full: end, or forget older text and go on")
    add("--system", metavar="TEXT", help="the system message, which sets the tone")


def load_model(args: argparse.Namespace) -> LanguageModel:
    template = None if args.chat_template is None else _read_text(args.chat_template)
    return load(args.model, tokenizer=args.tokenizer, chat_template=template, threads=args.threads)


def _read_text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise FileAccessError(path, f"cannot be read: {getattr(error, 'strerror', None) or error}") from error


def generation_options(args: argparse.Namespace) -> dict[str, Any]:
    """The options that were set, by their names in ``LanguageModel.generate``."""
    return {name: getattr(args, name) for name in _OPTIONS if getattr(args, name) is not None}


@contextmanager
def interruptible(generation: Generation) -> Iterator[None]:
    """Ctrl-C ends the generation between two tokens; a second one raises ``KeyboardInterrupt``."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def cancel(_: int, __: object) -> None:
        generation.cancel()
        signal.signal(signal.SIGINT, previous)

    previous = signal.signal(signal.SIGINT, cancel)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def describe(facts: Statistics) -> str:
    """Tokens and speed in one line."""
    cached = f" ({facts.cached_tokens} cached)" if facts.cached_tokens else ""
    prompt = f"prompt {plural(facts.prompt_tokens, 'token')}{cached}: {duration(facts.prefill_seconds)}"
    prompt += f", {number(facts.prompt_tokens_per_second)} tokens/s"
    speed = f": {number(facts.decode_tokens_per_second)} tokens/s" if facts.decode_steps else ""
    return f"{prompt}; reply {plural(facts.generated_tokens, 'token')}{speed}"


def facts_of(generation: Generation) -> dict[str, Any]:
    """For ``--json``."""
    facts = generation.statistics
    return {
        "finish_reason": generation.finish_reason,
        "stop_string": generation.stop_string,
        "seed": generation.seed,
        "prompt_tokens": facts.prompt_tokens,
        "cached_tokens": facts.cached_tokens,
        "generated_tokens": facts.generated_tokens,
        "prefill_ms": facts.prefill_seconds * 1e3,
        "decode_ms": facts.decode_seconds * 1e3,
        "prompt_tokens_per_s": facts.prompt_tokens_per_second,
        "decode_tokens_per_s": facts.decode_tokens_per_second,
    }
