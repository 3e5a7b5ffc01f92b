"""Suggestions for misspelled names."""

from __future__ import annotations

from collections.abc import Iterable

from edgewright.errors import EdgewrightError, UsageError

_MAX_COMPARED_CHARS = 200  # characters of a name that are compared


def did_you_mean(text: object, candidates: Iterable[str], limit: int = 1, cutoff: float = 0.6) -> str:
    """A question with up to ``limit`` of the names that are most similar to ``text``, ignoring case; empty if none is.
    ``cutoff``: minimum similarity, from 0 to 1.

    >>> did_you_mean("forwrd", ["forward", "encode"])
    'Did you mean forward?'
    >>> did_you_mean("SM-8650", ["SM8550", "SM8650"], limit=2)
    'Did you mean SM8650 or SM8550?'
    >>> did_you_mean("sm8540", ["sm8850", "sm8550"])
    'Did you mean sm8550?'
    >>> did_you_mean("tpu", ["xnnpack"])
    ''
    """
    prefix = str(text).strip().lower()[:_MAX_COMPARED_CHARS]
    folded: dict[str, str] = {}
    for name in candidates:
        folded.setdefault(name.lower(), name)
    prefixed = [name for name in folded if prefix and name.startswith(prefix)]
    matches = prefixed or _by_similarity(prefix, folded, cutoff)
    return f"Did you mean {' or '.join(folded[name] for name in matches[:limit])}?" if matches else ""


def _by_similarity(text: str, names: Iterable[str], cutoff: float) -> list[str]:
    """Names at least as similar as ``cutoff``, most similar first; of equally similar ones, the longer common start."""
    from difflib import SequenceMatcher
    from itertools import takewhile

    scored = []
    for name in names:
        matcher = SequenceMatcher(None, name, text)
        if matcher.real_quick_ratio() >= cutoff and matcher.ratio() >= cutoff:
            start = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(name, text, strict=False)))
            scored.append((-matcher.ratio(), -start, name))
    return [name for *_, name in sorted(scored)]


def not_among(
    subject: str, value: object, names: Iterable[str], *, rule: str = "must be one of", remedy: str = "",
    error: type[EdgewrightError] = UsageError,
) -> EdgewrightError:  # fmt: skip
    """The error for a ``value`` that is not in ``names``: lists them after ``rule``, and suggests the most similar.

    >>> print(not_among("numerics", "tossa", ["tflite", "tosa"]))
    usage: numerics: must be one of tflite, tosa; got tossa
      Did you mean tosa?
    """
    options = list(names)
    hint = " ".join(filter(None, (did_you_mean(value, options), remedy)))
    return error(subject, f"{rule} {', '.join(options)}", value=value, remedy=hint)
