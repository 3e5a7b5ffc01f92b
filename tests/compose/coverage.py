"""Counts of what the engine did with the graphs it was given: lowerings, fusions, kernels, placement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from edgewright.engine import schedule
from edgewright.engine.plan import Plan


@dataclass
class Coverage:
    """By what: ``lowering`` (class), ``fusion`` (label of several operators), ``kernel`` (kind), ``placement``."""

    counts: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Plans that are made meanwhile are counted."""
        original = schedule._Scheduler.run

        def run(scheduler: Any) -> Plan:
            plan = original(scheduler)
            self._add(scheduler, plan)
            return plan

        schedule._Scheduler.run = run  # type: ignore[method-assign]
        try:
            yield
        finally:
            schedule._Scheduler.run = original  # type: ignore[method-assign]

    def _add(self, scheduler: Any, plan: Plan) -> None:
        seen = {
            f"lowering {type(low).__module__.rpartition('.')[2]}.{type(low).__name__}" for low in scheduler.lowerings
        }
        seen |= {f"fusion {low.node.label}" for low in scheduler.lowerings if len(low.node.ops) > 1}
        seen |= {f"kernel {s.kernel.rpartition('_')[0]}" for s in plan.steps if s.python is None}
        seen |= {f"python {s.label}" for s in plan.steps if s.python is not None}
        for name in ("views", "aliases", "parts", "borders", "tight", "rows", "updates"):
            if getattr(scheduler, name):
                seen.add(f"placement {name}")
        self.counts.update(seen)

    def merge(self, other: dict[str, int]) -> None:
        self.counts.update(other)
