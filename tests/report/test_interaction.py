"""Pan, zoom and pinch of graphs and charts in a browser, what charts say under the pointer, and the lines of graphs."""

from __future__ import annotations

from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest

from edgewright.report.model import Arena, Block, FileReport, GraphView, Node, Report, Span, Timeline
from edgewright.report.page import save
from edgewright.units import size
from tests.report.browser import wait_until
from tests.report.programs import large, portable

pytestmark = pytest.mark.slow
VIEW = """(() => {
  const { x, y, k } = document.querySelector(".file:not([hidden]) .graph").graph.view;
  return [x, y, k];
})()"""
Point = tuple[float, float]


def open_graph(open_page: Any, path: Path, **options: Any) -> tuple[Any, dict[str, float]]:
    """A page that shows its first graph, and where the canvas is."""
    page = open_page(path, **options)
    page.get_by_role("tab", name="Graph").click()
    canvas = page.get_by_role("application").locator("visible=true").first
    wait_until(page, "document.querySelector('.file:not([hidden]) .graph').graph.boxes > 0")
    return page, canvas.bounding_box()


def under(view: list[float], x: float, y: float) -> Point:
    """The point of a graph that is at a point of its canvas."""
    return (x - view[0]) / view[2], (y - view[1]) / view[2]


# ------------------------------------------------------------------------------------------------------------- graphs


def test_the_wheel_zooms_about_the_pointer(open_page: Any, path: Path) -> None:
    page, box = open_graph(open_page, path)
    x, y = 300, 120
    page.mouse.move(box["x"] + x, box["y"] + y)
    before = page.evaluate(VIEW)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -100)
    page.keyboard.up("Control")
    page.wait_for_timeout(100)
    after = page.evaluate(VIEW)
    assert after[2] > 1.2 * before[2]
    assert under(after, x, y) == pytest.approx(under(before, x, y), abs=1)


def test_the_page_scrolls_past_a_graph_that_is_not_in_use(open_page: Any, path: Path) -> None:
    page, box = open_graph(open_page, path)
    page.mouse.move(box["x"] + 300, box["y"] + 120)
    before = page.evaluate(VIEW)
    page.mouse.wheel(0, 200)
    wait_until(page, "scrollY > 0")
    assert page.evaluate(VIEW) == before
    page.evaluate("scrollTo(0, 0)")
    page.mouse.click(box["x"] + 5, box["y"] + 5)  # now it has the focus
    page.mouse.wheel(0, 200)
    page.wait_for_timeout(100)
    assert page.evaluate(VIEW)[2] < before[2] and page.evaluate("scrollY") == 0


def test_dragging_pans_and_selects_nothing(open_page: Any, path: Path) -> None:
    page, box = open_graph(open_page, path)
    before = page.evaluate(VIEW)
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2 + 80, box["y"] + 100, steps=4)
    page.mouse.up()
    assert page.evaluate(VIEW) == pytest.approx([before[0] + 80, before[1] + 40, before[2]])
    assert page.locator(".detail:visible h4").count() == 0
    centers = """document.querySelector('.file:not([hidden]) .graph').graph.edges
      .map(([a]) => [a.ax + a.w2 / 2, a.ay + a.h2 / 2])"""
    x, y = page.evaluate(centers)[0]
    view = page.evaluate(VIEW)
    page.mouse.click(box["x"] + view[0] + x * view[2], box["y"] + view[1] + y * view[2])
    assert "aten::convolution.out" in page.locator(".detail:visible h4").inner_text()


@pytest.mark.parametrize("how", ["double click", "button"])
def test_a_module_opens_and_closes(open_page: Any, tmp_path: Path, how: str) -> None:
    save(Report("large", [large(60)]), tmp_path / "large.html")
    page, box = open_graph(open_page, tmp_path / "large.html")
    page.get_by_label("Close all modules").click()
    count = "document.querySelector('.graph').graph.boxes"
    closed = page.evaluate(count)
    view = page.evaluate(VIEW)
    x, y = page.evaluate(
        "(() => { const [b] = document.querySelector('.graph').graph.drawn.boxes; return [b.ax + 9, b.ay + 9]; })()"
    )
    at = box["x"] + view[0] + x * view[2], box["y"] + view[1] + y * view[2]
    if how == "double click":
        page.mouse.dblclick(*at)
        assert page.evaluate(count) > closed
    else:  # as on a phone
        page.mouse.click(*at)
        page.locator(".detail").get_by_role("button", name="open").click()
        assert page.evaluate(count) > closed
        page.locator(".detail").get_by_role("button", name="close").click()
        assert page.evaluate(count) == closed


def pinch(page: Any, center: Point, start: float, end: float) -> None:
    """Two fingers that move apart, horizontally, about a point."""
    session = page.context.new_cdp_session(page)
    for step in range(9):
        half = (start + (end - start) * step / 8) / 2
        points = [{"x": center[0] + sign * half, "y": center[1], "id": n} for n, sign in enumerate((-1, 1))]
        session.send("Input.dispatchTouchEvent", {"type": "touchMove" if step else "touchStart", "touchPoints": points})
    session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    page.wait_for_timeout(100)


def test_two_fingers_zoom_a_graph(open_page: Any, path: Path) -> None:
    page, box = open_graph(open_page, path, width=390, has_touch=True, is_mobile=True)
    before = page.evaluate(VIEW)
    pinch(page, (box["x"] + 150, box["y"] + 100), 60, 120)
    after = page.evaluate(VIEW)
    assert after[2] == pytest.approx(2 * before[2], rel=0.05)
    assert under(after, 150, 100) == pytest.approx(under(before, 150, 100), abs=3)


def test_movements_only_for_who_wants_them(open_page: Any, path: Path) -> None:
    """With reduced motion, a graph fits at once; otherwise it moves there."""
    views = []
    for preference in ("reduce", "no-preference"):
        page, _ = open_graph(open_page, path, reduced_motion=preference)
        page.get_by_role("application").locator("visible=true").first.focus()
        fitted = page.evaluate(VIEW)
        for _ in range(4):
            page.keyboard.press("+")
        assert page.evaluate(VIEW)[2] > 2 * fitted[2]
        page.evaluate("document.activeElement.dispatchEvent(new KeyboardEvent('keydown', { key: '0' }))")
        page.wait_for_timeout(0 if preference == "reduce" else 500)
        assert page.evaluate(VIEW) == pytest.approx(fitted, abs=1e-6)
        page.keyboard.press("+")
        both = page.evaluate(
            f"(() => {{ const before = {VIEW}; document.activeElement.dispatchEvent("
            f"new KeyboardEvent('keydown', {{ key: '0' }})); return [before, {VIEW}]; }})()"
        )
        views.append(both[0] == both[1])
    assert views == [False, True]


# ----------------------------------------------------------------------------------------------------- lines of graphs


def crossings(lines: list[list[Point]]) -> int:
    """How often lines cross, except where they meet."""

    def side(a: Point, b: Point, p: Point) -> float:
        return (b[0] - a[0]) * (p[1] - a[1]) - (b[1] - a[1]) * (p[0] - a[0])

    def cross(a: Point, b: Point, c: Point, d: Point) -> bool:
        return side(a, b, c) * side(a, b, d) < 0 and side(c, d, a) * side(c, d, b) < 0

    pieces = [(n, piece) for n, line in enumerate(lines) for piece in pairwise(line)]
    return sum(n != m and cross(*one, *other) for (n, one), (m, other) in combinations(pieces, 2))


def drawing(page: Any) -> tuple[list[list[Point]], list[tuple[float, float, float, float]]]:
    """The lines of a graph, and left, top, right and bottom of its boxes."""
    graph = "document.querySelector('.file:not([hidden]) .graph').graph"
    lines = page.evaluate(f"{graph}.edges.map(([, , points]) => points)")
    boxes = page.evaluate(
        f"{graph}.drawn.boxes.filter((b) => !b.open).map((b) => [b.ax, b.ay, b.ax + b.w2, b.ay + b.h2])"
    )
    return [[tuple(point) for point in line] for line in lines], [tuple(box) for box in boxes]


def attention(module: str, first: int) -> list[Node]:
    """Three branches of different lengths that meet, and a connection around them, whose results are added."""
    edges = [(), (0,), (1,), (2,), (0,), (4,), (0,), (3, 5), (7, 6), (8, 0)]
    return [
        Node(f"n{first + i}", "linear", f"{module}.attention" if 0 < i < 9 else module, "xnnpack",
             tuple(first + j for j in reads) or ((first - 1,) if first else ()))
        for i, reads in enumerate(edges)
    ]  # fmt: skip


def test_branches_of_unequal_length_do_not_cross(open_page: Any, tmp_path: Path) -> None:
    """A recurrent cell over six steps, without modules."""
    nodes = [Node("c", "state", "", "xnnpack"), Node("h", "state", "", "xnnpack")]
    cell, hidden = 0, 1

    def add(*reads: int) -> int:
        nodes.append(Node(f"n{len(nodes)}", "mul", "", "xnnpack", reads))
        return len(nodes) - 1

    for _ in range(6):
        gates = add(add(), hidden)
        inputs, forget, update, output = (add(add(gates)) for _ in range(4))
        cell = add(add(forget, cell), add(inputs, update))
        hidden = add(add(cell), output)
    view = GraphView("model", "made up", nodes, len(nodes))
    save(Report("lstm", [FileReport("lstm", graphs=[view])]), tmp_path / "lstm.html")
    page, _ = open_graph(open_page, tmp_path / "lstm.html")
    lines, boxes = drawing(page)
    assert len(boxes) == len(nodes) == 92 and len(lines) == 114
    assert crossings(lines) == 0


@pytest.fixture
def attentions(tmp_path: Path) -> Path:
    nodes = [node for i in range(3) for node in attention(f"net.block{i}", 10 * i)]
    save(Report("net", [FileReport("net", graphs=[GraphView("model", "made up", nodes, 30)])]), tmp_path / "net.html")
    return tmp_path / "net.html"


def test_lines_cross_neither_boxes_nor_each_other(open_page: Any, attentions: Path) -> None:
    """Of branches in nested modules, all open: lines leave and enter modules without crossing what is in them."""
    page, _ = open_graph(open_page, attentions)
    page.get_by_label("Open all modules").click()
    lines, boxes = drawing(page)
    assert len(boxes) == 30 and len(lines) == 38
    assert crossings(lines) == 0
    for line in lines:
        assert all(a[1] <= b[1] for a, b in pairwise(line)) and len({line[0][1], line[-1][1]}) == 2
        for (x1, y1), (x2, y2) in pairwise(line):
            for left, top, right, bottom in boxes:
                if max(y1, top) < min(y2, bottom):  # beside the box, all the way
                    assert max(x1, x2) <= left or min(x1, x2) >= right


def test_a_graph_is_arranged_the_same_way_again(open_page: Any, attentions: Path) -> None:
    page, _ = open_graph(open_page, attentions)
    page.get_by_label("Open all modules").click()
    before = drawing(page)
    page.get_by_label("Close all modules").click()
    assert drawing(page) != before
    page.get_by_label("Open all modules").click()
    assert drawing(page) == before


# ------------------------------------------------------------------------------------------------------------- charts


def chart_of(page: Any, tab: str) -> tuple[Any, dict[str, float]]:
    page.get_by_role("tab", name=tab).click()
    chart = page.locator(f"#{tab.lower()} .file:not([hidden]) .chart[data-total]").first
    chart.scroll_into_view_if_needed()
    return chart, chart.bounding_box()


def spans(chart: Any) -> list[tuple[float, float]]:
    """Left and right of the rectangles of a chart that are in sight, in percent."""
    shown = """all => all.filter((s) => s.style.display !== 'none').map((s) => {
      const left = parseFloat(s.getAttribute('x'));
      return [left, left + parseFloat(s.getAttribute('width'))];
    })"""
    return [tuple(pair) for pair in chart.locator("[data-s]").evaluate_all(shown)]


@pytest.fixture(scope="module")
def nested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A timeline with a short step late in a long run, next to an equally short one."""
    report = portable()
    spans = [Span("forward", 0.0, 10_000.0, 0), Span("conv1: conv2d", 1_000.0, 4_000.0, 1),
             Span("a: linear", 6_000.0, 2.0, 1), Span("b: linear", 6_002.0, 2.0, 1)]  # fmt: skip
    report.timelines = [Timeline("forward: 10 ms", "made up", spans, len(spans))]
    target = tmp_path_factory.mktemp("nested") / "nested.html"
    save(Report("nested", [report]), target)
    return target


def test_the_arena_says_what_is_live_under_the_pointer(open_page: Any, path: Path) -> None:
    arena = portable().memory.arenas[0]
    assert max(used for _, used in arena.live) == arena.peak
    page = open_page(path)
    _, box = chart_of(page, "Memory")
    for at in (0, arena.peak_at, arena.instructions - 1):
        page.mouse.move(box["x"] + box["width"] * (at + 0.5) / arena.instructions, box["y"] + box["height"] - 30)
        used = [used for start, used in arena.live if start <= at][-1]
        text = page.locator(".tip").inner_text()
        assert text.split("\n")[0] == f"instruction #{at}: {size(used)} live"
        for block in text.split("\n")[1:]:
            assert any(block.startswith(f"{b.name}: ") and b.start <= at <= b.end for b in arena.blocks)
        assert at != arena.peak_at or text.count("\n") == 1
    page.mouse.move(5, 5)
    assert page.locator(".tip").is_hidden()


def test_a_dot_near_the_pointer_says_what_it_is(open_page: Any, path: Path) -> None:
    page = open_page(path)
    page.get_by_role("tab", name="Compare").click()
    dot = page.locator("#compare .dot:visible").first
    dot.scroll_into_view_if_needed()
    box = dot.bounding_box()
    page.mouse.move(box["x"] + box["width"] + 4, box["y"] - 4)  # beside it
    assert page.locator(".near").count() == 1
    assert page.locator(".tip").inner_text().startswith(("one.pte: ", "other.pte: "))
    page.keyboard.press("Escape")
    assert page.locator(".tip").is_hidden() and page.locator(".near").count() == 0


def test_a_tap_says_what_a_span_is(open_page: Any, nested: Path) -> None:
    page = open_page(nested, 390, has_touch=True, is_mobile=True)
    _, box = chart_of(page, "Timeline")
    page.touchscreen.tap(box["x"] + 0.3 * box["width"], box["y"] + 40)
    assert "conv1: conv2d: 4.00 ms, 40.0%" in page.locator(".tip").inner_text()


def test_a_span_is_zoomed_and_back(open_page: Any, nested: Path) -> None:
    page = open_page(nested, reduced_motion="reduce")
    chart, box = chart_of(page, "Timeline")
    everything = spans(chart)
    page.mouse.click(box["x"] + 0.3 * box["width"], box["y"] + 40)
    assert (0, 100) in [pytest.approx(span, abs=0.01) for span in spans(chart)] and len(spans(chart)) == 2
    ticks = chart.locator(".tick").all_text_contents()
    assert ticks[0].startswith("1") and ticks[-1] == "5.0 ms" and len(set(ticks)) == len(ticks) > 3
    page.mouse.click(box["x"] + 0.3 * box["width"], box["y"] + 40)
    assert spans(chart) == everything


def test_a_chart_follows_wheel_drag_and_keyboard(open_page: Any, nested: Path) -> None:
    page = open_page(nested)
    chart, box = chart_of(page, "Timeline")
    everything = spans(chart)
    page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 40)
    page.keyboard.down("Control")
    for _ in range(18):
        page.mouse.wheel(0, -100)
    page.keyboard.up("Control")
    page.wait_for_timeout(100)
    ticks = chart.locator(".tick").all_text_contents()
    assert len(set(ticks)) == len(ticks) > 3 and all(t.startswith(("5.98", "5.99", "6.0")) for t in ticks)
    named = [text for text in chart.locator(".cut text").all_text_contents() if "linear" in text]
    assert named == ["a: linear", "b: linear"]
    zoomed = spans(chart)
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.4 * box["width"], box["y"] + 40, steps=3)
    page.mouse.up()
    assert len(zoomed) == len(spans(chart)) == 3 and spans(chart) != zoomed
    assert page.evaluate("document.activeElement.className").startswith("plot")  # the chart has the focus
    page.keyboard.press("0")
    page.wait_for_timeout(500)
    assert spans(chart) == everything
    page.keyboard.press("+")
    page.keyboard.press("ArrowRight")
    moved = spans(chart)
    assert moved != everything
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("-")
    assert spans(chart) == [pytest.approx(span, abs=1e-6) for span in everything]


def test_two_fingers_zoom_a_chart_and_one_scrolls_the_page(open_page: Any, nested: Path) -> None:
    page = open_page(nested, 390, has_touch=True, is_mobile=True)
    chart, box = chart_of(page, "Timeline")
    assert chart.evaluate("c => getComputedStyle(c).touchAction") == "pan-y"
    pinch(page, (box["x"] + 0.5 * box["width"], box["y"] + 40), 60, 180)
    scale = chart.evaluate("c => c.strip.view.k")
    assert scale == pytest.approx(3, rel=0.05)


def test_a_chart_of_few_instructions_has_nothing_to_zoom(open_page: Any, tmp_path: Path) -> None:
    report = portable()
    report.memory.arenas = [Arena("forward", 1, 64, [Block("input 0", 0, 0, 0, 64)], 1, 64, 0, 1, [(0, 64)])]
    save(Report("one", [report]), tmp_path / "one.html")
    page = open_page(tmp_path / "one.html")
    chart, box = chart_of(page, "Memory")
    assert page.locator("#memory .tools").count() == 0 and chart.locator(".tick").all_text_contents() == ["#0"]
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] - 40)
    assert page.locator(".tip").inner_text().split("\n") == ["instruction #0: 64 B live",
                                                             "input 0: 64 B at 0, instructions 0 to 0"]  # fmt: skip


def test_print_has_the_names_of_charts_that_nobody_opened(open_page: Any, nested: Path) -> None:
    page = open_page(nested)
    texts = page.locator("#timeline .chart text")
    before = texts.all_text_contents()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert texts.all_text_contents() == before and {"forward", "conv1: conv2d", "5.00 ms"} <= set(before)


def test_print_shows_all_of_a_zoomed_chart(open_page: Any, nested: Path) -> None:
    page = open_page(nested, reduced_motion="reduce")
    chart, box = chart_of(page, "Timeline")
    everything = spans(chart)
    page.mouse.click(box["x"] + 0.3 * box["width"], box["y"] + 40)
    zoomed = spans(chart)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert spans(chart) == everything
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert spans(chart) == zoomed != everything
