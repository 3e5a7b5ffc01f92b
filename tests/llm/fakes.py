"""Decoders without weights: one that says what a test wrote, one whose logits depend on all that it has read."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgewright.llm import ChatTemplate, LanguageModel, SamplingOptions
from tests.llm.tiny import tiny_tokenizer

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}:{{ m.content }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant={% endif %}"
)
END = 2  # <|im_end|>


class Rows:
    """The state of a decoder: the token at each position. Checks every call."""

    chunk_length = 512
    rewindable = True
    any_length = False

    def __init__(self, context_length: int = 1024) -> None:
        self.context_length = context_length
        self.vocabulary = tiny_tokenizer().size
        self.rows: list[int] = []
        self.calls: list[tuple[int, int]] = []

    def forward(self, tokens: Sequence[int], position: int) -> NDArray[np.float32]:
        assert 0 < len(tokens) <= self.chunk_length
        assert position <= len(self.rows), "rows must have no gap"
        assert self.rewindable or position == len(self.rows)
        assert position + len(tokens) <= self.context_length
        self.rows[position:] = tokens
        self.calls.append((position, len(tokens)))
        return self.logits()

    def logits(self) -> NDArray[np.float32]:
        digest = hashlib.sha256(repr(self.rows).encode()).digest()
        scores = np.random.default_rng(list(digest)).normal(size=self.vocabulary).astype(np.float32)
        scores[:3] = -9  # no control tokens
        return scores

    def reset(self) -> None:
        self.rows = []


class Script(Rows):
    """Says ``reply`` after the last "=" of what it has read, then ends. ``gate``: waits before each token of the
    reply, for tests of what happens meanwhile."""

    def __init__(self, reply: str | bytes = "hello", context_length: int = 1024) -> None:
        super().__init__(context_length)
        self.say(reply)
        self.gate: threading.Semaphore | None = None

    def say(self, reply: str | bytes) -> None:
        if isinstance(reply, bytes):
            self.reply = [3 + byte for byte in reply]
        else:
            self.reply = tiny_tokenizer().encode(reply, add_special_tokens=False)

    def logits(self) -> NDArray[np.float32]:
        mark = tiny_tokenizer().token_id("=")
        said = self.rows[::-1].index(mark) if mark in self.rows else 0
        if self.gate is not None and said:
            assert self.gate.acquire(timeout=20)
        scores = np.zeros(self.vocabulary, np.float32)
        scores[self.reply[said] if said < len(self.reply) else END] = 30
        return scores


def model(decoder: Rows, **options: Any) -> LanguageModel:
    greedy = SamplingOptions(temperature=0)
    return LanguageModel(decoder, tiny_tokenizer(), ChatTemplate(TEMPLATE), [END], greedy, "tiny", **options)
