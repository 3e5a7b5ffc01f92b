"""What people may have meant: for every name from a closed set that was given wrongly."""

from __future__ import annotations

from collections.abc import Iterable

from edgewright.errors import EdgewrightError, UsageError

_LONGEST = 200  # characters of a name that are compared


def did_you_mean(given: object, names: Iterable[str], most: int = 1, alike: float = 0.6) -> str:
    """A question with the names nearest to ``given``, upper and lower case alike; empty if none is near.
    ``alike``: how much of two names must be the same, of 1.

    >>> did_you_mean("forwrd", ["forward", "encode"])
    'Did you mean forward?'
    >>> did_you_mean("SM-8650", ["SM8550", "SM8650"], most=2)
    'Did you mean SM8650 or SM8550?'
    >>> did_you_mean("tpu", ["xnnpack"])
    ''
    """
    from difflib import get_close_matches

    wanted = str(given).strip().lower()[:_LONGEST]
    folded: dict[str, str] = {}
    for name in names:
        folded.setdefault(name.lower(), name)
    begun = [name for name in folded if wanted and name.startswith(wanted)]
    near = begun or get_close_matches(wanted, folded, most, alike)
    return f"Did you mean {' or '.join(folded[name] for name in near[:most])}?" if near else ""


def not_among(
    subject: str, given: object, names: Iterable[str], *, rule: str = "must be one of", remedy: str = "",
    error: type[EdgewrightError] = UsageError,
) -> EdgewrightError:  # fmt: skip
    """The error for ``given``, which is none of ``names``: it lists them after ``rule``, and hints at the nearest.

    >>> print(not_among("numerics", "tossa", ["tflite", "tosa"]))
    usage: numerics: must be one of tflite, tosa; got tossa
      Did you mean tosa?
    """
    listed = list(names)
    said = " ".join(filter(None, (did_you_mean(given, listed), remedy)))
    return error(subject, f"{rule} {', '.join(listed)}", value=given, remedy=said)
