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
    sets = UnionFind()
    fixed = {u.output for u in units if u.output is not None and isinstance(u.ports.get("out"), Range)}
    for unit in units:
        for point in (*(p for points in unit.inputs.values() for p in points), unit.output):
            if point is not None:
                sets.add(point)
    for unit in units:
        _tie(unit, sets, fixed)
    leaders = {}
    for members in sets.groups().values():
        leader = next((m for m in members if m in fixed), members[0])
        leaders.update(dict.fromkeys(members, leader))
    return leaders


def _tie(unit: Unit, sets: UnionFind, fixed: set[Point | None]) -> None:
    for name, points in unit.inputs.items():
        for edge in points:
            source = unit.sources.get(edge)
            # A member of a tied group that has a fixed range is requantized on its way in.
            if source is not None and not (source in fixed and _tied(unit, name)):
                sets.union(edge, source)
    for name, port in unit.ports.items():
        if not isinstance(port, Same | Tied):
            continue
        own = ([unit.output] if unit.output is not None else []) if name == "out" else unit.inputs.get(name, [])
        for point in (*own, *unit.inputs.get(port.port, [])):
            for other in (*unit.inputs.get(port.port, []), *own):
                sets.union(point, other)


def _tied(unit: Unit, name: str) -> bool:
    port = unit.ports.get(name)
    return isinstance(port, Tied) or any(isinstance(p, Tied) and p.port == name for p in unit.ports.values())
