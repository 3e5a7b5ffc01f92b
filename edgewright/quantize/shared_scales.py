"""Scale sharing by union-find: which points of a graph have the same quantization parameters.

A point is where an observer may be inserted: an edge (producer, reader), or the result of a node. Union-find makes the
result independent of the order in which operators are visited.
"""

# Constraints: an edge has its producer's scale; ``Same`` and ``Tied`` ports of one operator share theirs. A set that
# contains a result with a fixed range (``Range``: sigmoid, softmax) adopts that range, which is safe only if all values
# that enter the set have the same range; otherwise wider values would be clipped. The solver starts by uniting
# everything, finds the sets that violate this, cuts the edges that leave their fixed-range results (these edges get an
# observer, and the value is requantized), and repeats until no set does. The set of those results only grows, so the
# iteration terminates.

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from edgewright.ir.ports import Port, Range, Same, Tied

Point = Hashable


class UnionFind:
    """Disjoint sets; a set's representative is its first member in order of insertion."""

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
        """Members of each set by its representative, in order of insertion."""
        members: dict[Point, list[Point]] = {}
        for point in self._parents:
            members.setdefault(self.find(point), []).append(point)
        return members


@dataclass
class SharingConstraint:
    """An operator, with its fused activation, as the solver sees it: the points of each port and of the result."""

    ports: dict[str, Port]
    inputs: dict[str, list[Point]]
    output: Point | None
    sources: dict[Point, Point] = field(default_factory=dict)  # by edge: the result it reads, if that has a scale


def solve_sharing(units: Iterable[SharingConstraint]) -> dict[Point, Point]:
    """The leader of every point: the point with which it shares its scale, possibly itself."""
    units = list(units)
    ranges = {u.output: r for u in units if u.output is not None and isinstance(r := u.ports.get("out"), Range)}
    requantized: set[Point] = set()  # fixed-range results that leave their readers' sets
    while True:
        groups, fresh = _groups(units, ranges, requantized)
        violating = {
            m for members in groups for m in members if m in ranges and not _has_one_range(members, ranges, fresh)
        }
        if violating <= requantized:
            break
        requantized |= violating
    leaders = {}
    for members in groups:
        leader = next((m for m in members if m in ranges), members[0])
        leaders.update(dict.fromkeys(members, leader))
    return leaders


def _groups(
    units: list[SharingConstraint], ranges: dict[Point, Range], requantized: set[Point]
) -> tuple[list[list[Point]], set[Point]]:
    """The points of each set, and the fresh ones: those whose values enter their set from outside."""
    sets, fresh = UnionFind(), set[Point]()
    for unit in units:
        for point in (*(p for points in unit.inputs.values() for p in points), unit.output):
            if point is not None:
                sets.add(point)
    for unit in units:
        fresh |= _unite(unit, sets, ranges, requantized)
    return list(sets.groups().values()), fresh


def _has_one_range(members: list[Point], ranges: dict[Point, Range], fresh: set[Point]) -> bool:
    """True if all values that enter a set have the same fixed range, so that adopting it clips none."""
    return len({ranges.get(m) for m in members if m in fresh}) <= 1


def _unite(unit: SharingConstraint, sets: UnionFind, ranges: dict[Point, Range], requantized: set[Point]) -> set[Point]:
    fresh = set() if unit.output is None or isinstance(unit.ports.get("out"), Same) else {unit.output}
    for name, points in unit.inputs.items():
        for edge in points:
            source = unit.sources.get(edge)
            # Inputs with a fixed range are requantized before a tied port, as are cut ones before a shared port.
            tied = source in ranges and _has_port(unit, name, Tied)
            if source is None or tied or (source in requantized and _has_port(unit, name, Same)):
                fresh.add(edge)
            else:
                sets.union(edge, source)
    for name, port in unit.ports.items():
        if not isinstance(port, Same | Tied):
            continue
        points_of_port = (
            ([unit.output] if unit.output is not None else []) if name == "out" else unit.inputs.get(name, [])
        )
        for point in (*points_of_port, *unit.inputs.get(port.port, [])):
            for other in (*unit.inputs.get(port.port, []), *points_of_port):
                sets.union(point, other)
    return fresh


def _has_port(unit: SharingConstraint, name: str, kind: type[Same] | type[Tied]) -> bool:
    port = unit.ports.get(name)
    return isinstance(port, kind) or any(isinstance(p, kind) and p.port == name for p in unit.ports.values())
