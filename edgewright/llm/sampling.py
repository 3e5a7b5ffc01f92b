"""Choice of the next token from logits.

The order is llama.cpp's: penalties and biases, top-k, top-p, min-p, then the temperature, then the draw.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgewright.errors import ExecutionError, FormatError, UsageError

MAX_BIASES = 1024
_HEADS = (1 << 10, 1 << 14)


@dataclass(frozen=True)
class SamplingOptions:
    """How a token is chosen. A ``temperature`` of 0 takes the most likely one; ``top_k`` of 0, ``top_p`` of 1 and
    ``min_p`` of 0 keep all tokens.

    ``repetition_penalty`` concerns the last ``repetition_window`` tokens of prompt and reply; ``frequency_penalty`` and
    ``presence_penalty`` the reply. ``logit_bias`` is added to the logits of single tokens: -100 excludes one.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repetition_penalty: float = 1.0
    repetition_window: int = 64
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None

    def __post_init__(self) -> None:
        for name, (low, high) in _RANGES.items():
            _check_number(name, getattr(self, name), low, high)
        for name in ("top_k", "repetition_window"):
            _check_integer(name, getattr(self, name), 0, 1 << 31)
        if self.repetition_penalty <= 0 or self.top_p <= 0:
            name = "top_p" if self.top_p <= 0 else "repetition_penalty"
            raise UsageError(name, "must be more than 0", value=getattr(self, name))
        if self.seed is not None:
            _check_integer("seed", self.seed, -(1 << 63), (1 << 64) - 1)
        _check_biases(self.logit_bias)


_RANGES = {
    "temperature": (0.0, 100.0),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (0.0, 100.0),
    "frequency_penalty": (-100.0, 100.0),
    "presence_penalty": (-100.0, 100.0),
}
SAMPLING_NAMES = tuple(f.name for f in fields(SamplingOptions))
_RECOMMENDED = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")


def default_sampling(generation: Mapping[str, Any], where: str) -> SamplingOptions:
    """What the checkpoint recommends (``generation_config.json``), else ours."""
    values = {name: generation[name] for name in _RECOMMENDED if generation.get(name) is not None}
    if generation.get("do_sample") is False:
        values["temperature"] = 0.0
    try:
        return SamplingOptions(**values)
    except UsageError as error:
        raise FormatError(error.rule, value=error.value, where=f"{where}.{error.subject}") from error


def _check_number(name: str, value: Any, low: float, high: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(name, "must be a number", value=value)
    if not low <= value <= high:  # also NaN
        raise UsageError(name, f"must be from {low:g} to {high:g}", value=value)


def _check_integer(name: str, value: Any, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError(name, "must be a whole number", value=value)
    if not low <= value <= high:
        raise UsageError(name, f"must be from {low} to {high}", value=value)


def _check_biases(biases: Any) -> None:
    if not isinstance(biases, Mapping):
        raise UsageError("logit_bias", "must map token ids to numbers", value=type(biases).__name__)
    if len(biases) > MAX_BIASES:
        raise UsageError("logit_bias", f"may have {MAX_BIASES} entries", value=len(biases))
    for token, bias in biases.items():
        _check_integer("token id in logit_bias", token, 0, 1 << 31)
        _check_number(f"logit_bias[{token}]", bias, -100.0, 100.0)


class Sampler:
    """Chooses tokens one after another. The same seed and logits give the same tokens, on every machine."""

    def __init__(self, options: SamplingOptions) -> None:
        self.options = options
        self.seed = random.SystemRandom().getrandbits(63) if options.seed is None else options.seed
        # The standard library's generator: its stream is the same in all releases, numpy's is not promised to be.
        self._random = random.Random(self.seed if self.seed >= 0 else f"{self.seed}")  # Random(-1) equals Random(1)

    def sample(self, logits: NDArray[np.float32], history: Sequence[int] = (), replied: int = 0) -> int:
        """The next token. ``history``: prompt and reply so far, whose last ``replied`` tokens are the reply."""
        scores = _biased(logits, self.options, history, replied)
        best = scores.max()
        if not math.isfinite(best):
            rule = "must be numbers, at least one of them finite"
            raise ExecutionError("logits", rule, value=best, remedy="The model computed NaN or infinity.")
        if self.options.temperature == 0 or self.options.top_k == 1:
            return int(scores.argmax())
        tokens, probabilities = candidates(scores, self.options)
        threshold = self._random.random()
        at = int(np.searchsorted(np.cumsum(probabilities), threshold, side="right"))
        return int(tokens[min(at, len(tokens) - 1)])  # a sum of rounded shares may be less than the threshold


def candidates(scores: NDArray[Any], options: SamplingOptions) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The tokens that may be drawn, with their probabilities.

    Of equal tokens the smaller id comes first, so that the result does not depend on how a library sorts.
    """
    top_k = min(options.top_k or len(scores), len(scores))
    if top_k == len(scores) and options.top_p == 1 and options.min_p == 0:  # none is left out, and the order is free
        return np.arange(top_k), _softmax((scores - scores.max()).astype(np.float64) / options.temperature)
    total = None if options.top_k else float(np.exp(scores - scores.max(), dtype=np.float64).sum())
    # Sorting a whole vocabulary takes much longer than finding its likeliest tokens, which are mostly enough.
    for head in (*_HEADS, top_k):
        tokens = _largest(scores, min(head, top_k))
        shifted = scores[tokens].astype(np.float64)
        shifted -= shifted[0]
        powers = np.exp(shifted)
        shares = powers / (powers.sum() if total is None or len(tokens) == len(scores) else total)
        count = _prefix(shares, options)
        if count < len(tokens) or len(tokens) == top_k:
            break
    return tokens[:count], _softmax(shifted[:count] / options.temperature)


def _largest(scores: NDArray[Any], count: int) -> NDArray[np.int64]:
    """The tokens of the largest scores, the largest first."""
    tokens = np.arange(len(scores))
    if count < len(scores):
        tokens = np.flatnonzero(scores >= np.partition(scores, -count)[-count])
    order: NDArray[np.int64] = np.argsort(-scores[tokens], kind="stable")[:count]
    return tokens[order]


def _prefix(shares: NDArray[np.float64], options: SamplingOptions) -> int:
    """How many of the sorted tokens remain: the shortest prefix that reaches top_p, without what min_p leaves out."""
    count = len(shares)
    if options.top_p < 1:
        count = min(count, int(np.searchsorted(np.cumsum(shares), options.top_p, side="left")) + 1)
    if options.min_p > 0:
        count = min(count, max(1, int(np.count_nonzero(shares >= options.min_p * shares[0]))))
    return count


def _softmax(shifted: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of numbers whose largest is 0, so that no exponential overflows."""
    powers: NDArray[np.float64] = np.exp(shifted)
    powers /= powers.sum()
    return powers


def _biased(
    logits: NDArray[np.float32], options: SamplingOptions, history: Sequence[int], replied: int
) -> NDArray[Any]:
    """The logits after penalties and biases: a copy if there are any."""
    window = history[-options.repetition_window :] if options.repetition_window else ()
    repeats = options.repetition_penalty != 1 and len(window) > 0
    counts = (options.frequency_penalty or options.presence_penalty) and replied > 0
    if not (repeats or counts or options.logit_bias):
        return logits
    scores = logits.copy()
    if repeats:
        recent = np.unique(np.asarray(window, np.int64))
        values = scores[recent]
        scores[recent] = np.where(values > 0, values / options.repetition_penalty, values * options.repetition_penalty)
    if counts:
        tokens, times = np.unique(np.asarray(history[-replied:], np.int64), return_counts=True)
        scores[tokens] -= options.frequency_penalty * times + options.presence_penalty
    for token, bias in options.logit_bias.items():
        if token >= len(scores):
            rule = f"must name tokens of the vocabulary, 0 to {len(scores) - 1}"
            raise UsageError("logit_bias", rule, value=token)
        scores[token] += bias
    return scores
