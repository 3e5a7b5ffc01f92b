"""Rows of the Ethos-U whose samples have steps in numpy, by the types they are held in, and why: none has."""

from __future__ import annotations

LEFT: dict[str, dict[str, str]] = {}
