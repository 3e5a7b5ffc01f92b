"""Chooses which assignments a search verifies: between the most erroneous program that is accurate and the least
erroneous one that is not, those that are predicted to be better than the best so far."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgewright.api.recipe import FLOAT, HIGHER, Recipe, higher
from edgewright.backends import find_quantizer
from edgewright.explore.goal import Findings
from edgewright.explore.propose import Space, frontier
from edgewright.explore.search_task import Task
from edgewright.explore.sensitivity import Sensitivity
from edgewright.explore.space import Corrections, Uniform, Verified, choices_of, make_space, operators_of
from edgewright.explore.units import Assignment, pinned, recipe_of
from edgewright.quantize.methods import HEADROOM

_AT_ONCE = 2  # proposals that are verified together, whatever the number of workers
_MARGIN = 0.99  # of the predicted cost of the best program, to undercut: less is not worth a compilation


@dataclass
class Proposer:
    """Chooses what to verify next. ``programs``: those in one precision that could be compiled. ``methods``: of better
    rounding, of all proposals."""

    task: Task
    sensitivity: Sensitivity
    programs: Mapping[str, Uniform]
    methods: Sequence[str] = ()
    space: Space = field(init=False)
    _frontiers: dict[str, list[dict[str, str]]] = field(default_factory=dict)  # by the time of conversions

    def __post_init__(self) -> None:
        presets = [preset for preset in self.task.presets if preset in self.programs]
        self._operators = operators_of(self.sensitivity)
        units = [layer.unit for layer in self.sensitivity.layers if layer.unit]
        target = self.task.target
        quantizer = find_quantizer(target.backend)
        self._16_bit = {name for name in presets if name != FLOAT and quantizer.presets[name]().is_16_bit}
        fixed = {
            unit: _resolved(quantizer.presets, name)
            for unit, name in pinned(self.task.fixed, dict.fromkeys(units), self._operators).items()
        }
        choices = choices_of(self.sensitivity, presets, fixed)
        self.space = make_space(self.sensitivity, choices, self.programs, target.backend)
        self.corrections = Corrections(self.space)

    def uniform(self, preset: str) -> dict[str, str]:
        return self.space.uniform(preset)

    def recipe(self, assignment: Assignment) -> Recipe:
        return recipe_of(assignment, self._operators, self.task.presets, self.methods_of(assignment))

    def methods_of(self, assignment: Assignment, methods: Sequence[str] | None = None) -> tuple[str, ...]:
        """The methods that change a program: headroom is of 16-bit activations, and without any it is the same."""
        has_16_bit = not self._16_bit.isdisjoint(assignment.values())
        named = self.methods if methods is None else methods
        return tuple(name for name in named if has_16_bit or name != HEADROOM)

    def next(
        self, verified: Sequence[Verified], found: Findings, known: Callable[[Assignment], bool]
    ) -> list[dict[str, str]]:
        """Up to two assignments that are not known, and promise more than the best so far."""
        goal = self.task.goal
        self.corrections.learn(verified)
        points = list(zip(verified, found.points, strict=True))
        comparable = [(self._power(v.assignment), goal.is_accurate(p)) for v, p in points if v.proposable]
        good = [power for power, is_accurate in comparable if is_accurate]
        bad = [power for power, is_accurate in comparable if not is_accurate]
        fits = goal.is_fast if goal.smallest else goal.is_small
        usable = [(v, p) for v, p in points if goal.is_accurate(p) and fits(p)]
        best = min(usable, key=lambda pair: goal.cost(pair[1]), default=None)
        pool = [a for a in self._frontier() if not known(a) and self._fits(a)]
        if best is None:
            return self._most_precise(pool, bad)
        limit = self._cost(best[0].assignment) * _MARGIN  # predicted as well: both have the same bias
        low = max((power for power in good if power < min(bad, default=float("inf"))), default=max(good, default=0.0))
        high = min((power for power in bad if power > low), default=float("inf"))
        chosen = self._between([a for a in pool if self._cost(a) < limit], low, high)
        if len(chosen) < _AT_ONCE:
            near = [a for a in self._neighbors(best[0].assignment, high) if not known(a) and self._fits(a)]
            near = sorted((a for a in near if self._cost(a) < limit and a not in chosen), key=self._cost)
            safe = [a for a in near if self._power(a) <= low]
            chosen += [*safe[:1], *(a for a in near if a not in safe[:1])][: _AT_ONCE - len(chosen)]
        return chosen

    def _frontier(self) -> list[dict[str, str]]:
        """What is proposed; it is computed again when conversions turn out to take another time."""
        key = f"{self.space.conversion:.1e}"
        if key not in self._frontiers:
            goal = self.task.goal
            limited = (goal.latency if goal.smallest else goal.size) is not None
            self._frontiers[key] = frontier(self.space, goal.smallest, limited)
        return self._frontiers[key]

    def _between(self, pool: Sequence[dict[str, str]], low: float, high: float) -> list[dict[str, str]]:
        """The cheapest that is surely accurate; then what divides the range between accurate and not."""
        sure = sorted((a for a in pool if self._power(a) <= low), key=self._cost)[:1]
        open_ = sorted((a for a in pool if low < self._power(a) < high), key=self._power)
        if self.task.goal.original is None and open_:
            bound = 10 ** (-self.task.goal.sqnr / 10) / (self.corrections.power or 1.0)
            inside = sum(self._power(a) <= bound for a in open_)
            divided = [open_[n] for n in (inside - 1, inside) if 0 <= n < len(open_)]
        else:
            divided = [open_[n] for n in dict.fromkeys((len(open_) // 3, 2 * len(open_) // 3)) if n < len(open_)]
        return [*divided, *sure][:_AT_ONCE]

    def _most_precise(self, pool: Sequence[dict[str, str]], bad: Sequence[float]) -> list[dict[str, str]]:
        """Without an accurate program: those with the least error, as long as they have less than any before."""
        better = sorted((a for a in pool if self._power(a) < min(bad, default=float("inf"))), key=self._power)
        return [better[n] for n in dict.fromkeys((0, len(better) // 2)) if n < len(better)]

    def _neighbors(self, assignment: Assignment, high: float) -> list[dict[str, str]]:
        """Assignments that differ in a group of units, with less error than what is known to be too much."""
        found: dict[tuple[str, ...], dict[str, str]] = {}
        for group in self.space.groups():
            for preset in self.task.presets:
                step = {u: preset for u in group if preset in self.space.choices[u]}
                trial = {**assignment, **step}
                found.setdefault(tuple(trial.values()), trial)
        return [a for a in found.values() if self._power(a) < high]

    def _fits(self, assignment: Assignment) -> bool:
        """True if what is not minimized is predicted to be within its limit."""
        goal, predicted = self.task.goal, self.space.predict(assignment)
        if goal.smallest:
            return goal.latency is None or predicted.time + self.corrections.time <= goal.latency
        return goal.size is None or predicted.size * self.corrections.size <= goal.size

    def _power(self, assignment: Assignment) -> float:
        return self.space.predict(assignment).power

    def _cost(self, assignment: Assignment) -> float:
        predicted = self.space.predict(assignment)
        if self.task.goal.smallest:
            return predicted.size * self.corrections.size
        return predicted.time + self.corrections.time


def _resolved(presets: Mapping[str, Any], name: str) -> str:
    return higher(presets) if name == HIGHER else name
