"""Python's logging, loaded when there is something to say: it takes longer to load than most files."""

from __future__ import annotations

import sys


def say(level: str, logger: str, message: str, *args: object) -> None:
    """Log through ``edgewright.<logger>``. Without logging loaded, nobody asked for less than warnings."""
    if level == "warning" or "logging" in sys.modules:
        import logging

        getattr(logging.getLogger(f"edgewright.{logger}"), level)(message, *args)
