"""One reply: an iterator over pieces of text that runs the model as it is consumed."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from edgewright.errors import ContextLengthError, UsageError
from edgewright.hints import not_among
from edgewright.llm.prompt_cache import PromptCache
from edgewright.llm.sampling import Sampler, SamplingOptions
from edgewright.llm.stop_strings import StopStrings, check_stops
from edgewright.llm.tokenizer import TextStream, Tokenizer

OVERFLOW = ("error", "slide")
STOP, LENGTH, CANCELLED = "stop", "length", "cancelled"


@dataclass(frozen=True)
class GenerationOptions:
    """``max_tokens``: None is as many as the context has room for. ``stop``: texts that end the reply and are not part
    of it. ``overflow``: what happens when the context is full; ``"slide"`` forgets the older half of it and continues.
    ``ignore_eos``: the tokens with which the model ends its reply do not end it.
    """

    sampling: SamplingOptions = field(default_factory=SamplingOptions)
    max_tokens: int | None = None
    stop: str | Sequence[str] = ()
    overflow: str = "error"
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        limit = self.max_tokens
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
            raise UsageError("max_tokens", "must be a whole number, 1 or more", value=limit)
        if self.overflow not in OVERFLOW:
            raise not_among("overflow", self.overflow, OVERFLOW)
        object.__setattr__(self, "stop", check_stops(self.stop))


@dataclass
class Statistics:
    """``decode_steps``: calls of the model for single generated tokens, which ``decode_seconds`` is the time of,
    sampling included."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0
    decode_steps: int = 0

    @property
    def prompt_tokens_per_second(self) -> float:
        """Of the tokens that were not cached."""
        return (self.prompt_tokens - self.cached_tokens) / self.prefill_seconds if self.prefill_seconds else 0.0

    @property
    def decode_tokens_per_second(self) -> float:
        return self.decode_steps / self.decode_seconds if self.decode_seconds else 0.0


class Generation(Iterator[str]):
    """Iterate for pieces of text, or call ``read`` for all of it.

    ``finish_reason``: None while it runs, then ``"stop"`` (the model ended, or a stop string), ``"length"``
    (max_tokens,
    or the context is full: ``context_full``) or ``"cancelled"``.
    """

    def __init__(
        self, cache: PromptCache, tokenizer: Tokenizer, prompt: Sequence[int], options: GenerationOptions,
        ends: Collection[int], keep: int = 0,
    ) -> None:  # fmt: skip
        if len(prompt) >= cache.context_length:
            if options.overflow != "slide":
                raise context_exceeded(len(prompt), cache.context_length)
            prompt = _slide(prompt, cache.context_length, keep)
        self.tokens: list[int] = []
        self.finish_reason: str | None = None
        self.context_full = False
        self.statistics = Statistics(prompt_tokens=len(prompt))
        self._sampler = Sampler(options.sampling)
        self.seed = self._sampler.seed
        self._cache = cache
        self._options = options
        self._ends = () if options.ignore_eos else frozenset(ends)
        self._keep = keep
        self._history = list(prompt)
        self._stream = TextStream(tokenizer, prompt)
        self._stops = StopStrings(options.stop)
        self._cancelled = False
        self._text = ""
        self._pieces = self._run()
        cache.claim(self)

    @property
    def text(self) -> str:
        """The text so far."""
        return self._text

    @property
    def stop_string(self) -> str | None:
        """The stop string that ended the reply."""
        return self._stops.matched

    def __next__(self) -> str:
        piece = next(self._pieces)
        self._text += piece
        return piece

    def read(self) -> str:
        """The whole text; runs to the end."""
        for _ in self:
            pass
        return self._text

    def cancel(self) -> None:
        """End after the current call of the model; from any thread, or a signal handler."""
        self._cancelled = True

    def _run(self) -> Iterator[str]:
        start = time.perf_counter()
        logits, self.statistics.cached_tokens = self._cache.prefill(self, self._history, lambda: self._cancelled)
        self.statistics.prefill_seconds = time.perf_counter() - start
        while logits is not None:
            start = time.perf_counter()
            token = self._sampler.sample(logits, self._history, min(len(self.tokens), len(self._history)))
            piece = self._take(token)
            self.statistics.decode_seconds += time.perf_counter() - start
            if piece:
                yield piece
            if self.finish_reason is not None or self._cancelled:
                break
            start = time.perf_counter()
            logits = self._advance(token)
            self.statistics.decode_seconds += time.perf_counter() - start
        self.finish_reason = self.finish_reason or CANCELLED
        if self._stops.matched is None and (rest := self._stops.push(self._stream.finish()) + self._stops.finish()):
            yield rest

    def _take(self, token: int) -> str:
        """Add a token to the reply, and see whether it ends it."""
        if token in self._ends:
            self.finish_reason = STOP
            return ""
        self.tokens.append(token)
        self._history.append(token)
        self.statistics.generated_tokens += 1
        piece = self._stops.push(self._stream.push(token))
        if self._stops.matched is not None:
            self.finish_reason = STOP
        elif len(self.tokens) == self._options.max_tokens:
            self.finish_reason = LENGTH
        elif len(self._history) > self._cache.context_length and self._options.overflow != "slide":
            self.finish_reason, self.context_full = LENGTH, True
        return piece

    def _advance(self, token: int) -> NDArray[np.float32] | None:
        self.statistics.decode_steps += 1
        if len(self._history) <= self._cache.context_length:
            return self._cache.append(self, token)
        self._history = _slide(self._history, self._cache.context_length, self._keep)
        return self._cache.prefill(self, self._history, lambda: self._cancelled)[0]


def context_exceeded(count: int, limit: int) -> ContextLengthError:
    remedy = (
        'Shorten it, start a new conversation, or let older text be forgotten: overflow="slide" (--overflow slide).'
    )
    return ContextLengthError("prompt", f"must have fewer tokens than the context, {limit}", value=count, remedy=remedy)


def _slide(tokens: Sequence[int], limit: int, keep: int) -> list[int]:
    """The first ``keep`` tokens, and as many of the last ones as leave half of the rest free."""
    keep = min(keep, limit // 2)
    recent = max(1, (limit - keep) // 2)
    return [*tokens[:keep], *tokens[-recent:]]
