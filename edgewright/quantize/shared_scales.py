"""Which points of a graph have one scale: union-find over the ports, so that no visiting order matters.

A point is where an observer may stand: an edge (producer, reader), or the result of a node.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from edgewright.ir.ports import Port, Range, Same, Tied

Point = Hashable


class UnionFind:
    """Disjoint sets; a set is named by its first member in order of appearance."""

    def __init__(self) -> None:
        self._parents: dict[Point, Point] = {}
        self._order: dict[Point, int] = {}

    def add(self, point: Point) -> None:
        self._parents.setdefault(point, point)
        self._order.setdefault(point, len(self._order))

    def find(self, point: Point) -> Point:
        while self._parents[point] != point:
            self._parents[point] = self._parents[self._parents[point]]
            point = self._parents[point]
        return point

    def union(self, first: Point, second: Point) -> None:
        a, b = sorted((self.find(first), self.find(second)), key=self._order.__getitem__)
        self._parents[b] = a

    def groups(self) -> dict[Point, list[Point]]:
        """Members by the set's name, each in order of appearance."""
        found: dict[Point, list[Point]] = {}
        for point in self._parents:
            found.setdefault(self.find(point), []).append(point)
        return found


@dataclass
class Unit:
    """An operator (with what is fused onto it) as the solver sees it: the points of each port, and of the result."""

    ports: dict[str, Port]
    inputs: dict[str, list[Point]]
    output: Point | None
    sources: dict[Point, Point] = field(default_factory=dict)  # of an edge: the result it reads, if that has a scale


def solve(units: Iterable[Unit]) -> dict[Point, Point]:
    """For every point, the one it shares its scale with (itself, if it is the one that others follow)."""
    units = list(units)
    ranges = {u.output: r for u in units if u.output is not None and isinstance(r := u.ports.get("out"), Range)}
    apart: set[Point] = set()  # results of a fixed range that what carries them cannot have
    while True:
        groups, fresh = _groups(units, ranges, apart)
        mixed = {m for members in groups for m in members if m in ranges and not _inherits(members, ranges, fresh)}
        if mixed <= apart:
            break
        apart |= mixed
    leaders = {}
    for members in groups:
        leader = next((m for m in members if m in ranges), members[0])
        leaders.update(dict.fromkeys(members, leader))
    return leaders


def _groups(units: list[Unit], ranges: dict[Point, Range], apart: set[Point]) -> tuple[list[list[Point]], set[Point]]:
    """The points of each scale, and those whose values come from nowhere else in their group."""
    sets, fresh = UnionFind(), set[Point]()
    for unit in units:
        for point in (*(p for points in unit.inputs.values() for p in points), unit.output):
            if point is not None:
                sets.add(point)
    for unit in units:
        fresh |= _tie(unit, sets, ranges, apart)
    return list(sets.groups().values()), fresh


def _inherits(members: list[Point], ranges: dict[Point, Range], fresh: set[Point]) -> bool:
    """Whether all that comes together in a group is of one fixed range: a wider value would be cut off at its ends."""
    return len({ranges.get(m) for m in members if m in fresh}) <= 1


def _tie(unit: Unit, sets: UnionFind, ranges: dict[Point, Range], apart: set[Point]) -> set[Point]:
    fresh = set() if unit.output is None or isinstance(unit.ports.get("out"), Same) else {unit.output}
    for name, points in unit.inputs.items():
        for edge in points:
            source = unit.sources.get(edge)
            # A member of a tied group that has a fixed range is requantized on its way in, as is one of a mixed group.
            tied = source in ranges and _shares(unit, name, Tied)
            if source is None or tied or (source in apart and _shares(unit, name, Same)):
                fresh.add(edge)
            else:
                sets.union(edge, source)
    for name, port in unit.ports.items():
        if not isinstance(port, Same | Tied):
            continue
        own = ([unit.output] if unit.output is not None else []) if name == "out" else unit.inputs.get(name, [])
        for point in (*own, *unit.inputs.get(port.port, [])):
            for other in (*unit.inputs.get(port.port, []), *own):
                sets.union(point, other)
    return fresh


def _shares(unit: Unit, name: str, kind: type[Same] | type[Tied]) -> bool:
    port = unit.ports.get(name)
    return isinstance(port, kind) or any(isinstance(p, kind) and p.port == name for p in unit.ports.values())
