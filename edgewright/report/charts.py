"""Charts as SVG: the arena over time, a flame chart, a roofline, a Pareto plot, budgets. Colors are classes of the
page's style sheet; every shape has a title, and a table next to the chart has the same numbers.

Charts fill the width of the page: their horizontal positions are percentages, so that texts have the same size on a
phone. Only plots whose labels avoid each other are drawn twice, for wide and for narrow pages."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice, pairwise

from edgewright.report.markup import escape
from edgewright.report.model import Arena, Block, Roofs, Span, Step, Timeline
from edgewright.units import duration, number, share, size

_COLORS = ("c0", "c1", "c2", "c3", "c5", "c6", "c7")
_GRAY = "c4"  # of what has no color of its own
_AXIS = 68  # width of the labels beside a chart
_LABELED = 12  # points of a plot that all have labels
_CHARACTER, _LINE = 6.6, 13  # width and height of a label's characters
_RADIUS = 8  # of a dot, with a margin
_SHIFTS = (-11, 4, 20, -11 - _LINE, 20 + _LINE, -11 - 2 * _LINE)  # of a label from its point, first the best
_PARTS = (0.3, 0.6, 0.15, 0.8)  # of a roof's length, where its name may be
_MIN_DECADES = 0.05
_MIN_WIDTH = 0.05  # percent
_PHONE_LABEL = 24  # percent of a phone's width that hold a few words
_LABEL_WIDTH = 4  # percent of a span that has its name inside, before anyone zooms


def _chart(
    height: float, title: str, shapes: Iterable[str], axis: Iterable[str] = (), style: str = "",
    data: Mapping[str, object] | None = None,
) -> str:  # fmt: skip
    """A chart of the page's width and of ``height`` pixels. ``axis``: texts to the left of it. ``data``: what the
    script needs to zoom, as positions in the page are rounded."""
    labels = "".join(axis)
    side = f'<svg class="axis" width="{_AXIS}" height="{height:g}" aria-hidden="true">{labels}</svg>' if labels else ""
    facts = "".join(f' data-{name}="{value}"' for name, value in (data or {}).items())
    return (
        f'<div class="plot">{side}<svg class="chart {style}" width="100%" height="{height:g}" role="img" '
        f'aria-label="{escape(title)}"{facts}>{"".join(shapes)}</svg></div>'
    )


def _text(x: str, y: float, text: str, anchor: str = "start", style: str = "") -> str:
    classes = f' class="{style}"' if style else ""
    return f'<text x="{x}" y="{y:.1f}" text-anchor="{anchor}"{classes}>{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    return f'<line x1="{x1:.2f}%" y1="{y1:.1f}" x2="{x2:.2f}%" y2="{y2:.1f}" class="{style}"/>'


def _rect(x: float, y: float, width: float, height: float, style: str, title: str, range_: str = "") -> str:
    return (
        f'<rect x="{x:.2f}%" y="{y:.2f}" width="{max(width, _MIN_WIDTH):.2f}%" height="{max(height, 0.5):.2f}" '
        f'class="{style}"{range_}><title>{escape(title)}</title></rect>'
    )


def _at(part: float, y: float, text: str, style: str = "") -> str:
    """A text at a part of the width; inside the chart at both ends."""
    return _text(f"{100 * part:.2f}%", y, text, "start" if part < 0.1 else "end" if part > 0.9 else "middle", style)


def _tick(y: float, text: str) -> str:
    return _text(str(_AXIS - 6), y + 4, text, "end")


def _key(entries: Iterable[tuple[str, str]]) -> str:
    """The colors of a chart: a class and what it is."""
    squares = (
        f'<span class="entry"><svg width="12" height="12" aria-hidden="true"><rect width="12" height="12" '
        f'class="{style}"/></svg> {escape(text)}</span>'
        for style, text in entries
    )
    return f'<p class="key">{"".join(squares)}</p>'


# ------------------------------------------------------------------------------------------------------------- arena


def arena_chart(arena: Arena, limit: int | None) -> str:
    """Tensors as rectangles: instructions from left to right, offsets in the arena from bottom to top."""
    top = max(arena.bytes, limit or 0, 1)
    plot, above = 260.0, 24.0
    columns = max(arena.instructions, 1)

    def y(offset: float) -> float:
        return above + plot * (1 - offset / top)

    levels = _byte_ticks(0, top, 5)
    shapes = [_line(0, y(level), 100, y(level), "grid") for level in levels]
    shapes += [_rectangle(block, 100 / columns, y) for block in arena.blocks]
    shapes += _names_of_blocks(arena.blocks, 100 / columns, y)
    shapes.append(_line(0, y(arena.bytes), 100, y(arena.bytes), "edge"))
    if limit is not None:
        shapes.append(_line(0, y(limit), 100, y(limit), "limit"))
        shapes.append(_text("100%", y(limit) - 5, f"limit {size(limit)}", "end", "limit"))
    ticks = sorted({round(part * (columns - 1)) for part in (0, 0.25, 0.5, 0.75, 1)})
    shapes += [_at((t + 0.5) / columns, above + plot + 16, f"#{t}", "tick") for t in ticks]
    title = f"Arena {arena.index} of {arena.method} over its {arena.instructions} instructions"
    roles = [(f"{style} block", role) for style, role in sorted({_role(block) for block in arena.blocks})]
    axis = [_tick(y(level), size(level)) for level in levels]
    live = " ".join(f"{at}:{used}" for at, used in arena.live)
    data = {"total": columns, "unit": "instruction", **({"live": live} if live else {})}
    return _chart(above + plot + 24, title, shapes, axis, data=data) + _key(roles)


def _role(block: Block) -> tuple[str, str]:
    """The color of a tensor in an arena, and what it is.

    >>> _role(Block("input 0", 0, 1, 0, 64)), _role(Block("conv1: linear (%3)", 0, 1, 0, 64))
    (('c0', 'inputs'), ('c4', 'between instructions'))
    """
    roles = {"input": ("c0", "inputs"), "output": ("c2", "outputs"), "state": ("c1", "state, kept between calls")}
    return roles.get(block.name.partition(" ")[0], (_GRAY, "between instructions"))


def _rectangle(block: Block, wide: float, y: Callable[[float], float]) -> str:
    title = f"{block.name}: {size(block.bytes)} at {block.offset}, instructions {block.start} to {block.end}"
    top, bottom = y(block.offset + block.bytes), y(block.offset)
    length = block.end - block.start + 1
    style, range_ = f"block {_role(block)[0]}", f' data-s="{block.start}" data-l="{length}"'
    return _rect(block.start * wide, top, length * wide, bottom - top, style, title, range_)


def _names_of_blocks(blocks: Sequence[Block], wide: float, y: Callable[[float], float]) -> Iterable[str]:
    """Names inside the high rectangles, cut off where a tensor that is written in place of this one begins. Those that
    have no room are for the script, when somebody zooms."""
    by_start = sorted(blocks, key=lambda block: block.start)
    starts = [block.start for block in by_start]
    for block in blocks:
        top, bottom = y(block.offset + block.bytes), y(block.offset)
        if bottom - top < _LINE + 2:
            continue
        during = islice(by_start, bisect_right(starts, block.start), bisect_right(starts, block.end))
        over = (b.start for b in during
                if b.offset < block.offset + block.bytes and block.offset < b.offset + b.bytes)  # fmt: skip
        length = next(over, block.end + 1) - block.start
        box = f'x="{block.start * wide:.2f}%" y="{top:.1f}" width="{length * wide:.2f}%" height="{bottom - top:.1f}"'
        style = "cut" if length * wide > _PHONE_LABEL else "cut wide"  # a phone has no room for it
        data = f'data-s="{block.start}" data-l="{length}" data-y="{_LINE}" data-n="{escape(block.name)}"'
        label = _text("4", _LINE, block.name) if (block.end - block.start + 1) * wide >= 2 * _LABEL_WIDTH else ""
        yield f'<svg class="{style}" {box} {data}>{label}</svg>'


# ------------------------------------------------------------------------------------------------------ flame chart


def flame_chart(timeline: Timeline) -> str:
    """Spans as rectangles, one row per depth, names inside where they fit."""
    total = max((s.start + s.length for s in timeline.spans), default=1.0) or 1.0
    row = 26
    shapes = []
    colors = _colors_of_kinds(timeline)
    inner = {id(span) for span in _innermost(timeline)}
    for span in timeline.spans:
        x, width, y = 100 * span.start / total, 100 * span.length / total, 4 + row * span.depth
        name, title = escape(span.name), f"{span.name}: {duration(span.length / 1e6)}, {share(span.length / total)}"
        label = _text("4", 16, span.name) if width > _LABEL_WIDTH else ""
        color = colors.get(_span_kind(span), _GRAY) if id(span) in inner else _GRAY
        # A nested svg cuts its text off where the span ends.
        shapes.append(
            f'<svg class="cut" x="{x:.3f}%" y="{y}" width="{max(width, _MIN_WIDTH):.3f}%" height="{row - 2}" '
            f'data-s="{span.start:.3f}" data-l="{span.length:.3f}" data-y="16" data-n="{name}">'
            f"<title>{escape(title)}</title>"
            f'<rect width="100%" height="100%" class="span {color}"/>{label}</svg>'
        )
    height = 4 + row * (1 + max((s.depth for s in timeline.spans), default=0))
    shapes += [_at(p, height + 18, duration(total * p / 1e6), "tick") for p in (0, 0.25, 0.5, 0.75, 1)]
    others = (
        [(f"{_GRAY} span", "other")] if len({_span_kind(span) for span in _innermost(timeline)}) > len(colors) else []
    )
    key = _key([*((f"{style} span", kind) for kind, style in colors.items()), *others])
    data = {"total": f"{total:.3f}", "unit": "time"}
    return _chart(height + 26, f"Flame chart: {timeline.title}", shapes, style="flame", data=data) + key


def _colors_of_kinds(timeline: Timeline) -> dict[str, str]:
    """Colors of the kinds of spans that no other span is in, for those that take most of the time."""
    times: dict[str, float] = {}
    for span in _innermost(timeline):
        times[_span_kind(span)] = times.get(_span_kind(span), 0.0) + span.length
    kinds = sorted(times, key=lambda kind: -times[kind])
    return dict(zip(kinds, _COLORS, strict=False))


def _innermost(timeline: Timeline) -> list[Span]:
    """The spans that no other is in: what is in a span follows it."""
    after = [span.depth for span in timeline.spans[1:]]
    return [span for span, depth in zip(timeline.spans, [*after, 0], strict=True) if depth <= span.depth]


def _span_kind(span: Span) -> str:
    """What a span computes, without its layer."""
    return operator_kind(span.name.rpartition(": ")[2])


# ---------------------------------------------------------------------------------------------------------- scatters


class _Decades:
    """A logarithmic axis over whole decades."""

    def __init__(self, values: Sequence[float], low: float, high: float) -> None:
        self.first = math.floor(math.log10(min(values)))
        self.last = max(math.ceil(math.log10(max(values))), self.first + 1)
        self.low, self.high = low, high

    def at(self, value: float) -> float:
        return self.low + (math.log10(value) - self.first) / (self.last - self.first) * (self.high - self.low)

    @property
    def ticks(self) -> list[float]:
        return [10.0**power for power in range(self.first, self.last + 1)]


class Tight:
    """A logarithmic axis from the smallest to the largest value."""

    def __init__(self, values: Sequence[float], low: float, high: float) -> None:
        self.first, self.last = math.log10(min(values)), math.log10(max(values))
        if self.last - self.first < _MIN_DECADES:  # equal values, or almost
            middle = (self.first + self.last) / 2
            self.first, self.last = middle - _MIN_DECADES / 2, middle + _MIN_DECADES / 2
        self.low, self.high = low, high

    def at(self, value: float) -> float:
        return self.low + (math.log10(value) - self.first) / (self.last - self.first) * (self.high - self.low)

    def ticks(self, count: int, *, binary: bool) -> list[float]:
        """At most ``count`` round numbers in the range: powers or parts of powers over decades, else equal steps."""
        low, high = 10**self.first, 10**self.last
        if high / low < 4:
            return _byte_ticks(low, high, count) if binary else round_ticks(low, high, count)
        base, parts = (2.0, ((1,),)) if binary else (10.0, ((1,), (1, 3), (1, 2, 5)))
        powers = range(math.floor(math.log(low, base)), math.ceil(math.log(high, base)) + 1)
        fine = [[n for power in powers for part in p if low <= (n := base**power * part) <= high] for p in parts]
        best = next((numbers for numbers in reversed(fine) if len(numbers) <= count), fine[0])
        return best[:: -(-len(best) // count)]


def round_ticks(low: float, high: float, count: int) -> list[float]:
    """Round numbers between two, at most ``count``.

    >>> round_ticks(31.8, 33.6, 6)
    [32.0, 32.5, 33.0, 33.5]
    """
    step = 10.0 ** math.floor(math.log10(max(high - low, 1e-12)) - 1)
    for factor in (1, 2, 5, 10, 20, 50, 100):
        first, last = math.ceil(low / (step * factor) - 1e-9), math.floor(high / (step * factor) + 1e-9)
        if last - first + 1 <= count:
            return [round(n * step * factor, 12) for n in range(first, last + 1)]
    return [low]


def _byte_ticks(low: float, high: float, count: int) -> list[float]:
    """Round numbers of the unit in which the largest is written."""
    unit = 1024.0 ** max(0, min(math.floor(math.log(max(high, 1), 1024)), 4))
    return [n * unit for n in round_ticks(low / unit, high / unit, count)]


def roofline(steps: Sequence[Step], roofs: Roofs) -> str:
    """Multiply-accumulates per second over multiply-accumulates per byte, with the roofs of this machine."""
    points = [(s, s.macs / s.bytes, s.macs / (s.ms / 1e3)) for s in steps if s.macs and s.bytes and s.ms > 0]
    if not points:
        return ""
    kinds = sorted(_kind_counts(points).items(), key=lambda item: -item[1])
    colors = {kind: f"c{i}" for i, (kind, _) in enumerate(kinds[:4])}
    others = [("c4", "other")] if len(kinds) > 4 else []
    charts = _for_widths(lambda width: _roofline(points, roofs, colors, width))
    return charts + _key([*((style, kind) for kind, style in colors.items()), *others])


def _roofline(
    points: Sequence[tuple[Step, float, float]], roofs: Roofs, colors: Mapping[str, str], width: float
) -> str:  # fmt: skip
    """The plot for a page in which it is about ``width`` pixels wide."""
    ceilings = [*roofs.macs.values()]
    ridges = [macs / bandwidth for macs in ceilings for bandwidth in roofs.bytes.values()]
    x = _Decades([*(p[1] for p in points), *ridges], 0, 100)
    y = _Decades([*(p[2] for p in points), *ceilings], 300, 20)
    left, right = x.ticks[0], x.ticks[-1]
    shapes = [_line(x.at(d), 20, x.at(d), 300, "grid") + _at(x.at(d) / 100, 318, f"{d:,g}") for d in x.ticks]
    shapes += [_line(0, y.at(d), 100, y.at(d), "grid") for d in y.ticks]
    peak = max(ceilings)
    labels: list[tuple[str, list[tuple[float, float, str]]]] = []  # under a slope; over or under a ceiling
    for name, bandwidth in roofs.bytes.items():
        start, end = max(left, y.ticks[0] / bandwidth), peak / bandwidth
        shapes.append(_line(x.at(start), y.at(bandwidth * start), x.at(end), y.at(peak), "roof"))
        offsets = [start ** (1 - part) * end**part for part in _PARTS]
        text = f"{name} {number(bandwidth / 1e9)} GB/s"
        highest = bandwidth == max(roofs.bytes.values())  # nothing is above it; the others have it above them
        dx, dy, anchor = (-_RADIUS, -4, "end") if highest else (_RADIUS, 14, "start")
        positions = [(x.at(offset) / 100 * width + dx, y.at(bandwidth * offset) + dy, anchor) for offset in offsets]
        labels.append((text, positions))
    for name, macs in roofs.macs.items():
        start = x.at(macs / max(roofs.bytes.values()))
        shapes.append(_line(start, y.at(macs), x.at(right), y.at(macs), "roof"))
        offsets = [(100 - (100 - start) * part) / 100 * width for part in (0.0, *_PARTS)]
        positions = [(offset, y.at(macs) + shift, "end") for offset in offsets for shift in (-6, 14)]
        labels.append((f"{name} {number(macs / 1e9)} GMAC/s", positions))
    for s, intensity, speed in points:
        title = f"{s.instruction} {s.layer} {s.name}: {number(speed / 1e9)} GMAC/s, {number(intensity)} per byte"
        shapes.append(_dot(f"{x.at(intensity):.2f}%", y.at(speed), title, colors.get(_kind(s), "c4")))
    dots = [(x.at(intensity) / 100 * width, y.at(speed)) for _, intensity, speed in points]
    shapes += _labels(labels[::-1], dots, width, "halo")  # those of the ceilings have fewer positions
    shapes.append(_text("100%", 338, "multiply-accumulates per byte of operands and results", "end"))
    shapes.append(_text("0%", 12, "GMAC/s"))
    axis = [_tick(y.at(d), f"{d / 1e9:,g}") for d in y.ticks]
    return _chart(344, "Roofline: multiply-accumulates per second of each step, by intensity", shapes, axis)


def _for_widths(draw: Callable[[float], str]) -> str:
    """A plot whose labels avoid each other, for wide and for narrow pages."""
    widths = (("wide", 1120.0), ("narrow", 270.0))
    return "".join(f'<div class="{style}">{draw(width)}</div>' for style, width in widths)


def _kind(step: Step) -> str:
    """The operator that a step's multiply-accumulates are of: the first one that the engine fused, the last pass of a
    layer.

    >>> names = "conv2d+add", "33 pool, 2 dma, 2 conv", "dma, conv (interpreted)"
    >>> [_kind(Step("#0", name, 1.0, 1.0)) for name in names]
    ['conv2d', 'conv', 'conv']
    """
    return operator_kind(step.name)


def operator_kind(name: str) -> str:
    """The first of fused operators, the last pass of a layer; of an operator of a program, its name alone.

    >>> operator_kind("aten::convolution.out"), operator_kind("2 dma, 33 conv (interpreted)")
    ('convolution', 'conv')
    """
    last = name.partition(" (")[0].rpartition(", ")[2]
    short = last.lstrip("0123456789 ").partition("+")[0]
    return short.rpartition("::")[2].removesuffix(".out")


def _kind_counts(points: Iterable[tuple[Step, float, float]]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for step, _, _ in points:
        counts[_kind(step)] = counts.get(_kind(step), 0) + 1
    return counts


def _dot(x: str, y: float, title: str, style: str = "c0") -> str:
    return f'<circle cx="{x}" cy="{y:.1f}" r="6" class="dot {style}"><title>{escape(title)}</title></circle>'


def pareto_chart(
    points: Sequence[tuple[str, float, float]], axes: tuple[str, str], text: Callable[[float], str], *, line: bool,
    lower: bool = False,
) -> str:  # fmt: skip
    """Labeled points: the first axis is better to the left, the second to the top, or with ``lower`` to the bottom.
    ``line``: draw the frontier. Of many points, those on the frontier have labels; on a narrow page, numbers."""
    return _for_widths(lambda width: _pareto(points, axes, text, line, lower, width))


def _pareto(
    points: Sequence[tuple[str, float, float]], axes: tuple[str, str], text: Callable[[float], str], line: bool,
    lower: bool, width: float,
) -> str:  # fmt: skip
    """The plot for a page in which it is about ``width`` pixels wide; its positions scale with the page's width."""
    sign = -1.0 if lower else 1.0
    best = [(n, a, sign * b) for n, a, b in frontier([(n, a, sign * b) for n, a, b in points])] if line else []
    scale = Tight([p[1] for p in points], 2, 78 if width > 600 else 88)
    low, high = min(p[2] for p in points), max(p[2] for p in points)
    low, span = (low, high - low) if high > low else (low - 0.5, 1.0)
    digits = max(1, 1 - math.floor(math.log10(span)))

    def y(value: float) -> float:
        return 280 - 230 * (value - low) / span

    ticks = _ticks_with_room(scale, text, width)
    shapes = [_line(scale.at(d), 30, scale.at(d), 300, "grid") for d in ticks]
    shapes += [_text(f"{scale.at(d):.2f}%", 318, text(d), "middle") for d in ticks]
    levels = round_ticks(low, low + span, 6)
    shapes += [_line(0, y(level), 100, y(level), "grid") for level in levels]
    for (_, _, before), (_, a, b) in pairwise(best):
        shapes.append(_line(scale.at(a), y(before), scale.at(a), y(b), "frontier"))
    for (_, a, b), (_, to, _) in pairwise(best):
        shapes.append(_line(scale.at(a), y(b), scale.at(to), y(b), "frontier"))
    on = set(best)
    shapes += [
        _dot(f"{scale.at(a):.2f}%", y(b), f"{name}: {text(a)}, {b:.{digits}f}", "c1" if (name, a, b) in on else "c0")
        for name, a, b in sorted(points, key=lambda point: point in on)  # the frontier is drawn on top
    ]
    labeled = sorted((p for p in points if len(points) <= _LABELED or p in on), key=lambda point: point[1])
    key = ""
    if width < 600:  # names would hide each other
        names = "".join(f'<span class="entry">{n} {escape(name)}</span>' for n, (name, _, _) in enumerate(labeled, 1))
        key = f'<p class="key">{names}</p>'
        labeled = [(str(n), a, b) for n, (_, a, b) in enumerate(labeled, 1)]
    dots = [(scale.at(a) / 100 * width, y(b)) for _, a, b in points]
    labeled = sorted(labeled, key=lambda point: -point[2])
    shapes += _labels([(name, _beside(scale.at(a) / 100 * width, y(b))) for name, a, b in labeled], dots, width)
    shapes += [_text("100%", 338, axes[0], "end"), _text("0%", 14, axes[1])]
    decimals = max(len(f"{level:g}".partition(".")[2]) for level in levels)
    axis = [_tick(y(level), f"{level:.{decimals}f}") for level in levels]
    return _chart(344, f"{axes[1]} over {axes[0]}", shapes, axis, "pareto") + key


def _ticks_with_room(scale: Tight, text: Callable[[float], str], width: float) -> list[float]:
    """As many ticks as have room for their texts."""
    for count in range(9, 1, -1):
        ticks = scale.ticks(count, binary=text is size)
        between = (_CHARACTER * (len(text(a)) + len(text(b))) / 2 + _RADIUS for a, b in pairwise(ticks))
        far = ((scale.at(b) - scale.at(a)) / 100 * width for a, b in pairwise(ticks))
        if all(there >= needed for there, needed in zip(far, between, strict=True)):
            return ticks
    return scale.ticks(1, binary=text is size)[:1]


def _labels(
    names: Sequence[tuple[str, Iterable[tuple[float, float, str]]]], dots: Sequence[tuple[float, float]], width: float,
    style: str = "",
) -> list[str]:  # fmt: skip
    """Names at the first of their positions (x, y, anchor) where they cover no other name and no dot and are inside the
    plot; those without room are left out."""
    taken = [(x - _RADIUS, x + _RADIUS, y + _RADIUS, y - _RADIUS) for x, y in dots]  # left, right, bottom, top
    shapes = []
    for name, positions in names:
        long = _CHARACTER * len(name)
        for x, y, anchor in positions:
            left = x if anchor == "start" else x - long
            right, bottom, top = left + long, y + 3, y - _LINE + 3
            inside = left >= 0 and right <= width
            if inside and all(right < a or b < left or bottom <= d or c <= top for a, b, c, d in taken):
                taken.append((left, right, bottom, top))
                shapes.append(_text(f"{100 * x / width:.2f}%", y, name, anchor, style))
                break
    return shapes


def _beside(x: float, y: float) -> list[tuple[float, float, str]]:
    """Places of a dot's name, first the best."""
    sides = ((x + _RADIUS + 1, "start"), (x - _RADIUS - 1, "end"))
    return [(at, y + shift, anchor) for at, anchor in sides for shift in _SHIFTS]


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
    share_of, at = used / top, limit / top
    words = f"{title}: {size(used)} used"
    shapes = [
        _text("0%", 14, words),
        _rect(0, 22, 100 * share_of, 18, "over" if used > limit else "c2", words),
        _line(100 * at, 18, 100 * at, 44, "mark"),
        _text(f"{100 * at:.2f}%", 57, f"limit {size(limit)}", "end" if at > 0.5 else "start", "limit"),
    ]
    return _chart(64, f"{title}: {size(used)} of {size(limit)}", shapes)
