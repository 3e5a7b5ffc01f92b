"""Registry of the functions that lower kernel calls to operators of a core graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgewright.runtime.tensor import TensorSlot

if TYPE_CHECKING:
    from edgewright.runtime.jit.graph_builder import GraphBuilder

Args = Mapping[str, Any]
Lowering = Callable[["GraphBuilder", Args, Sequence[TensorSlot]], bool]
LOWERINGS: dict[str, Lowering] = {}
FALLBACKS: dict[str, list[Lowering]] = {}  # tried in order if the first lowering rejects a call
MULTI_RESULT: set[str] = set()  # kernels whose lowering defines all results, not only the first


def op_name(a: Args) -> str:
    """The name of the called ATen operator, without overload."""
    name: str = a["key"].partition("::")[2].partition(".")[0]
    return name


def core_kind(a: Args) -> str:
    """The core operator of the same name."""
    return f"core.{op_name(a)}"


def lowers(*keys: str) -> Callable[[Lowering], Lowering]:
    """Register the lowering of kernels ``keys``. It returns False, without emitting, for a call it does not support."""

    def register(lowering: Lowering) -> Lowering:
        LOWERINGS.update(dict.fromkeys(keys, lowering))
        return lowering

    return register


def lowers_fallback(*keys: str) -> Callable[[Lowering], Lowering]:
    """Register a lowering that is tried when the first one for the same kernel returns False."""

    def register(lowering: Lowering) -> Lowering:
        for key in keys:
            FALLBACKS.setdefault(key, []).append(lowering)
        return lowering

    return register
