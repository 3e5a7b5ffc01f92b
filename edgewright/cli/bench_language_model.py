"""``edgewright bench`` of a language model: prompt and generation speed, as llama-bench reports them.

``pp512`` is a prompt of 512 random tokens into an empty cache, ``tg128`` 128 tokens one by one from an empty cache.
Tokenizing and sampling are not included. Runtimes take turns within each repetition, so that background load meets all.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from edgewright.console import clean, console, note, progress, table
from edgewright.engine.jit.thread_count import thread_count
from edgewright.errors import UsageError
from edgewright.llm.decoder_method import Decoder
from edgewright.llm.decoders import open_decoder
from edgewright.llm.prompt_cache import PromptCache
from edgewright.peers.llama_cpp import LIBRARY, LlamaCpp, find_library
from edgewright.runtime.program import Runtime
from edgewright.units import number, size

PROMPT, GENERATE, REPETITIONS = 512, 128, 5


@dataclass
class Speed:
    """Tokens per second of one test in one runtime, by repetition."""

    runtime: str
    file: str
    bytes: int
    test: str
    threads: int
    samples: list[float] = field(default_factory=list)
    features: str = ""

    @property
    def mean(self) -> float:
        return statistics.mean(self.samples)

    @property
    def deviation(self) -> float:
        return statistics.stdev(self.samples) if len(self.samples) > 1 else 0.0


@dataclass(frozen=True)
class _Runtime:
    """``prompt`` and ``generate``: seconds of a number of tokens after ``depth`` others."""

    name: str
    file: str
    bytes: int
    prompt: Callable[[int, int], float]
    generate: Callable[[int, int], float]
    features: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("language models", "measured as llama-bench does: tokens per second")
    add = group.add_argument
    add("--prompt-tokens", type=int, metavar="N", help=f"tokens of the prompt (default: {PROMPT})")
    add("--generate-tokens", type=int, metavar="N", help=f"tokens one by one (default: {GENERATE})")
    add("--depth", type=int, default=0, metavar="N", help="tokens in the cache before (default: 0)")
    add("--repetitions", type=int, default=REPETITIONS, metavar="N", help=f"of each test (default: {REPETITIONS})")
    add("--llama-cpp", metavar="PATH", help=f"llama.cpp's library or its folder, for --peer m.gguf (or {LIBRARY})")


def run(args: argparse.Namespace) -> int:
    for path in args.peer:
        if Path(path).suffix != ".gguf":
            raise UsageError("--peer", "of a language model takes .gguf (llama.cpp)", value=path)
    if args.peers:
        raise UsageError("--peers", "does not measure language models", remedy="Use --peer m.gguf (llama.cpp).")
    if not 1 <= args.repetitions <= 1000:
        raise UsageError("--repetitions", "must be from 1 to 1000", value=args.repetitions)
    decoder = open_decoder(Runtime(None).load_program(args.model, args.data or None))
    tests = _tests(args, decoder.context_length)
    peers = _start_peers(args, decoder.context_length)
    try:
        runtimes = [_ours(args.model, decoder), *(_theirs(path, peer) for path, peer in peers)]
        speeds = _measure(args, runtimes, tests)
    finally:
        decoder.close()
        for _, peer in peers:
            peer.close()
    if args.json:
        print(json.dumps([{**asdict(s), "avg_ts": s.mean, "stddev_ts": s.deviation} for s in speeds], indent=2))
    else:
        _show(args, speeds)
    return 0


def _tests(args: argparse.Namespace, context: int) -> dict[str, int]:
    """The tests by name, and their tokens. A default is shortened to fit the context."""
    tests = {}
    if not 0 <= args.depth < context:
        raise UsageError("--depth", f"must be from 0 to {context - 1}", value=args.depth)
    for prefix, option, wanted, default in (
        ("pp", "--prompt-tokens", args.prompt_tokens, PROMPT),
        ("tg", "--generate-tokens", args.generate_tokens, GENERATE),
    ):
        count = min(default, context - args.depth) if wanted is None else wanted
        if not 0 <= count <= context - args.depth:
            rule = f"must be from 0 to {context - args.depth}: the context has {context} tokens"
            raise UsageError(option, rule, value=count)
        if count:
            tests[f"{prefix}{count}" + (f" @ d{args.depth}" if args.depth else "")] = count
    if not tests:
        raise UsageError("bench", "needs a prompt or tokens to generate", value=0)
    return tests


def _start_peers(args: argparse.Namespace, context: int) -> list[tuple[str, LlamaCpp]]:
    peers: list[tuple[str, LlamaCpp]] = []
    for path in args.peer:
        peers.append((path, LlamaCpp(find_library(args.llama_cpp), path, thread_count(), context)))
    return peers


def _ours(path: str, decoder: Decoder) -> _Runtime:
    cache, draw, owner = PromptCache(decoder), np.random.default_rng(0), object()
    cache.claim(owner)

    def timed(count: int, depth: int, run: Callable[[list[int]], Any]) -> float:
        cache.clear()
        before, tokens = (draw.integers(decoder.vocabulary, size=n).tolist() for n in (depth, count))
        if before:
            cache.prefill(owner, before)
        start = time.perf_counter()
        run(before + tokens)
        return time.perf_counter() - start

    def prompt(count: int, depth: int) -> float:
        return timed(count, depth, lambda tokens: cache.prefill(owner, tokens))

    def generate(count: int, depth: int) -> float:
        return timed(count, depth, lambda tokens: [cache.append(owner, token) for token in tokens[depth:]])

    return _Runtime("Edgewright", path, Path(path).stat().st_size, prompt, generate)


def _theirs(path: str, peer: LlamaCpp) -> _Runtime:
    info = peer.info
    return _Runtime("llama.cpp", path, Path(path).stat().st_size, peer.prompt, peer.generate, str(info["features"]))


def _measure(args: argparse.Namespace, runtimes: list[_Runtime], tests: dict[str, int]) -> list[Speed]:
    speeds = {
        (runtime.file, test): Speed(runtime.name, runtime.file, runtime.bytes, test, thread_count(),
                                    features=runtime.features)
        for test in tests for runtime in runtimes
    }  # fmt: skip
    for runtime in runtimes:  # machine code is generated
        for test, count in tests.items():
            runtime.prompt(count, args.depth) if test.startswith("pp") else runtime.generate(1, args.depth)
    with progress("measuring", args.repetitions * len(speeds), quiet=args.quiet) as step:
        for _ in range(args.repetitions):
            for test, count in tests.items():
                for runtime in runtimes:
                    run = runtime.prompt if test.startswith("pp") else runtime.generate
                    speeds[runtime.file, test].samples.append(count / run(count, args.depth))
                    step()
    return list(speeds.values())


def _show(args: argparse.Namespace, speeds: list[Speed]) -> None:
    rows = [
        [s.runtime, clean(Path(s.file).name), size(s.bytes), s.test, f"{number(s.mean)} ± {number(s.deviation)}",
         number(max(s.samples))]
        for s in speeds
    ]  # fmt: skip
    threads = thread_count()
    title = f"{clean(args.model)}, on this machine, {threads} thread{'s' if threads > 1 else ''}"
    heads = ["runtime", "file", ">size", "test", ">tokens/s", ">fastest"]
    console().print(table(title, heads, rows))
    ours = {s.test: s for s in speeds if s.runtime == "Edgewright"}
    others = [s for s in speeds if s.runtime != "Edgewright"]
    if others:
        console().print("\ncompared by the fastest repetition, which background load affects least:", style="dim")
    for other in others:
        ratio = max(ours[other.test].samples) / max(other.samples)
        word = "faster" if ratio >= 1 else "slower"
        line = f"{other.test}: Edgewright is {number(max(ratio, 1 / ratio))} times {word} than {other.runtime}"
        console().print(line, style="bold", soft_wrap=True)
    for features in sorted({s.features for s in others}):
        note(f"llama.cpp: {clean(features)}")
