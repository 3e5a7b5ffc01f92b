"""Sampling: hand-computed cases, distributions, penalties, and the same tokens for the same seed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from edgewright.errors import ExecutionError, UsageError
from edgewright.llm.sampling import SAMPLING_NAMES, Sampler, SamplingOptions, candidates

OFF: dict[str, Any] = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "temperature": 1.0}
SHARES = np.array([0.1, 0.4, 0.05, 0.25, 0.2])
LOGITS = np.log(SHARES).astype(np.float32)


def kept(**options: Any) -> dict[int, float]:
    tokens, shares = candidates(LOGITS, SamplingOptions(**{**OFF, **options}))
    return dict(zip(tokens.tolist(), shares.tolist(), strict=True))


def test_all_tokens_keep_their_shares_without_filters() -> None:
    shares = kept()
    assert list(shares) == [0, 1, 2, 3, 4]
    np.testing.assert_allclose([*shares.values()], SHARES, rtol=1e-6)


def test_top_k() -> None:
    assert kept(top_k=2) == pytest.approx({1: 0.4 / 0.65, 3: 0.25 / 0.65})
    assert kept(top_k=5) == kept(top_k=9) == kept()


def test_equal_logits_are_taken_in_the_order_of_ids() -> None:
    tokens, _ = candidates(np.zeros(1000, np.float32), SamplingOptions(**{**OFF, "top_k": 3}))
    assert tokens.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("top_p", "tokens"),
    [(1e-9, [1]), (0.39, [1]), (0.41, [1, 3]), (0.64, [1, 3]), (0.66, [1, 3, 4]), (0.951, [1, 3, 4, 0, 2])],
)
def test_top_p_is_the_shortest_prefix_that_reaches_it(top_p: float, tokens: list[int]) -> None:
    assert list(kept(top_p=top_p)) == tokens


@pytest.mark.parametrize("options", [{"top_p": 0.9}, {"top_p": 0.999999}, {"min_p": 1e-9}, {"top_p": 0.5, "top_k": 50}])
def test_large_vocabularies_are_not_sorted_completely(options: dict[str, Any]) -> None:
    """The tokens and shares are those of a complete sort."""
    scores = (np.random.default_rng(0).normal(size=30_000) * 2).astype(np.float32)
    chosen = SamplingOptions(**{**OFF, **options})
    tokens, shares = candidates(scores, chosen)
    order = np.argsort(-scores, kind="stable")[: chosen.top_k or None]
    powers = np.exp(scores[order].astype(np.float64) - scores.max())
    parts = powers / powers.sum()
    count = int((np.cumsum(parts) < chosen.top_p).sum()) + 1 if chosen.top_p < 1 else len(parts)
    count = min(count, int((parts >= chosen.min_p * parts[0]).sum()))
    assert tokens.tolist() == order[:count].tolist()
    np.testing.assert_allclose(shares, parts[:count] / parts[:count].sum(), rtol=1e-9)


def test_top_p_is_computed_from_what_top_k_left() -> None:
    assert list(kept(top_k=2, top_p=0.6)) == [1]  # 0.4 / 0.65 is more than 0.6
    assert list(kept(top_p=0.6)) == [1, 3]


@pytest.mark.parametrize(("min_p", "tokens"), [(1.0, [1]), (0.6, [1, 3]), (0.49, [1, 3, 4]), (0.13, [1, 3, 4, 0])])
def test_min_p_is_relative_to_the_likeliest(min_p: float, tokens: list[int]) -> None:
    assert list(kept(min_p=min_p)) == tokens


def test_temperature_applies_to_what_the_filters_left() -> None:
    cold = kept(top_k=2, temperature=0.5)
    assert cold == pytest.approx({1: 0.16 / (0.16 + 0.0625), 3: 0.0625 / (0.16 + 0.0625)})
    assert list(kept(top_p=0.6, temperature=50.0)) == [1, 3]


def test_greedy_takes_the_first_of_the_largest() -> None:
    greedy = Sampler(SamplingOptions(temperature=0))
    assert greedy.sample(LOGITS) == 1
    assert greedy.sample(np.array([1, 3, 3], np.float32)) == 1
    assert Sampler(SamplingOptions(top_k=1, temperature=50)).sample(LOGITS) == 1


def test_draws_have_the_distribution() -> None:
    sampler = Sampler(SamplingOptions(**OFF, seed=0))
    draws = np.bincount([sampler.sample(LOGITS) for _ in range(5_000)], minlength=5)
    squares = ((draws - SHARES * 5_000) ** 2 / (SHARES * 5_000)).sum()
    assert squares < 18.5  # chi-squared with 4 degrees of freedom: 0.1 %


def test_a_seed_fixes_the_stream() -> None:
    def tokens(seed: int | None) -> list[int]:
        sampler = Sampler(SamplingOptions(**OFF, seed=seed))
        return [sampler.sample(LOGITS) for _ in range(40)]

    assert tokens(7) == tokens(7)
    assert len({tuple(tokens(seed)) for seed in (0, 1, -1, 2**63, None, None)}) == 6
    assert tokens(7)[:10] == [1, 1, 3, 0, 2, 1, 0, 2, 0, 1]  # in all releases


def test_a_drawn_seed_can_be_used_again() -> None:
    first = Sampler(SamplingOptions(**OFF))
    tokens = [first.sample(LOGITS) for _ in range(40)]
    again = Sampler(SamplingOptions(**OFF, seed=first.seed))
    assert [again.sample(LOGITS) for _ in range(40)] == tokens


def greedy(logits: list[float], history: list[int], replied: int = 0, **options: Any) -> int:
    return Sampler(SamplingOptions(temperature=0, **options)).sample(np.array(logits, np.float32), history, replied)


def test_repetition_penalty_divides_positive_and_multiplies_negative_logits() -> None:
    assert greedy([4, 3], [0], repetition_penalty=1.3) == 0
    assert greedy([4, 3], [0], repetition_penalty=1.34) == 1
    assert greedy([4, 3], [0, 0, 0], repetition_penalty=1.3) == 0  # once, however often it occurs
    assert greedy([-2, -3], [0], repetition_penalty=1.6) == 1


def test_repetition_window() -> None:
    history = [0] + [2] * 64
    assert greedy([4, 3, 0], history, repetition_penalty=9) == 0
    assert greedy([4, 3, 0], history, repetition_penalty=9, repetition_window=65) == 1
    assert greedy([4, 3, 0], history, repetition_penalty=9, repetition_window=0) == 0


def test_frequency_and_presence_count_the_reply_only() -> None:
    assert greedy([4, 3], [0, 0, 0], replied=0, frequency_penalty=5) == 0
    assert greedy([4, 3], [0, 0, 0], replied=1, frequency_penalty=0.9) == 0
    assert greedy([4, 3], [0, 0, 0], replied=2, frequency_penalty=0.6) == 1
    assert greedy([4, 3], [0, 0, 0], replied=2, presence_penalty=0.9) == 0
    assert greedy([4, 3], [0, 0, 0], replied=2, presence_penalty=1.1) == 1


def test_logit_bias() -> None:
    assert greedy([4, 3, 2], [], logit_bias={2: 3.0}) == 2
    assert greedy([4, 3, 2], [], logit_bias={0: -100}) == 1
    drawn = Sampler(SamplingOptions(**{**OFF, "logit_bias": {1: -100, 3: -100}}, seed=0))
    assert {drawn.sample(LOGITS) for _ in range(200)} == {0, 2, 4}
    with pytest.raises(UsageError, match="0 to 2; got 3"):
        greedy([4, 3, 2], [], logit_bias={3: 1.0})


def test_logits_are_not_changed() -> None:
    logits = LOGITS.copy()
    Sampler(SamplingOptions(repetition_penalty=2, presence_penalty=1, logit_bias={0: 5})).sample(logits, [1], 1)
    np.testing.assert_array_equal(logits, LOGITS)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_logits_that_are_not_numbers(bad: float) -> None:
    logits = LOGITS.copy()
    logits[2] = bad
    with pytest.raises(ExecutionError, match="NaN or infinity"):
        Sampler(SamplingOptions()).sample(logits)
    with pytest.raises(ExecutionError, match="at least one of them finite"):
        Sampler(SamplingOptions()).sample(np.full(3, -math.inf, np.float32))


def test_tokens_that_the_model_excludes_are_never_drawn() -> None:
    logits = np.array([0, -math.inf, 0, -math.inf], np.float32)
    sampler = Sampler(SamplingOptions(**OFF, seed=0))
    assert {sampler.sample(logits) for _ in range(100)} == {0, 2}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("temperature", "1"),
        ("temperature", True),
        ("top_k", -1),
        ("top_k", 1.5),
        ("top_p", 0),
        ("top_p", 1.01),
        ("min_p", -0.1),
        ("min_p", 1.1),
        ("repetition_penalty", 0),
        ("repetition_window", -1),
        ("frequency_penalty", math.inf),
        ("presence_penalty", None),
        ("seed", 1.0),
        ("seed", 1 << 64),
        ("logit_bias", [1]),
        ("logit_bias", {"1": 1.0}),
        ("logit_bias", {1: 101}),
        ("logit_bias", dict.fromkeys(range(1025), 1.0)),
    ],
)
def test_options_out_of_range(name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=name):
        SamplingOptions(**{name: value})


def test_names() -> None:
    assert {"temperature", "top_k", "top_p", "min_p", "seed", "logit_bias"} <= set(SAMPLING_NAMES)
