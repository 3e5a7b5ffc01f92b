"""Registry of reference implementations by operator kind, and dynamically quantized rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgewright.ir.graph import Array, Op

if TYPE_CHECKING:
    from edgewright.ir.core.execute import Executor


@dataclass(frozen=True)
class DynamicRows:
    """Dynamically quantized rows: real = (stored - zero) / scale."""

    stored: Array
    scale: Array
    zero: Array
    real: Array


Implementation = Callable[["Executor", Op], Any]
IMPLEMENTATIONS: dict[str, Implementation] = {}


def implements(*kinds: str) -> Callable[[Implementation], Implementation]:
    def register(fn: Implementation) -> Implementation:
        for kind in kinds:
            IMPLEMENTATIONS[kind] = fn
        return fn

    return register
