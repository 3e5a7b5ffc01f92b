"""Tokens whose rows a decoder holds: a prompt that starts with them runs only the rest."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from edgewright.errors import InputError, UsageError
from edgewright.llm.decoder_method import Decoder

CHUNKS = (1, 16, 64, 256)  # few, because machine code is generated for each
_TOKENS_PER_STEP = 12  # tokens that a long chunk computes in about the time of one token alone


class PromptCache:
    """Runs a decoder for one owner at a time; a new owner ends the one before."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._tokens: list[int] = []
        self._lock = threading.Lock()
        self._owner: object = None
        self._chunks = tuple(sorted({min(size, decoder.chunk_length) for size in CHUNKS}))
        self.context_length = decoder.context_length

    def claim(self, owner: object) -> None:
        with self._lock:
            self._owner = owner

    def clear(self) -> None:
        """Forget all tokens."""
        with self._lock:
            self._forget()

    def _forget(self) -> None:
        self._tokens = []
        self._decoder.reset()

    def prefill(
        self, owner: object, tokens: Sequence[int], stopped: Callable[[], bool] = lambda: False
    ) -> tuple[NDArray[np.float32] | None, int]:
        """Run a prompt: the logits after its last token, and how many of its tokens were held already. None if
        ``stopped`` between two chunks."""
        self._check(tokens)
        with self._lock:
            held = min(_common_prefix(self._tokens, tokens), len(tokens) - 1)  # the last one's logits are needed
            if not self._decoder.rewindable and held < len(self._tokens):
                self._forget()
                held = 0
        logits = None
        for start, count in self._plan(held, len(tokens) - held):
            if stopped():
                return None, held
            logits = self._forward(owner, list(tokens[start : start + count]), start)
        return logits, held

    def _plan(self, position: int, count: int) -> list[tuple[int, int]]:
        if not self._decoder.any_length:
            return plan_chunks(position, count, self._chunks, self._decoder.rewindable)
        end, step = position + count, self._decoder.chunk_length
        return [(start, min(step, end - start)) for start in range(position, end, step)]

    def append(self, owner: object, token: int) -> NDArray[np.float32]:
        """Run one more token: the logits after it."""
        self._check([token])
        return self._forward(owner, [token], len(self._tokens))

    def _forward(self, owner: object, tokens: list[int], position: int) -> NDArray[np.float32]:
        with self._lock:
            if self._owner is not owner:
                rule = "has ended, because another one was started with the same model"
                raise UsageError("generation", rule, remedy="Finish one first, or load the model twice.")
            del self._tokens[position:]  # before the call: an interrupted one leaves rows half written
            logits = self._decoder.forward(tokens, position)
            self._tokens += tokens
            return logits

    def _check(self, tokens: Sequence[int]) -> None:
        if not tokens:
            raise InputError("prompt", "must have at least one token", remedy="Write a text.")
        wrong = next((token for token in tokens if not 0 <= token < self._decoder.vocabulary), None)
        if wrong is not None:
            rule = f"must be tokens of the model's vocabulary, 0 to {self._decoder.vocabulary - 1}"
            raise InputError("prompt", rule, value=wrong, remedy="Is the tokenizer the model's own?")


def _common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    shorter = min(len(first), len(second))
    if list(first[:shorter]) == list(second[:shorter]):
        return shorter
    return next(i for i in range(shorter) if first[i] != second[i])


def plan_chunks(position: int, count: int, sizes: tuple[int, ...], rewindable: bool) -> list[tuple[int, int]]:
    """Calls of the given sizes, as (start, count), that compute ``count`` rows from ``position``. The last one may
    compute rows before it again, instead of many calls for a few tokens each.

    >>> plan_chunks(100, 75, (1, 16, 64), True), plan_chunks(0, 18, (1, 16), False)
    ([(100, 64), (159, 16)], [(0, 16), (16, 1), (17, 1)])
    """
    chunks = []
    end = position + count
    while position < end:
        left = end - position
        overlap = next((size for size in sizes if size >= left), None) if rewindable else None
        fitting = max(size for size in sizes if size <= left)
        if overlap is not None and overlap <= end and _cost(overlap) <= _cost_of_fitting(left, sizes):
            chunks.append((end - overlap, overlap))
            break
        chunks.append((position, fitting))
        position += fitting
    return chunks


@lru_cache(maxsize=4096)
def _cost_of_fitting(left: int, sizes: tuple[int, ...]) -> float:
    """Of the cheapest calls for ``left`` rows that start with the largest that fits."""
    fitting = max(size for size in sizes if size <= left)
    rest = left - fitting
    if not rest:
        return _cost(fitting)
    overlap = min((_cost(size) for size in sizes if size >= rest), default=_cost_of_fitting(rest, sizes))
    return _cost(fitting) + min(overlap, _cost_of_fitting(rest, sizes))


def _cost(size: int) -> float:
    return 1 + size / _TOKENS_PER_STEP
