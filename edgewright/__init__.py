"""Edgewright takes a PyTorch model to the devices people ship on, and runs every target on your machine first."""

from __future__ import annotations

from edgewright._lazy import lazy_names
from edgewright._version import VERSION

__all__ = ["EdgewrightError", "Runtime", "__version__", "read_program", "write_program"]

__version__ = VERSION

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "EdgewrightError": "edgewright.errors",
        "Runtime": "edgewright.runtime.program",
        "read_program": "edgewright.pte.reader",
        "write_program": "edgewright.pte.writer",
    },
)
