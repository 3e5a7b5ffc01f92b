"""Tuning parameters: decisions that a heuristic makes and measurements may override (tiles, loop order, algorithm).

A decision is identified by a digest of everything it depends on. ``tune`` stores its results in the cache, by CPU and
thread count.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from edgewright.engine.isa import ISA
from edgewright.engine.jit.build import FINGERPRINT
from edgewright.engine.jit.cache import cache_key, default_cache

T = TypeVar("T")


@dataclass(frozen=True)
class Decision:
    """The choice among ``options``, of which the heuristic chooses the first. Options differ only in speed and in the
    rounding of floating point."""

    key: str
    kind: str
    options: tuple[str, ...]
    chosen: int
    node: object  # the node whose steps it affects


class TuningParams:
    """Makes decisions from ``tuned`` indices, or by the heuristic, and records them."""

    def __init__(self, tuned: Mapping[str, int] | None = None) -> None:
        self.tuned = dict(tuned or {})
        self.decisions: list[Decision] = []
        self.steps: dict[object, range] = {}  # by node

    def pick(self, node: object, kind: str, spec: object, options: Sequence[T]) -> T:
        """Choose an option. ``spec`` contains everything the options and their speed depend on. A single option is no
        decision and is not recorded."""
        options = list(dict.fromkeys(options))
        if len(options) < 2:
            return options[0]
        key = hashlib.blake2b(repr((kind, spec, options)).encode(), digest_size=12).hexdigest()
        index = self.tuned.get(key, 0)
        index = index if 0 <= index < len(options) else 0
        self.decisions.append(Decision(key, kind, tuple(str(o) for o in options), index, node))
        return options[index]

    def record_steps(self, node: object, first: int, end: int) -> None:
        """Note the steps that a node was lowered to."""
        self.steps[node] = range(first, end)


def _key(isa: ISA, threads: int) -> str:
    return cache_key("tuned", isa.cpu, isa.features, str(threads), FINGERPRINT)


def tuned_fingerprint(isa: ISA, threads: int) -> bytes:
    """The stored parameters as bytes, part of the plan cache's key; empty if there are none."""
    return default_cache().get(_key(isa, threads)) or b""


def load_tuned(isa: ISA, threads: int) -> dict[str, int]:
    """Parameters stored for this CPU and thread count."""
    try:
        stored = json.loads(tuned_fingerprint(isa, threads) or b"{}")
        return {str(key): at for key, at in stored.items() if type(at) is int}
    except (ValueError, AttributeError):
        return {}


def store_tuned(isa: ISA, threads: int, tuned: Mapping[str, int]) -> None:
    """Merge parameters into the stored ones; index 0, the heuristic's choice, is not stored."""
    merged = {key: at for key, at in {**load_tuned(isa, threads), **tuned}.items() if at}
    default_cache().put(_key(isa, threads), json.dumps(merged, sort_keys=True).encode())
