"""The model of a target that a search proposes by: built from measured errors and from the reports of the programs in
one precision, and corrected by every program that was compiled since."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgewright.api.recipe import FLOAT
from edgewright.explore.cost import cpu_ms, operator_times
from edgewright.explore.propose import Space, Tensor
from edgewright.explore.sensitivity import LayerErrors, Sensitivity
from edgewright.explore.units import Assignment, unit_of

_FLOAT_CONVERSION = 5  # bytes that the CPU reads and writes to convert an element between int8 and floating point


@dataclass(frozen=True)
class Uniform:
    """A program in one precision: its report of the method, milliseconds and bytes."""

    method: Mapping[str, Any]
    milliseconds: float | None
    bytes: int
    measured: bool


def choices_of(sensitivity: Sensitivity, presets: Sequence[str], fixed: Mapping[str, str]) -> dict[str, list[str]]:
    """The presets of each unit: those in which the target's rules accept all its layers with weights or, if it has
    none, some of its layers. ``fixed``: units that the user decided."""
    layers: dict[str, list[LayerErrors]] = {}
    for layer in sensitivity.layers:
        if layer.unit:
            layers.setdefault(layer.unit, []).append(layer)
    result: dict[str, list[str]] = {}
    for unit, members in layers.items():
        weighted = [layer for layer in members if layer.weights] or members
        result[unit] = [
            preset
            for preset in presets
            if preset == FLOAT
            or (all if weighted[0].weights else any)(preset in layer.weight_error for layer in weighted)
        ] or [FLOAT]
        if unit in fixed:
            result[unit] = [fixed[unit]]
    return result


def operators_of(sensitivity: Sensitivity) -> dict[str, list[str]]:
    """The operators of each unit, by name in the op table."""
    result: dict[str, list[str]] = {}
    for layer in sensitivity.layers:
        result.setdefault(layer.unit, []).extend(layer.operators)
    return result


def make_space(
    sensitivity: Sensitivity, choices: Mapping[str, Sequence[str]], uniform: Mapping[str, Uniform], backend: str
) -> Space:
    """``uniform``: the programs in one precision that could be compiled, by preset."""
    total_weights = sum(layer.weights for layer in sensitivity.layers) or 1
    time: dict[tuple[str, str], float] = {}
    size: dict[tuple[str, str], float] = {}
    error: dict[tuple[str, str], float] = {}
    for preset, program in uniform.items():
        for unit, milliseconds in _unit_times(program, choices, backend).items():
            time[unit, preset] = milliseconds
    for layer in sensitivity.layers:
        for preset in choices.get(layer.unit, ()):
            key = layer.unit, preset
            if preset in uniform:
                size[key] = size.get(key, 0.0) + layer.weights * uniform[preset].bytes / total_weights
            error[key] = error.get(key, 0.0) + layer.weight_error.get(preset, 0.0)
    on_cpu = FLOAT in uniform and not any(o["backend"] for o in uniform[FLOAT].method["operators"])
    to_float = cpu_ms(0, _FLOAT_CONVERSION, backend) if on_cpu else None
    rate = _movement_rate(sensitivity, time)
    return Space(choices, _tensors(sensitivity), time, size, error, sensitivity.activations, rate, to_float)


def _unit_times(program: Uniform, choices: Mapping[str, Any], backend: str) -> dict[str, float]:
    by_node = {o["node"]: unit_of(o["module"], o["operator"]) for o in program.method["operators"]}
    times: dict[str, float] = {}
    for (name, node), milliseconds in operator_times(program.method, backend, program.measured).items():
        unit = name if name in choices else by_node.get(node, "")
        if unit in choices:
            times[unit] = times.get(unit, 0.0) + milliseconds
    total = sum(times.values())
    if not program.measured or not total or not program.milliseconds:
        return times
    return {unit: milliseconds * program.milliseconds / total for unit, milliseconds in times.items()}


def _movement_rate(sensitivity: Sensitivity, time: Mapping[tuple[str, str], float]) -> float:
    """Milliseconds to convert an element, before any conversion was timed: as long as layers without weights take."""
    elements: dict[str, int] = {}
    weighted = {layer.unit for layer in sensitivity.layers if layer.weights}
    for layer in sensitivity.layers:
        elements[layer.unit] = elements.get(layer.unit, 0) + layer.elements
    plain = [t / elements[unit] for (unit, _), t in time.items() if unit not in weighted and t and elements[unit]]
    if plain:
        return statistics.median(plain)
    total = sum(elements.values()) or 1
    return 0.1 * max((sum(t for (_, p), t in time.items() if p == preset) for preset in {p for _, p in time}),
                     default=0.0) / total  # fmt: skip


def _tensors(sensitivity: Sensitivity) -> list[Tensor]:
    readers: dict[str, list[str]] = {layer.name: [] for layer in sensitivity.layers}
    for layer in sensitivity.layers:
        for source in layer.sources:
            if source in readers and layer.unit:
                readers[source].append(layer.unit)
    return [
        Tensor(layer.unit, tuple(dict.fromkeys(readers[layer.name])), layer.elements, layer.rounding_error, layer.moves)
        for layer in sensitivity.layers
    ]


@dataclass(frozen=True)
class Verified:
    """A program: its assignment, what was predicted of it is known from the space, and what it is. ``proposable``: it
    is rounded by the methods that proposals are rounded by, so that its error says something about theirs."""

    assignment: Assignment
    milliseconds: float | None
    bytes: int
    power: float | None  # of its error, from the measured SQNR
    proposable: bool = True


class Corrections:
    """What verified programs teach: what the time of a program has beyond its units, factors of predicted sizes and
    errors, and the time of conversions."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._first_rate = space.conversion
        self.time = 0.0
        self.size = self.power = 1.0

    def learn(self, verified: Sequence[Verified]) -> None:
        self._space.conversion = self._first_rate
        for _ in range(2):  # the rate depends on what is beyond, and that on the rate
            predicted = [self._space.predict(v.assignment) for v in verified]
            beyond = [v.milliseconds - p.time for v, p in zip(verified, predicted, strict=True) if v.milliseconds]
            self.time = statistics.median(beyond) if beyond else 0.0
            self._space.conversion = self._rate(verified)
        self.size = _ratio((v.bytes, p.size) for v, p in zip(verified, predicted, strict=True))
        pairs = zip(verified, predicted, strict=True)
        self.power = _ratio((v.power, p.power) for v, p in pairs if v.proposable)

    def _rate(self, verified: Sequence[Verified]) -> float:
        """Least squares of what conversions add to the time of units."""
        rate, products, squares = self._space.conversion, 0.0, 0.0
        for v in verified:
            count = self._space.converted(v.assignment)
            if count and v.milliseconds is not None:
                units = self._space.predict(v.assignment).time - count * rate
                products += count * (v.milliseconds - self.time - units)
                squares += float(count) ** 2
        return max(0.0, products / squares) if squares else rate


def _ratio(pairs: Iterable[tuple[float | None, float]]) -> float:
    """The median of actual over predicted."""
    ratios = [actual / predicted for actual, predicted in pairs if actual and predicted]
    return statistics.median(ratios) if ratios else 1.0
