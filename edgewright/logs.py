"""Logging that imports ``logging`` on demand: the import takes longer than loading most files."""

from __future__ import annotations

import sys


def log_message(level: str, logger: str, message: str, *args: object) -> None:
    """Log through ``edgewright.<logger>``. If ``logging`` is not imported, nobody has enabled levels below warning."""
    if level == "warning" or "logging" in sys.modules:
        import logging

        getattr(logging.getLogger(f"edgewright.{logger}"), level)(message, *args)
