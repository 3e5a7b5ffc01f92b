"""The page in a browser: every tab, search, sorting, keyboard and print, at two widths, light and dark; nothing is
requested, nothing is logged, and axe finds no serious violation.

Needs ``pip install playwright`` and Debian's ``chromium``; ``npm pack axe-core`` in the folder that
``EDGEWRIGHT_AXE`` names adds the check of accessibility.
"""

from __future__ import annotations

import os
import re
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgewright.report.model import CPU, FileReport, GraphView, Node, Report, Sweep, SweepRow
from edgewright.report.page import save
from tests.report.browser import wait_until
from tests.report.programs import hostile, large, portable

pytestmark = pytest.mark.slow
SIZES = [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")]
VERTICAL = "document.querySelector('.graph').graph.view.y"
TABS = ["overview", "graph", "layers", "memory", "timeline", "compare"]


def axe_source() -> str | None:
    """The script of axe-core, from the archive that npm downloads."""
    folder = os.environ.get("EDGEWRIGHT_AXE")
    archives = sorted(Path(folder).glob("axe-core-*.tgz")) if folder else []
    if not archives:
        return None
    with tarfile.open(archives[-1]) as archive:
        member = archive.extractfile("package/axe.min.js")
        assert member is not None
        return member.read().decode()


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_every_tab_opens_and_fits(open_page: Any, path: Path, width: int, scheme: str) -> None:
    page = open_page(path, width, scheme)
    tabs = page.get_by_role("tab")
    assert [t.lower() for t in tabs.all_inner_texts()] == TABS
    for at, name in enumerate(TABS):
        tabs.nth(at).click()
        shown = page.locator("section:visible")
        assert shown.count() == 1 and shown.get_attribute("id") == name
        box = tabs.nth(at).bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= width + 1  # also of a tab that a phone has to scroll to
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_axe_finds_nothing_serious(open_page: Any, path: Path, width: int, scheme: str) -> None:
    script = axe_source()
    if script is None:
        pytest.skip("axe-core is missing: npm pack axe-core, and EDGEWRIGHT_AXE names the folder")
    page = open_page(path, width, scheme, bypass_csp=True)
    page.evaluate(script)
    for at in range(len(TABS)):
        page.get_by_role("tab").nth(at).click()
        page.evaluate("document.querySelectorAll('section:not([hidden]) details').forEach((d) => { d.open = true; })")
        found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
        serious = [(v["id"], v["nodes"][0]["html"][:200]) for v in found if v["impact"] in ("serious", "critical")]
        assert serious == []


def test_tabs_follow_the_keyboard(open_page: Any, path: Path) -> None:
    page = open_page(path)
    page.get_by_role("tab").first.focus()
    for key, name in (
        ("ArrowRight", "graph"),
        ("End", "compare"),
        ("ArrowRight", "overview"),
        ("ArrowLeft", "compare"),
    ):
        page.keyboard.press(key)
        assert page.locator("section:visible").get_attribute("id") == name
        assert page.evaluate("document.activeElement.id") == f"tab-{name}"


def test_tables_are_sorted_by_number(open_page: Any, path: Path) -> None:
    page = open_page(path)
    page.get_by_role("tab", name="Layers").click()
    head = page.locator("#layers .file:visible th", has_text="time").first
    column = head.evaluate("h => h.cellIndex")
    for direction in ("descending", "ascending"):
        head.get_by_role("button").click()
        assert head.get_attribute("aria-sort") == direction
        cells = page.locator(f"#layers .file:visible table >> nth=0 >> tbody tr td:nth-child({column + 1})")
        values = [float(v) for v in cells.evaluate_all("all => all.map((c) => c.dataset.v)")]
        assert values == sorted(values, reverse=direction == "descending") and len(set(values)) > 3


def test_search_finds_and_selects(open_page: Any, path: Path) -> None:
    page = open_page(path)
    page.get_by_role("tab", name="Graph").click()
    search = page.get_by_label("Search the graph").locator("visible=true").first
    search.fill("linear")
    page.keyboard.press("Enter")
    assert "aten::linear.out" in page.locator(".detail:visible").first.inner_text()
    assert "weights float32[10, 1024]" in page.locator(".detail:visible").first.inner_text()
    search.fill("no such thing")
    assert "nothing found" in page.locator(".hits:visible").first.inner_text()


def test_results_of_a_search_leave_a_phone_room_for_the_graph(open_page: Any, path: Path) -> None:
    page = open_page(path, 390)
    page.get_by_role("tab", name="Graph").click()
    page.locator("#file").select_option("1")
    page.get_by_label("Search the graph").locator("visible=true").first.fill("conv2d")
    hits = page.locator(".hits:visible").first
    assert hits.locator("li").count() == 13 and hits.bounding_box()["height"] < 60
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_graph_follows_the_keyboard(open_page: Any, path: Path) -> None:
    page = open_page(path)
    page.get_by_role("tab", name="Graph").click()
    page.get_by_role("application").locator("visible=true").first.focus()
    page.keyboard.press("n")
    first = page.locator(".detail:visible").first.inner_text()
    page.keyboard.press("n")
    second = page.locator(".detail:visible").first.inner_text()
    page.keyboard.press("p")
    assert first == page.locator(".detail:visible").first.inner_text() != second
    assert "aten::convolution.out" in first and "aten::relu.out" in second
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.type") == "search"


def test_the_graph_is_drawn_and_modules_open(open_page: Any, path: Path) -> None:
    page = open_page(path)
    page.get_by_role("tab", name="Graph").click()
    page.locator("#file").select_option("1")
    page.wait_for_timeout(200)
    count = "document.querySelector('.file:not([hidden]) .graph').graph.boxes"
    closed = page.evaluate(count)
    page.get_by_label("Open all modules").locator("visible=true").first.click()
    assert page.evaluate(count) > closed and page.evaluate(count) > 600
    painted = """() => { const c = document.querySelector('.file:not([hidden]) canvas'), d = c.getContext('2d')
      .getImageData(0, 0, c.width, c.height).data; return new Set(new Uint32Array(d.buffer)).size; }"""
    page.wait_for_timeout(200)
    assert page.evaluate(painted) > 20


def test_print_shows_all_sections_and_rows(open_page: Any, path: Path) -> None:
    page = open_page(path)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert page.locator("section:visible").count() == len(TABS)
    assert page.locator("nav").is_hidden() and page.locator("details:not([open])").count() == 0
    assert page.locator("td:visible", has_text="aten::linear.out").count() >= 2
    sections = page.locator("section ~ section, .view ~ .view").evaluate_all(
        "all => all.map(s => getComputedStyle(s).breakBefore)"
    )
    assert len(sections) >= len(TABS) and set(sections) == {"page"}
    assert len(page.pdf()) > 20_000


def test_heads_of_tables_are_text_in_print(open_page: Any, path: Path) -> None:
    """Chromium repeats the head of a table on each page, but draws no button in it."""
    page = open_page(path)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    heads = page.locator("#graph th")
    shown = heads.evaluate_all("all => all.map(h => JSON.parse(getComputedStyle(h, '::before').content))")
    assert {"module", "operator", "runs on"} <= set(shown) and shown == heads.locator("button").all_text_contents()
    assert page.locator("th button:visible").count() == 0


def test_print_draws_the_graph_on_white_paper(open_page: Any, path: Path) -> None:
    """Modules and operators with their edges, in pieces that fit a page, also from a dark screen; the screen is as it
    was afterward."""
    page = open_page(path, 1280, "dark")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print", color_scheme="dark")
    sheets = page.locator(".sheet")
    assert sheets.count() == page.locator(".graph").count() == 3
    for at in range(3):
        assert sheets.nth(at).is_visible() and sheets.nth(at).locator("path").first.get_attribute("d")
    key = page.locator(".graph .key").first
    assert key.is_visible() and "cpu" in key.inner_text()  # though nobody opened the tab
    shade = key.locator("span").first.evaluate("s => getComputedStyle(s, '::before').backgroundColor")
    assert [float(part) > 0.6 for part in re.findall(r"0\.\d+", shade)] == [True] * 3  # mixed with white
    shown = sheets.first.inner_html()
    assert "convolution" in shown and "float32[1, 32, 32, 32]" in shown and "relu" in shown
    sizes = page.locator(".sheet svg").evaluate_all("all => all.map(s => [s.clientWidth, s.clientHeight])")
    assert all(0 < width <= 720 and 0 < height <= 1000 for width, height in sizes)
    assert sheets.nth(1).locator("svg").count() > sheets.last.locator("svg").count()  # of 600 operators and of 10
    cut = """all => all.map((svg) => {
      const [, top, , high] = svg.getAttribute('viewBox').split(' ').map(Number);
      return [...svg.querySelectorAll('.box')].some((box) => {
        const y = Number(box.getAttribute('y')), end = y + Number(box.getAttribute('height'));
        return (y < top && end > top) || (y < top + high && end > top + high);
      });
    })"""
    assert not any(page.locator(".sheet svg").evaluate_all(cut))
    text = page.locator(".sheet text").first
    assert text.evaluate("t => getComputedStyle(t).fill") == "rgb(27, 31, 36)"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert sheets.count() == 0


def test_without_scripts_tables_say_everything(open_page: Any, path: Path) -> None:
    page = open_page(path, java_script_enabled=False)
    assert page.locator("section:visible").count() == len(TABS)
    assert page.locator("noscript").count() >= 1 and page.locator(".chart:visible").count() >= 4
    assert page.locator("td", has_text="aten::linear.out").first.is_visible()


def test_hostile_names_do_nothing(open_page: Any, tmp_path: Path) -> None:
    save(hostile(), tmp_path / "h.html")
    page = open_page(tmp_path / "h.html")
    page.on("dialog", lambda dialog: pytest.fail(dialog.message))
    for at in range(len(TABS)):
        page.get_by_role("tab").nth(at).click()
    page.get_by_role("tab", name="Graph").click()
    page.get_by_role("application").locator("visible=true").first.focus()
    page.keyboard.press("n")
    assert "onerror=alert(1)" in page.locator(".detail:visible").first.inner_text()
    assert page.locator("img").count() == 0


@pytest.mark.parametrize("count", [5_000, 100_000])
def test_large_graphs_open_and_pan(open_page: Any, tmp_path: Path, count: int) -> None:
    save(Report("large", [large(count)]), tmp_path / "large.html")
    page = open_page(tmp_path / "large.html")
    page.set_default_timeout(60_000)
    page.get_by_role("tab", name="Graph").click()
    page.get_by_label("Open all modules").locator("visible=true").first.click()
    wait_until(page, "document.querySelector('.graph').graph.boxes > 1000", 60)
    assert page.evaluate("document.querySelector('.graph').graph.sheet().children.length") >= 1
    before = page.evaluate(VERTICAL)
    page.get_by_role("application").locator("visible=true").first.press("ArrowDown")
    wait_until(page, f"{VERTICAL} !== {before}")


def test_a_backend_has_one_color_and_a_single_module_is_open(open_page: Any, tmp_path: Path) -> None:
    """Whatever comes first in a graph, and however many operators there are."""
    other = divided()
    other.graphs[0].nodes.reverse()
    other.graphs[0].nodes = [replace(node, inputs=()) for node in other.graphs[0].nodes]
    save(Report("colors", [divided(), other, large(5_000)]), tmp_path / "colors.html")
    page = open_page(tmp_path / "colors.html")
    page.get_by_role("tab", name="Graph").click()
    colors = """all => all.map((key) => Object.fromEntries(
      [...key.children].map((k) => [k.textContent, k.style.getPropertyValue('--k')])))"""
    first, second, third = page.locator(".graph .key").evaluate_all(colors)
    assert first == second == third and len(set(first.values())) == 2
    page.locator("#file").select_option("2")
    assert page.evaluate("[...document.querySelectorAll('.graph')].pop().graph.boxes") > 30


def test_errors_have_colors_beside_exact_results_and_names_are_found_first(open_page: Any, tmp_path: Path) -> None:
    errors = (20.0, 60.0, 300.0)  # a pooling layer adds none
    nodes = [Node("conv2d", "conv2d", f"conv{i + 1}", "xnnpack", error=error) for i, error in enumerate(errors)]
    save(Report("e", [FileReport("e", graphs=[GraphView("model", "made up", nodes, 3)])]), tmp_path / "e.html")
    page = open_page(tmp_path / "e.html")
    page.get_by_role("tab", name="Graph").click()
    page.get_by_label("Color by").select_option("error")
    assert page.locator(".key").inner_text().split("\n")[0].startswith("60.0 dB")
    page.get_by_label("Search the graph").fill("conv2")
    assert page.locator(".hits button").all_inner_texts() == ["conv2: conv2d", "conv1: conv2d", "conv3: conv2d"]


def divided() -> FileReport:
    """A program in which two norms of one module run on the CPU, each between two delegates."""
    nodes = [
        Node("a", "linear", "xnnpack 0.net.first", "xnnpack"),
        Node("b", "layer_norm", "net.norm1", CPU, (0,)),
        Node("c", "linear", "xnnpack 1.net.second", "xnnpack", (1,)),
        Node("d", "layer_norm", "net.norm2", CPU, (2,)),
        Node("e", "linear", "xnnpack 2.net.third", "xnnpack", (3, 1)),
        Node("f", "linear", "xnnpack 2.net.fourth", "xnnpack", (4,)),
        Node("g", "add", "net.end", CPU, (0, 5)),
    ]
    return FileReport("net", graphs=[GraphView("file", "made up", nodes, len(nodes))])


def test_what_is_read_is_above_what_reads_it(open_page: Any, tmp_path: Path) -> None:
    """Also where the operators of a module run before and after those of another one: each run is a box of its own."""
    save(Report("divided", [divided()]), tmp_path / "divided.html")
    page = open_page(tmp_path / "divided.html")
    page.get_by_role("tab", name="Graph").click()
    for label in ("Close all modules", "Open all modules"):
        page.get_by_label(label).click()
        edges = page.evaluate(
            "document.querySelector('.graph').graph.edges.map(([a, b]) => [a.name, b.name, a.ay + a.h2, b.ay])"
        )
        assert len(edges) == (7 if label == "Close all modules" else 8)
        assert [edge for edge in edges if edge[2] > edge[3]] == []


@pytest.fixture(scope="module")
def sweep_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep of 200 rows with errors, and the full reports of two of them."""
    rows = [
        SweepRow(
            f"net{n % 4}", f"target-{n % 5}", f"p{n}", status="failed" if n % 50 == 49 else "done",
            note="metric: raised\nline 3" if n % 50 == 49 else "", file_bytes=1000 + 37 * (n * 7 % 91), planned=64 * n,
            milliseconds=0.1 + n * 11 % 23, time_basis=("by Vela's estimate", "measured during the sweep")[n % 2],
            score=None if n % 50 == 49 else 20.0 + n * 13 % 31, coverage=n / 200, best=n % 20 == 0,
        )
        for n in range(200)
    ]  # fmt: skip
    one, other = portable(), portable()
    one.name, other.name = "one", "other"
    target = tmp_path_factory.mktemp("sweep") / "sweep.html"
    save(Report("Sweep: results", [one, other], sweep=Sweep(rows)), target)
    return target


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_a_sweep_opens_first_and_fits(open_page: Any, sweep_page: Path, width: int, scheme: str) -> None:
    page = open_page(sweep_page, width, scheme)
    tabs = page.get_by_role("tab")
    assert [t.lower() for t in tabs.all_inner_texts()] == ["sweep", *TABS]
    assert page.locator("section:visible").get_attribute("id") == "sweep"
    assert page.locator("#chooser").is_hidden()  # the sweep is about all files
    charts = page.locator("#sweep .chart:visible")
    assert charts.count() == charts.filter(has=page.locator(".dot.c1")).count() == 8  # each has a frontier
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_sweep_is_sorted_by_score(open_page: Any, sweep_page: Path) -> None:
    page = open_page(sweep_page)
    head = page.locator("#sweep table").last.locator("th", has_text="SQNR")
    head.get_by_role("button").click()
    column = head.evaluate("h => h.cellIndex")
    cells = page.locator("#sweep table").last.locator(f"tbody tr td:nth-child({column + 1})")
    values = [float(v) for v in cells.evaluate_all("all => all.map((c) => c.dataset.v).filter((v) => v)")]
    assert len(values) == 196 and values == sorted(values, reverse=True)


def test_a_sweep_without_scripts(open_page: Any, sweep_page: Path) -> None:
    page = open_page(sweep_page, java_script_enabled=False)
    assert page.locator("#sweep td", has_text="p199").first.is_visible()
    assert page.locator("#sweep", has_text="line 3").count() == 1


def test_a_sweep_alone_has_one_tab(open_page: Any, tmp_path: Path) -> None:
    save(Report("Sweep", sweep=Sweep([SweepRow("m", "xnnpack", "int8", status="missing")])), tmp_path / "s.html")
    page = open_page(tmp_path / "s.html")
    assert page.get_by_role("tab").all_inner_texts() == ["Sweep"]
