"""The prompt cache: what runs, and that what is held is right."""

from __future__ import annotations

import random

import numpy as np
import pytest

from edgewright.errors import InputError, UsageError
from edgewright.llm.prompt_cache import CHUNKS, PromptCache, plan_chunks
from tests.llm.fakes import Rows


def test_only_new_tokens_run() -> None:
    decoder = Rows()
    cache = PromptCache(decoder)
    cache.claim(self := object())
    first = list(range(3, 103))
    _, held = cache.prefill(self, first)
    assert held == 0 and decoder.rows == first
    cache.append(self, 7)
    decoder.calls.clear()
    logits, held = cache.prefill(self, [*first, 7, 8])
    assert held == 101 and decoder.calls == [(101, 1)]
    np.testing.assert_array_equal(logits, decoder.logits())


def test_a_prompt_that_is_held_runs_its_last_token() -> None:
    decoder = Rows()
    cache = PromptCache(decoder)
    cache.claim(self := object())
    cache.prefill(self, [3, 4, 5])
    first = decoder.logits()
    decoder.calls.clear()
    logits, held = cache.prefill(self, [3, 4, 5])
    assert held == 2 and decoder.calls == [(2, 1)]
    np.testing.assert_array_equal(logits, first)


def test_rows_after_a_difference_are_replaced() -> None:
    decoder = Rows()
    cache = PromptCache(decoder)
    cache.claim(self := object())
    cache.prefill(self, [3, 4, 5, 6])
    _, held = cache.prefill(self, [3, 4, 9])
    assert held == 2 and decoder.rows == [3, 4, 9]


def test_random_prompts_are_held_right() -> None:
    draw = random.Random(0)
    decoder = Rows()
    cache = PromptCache(decoder)
    cache.claim(self := object())
    for _ in range(200):
        prompt = [draw.choice((3, 4)) for _ in range(draw.randint(1, 400))]
        logits, _ = cache.prefill(self, prompt)
        fresh = Rows()
        fresh.rows = prompt
        np.testing.assert_array_equal(logits, fresh.logits())


def test_a_ring_of_rows_is_never_rewound() -> None:
    decoder = Rows()
    decoder.rewindable = False
    cache = PromptCache(decoder)
    cache.claim(self := object())
    cache.prefill(self, [3, 4, 5])
    _, held = cache.prefill(self, [3, 4, 5, 6])
    assert held == 3
    _, held = cache.prefill(self, [3, 4, 9])
    assert held == 0 and decoder.rows == [3, 4, 9]


@pytest.mark.parametrize("rewindable", [True, False])
def test_chunks_cover_the_prompt(rewindable: bool) -> None:
    for position in (0, 3, 500):
        for count in range(1, 700, 7):
            chunks = plan_chunks(position, count, CHUNKS, rewindable)
            at = position
            for start, length in chunks:
                assert length in CHUNKS
                assert 0 <= start <= at if rewindable else start == at
                at = start + length
            assert at == position + count


def test_few_calls_for_common_lengths() -> None:
    assert max(len(plan_chunks(300, count, CHUNKS, True)) for count in range(1, 257)) <= 5
    assert plan_chunks(0, 1, CHUNKS, True) == [(0, 1)]
    assert plan_chunks(0, 256, CHUNKS, True) == [(0, 256)]
    assert plan_chunks(0, 3, (1,), True) == [(0, 1), (1, 1), (2, 1)]


def test_a_model_that_takes_fewer_tokens_at_once() -> None:
    decoder = Rows()
    decoder.chunk_length = 31
    cache = PromptCache(decoder)
    cache.claim(self := object())
    cache.prefill(self, list(range(3, 103)))
    assert max(length for _, length in decoder.calls) == 31


def test_it_stops_between_chunks() -> None:
    decoder = Rows()
    cache = PromptCache(decoder)
    cache.claim(self := object())
    prompt = [3] * 600
    assert cache.prefill(self, prompt, lambda: len(decoder.rows) >= 256) == (None, 0)
    assert len(decoder.rows) == 256
    assert cache.prefill(self, prompt)[1] == 256


def test_an_interrupted_call_is_not_held() -> None:
    decoder = Rows()
    cache = PromptCache(decoder)
    cache.claim(self := object())
    cache.prefill(self, [3, 4, 5])
    forward, decoder.forward = decoder.forward, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)  # type: ignore
    with pytest.raises(KeyboardInterrupt):
        cache.prefill(self, [3, 9, 9])
    decoder.forward = forward  # type: ignore[method-assign]
    assert cache.prefill(self, [3, 4, 5])[1] == 1


def test_a_new_owner_ends_the_old_one() -> None:
    cache = PromptCache(Rows())
    cache.claim(first := object())
    cache.prefill(first, [3])
    cache.claim(object())
    with pytest.raises(UsageError, match="another one was started"):
        cache.append(first, 3)


def test_tokens_that_the_model_does_not_have() -> None:
    decoder = Rows()
    cache = PromptCache(decoder)
    cache.claim(self := object())
    with pytest.raises(InputError, match=f"0 to {decoder.vocabulary - 1}; got 5000"):
        cache.prefill(self, [3, 5000])
    with pytest.raises(InputError, match="at least one token"):
        cache.prefill(self, [])
    assert not decoder.calls
