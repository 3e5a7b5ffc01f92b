"""Control flow: ``cond``, ``map``, ``scan`` and ``while_loop`` as jumps and moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

CONTROL: dict[str, Callable[[Any, Any], None]] = {}
