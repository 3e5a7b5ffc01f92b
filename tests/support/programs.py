"""Programs of the system that some tests run: a machine that lacks one skips those tests, with the reason."""

from __future__ import annotations

import shutil

import pytest


def require(name: str, purpose: str) -> str:
    """The path of a program, or the test is skipped."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not on PATH, and {purpose}")
    return found
