"""Charts as SVG: the arena over time, a flame chart, a roofline, a Pareto plot, bars. Colors are classes of the page's
style sheet; every shape has a title, and a table next to the chart has the same numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from edgewright.report.markup import escape
from edgewright.report.model import Arena, Block, Roofs, Step, Timeline
from edgewright.units import duration, number, share, size

_WIDTH, _LEFT, _RIGHT = 960, 76, 16
_COLORS = 8
_LABELED = 12  # points of a plot that all have labels
_CHARACTER, _LINE = 6.6, 13  # width and height of a label's characters
_RADIUS = 8  # of a dot, with a margin
_SHIFTS = (-11, 4, 20, -11 - _LINE, 20 + _LINE, -11 - 2 * _LINE)  # of a label from its point, first the best
_TICKS = 9
_MIN_DECADES = 0.05


def _svg(height: float, title: str, shapes: Iterable[str], style: str = "") -> str:
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(title)}"><svg class="chart {style}" '
        f'viewBox="0 0 {_WIDTH} {height:g}" width="{_WIDTH}" height="{height:g}" role="img" '
        f'aria-label="{escape(title)}">'
        f"{''.join(shapes)}</svg></div>"
    )


def _text(x: float, y: float, text: str, anchor: str = "start", style: str = "") -> str:
    classes = f' class="{style}"' if style else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{classes}>{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{style}"/>'


def _rect(x: float, y: float, width: float, height: float, style: str, title: str) -> str:
    return (
        f'<rect x="{x:.2f}" y="{y:.2f}" width="{max(width, 0.5):.2f}" height="{max(height, 0.5):.2f}" class="{style}">'
        f"<title>{escape(title)}</title></rect>"
    )


def color_of(name: str) -> str:
    """A class for everything of one name, the same in every chart."""
    return f"c{sum(name.encode(errors='replace')) % _COLORS}"


# ------------------------------------------------------------------------------------------------------------- arena


def arena_chart(arena: Arena, limit: int | None) -> str:
    """Tensors as rectangles: instructions from left to right, offsets in the arena from bottom to top."""
    top = max(arena.bytes, limit or 0, 1)
    plot, above = 260.0, 24.0
    columns = max(arena.instructions, 1)
    wide = (_WIDTH - _LEFT - _RIGHT) / columns

    def y(offset: float) -> float:
        return above + plot * (1 - offset / top)

    shapes = [_rectangle(block, wide, y) for block in arena.blocks]
    shapes += [_axis_label(y(top * part), size(top * part)) for part in (0, 0.25, 0.5, 0.75, 1)]
    shapes.append(_line(_LEFT, y(arena.bytes), _WIDTH - _RIGHT, y(arena.bytes), "edge"))
    if limit is not None:
        shapes.append(_line(_LEFT, y(limit), _WIDTH - _RIGHT, y(limit), "limit"))
        shapes.append(_text(_WIDTH - _RIGHT, y(limit) - 4, f"limit {size(limit)}", "end", "limit"))
    ticks = sorted({round(part * (columns - 1)) for part in (0, 0.25, 0.5, 0.75, 1)})
    shapes += [_text(_LEFT + (t + 0.5) * wide, above + plot + 16, f"#{t}", "middle") for t in ticks]
    title = f"Arena {arena.index} of {arena.method} over its {arena.instructions} instructions"
    return _svg(above + plot + 24, title, shapes)


def _rectangle(block: Block, wide: float, y: Callable[[float], float]) -> str:
    title = f"{block.name}: {size(block.bytes)} at {block.offset}, instructions {block.start} to {block.end}"
    top, bottom = y(block.offset + block.bytes), y(block.offset)
    width = (block.end - block.start + 1) * wide
    return _rect(_LEFT + block.start * wide, top, width, bottom - top, f"block {color_of(block.name)}", title)


def _axis_label(y: float, text: str) -> str:
    return _line(_LEFT, y, _WIDTH - _RIGHT, y, "grid") + _text(_LEFT - 6, y + 4, text, "end")


# ------------------------------------------------------------------------------------------------------ flame chart


def flame_chart(timeline: Timeline) -> str:
    """Spans as rectangles, one row per depth, names inside where they fit."""
    total = max((s.start + s.length for s in timeline.spans), default=1.0) or 1.0
    plot, row = _WIDTH - 2 * _RIGHT, 26
    shapes = []
    for span in timeline.spans:
        x, width, y = _RIGHT + plot * span.start / total, plot * span.length / total, 8 + row * span.depth
        title = f"{span.name}: {duration(span.length / 1e6)}, {share(span.length / total)}"
        shape = _rect(x, y, width, row - 2, f"span {color_of(span.name)}", title)
        label = _text(x + 4, y + 16, span.name[: int(width / 7)]) if width > 40 else ""
        shapes.append(
            f'<g data-s="{span.start:.3f}" data-l="{span.length:.3f}" data-n="{escape(span.name)}">{shape}{label}</g>'
        )
    height = 8 + row * (1 + max((s.depth for s in timeline.spans), default=0))
    anchors = {0: "start", 0.25: "middle", 0.5: "middle", 0.75: "middle", 1: "end"}
    shapes += [_text(_RIGHT + plot * p, height + 18, duration(total * p / 1e6), at) for p, at in anchors.items()]
    return _svg(height + 26, f"Flame chart: {timeline.title}", shapes, "flame")


# ---------------------------------------------------------------------------------------------------------- scatters


class _Scale:
    """A logarithmic axis over whole decades."""

    def __init__(self, values: Sequence[float], low: float, high: float) -> None:
        self.first = math.floor(math.log10(min(values)))
        self.last = max(math.ceil(math.log10(max(values))), self.first + 1)
        self.low, self.high = low, high

    def at(self, value: float) -> float:
        return self.low + (math.log10(value) - self.first) / (self.last - self.first) * (self.high - self.low)

    @property
    def decades(self) -> list[float]:
        return [10.0**power for power in range(self.first, self.last + 1)]


class _TightScale:
    """A logarithmic axis from the smallest to the largest value."""

    def __init__(self, values: Sequence[float], low: float, high: float) -> None:
        self.first, self.last = math.log10(min(values)), math.log10(max(values))
        if self.last - self.first < _MIN_DECADES:  # equal values, or almost
            middle = (self.first + self.last) / 2
            self.first, self.last = middle - _MIN_DECADES / 2, middle + _MIN_DECADES / 2
        self.low, self.high = low, high

    def at(self, value: float) -> float:
        return self.low + (math.log10(value) - self.first) / (self.last - self.first) * (self.high - self.low)

    def ticks(self, *, binary: bool) -> list[float]:
        """Round numbers in the range, at most ``_TICKS``: powers of two for bytes, parts of decades otherwise."""
        low, high = 10**self.first, 10**self.last
        if binary:
            powers = range(math.ceil(math.log2(low)), math.floor(math.log2(high)) + 1)
            numbers = [float(2**power) * part for power in (powers.start - 1, *powers) for part in (1, 1.25, 1.5, 1.75)]
            steps: list[list[float]] = [[n for n in numbers if math.log2(n).is_integer()], numbers]
        else:
            decades = range(math.floor(self.first), math.ceil(self.last) + 1)
            numbers = [10.0**power * part for power in decades for part in (1, 1.5, 2, 3, 5, 7)]
            steps = [numbers[::6], [n for i, n in enumerate(numbers) if i % 6 in (0, 2, 4)], numbers]
        inside = [[n for n in candidates if low <= n <= high] for candidates in steps]
        fitting = [ticks for ticks in inside if len(ticks) <= _TICKS]
        ticks = fitting[-1] if fitting else inside[0]
        return ticks[:: -(-len(ticks) // _TICKS)] if ticks else [low, high]


def roofline(steps: Sequence[Step], roofs: Roofs) -> str:
    """Multiply-accumulates per second over multiply-accumulates per byte, with the roofs of this machine."""
    points = [(s, s.macs / s.bytes, s.macs / (s.ms / 1e3)) for s in steps if s.macs and s.bytes and s.ms > 0]
    if not points:
        return ""
    ridge = roofs.macs / roofs.bytes
    x = _Scale([*(p[1] for p in points), ridge], _LEFT, _WIDTH - _RIGHT)
    y = _Scale([*(p[2] for p in points), roofs.macs], 300, 16)
    left, right = x.decades[0], x.decades[-1]
    shapes = [_line(x.at(d), 16, x.at(d), 300, "grid") + _text(x.at(d), 318, number(d), "middle") for d in x.decades]
    shapes += [_axis_label(y.at(d), f"{number(d / 1e9)} G") for d in y.decades]
    start = max(left, y.decades[0] / roofs.bytes)
    shapes.append(_line(x.at(start), y.at(roofs.bytes * start), x.at(ridge), y.at(roofs.macs), "roof"))
    shapes.append(_line(x.at(ridge), y.at(roofs.macs), x.at(right), y.at(roofs.macs), "roof"))
    shapes += [
        _dot(
            x.at(intensity),
            y.at(speed),
            f"{s.instruction} {s.name}: {number(speed / 1e9)} G/s, {number(intensity)} per byte",
        )
        for s, intensity, speed in points
    ]
    shapes.append(_text(_WIDTH - _RIGHT, 338, "multiply-accumulates per byte of operands and results", "end"))
    return _svg(344, "Roofline: multiply-accumulates per second of each step, by intensity", shapes)


def _dot(x: float, y: float, title: str, label: str = "", style: str = "c0") -> str:
    name = _text(x + 9, y + 4, label) if label else ""
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" class="dot {style}"><title>{escape(title)}</title></circle>{name}'


def pareto_chart(
    points: Sequence[tuple[str, float, float]], axes: tuple[str, str], text: Callable[[float], str], *, line: bool,
    lower: bool = False,
) -> str:  # fmt: skip
    """Labeled points: the first axis is better to the left, the second to the top, or with ``lower`` to the bottom.
    ``line``: draw the frontier. Of many points, those on the frontier have labels."""
    sign = -1.0 if lower else 1.0
    best = [(n, a, sign * b) for n, a, b in frontier([(n, a, sign * b) for n, a, b in points])] if line else []
    x = _TightScale([p[1] for p in points], _LEFT + 12, _WIDTH - 200)
    low, high = min(p[2] for p in points), max(p[2] for p in points)
    low, span = (low, high - low) if high > low else (low - 0.5, 1.0)
    digits = max(1, 1 - math.floor(math.log10(span)))

    def y(value: float) -> float:
        return 280 - 230 * (value - low) / span

    ticks = x.ticks(binary=text is size)
    shapes = [_line(x.at(d), 30, x.at(d), 300, "grid") + _text(x.at(d), 318, text(d), "middle") for d in ticks]
    shapes += [_axis_label(y(low + span * p), f"{low + span * p:.{digits}f}") for p in (0, 0.5, 1)]
    corners = [f"{x.at(a):.1f},{y(b):.1f}" for _, a, b in best[:1]]
    for (_, _, before), (_, a, b) in pairwise(best):
        corners += [f"{x.at(a):.1f},{y(before):.1f}", f"{x.at(a):.1f},{y(b):.1f}"]
    shapes.append(f'<polyline points="{" ".join(corners)}" class="frontier"/>')
    on = {name for name, _, _ in best}
    shapes += [
        _dot(x.at(a), y(b), f"{name}: {text(a)}, {b:.{digits}f}", style="c1" if name in on else "c0")
        for name, a, b in sorted(points, key=lambda point: point[0] in on)  # the frontier is drawn on top
    ]
    labeled = [p for p in points if len(points) <= _LABELED or p[0] in on]
    dots = [(x.at(a), y(b)) for _, a, b in points]
    shapes += _labels([(name, x.at(a), y(b)) for name, a, b in labeled], dots)
    shapes += [_text(_WIDTH - 200, 338, axes[0], "end"), _text(_LEFT, 18, axes[1])]
    return _svg(344, f"{axes[1]} over {axes[0]}", shapes)


def _labels(points: Sequence[tuple[str, float, float]], dots: Sequence[tuple[float, float]]) -> list[str]:
    """Names beside their points, where they cover no other name and no dot; those without room are in the titles."""
    taken = [(x - _RADIUS, x + _RADIUS, y + _RADIUS, y - _RADIUS) for x, y in dots]  # left, right, bottom, top
    shapes = []
    for name, x, y in sorted(points, key=lambda point: point[1]):
        left, right = x + _RADIUS + 1, x + _RADIUS + 1 + _CHARACTER * len(name)
        for shift in _SHIFTS:
            bottom, top = y + shift + 3, y + shift - _LINE + 3
            if all(right < a or b < left or bottom <= d or c <= top for a, b, c, d in taken):
                taken.append((left, right, bottom, top))
                shapes.append(_text(left, y + shift, name))
                break
    return shapes


def frontier(points: Sequence[tuple[str, float, float]]) -> list[tuple[str, float, float]]:
    """The points that no other beats in both: less of the first number, more of the second.

    >>> [name for name, _, _ in frontier([("a", 1, 1), ("b", 2, 3), ("c", 3, 2)])]
    ['a', 'b']
    """
    best: list[tuple[str, float, float]] = []
    for point in sorted(points, key=lambda p: (p[1], -p[2])):
        if not best or point[2] > best[-1][2]:
            best.append(point)
    return best


def budget_bar(title: str, used: int, limit: int) -> str:
    """How much of a limit is used."""
    top = max(used, limit, 1)
    plot = _WIDTH - _LEFT - _RIGHT
    shapes = [
        _rect(_LEFT, 14, plot * used / top, 20, "over" if used > limit else "c2", f"{title}: {size(used)}"),
        _line(_LEFT + plot * limit / top, 8, _LEFT + plot * limit / top, 40, "limit"),
        _text(_LEFT - 6, 28, title, "end"),
        _text(_LEFT + plot * limit / top - 4, 54, f"limit {size(limit)}", "end"),
        _text(_LEFT, 54, f"{size(used)} used"),
    ]
    return _svg(60, f"{title}: {size(used)} of {size(limit)}", shapes)
