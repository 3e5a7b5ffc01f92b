"""Type checks for arguments that callers pass to the runtime; a failed one raises ``UsageError``."""

from __future__ import annotations

from typing import Any

from edgewright.errors import UsageError


def check_instance(subject: str, value: object, kind: type, remedy: str = "") -> None:
    """Raise unless ``value`` is a ``kind``."""
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "aeiouAEIOU" else "a"
        rule = f"must be {article} {kind.__name__}"
        raise UsageError(subject, rule, value=type(value).__name__, remedy=remedy)


def check_callable(subject: str, value: Any) -> None:
    if not callable(value):
        raise UsageError(subject, "must be a function", value=type(value).__name__)


def check_count(subject: str, value: object, minimum: int) -> None:
    """Raise unless ``value`` is an integer (not a ``bool``) of at least ``minimum``."""
    if type(value) is not int:
        raise UsageError(subject, f"must be a whole number, {minimum} or more", value=_short_repr(value))
    if value < minimum:
        raise UsageError(subject, f"must be a whole number, {minimum} or more", value=value)


def _short_repr(value: object) -> str:
    """A number or string itself, else its type: the repr of an array is too long."""
    return repr(value) if isinstance(value, bool | float | str) else type(value).__name__
