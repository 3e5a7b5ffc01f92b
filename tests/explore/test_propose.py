"""Proposals against all assignments of small spaces, and what verified programs teach."""

from __future__ import annotations

import itertools
import random

import pytest

from edgewright.explore.propose import WEIGHTS, Space, Tensor, frontier
from edgewright.explore.space import Corrections, Verified

ACTIVATIONS = {"int8": "8", "a16w8": "16", "float": "float"}


def chain(units: int, seed: int, conversion: float = 0.3) -> Space:
    """A chain with a shortcut around every second unit."""
    draw = random.Random(seed)
    names = [f"block{n // 2}.{n % 2}" for n in range(units)]
    presets = list(ACTIVATIONS)
    cost = {"int8": 1.0, "a16w8": 2.0, "float": 8.0}
    noise = {"int8": 1e-4, "a16w8": 4e-5, "float": 0.0}
    time = {(u, p): draw.uniform(0.5, 2) * cost[p] for u in names for p in presets}
    error = {(u, p): draw.lognormvariate(0, 1.5) * noise[p] for u in names for p in presets}
    size = {(u, p): 100.0 * (4 if p == "float" else 1) for u in names for p in presets}
    tensors = [
        Tensor(u, tuple(names[n + 1 : n + 2 + n % 2]), 1, {p: draw.lognormvariate(0, 1) * noise[p] for p in presets})
        for n, u in enumerate(names)
    ]
    return Space(dict.fromkeys(names, presets), tensors, time, size, error, ACTIVATIONS, conversion)


@pytest.mark.parametrize("seed", range(4))
def test_proposals_are_on_the_hull_of_all_assignments(seed: int) -> None:
    space = chain(7, seed)
    units = list(space.choices)
    everything = [
        space.predict(dict(zip(units, each, strict=True))) for each in itertools.product(ACTIVATIONS, repeat=len(units))
    ]
    found = [space.predict(a) for a in frontier(space, smallest=False)]
    slowest = max(space.predict(space.uniform(preset)).time for preset in ACTIVATIONS)
    for weight in WEIGHTS:
        costs = [[p.time / slowest + weight * p.power for p in points] for points in (found, everything)]
        assert min(costs[0]) <= min(costs[1]) * 1.001


def test_conversions_keep_neighbors_alike() -> None:
    def changes(conversion: float) -> int:
        """How often neighbors differ, in all proposals."""
        found = [list(a.values()) for a in frontier(chain(12, 1, conversion), smallest=False)]
        return sum(a != b for each in found for a, b in itertools.pairwise(each)) // len(found)

    assert changes(5.0) < changes(0.0)


def test_a_result_is_rounded_to_the_coarsest_of_its_readers() -> None:
    errors = {"int8": 1.0, "a16w8": 0.01}
    own = Tensor("a", ("b", "c"), 10, errors)
    moved = Tensor("a", ("b", "c"), 10, errors, moves=True)
    for tensor, mixed, alike in ((own, 1.0, 0.01), (moved, 1.0, 0.0)):
        space = Space({u: list(errors) for u in "abc"}, [tensor], {}, {}, {}, ACTIVATIONS, 0.1)
        assert space.predict({"a": "a16w8", "b": "a16w8", "c": "int8"}).power == mixed
        assert space.predict(dict.fromkeys("abc", "a16w8")).power == alike
    converted = space.predict({"a": "a16w8", "b": "int8", "c": "int8"}).time
    assert converted == pytest.approx(1.0)  # once, for both readers


def test_with_a_limit_of_size_proposals_trade_time_for_it() -> None:
    """Presets that are fast are large here."""
    space = chain(7, 0)
    space.size = {key: 1000.0 / time for key, time in space.time.items()}
    plain, limited = ({space.predict(a).size for a in frontier(space, False, limit)} for limit in (False, True))
    assert len(limited) > len(plain) and min(limited) <= min(plain)


def test_the_smallest_come_first() -> None:
    sizes = [chain(7, 0).predict(a).size for a in frontier(chain(7, 0), smallest=True)]
    assert min(sizes) == 700 and max(sizes) == 2800


def test_verified_programs_teach_the_time_of_conversions() -> None:
    space = chain(6, 3, conversion=0.3)
    truth = chain(6, 3, conversion=1.7)
    units, draw = list(space.choices), random.Random(0)
    assignments = [space.uniform(p) for p in ACTIVATIONS]
    assignments += [{u: draw.choice(["int8", "a16w8"]) for u in units} for _ in range(6)]
    verified = [
        Verified(a, p.time + 5.0, int(p.size * 1.5), p.power * 0.5) for a in assignments for p in [truth.predict(a)]
    ]
    corrections = Corrections(space)
    for _ in range(8):
        corrections.learn(verified)
    assert corrections.size == pytest.approx(1.5) and corrections.power == pytest.approx(0.5)
    new = {u: ("int8", "a16w8")[n % 2] for n, u in enumerate(units)}
    assert space.predict(new).time + corrections.time == pytest.approx(truth.predict(new).time + 5.0, rel=0.1)
