"""Stop strings: a reply ends before the first of them, also if it arrives in pieces."""

from __future__ import annotations

from collections.abc import Sequence

from edgewright.errors import UsageError

MAX_STOPS = 16
MAX_CHARACTERS = 1024


def check_stops(stops: str | Sequence[str] | None) -> tuple[str, ...]:
    listed = () if stops is None else (stops,) if isinstance(stops, str) else tuple(stops)
    if len(listed) > MAX_STOPS:
        raise UsageError("stop", f"may have {MAX_STOPS} texts", value=len(listed))
    for text in listed:
        if not isinstance(text, str) or not 0 < len(text) <= MAX_CHARACTERS:
            rule = f"must be texts of 1 to {MAX_CHARACTERS} characters"
            raise UsageError("stop", rule, value=text if isinstance(text, str) else type(text).__name__)
    return listed


class StopStrings:
    """Passes text on, except for an end that may be the start of a stop string."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.matched: str | None = None

    def push(self, text: str) -> str:
        """The text that no stop string can start in any more; after a match, the text before it."""
        if self.matched is not None:
            return ""
        self._held += text
        found = [(at, stop) for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if found:
            at, self.matched = min(found)
            before, self._held = self._held[:at], ""
            return before
        keep = max((_overlap(self._held, stop) for stop in self._stops), default=0)
        passed = self._held[: len(self._held) - keep]
        self._held = self._held[len(passed) :]
        return passed

    def finish(self) -> str:
        """What was held back."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """The length of the longest end of ``text`` that ``stop`` starts with."""
    return next((n for n in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:n])), 0)
