"""XNNPACK's nodes that run in numpy, and why: none."""

from __future__ import annotations

LEFT: dict[str, str] = {}
