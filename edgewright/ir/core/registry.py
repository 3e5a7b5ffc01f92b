"""Where meanings are registered by the operators' names, and rows that carry their own parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgewright.ir.graph import Array, Op

if TYPE_CHECKING:
    from edgewright.ir.core.execute import Executor


@dataclass(frozen=True)
class Rows:
    """Integers whose rows were quantized on the fly: real = (stored - zero) / scale."""

    stored: Array
    scale: Array
    zero: Array
    real: Array


Function = Callable[["Executor", Op], Any]
FUNCTIONS: dict[str, Function] = {}


def function(*kinds: str) -> Callable[[Function], Function]:
    def register(fn: Function) -> Function:
        for kind in kinds:
            FUNCTIONS[kind] = fn
        return fn

    return register
