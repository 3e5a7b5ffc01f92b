"""Proposes assignments of precisions: the fastest or smallest for each amount of error, as a model of the target
predicts them.

The model is additive: units have a time, a size and an error in each precision; tensors between units have an error,
of the coarsest precision among the units at their ends, and a time, if they have to be converted. What is sought is the
lower convex hull of cost over error: for each weight of the error, the assignment with the least sum is found by local
descent, which changes single units, modules and stretches of the network, as conversions make neighbors alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from edgewright.api.recipe import FLOAT
from edgewright.explore.units import Assignment

WEIGHTS = [10 ** (step / 4) for step in range(1, 45)]  # of the error, relative to the total cost
_SWEEPS = 6
_TIE = 1e-6


@dataclass(frozen=True)
class Tensor:
    """A result. ``producer``: the unit that computes it, empty for an input. ``error``: by preset, of rounding to it.
    ``moves``: the producer's own rounding adds nothing."""

    producer: str
    readers: tuple[str, ...]
    elements: int
    error: Mapping[str, float]
    moves: bool = False


@dataclass(frozen=True)
class Prediction:
    time: float  # milliseconds
    power: float  # of the error, relative to the outputs
    size: float  # bytes


@dataclass
class Space:
    """``choices``: the presets of each unit, in the order of execution. ``time``, ``size``, ``error`` (of weights): by
    unit and preset. ``conversion``: milliseconds to convert an element; ``to_float``: to or from floating point.
    ``activations``: what presets store activations as."""

    choices: Mapping[str, Sequence[str]]
    tensors: Sequence[Tensor]
    time: Mapping[tuple[str, str], float]
    size: Mapping[tuple[str, str], float]
    error: Mapping[tuple[str, str], float]
    activations: Mapping[str, str]
    conversion: float = 0.0
    to_float: float | None = None
    touching: dict[str, list[int]] = field(init=False)
    _around: list[tuple[str, ...]] = field(init=False)  # of each tensor: its producer and its readers
    _effects: dict[tuple[object, ...], tuple[float, int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._around = [(tensor.producer, *tensor.readers) for tensor in self.tensors]
        self.touching = {unit: [] for unit in self.choices}
        for n, tensor in enumerate(self.tensors):
            for unit in {tensor.producer, *tensor.readers} & self.choices.keys():
                self.touching[unit].append(n)

    def predict(self, assignment: Assignment) -> Prediction:
        units = list(self.choices)
        return self._of(assignment, units, range(len(self.tensors)))

    def converted(self, assignment: Assignment) -> int:
        """The number of elements that are converted between integers."""
        return sum(self._effect(n, assignment)[1] for n in range(len(self.tensors)))

    def _of(self, assignment: Assignment, units: Sequence[str], tensors: Sequence[int]) -> Prediction:
        time = size = power = 0.0
        for unit in units:
            key = unit, assignment[unit]
            time += self.time.get(key, 0.0)
            size += self.size.get(key, 0.0)
            power += self.error.get(key, 0.0)
        rate = self.conversion if self.to_float is None else self.to_float
        for n in tensors:
            error, integers, floats = self._effect(n, assignment)
            power += error
            time += integers * self.conversion + floats * rate
        return Prediction(time, power, size)

    def _effect(self, n: int, assignment: Assignment) -> tuple[float, int, int]:
        """The error of rounding a tensor, and the elements to convert; computed once for each combination of the
        presets around it, as a search asks for the same ones many thousand times."""
        key = (n, *map(assignment.get, self._around[n]))
        effect = self._effects.get(key)
        if effect is None:
            tensor = self.tensors[n]
            effect = self._effects[key] = self._rounding(tensor, assignment), *self._conversions(tensor, assignment)
        return effect

    def _rounding(self, tensor: Tensor, assignment: Assignment) -> float:
        own = assignment.get(tensor.producer)
        others = {assignment[reader] for reader in tensor.readers if reader in assignment} - {own}
        names = others if tensor.moves or own is None else {own, *others}
        return max((tensor.error.get(name, 0.0) for name in names), default=0.0)

    def _conversions(self, tensor: Tensor, assignment: Assignment) -> tuple[int, int]:
        """The elements to convert between integers, and to or from floating point: once for each kind of readers."""
        if tensor.producer not in assignment:
            return 0, 0
        own = self.activations[assignment[tensor.producer]]
        kinds = {self.activations[assignment[r]] for r in tensor.readers if r in assignment} - {own}
        floats = sum(FLOAT in (own, kind) for kind in kinds)
        return (len(kinds) - floats) * tensor.elements, floats * tensor.elements

    def uniform(self, preset: str) -> dict[str, str]:
        """Everything in one preset, and what cannot be in floating point, as a quantizer leaves it."""
        return {
            unit: preset if preset in choices else FLOAT if FLOAT in choices else choices[0]
            for unit, choices in self.choices.items()
        }

    def groups(self) -> Iterator[list[str]]:
        """Units that are changed together: single ones, modules, and stretches of the network."""
        units = list(self.choices)
        yield from ([unit] for unit in units)
        prefixes = dict.fromkeys(".".join(u.split(".")[:n]) for u in units for n in range(1, u.count(".") + 1))
        for prefix in prefixes:
            yield [unit for unit in units if unit == prefix or unit.startswith(f"{prefix}.")]
        length = 2
        while length < len(units):
            yield from (units[at : at + length] for at in range(0, len(units) - length + 1, max(1, length // 4)))
            length *= 2
        yield units

    def descend(self, start: Assignment, weight: float, size_weight: float, time_weight: float = 1.0) -> dict[str, str]:
        """A local minimum of time, error and size, each with its weight."""
        current = dict(start)
        presets = list(dict.fromkeys(name for names in self.choices.values() for name in names))
        groups = [(group, sorted({n for u in group for n in self.touching[u]})) for group in self.groups()]

        def energy(assignment: Assignment, units: Sequence[str], tensors: Sequence[int]) -> float:
            found = self._of(assignment, units, tensors)
            return time_weight * found.time + weight * found.power + size_weight * found.size

        for _ in range(_SWEEPS):
            changed = False
            for group, tensors in groups:
                before = energy(current, group, tensors)
                for preset in presets:
                    undo = {u: current[u] for u in group if current[u] != preset and preset in self.choices[u]}
                    if not undo:
                        continue
                    current.update(dict.fromkeys(undo, preset))
                    after = energy(current, group, tensors)
                    if after < before * (1 - 1e-9):
                        before, changed = after, True
                    else:
                        current.update(undo)
            if not changed:
                break
        return current


def frontier(space: Space, smallest: bool, limited: bool = False) -> list[dict[str, str]]:
    """Assignments from the cheapest to the most precise. ``smallest``: size is what counts, and time decides between
    equals; else the other way around. ``limited``: the other one has a limit, so that both are traded."""
    presets = list(dict.fromkeys(name for names in space.choices.values() for name in names))
    uniform = [space.uniform(preset) for preset in presets]
    predictions = [space.predict(assignment) for assignment in uniform]
    time, size = max(p.time for p in predictions) or 1.0, max(p.size for p in predictions) or 1.0
    factors = (_TIE, 0.3, 3.0, 30.0) if limited else (_TIE,)  # of the other one
    pairs = [(f / time, 1.0 / size) if smallest else (1.0 / time, f / size) for f in factors]
    found: dict[tuple[str, ...], dict[str, str]] = {}
    current = uniform[0]
    for time_weight, size_weight in pairs:
        for weights in (WEIGHTS, WEIGHTS[::-1]):  # each from the neighbor's: both ways, as minima are local
            for weight in weights:
                starts = [current, *uniform] if weight == weights[0] else [current]

                def total(a: Assignment, t: float = time_weight, s: float = size_weight, w: float = weight) -> float:
                    p = space.predict(a)
                    return t * p.time + s * p.size + w * p.power

                current = min((space.descend(start, weight, size_weight, time_weight) for start in starts), key=total)
                found.setdefault(tuple(current.values()), current)
    return list(found.values())
