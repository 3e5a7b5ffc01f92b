"""What the compiler decides by rule and measuring may overrule: tiles, the order of loops, the way of a convolution.

A decision is named by a digest of all it depends on. What ``tune`` found is kept in the cache, by CPU and threads.
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
    """One of ``options``; the first is the rule's. Results are the same, but for the last bits of real numbers."""

    key: str
    kind: str
    options: tuple[str, ...]
    taken: int
    node: object  # whose steps it changes


class TuningParams:
    """Decides as ``found`` says, by the rule where it says nothing, and keeps account."""

    def __init__(self, found: Mapping[str, int] | None = None) -> None:
        self.found = dict(found or {})
        self.made: list[Decision] = []
        self.steps: dict[object, range] = {}  # by node

    def pick(self, node: object, kind: str, spec: object, options: Sequence[T]) -> T:
        """``spec`` says all that the options and their speed depend on; they are many or the decision is none."""
        options = list(dict.fromkeys(options))
        if len(options) < 2:
            return options[0]
        key = hashlib.blake2b(repr((kind, spec, options)).encode(), digest_size=12).hexdigest()
        taken = self.found.get(key, 0)
        taken = taken if 0 <= taken < len(options) else 0
        self.made.append(Decision(key, kind, tuple(str(o) for o in options), taken, node))
        return options[taken]

    def emitted(self, node: object, first: int, end: int) -> None:
        self.steps[node] = range(first, end)


def _key(isa: ISA, threads: int) -> str:
    return cache_key("tuned", isa.cpu, isa.features, str(threads), FINGERPRINT)


def tuned_fingerprint(isa: ISA, threads: int) -> bytes:
    """What is stored, as bytes; empty if nothing is."""
    return default_cache().get(_key(isa, threads)) or b""


def load_tuned(isa: ISA, threads: int) -> dict[str, int]:
    """What was found on this machine before."""
    try:
        stored = json.loads(tuned_fingerprint(isa, threads) or b"{}")
        return {str(key): at for key, at in stored.items() if type(at) is int}
    except (ValueError, AttributeError):
        return {}


def store_tuned(isa: ISA, threads: int, found: Mapping[str, int]) -> None:
    """Beside what was found before."""
    joined = {key: at for key, at in {**load_tuned(isa, threads), **found}.items() if at}
    default_cache().put(_key(isa, threads), json.dumps(joined, sort_keys=True).encode())
