"""Scale sharing by union-find: which points of a graph have the same quantization parameters.

A point is where an observer may be inserted: an edge (producer, reader), or the result of a node. Union-find makes the
result independent of the order in which operators are visited.
"""

# Constraints: an edge has its producer's scale; ``Same`` and ``Tied`` ports of one operator share theirs. The solver
# starts by uniting everything, cuts edges of sets that would harm a result (such an edge gets an observer of its own,
# and the value is requantized there), and repeats until there is none. The set of cut edges only grows, so the
# iteration terminates. Two kinds of results are harmed:
#
# - results with a fixed range (``Range``: sigmoid, softmax). A set that contains one adopts its range, which is safe
#   only if all values that enter the set have the same range; otherwise wider values would be clipped.
# - results that are much narrower than their set, if something reads them that does not need that scale. Concatenated
#   with pixel coordinates, a part of a layer's result would leave a few of 256 integers for its other parts.
#
# Cut are the edges where such a result, or a part of it, is joined with other values, and not the result's own edges:
# all its other readers keep the scale that fits it.

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
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


NARROW = 4.0  # a result with a range this much smaller than its set's keeps a scale of its own: two bits
Span = tuple[float, float]


@dataclass
class SharingConstraint:
    """An operator, with its fused activation, as the solver sees it: the points of each port and of the result."""

    ports: dict[str, Port]
    inputs: dict[str, list[Point]]
    output: Point | None
    sources: dict[Point, Point] = field(default_factory=dict)  # by edge: the result it reads, if that has a scale
    read_in_float: bool = False  # the result is an output, or read by an operator that is not quantized


@dataclass(frozen=True)
class Sharing:
    """``leaders``: by point, the point with which it shares its scale, possibly itself. ``own``: the leaders of sets
    whose scale must differ from those of other readers of the same values."""

    leaders: dict[Point, Point]
    own: set[Point]


def solve_sharing(
    units: Iterable[SharingConstraint], measure: Callable[[set[Point]], Mapping[Point, Span]] | None = None
) -> Sharing:
    """Which points share a scale. ``measure`` returns the smallest and largest elements of points, on calibration data;
    without it, only fixed ranges are protected."""
    units = list(units)
    ranges = {u.output: r for u in units if u.output is not None and isinstance(r := u.ports.get("out"), Range)}
    joins = _joins(units)
    spans: Mapping[Point, Span] = {}
    cut: set[Point] = set()
    while True:
        groups, fresh = _groups(units, ranges, cut)
        if measure is not None and not spans:
            spans = measure(_members_to_measure(groups, joins))
        harmed = _clipping(groups, ranges, fresh) | _narrow(groups, joins, spans)
        edges = {edge for m in harmed if m in joins for edge in joins[m].edges}
        if edges <= cut:
            break
        cut |= edges
    leaders = {}
    for members in groups:
        leader = next((m for m in members if m in ranges), members[0])
        leaders.update(dict.fromkeys(members, leader))
    return Sharing(leaders, {leaders[m] for m in cut | harmed})


@dataclass
class _Reach:
    """What reads a result, also behind operators that only move it: edges that join it with other values, and whether
    anything else does."""

    edges: set[Point] = field(default_factory=set)
    read_elsewhere: bool = False


def _joins(units: list[SharingConstraint]) -> dict[Point, _Reach]:
    """The results that are joined with other values, and the joined edges whose values have no scale: other readers of
    these values have scales of their own, if this set says so."""
    readers: dict[Point, list[tuple[Point, SharingConstraint]]] = {}
    for unit in units:
        for edge, source in unit.sources.items():
            readers.setdefault(source, []).append((edge, unit))
    starts = {unit.output: _reach(unit, readers) for unit in units if unit.output is not None and not _moves(unit)}
    free = {edge for unit in units for edge in _joined(unit) if edge not in unit.sources}
    return {
        **{result: reach for result, reach in starts.items() if reach.edges},
        **{e: _Reach({e}, True) for e in free},
    }


def _reach(start: SharingConstraint, readers: Mapping[Point, list[tuple[Point, SharingConstraint]]]) -> _Reach:
    reach, pending = _Reach(), [start]
    while pending:
        unit = pending.pop()
        reach.read_elsewhere |= unit.read_in_float
        for edge, reader in readers.get(unit.output, []):
            if edge in _joined(reader):
                reach.edges.add(edge)
            elif _moves(reader):
                pending.append(reader)
            else:
                reach.read_elsewhere = True
    return reach


def _joined(unit: SharingConstraint) -> set[Point]:
    """The edges whose values get one scale with other values: those of other edges, or a computed result."""
    joined: set[Point] = set()
    for name, port in unit.ports.items():
        if isinstance(port, Same | Tied):
            edges = {*unit.inputs.get(port.port, []), *(unit.inputs.get(name, []) if name != "out" else [])}
            joined |= edges if len(edges) > 1 or (name == "out" and isinstance(port, Tied)) else set()
    return joined


def _moves(unit: SharingConstraint) -> bool:
    """True for data movement of one value."""
    return isinstance(unit.ports.get("out"), Same) and not _joined(unit)


def _members_to_measure(groups: list[list[Point]], joins: Mapping[Point, _Reach]) -> set[Point]:
    """The members of sets that contain a result with other readers."""
    return {p for members in groups if any(m in joins and joins[m].read_elsewhere for m in members) for p in members}


def _clipping(groups: list[list[Point]], ranges: dict[Point, Range], fresh: set[Point]) -> set[Point]:
    """The results with a fixed range that would clip other values of their set."""
    return {m for members in groups for m in members if m in ranges and not _has_one_range(members, ranges, fresh)}


def _narrow(groups: list[list[Point]], joins: Mapping[Point, _Reach], spans: Mapping[Point, Span]) -> set[Point]:
    """The results with other readers that are much narrower than their set."""
    narrow: set[Point] = set()
    for members in groups:
        widest = _width([spans[m] for m in members if m in spans])
        others = (m for m in members if m in spans and m in joins and joins[m].read_elsewhere)
        narrow.update(m for m in others if _width([spans[m]]) * NARROW <= widest)
    return narrow


def _width(spans: list[Span]) -> float:
    """The width of a range that contains these and 0."""
    return max((high for _, high in spans), default=0.0) - min((low for low, _ in spans), default=0.0)


def _groups(
    units: list[SharingConstraint], ranges: dict[Point, Range], cut: set[Point]
) -> tuple[list[list[Point]], set[Point]]:
    """The points of each set, and the fresh ones: those whose values enter their set from outside."""
    sets, fresh = UnionFind(), set[Point]()
    for unit in units:
        for point in (*(p for points in unit.inputs.values() for p in points), unit.output):
            if point is not None:
                sets.add(point)
    for unit in units:
        fresh |= _unite(unit, sets, ranges, cut)
    return list(sets.groups().values()), fresh


def _has_one_range(members: list[Point], ranges: dict[Point, Range], fresh: set[Point]) -> bool:
    """True if all values that enter a set have the same fixed range, so that adopting it clips none."""
    return len({ranges.get(m) for m in members if m in fresh}) <= 1


def _unite(unit: SharingConstraint, sets: UnionFind, ranges: dict[Point, Range], cut: set[Point]) -> set[Point]:
    fresh = set() if unit.output is None or isinstance(unit.ports.get("out"), Same) else {unit.output}
    for name, points in unit.inputs.items():
        for edge in points:
            source = unit.sources.get(edge)
            # Inputs with a fixed range are requantized before a tied port.
            tied = source in ranges and _has_port(unit, name, Tied)
            if source is None or tied or edge in cut:
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
