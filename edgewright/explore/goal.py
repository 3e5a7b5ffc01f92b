"""What a search looks for, and what it found: verified programs, the best of them, and limits that none meets."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from edgewright.explore.cost import basis_of, time_of
from edgewright.explore.rows import DONE, Outcome, Row
from edgewright.quantize.methods import split_precision
from edgewright.units import duration, share, size

MIN_SQNR = 30.0  # decibels: the limit without a metric
MAX_DROP = 0.01  # of the original's metric: the limit with one


@dataclass(frozen=True)
class Goal:
    """The fastest program within limits, or the ``smallest``. ``original``: the metric of the float original, which
    ``lower`` improves or not; None without a metric. ``drop``: how much worse a program may be. ``sqnr``: in decibels,
    the limit without a metric. ``latency``: milliseconds; ``size``: bytes."""

    smallest: bool = False
    lower: bool = False
    original: float | None = None
    drop: float = 0.0
    sqnr: float = MIN_SQNR
    latency: float | None = None
    size: float | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def score_name(self) -> str:
        return "SQNR" if self.original is None else "metric"

    @property
    def score_limit(self) -> float:
        if self.original is None:
            return self.sqnr
        return self.original + self.drop if self.lower else self.original - self.drop

    def gain(self, score: float) -> float:
        """A score of which more is better."""
        return -score if self.lower and self.original is not None else score

    def is_accurate(self, point: Point) -> bool:
        return point.score is not None and self.gain(point.score) >= self.gain(self.score_limit) - 1e-12

    def is_small(self, point: Point) -> bool:
        return self.size is None or point.bytes <= self.size

    def is_fast(self, point: Point) -> bool:
        return self.latency is None or (point.milliseconds is not None and point.milliseconds <= self.latency)

    def meets(self, point: Point) -> bool:
        return self.is_accurate(point) and self.is_small(point) and self.is_fast(point)

    def cost(self, point: Point) -> tuple[float, ...]:
        """Less is better; of equals, the one that is better in the other, and then in the score."""
        time = float("inf") if point.milliseconds is None else point.milliseconds
        pair = (float(point.bytes), time) if self.smallest else (time, float(point.bytes))
        return *pair, -self.gain(point.score or 0.0)

    def excess(self, point: Point) -> float:
        """How far a point is from the limits, summed as fractions of them."""
        total = 0.0
        if point.score is not None:
            short = self.gain(self.score_limit) - self.gain(point.score)
            total += max(0.0, short) / (abs(self.score_limit) or 1.0)
        if self.latency is not None:
            time = point.milliseconds
            total += 1e9 if time is None else max(0.0, time / self.latency - 1)
        return total + (max(0.0, point.bytes / self.size - 1) if self.size is not None else 0.0)


@dataclass(frozen=True)
class Point:
    """A program that was compiled and measured. ``score``: the metric, or the SQNR in decibels. ``milliseconds``: of an
    inference, by the basis of the search. ``best``: of the programs within the limits. ``pareto``: no other is smaller,
    faster and better in the score. ``pte``, ``twin``: digests of files in the store."""

    name: str
    recipe: Mapping[str, Any]
    score: float | None
    sqnr: float | None
    metric: float | None
    milliseconds: float | None
    bytes: int
    planned_bytes: int
    sram_bytes: int | None
    delegated_macs: float
    within_limits: bool = False
    pareto: bool = False
    best: bool = False
    pte: str = ""
    twin: str = ""
    report: str = ""
    key: str = ""


@dataclass(frozen=True)
class Failed:
    """A program that could not be compiled or measured."""

    name: str
    recipe: Mapping[str, Any]
    status: str
    error: str
    traceback: str = ""


@dataclass(frozen=True)
class Findings:
    """``points`` in the order of the search; ``basis``: whose word times are; ``samples``, ``evaluated_on``: what SQNR
    was measured on."""

    points: list[Point]
    failures: list[Failed]
    basis: str
    samples: int
    evaluated_on: str

    @property
    def best(self) -> Point | None:
        return next((point for point in self.points if point.best), None)


def findings(goal: Goal, rows: Sequence[Row], outcomes: Mapping[str, Outcome]) -> Findings:
    """What became of the rows so far. If none is within the limits, the best is the one nearest to them."""
    done = [(row, outcomes[row.key]) for row in rows if row.key in outcomes and outcomes[row.key].status == DONE]
    times = _least_times(done)
    points = [_point(goal, row, outcome, times) for row, outcome in done]
    points = [replace(p, pareto=not any(_beats(goal, other, p) for other in points)) for p in points]
    valid = [p for p in points if p.score is not None]
    within = [p for p in valid if p.within_limits]
    if within:
        best = min(within, key=goal.cost)
    else:
        best = min(valid, key=lambda p: (goal.excess(p), goal.cost(p)), default=None)  # type: ignore[assignment]
    points = [replace(p, best=p is best) for p in points]
    failures = [
        Failed(row.precision, row.recipe, outcome.status, outcome.error, outcome.traceback)
        for row in rows
        if (outcome := outcomes.get(row.key)) is not None and outcome.status != DONE
    ]
    figures = [outcome.figures for _, outcome in done]
    first: Mapping[str, Any] = figures[0] if figures else {}
    return Findings(points, failures, basis_of(figures), first.get("samples") or 0, first.get("evaluated_on") or "")


def _least_times(done: Iterable[tuple[Row, Outcome]]) -> dict[str, float]:
    """The least of the milliseconds that were measured on this machine, by ``_operators_of``: of programs with the same
    operators, only noise makes one faster."""
    times: dict[str, float] = {}
    for row, outcome in done:
        if outcome.figures.get("host_ms") is not None:
            key = _operators_of(row)
            times[key] = min(outcome.figures["host_ms"], times.get(key, float("inf")))
    return times


def _operators_of(row: Row) -> str:
    """Equal for rows whose programs have the same operators: methods of better rounding change constants only."""
    recipe = row.recipe
    parts = [{n: split_precision(p)[0] for n, p in recipe[table].items()} for table in ("modules", "operators")]
    return json.dumps([split_precision(recipe["quantize"] or "")[0], *parts, recipe.get("options")], sort_keys=True)


def _point(goal: Goal, row: Row, outcome: Outcome, measured: Mapping[str, float]) -> Point:
    figures, files = outcome.figures, outcome.files
    score = figures["sqnr"] if goal.original is None else figures["metric"]
    milliseconds = measured.get(_operators_of(row), time_of(figures))
    point = Point(
        row.precision, row.recipe, score, figures["sqnr"], figures["metric"], milliseconds, figures["bytes"],
        figures["planned_bytes"], figures["sram"], figures["coverage"], pte=files.get("pte", ""),
        twin=files.get("twin", ""), report=files.get("report", ""), key=row.key,
    )  # fmt: skip
    return replace(point, within_limits=goal.meets(point))


def _beats(goal: Goal, one: Point, other: Point) -> bool:
    if one.score is None or other.score is None:
        return other.score is None and one.score is not None
    values = [
        (float(p.bytes), float("inf") if p.milliseconds is None else p.milliseconds, -goal.gain(p.score or 0.0))
        for p in (one, other)
    ]
    return all(a <= b for a, b in zip(*values, strict=True)) and values[0] != values[1]


def unmet(goal: Goal, found: Findings) -> list[str]:
    """The limits that no program meets, and by how much the nearest misses each; if every single one can be met, that
    they cannot be met together."""
    points = [p for p in found.points if p.score is not None]
    if not points or any(p.within_limits for p in points):
        return []
    text = []
    if not any(map(goal.is_accurate, points)):
        nearest = max((p.score or 0.0 for p in points), key=goal.gain)
        short = abs(nearest - goal.score_limit)
        unit = " dB" if goal.original is None else ""
        text.append(
            f"{goal.score_name}: must be {goal.score_limit:.6g}{unit} or {'less' if goal.lower else 'more'}; "
            f"the best of {len(points)} programs has {nearest:.6g}{unit}: {short:.3g}{unit} short"
        )
    if goal.latency is not None and not any(map(goal.is_fast, points)):
        times = [p.milliseconds for p in points if p.milliseconds is not None]
        text.append(_over("latency", min(times, default=None), goal.latency, lambda ms: duration(ms / 1e3), "fastest"))
    if goal.size is not None and not any(map(goal.is_small, points)):
        text.append(_over("size", min(float(p.bytes) for p in points), goal.size, size, "smallest"))
    if not text:
        best = found.best
        assert best is not None
        misses = []
        if not goal.is_accurate(best):
            misses.append(f"its {goal.score_name} is {best.score:.6g}, and must be {goal.score_limit:.6g}")
        if not goal.is_fast(best):
            misses.append(f"it takes {duration((best.milliseconds or 0) / 1e3)}, and may take "
                          f"{duration((goal.latency or 0) / 1e3)}")  # fmt: skip
        if not goal.is_small(best):
            misses.append(f"it has {size(best.bytes)}, and may have {size(goal.size or 0)}")
        text.append(f"every limit can be met, but no program meets all. The nearest is {best.name}: "
                    + "; ".join(misses))  # fmt: skip
    return text


def _over(name: str, least: float | None, limit: float, text: Any, word: str) -> str:
    if least is None:
        return f"{name}: cannot be judged: no source says how long the programs take"
    over = share(least / limit - 1)
    return f"{name}: must be {text(limit)} or less; the {word} program has {text(least)}: {over} over"
