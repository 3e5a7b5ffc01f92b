"""Instruction sets of the tests in this folder."""

from __future__ import annotations

from tests.engine.instruction_sets import instruction_sets  # noqa: F401
