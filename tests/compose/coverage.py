"""Counts of what the engine did with the graphs it was given: lowerings, fusions, kernels, placement."""

from __future__ import annotations

import pkgutil
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import edgewright.engine.lower as lower
from edgewright.engine.graph import schedule
from edgewright.engine.lower.base import Lowering
from edgewright.engine.plan import Plan

PLACEMENT = ("views", "aliases", "parts", "borders", "unpadded", "padded_rows", "updates")
IMPROVEMENT = "quantization"  # a method of better rounding, or training
# What is fused into an operator: fields of its node.
_FUSED = {"epilogue": "functions", "residual": "second operand", "sum": "integer sum", "table": "table"}


@dataclass
class Coverage:
    """By what: ``lowering`` (class), ``fusion`` (class, and what is fused), ``kernel`` (kind), ``placement``,
    ``python`` (steps that numpy does)."""

    counts: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Plans that are made meanwhile are counted."""
        original = schedule._Scheduler.run

        def run(scheduler: Any) -> Plan:
            plan = original(scheduler)
            self._add(scheduler, plan)
            return plan

        schedule._Scheduler.run = run  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            schedule._Scheduler.run = original  # type: ignore[method-assign]

    def _add(self, scheduler: Any, plan: Plan) -> None:
        seen = {f"lowering {name_of(type(low))}" for low in scheduler.lowerings}
        seen |= {f"fusion {fusion_of(low)}" for low in scheduler.lowerings if len(low.node.ops) > 1}
        seen |= {f"kernel {s.kernel.rpartition('_')[0]}" for s in plan.steps if s.python is None}
        seen |= {f"python {s.label.partition('+')[0]}" for s in plan.steps if s.python is not None}
        seen |= {f"placement {name}" for name in PLACEMENT if getattr(scheduler, name)}
        self.counts.update(seen)


def name_of(lowering: type) -> str:
    return f"{lowering.__module__.rpartition('.')[2]}.{lowering.__name__}"


def fusion_of(low: Lowering) -> str:
    """A lowering with what of its node is more than one operator."""
    fused = [name for attribute, name in _FUSED.items() if _there(getattr(low.node, attribute))]
    if not fused:
        fused = ["several operators"] if low.node.op.kind.startswith("core.") else ["tree of elements"]
    return f"{name_of(type(low))} with {', '.join(fused)}"


def _there(value: Any) -> bool:
    return value is not None and (not isinstance(value, tuple) or bool(value))


@cache
def all_lowerings() -> tuple[str, ...]:
    """Every class that the engine may choose for a node."""
    for module in pkgutil.iter_modules(lower.__path__):
        import_module(f"{lower.__name__}.{module.name}")
    return tuple(sorted({name_of(kind) for kind in _below(Lowering) if "accept" in vars(kind)}))


def _below(kind: type) -> Iterator[type]:
    for one in kind.__subclasses__():
        yield one
        yield from _below(one)


@cache
def all_kernels() -> tuple[str, ...]:
    """The kinds that lowerings name when they ask for a kernel, as far as they are literals in their source."""
    folder = Path(lower.__file__).parent
    text = "\n".join(path.read_text() for path in sorted(folder.glob("*.py")))
    named = re.findall(r'\.kernel\(\s*"(\w+)"', text)
    return tuple(sorted(set(named)))
